"""A hit lends to what is tied to it, and to nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memfiles.index.search.association import of_runs
from tests.benchmarks.article import ARTICLE, paragraph_questions
from tests.index.entry_rows import Row, Rows

MUSEUM = [
    Row("before-2", "Good morning!", run="r", thread="t"),
    Row("before-1", "How was the weekend?", run="r", thread="t"),
    Row("asked", "Which museum did you like best?", run="r", thread="t"),
    Row("told", "The one by the river.", run="r", thread="t"),
    Row("after-2", "I must go there.", run="r", thread="t"),
    Row("after-3", "Shall we eat?", run="r", thread="t"),
    Row("elsewhere", "Another thread.", run="r", thread="u"),
    Row("other-run", "Another run.", run="s", thread="t"),
    Row("alone", "Saved without a run."),
]


def _rows(*rows: Row) -> Rows:
    made = Rows()
    made.save(*rows)
    return made


def test_neighbours_of_the_same_run_and_thread_are_found() -> None:
    """Two on either side come after the hit itself; other threads, other runs and farther ones do not."""
    keys = _rows(*MUSEUM).keys("museum", associate=True)

    assert ("asked", {"asked", "told", "before-1", "before-2", "after-2"}) == (keys[0], set(keys))


def test_neighbours_in_several_partitions_are_those_of_one() -> None:
    """Who sees two partitions is lent the same by the same neighbours as if all of them lay in one."""
    spread = [replace(row, part=1 + place % 2) for place, row in enumerate(MUSEUM)]

    assert _rows(*MUSEUM).said("museum") == _rows(*spread).said("museum", parts=(1, 2))


def test_association_can_be_switched_off() -> None:
    """Then only what answers by itself is found."""

    assert ["asked"] == _rows(*MUSEUM).keys("museum")


def test_the_answer_is_lent_most() -> None:
    """What was said right after a question is more likely to answer it than what was said before."""

    assert "told" == _rows(*MUSEUM).keys("museum", associate=True)[1]


def test_nothing_is_lent_to_what_does_not_count() -> None:
    """An entry that is refused, or in a partition that was not given, gains nothing and is not shown."""
    hidden = Row("hidden", "The hidden one.", part=2, run="r", thread="t")
    rows = _rows(*MUSEUM[:3], hidden, *MUSEUM[3:])
    refused = rows.id("told")
    found = rows.search("museum", keep=lambda ids: set(ids) - {refused})

    assert set() == {rows.key(hit.id) for hit in found} & {"told", "hidden"}


def test_what_is_hidden_between_neighbours_does_not_part_them() -> None:
    """With a thousand hidden entries between a question and its answer, both are still neighbours."""
    hidden = [Row(f"h{n}", "museum", part=2, run="r", thread="t") for n in range(1_000)]

    assert _rows(*MUSEUM).said("museum") == _rows(*MUSEUM[:3], *hidden, *MUSEUM[3:]).said("museum")


def test_links_are_followed_one_step() -> None:
    """An entry that a hit names is found, the one that this names is not."""
    rows = _rows(Row("a", "museum", links=("b",)), Row("b", "opening hours", links=("c",)), Row("c", "tickets"))

    assert ["a", "b"] == rows.keys("museum", associate=True)


def test_a_tag_that_few_share_ties_entries() -> None:
    """A shared tag ties two entries; one that thirty share ties none of them."""
    rows = _rows(Row("a", "museum", tags=("paris", "todo")), Row("b", "river", tags=("paris",)))
    rows.save(*(Row(f"n{n}", "noise", tags=("todo",)) for n in range(30)))

    assert ["a", "b"] == rows.keys("museum", associate=True)


def test_the_paragraph_that_answers_best_stays_first() -> None:
    """Whatever the paragraphs around it lend to each other, and it is the right one as often as by words alone."""
    rows = _rows(*(Row(f"p{number}", text, run="r", thread="t") for number, (text, _) in enumerate(ARTICLE)))
    asked = list(paragraph_questions())
    found = [(key, *(rows.keys(each, associate=tied)[0] for tied in (False, True))) for key, each in asked]

    assert [] == [each for each in found if each[1] != each[2]]
    assert 0.9 * len(found) <= sum(key == first for key, _, first in found)


def test_what_is_lent_is_at_most_nine_tenths_of_the_best_lender() -> None:
    """However many lend, and what the entry has by itself counts."""
    words = "museum river paris ticket boat".split()
    lenders = [Row(f"l{n}", " ".join(words[: n + 2]), tags=("t",), links=("mid", "part")) for n in range(4)]
    rows = _rows(*lenders, Row("mid", "nothing", tags=("t",)), Row("part", words[0], tags=("t",)))
    by_words = dict(each[:2] for each in rows.said(" ".join(words), associate=False))
    lent = {key: score - by_words.get(key, 0.0) for key, score, *_ in rows.said(" ".join(words))}
    best = max(by_words.values())

    assert 0.9 * best == pytest.approx(lent["mid"])
    assert 0.9 * (best - by_words["part"]) == pytest.approx(lent["part"])
    assert 0.0 == pytest.approx(lent[max(by_words, key=by_words.__getitem__)])


def test_the_answer_may_pass_the_question() -> None:
    """What answers a question that was asked in the memory gains most, also more than the question has."""
    rows = _rows(
        Row("asked", "Which museum did you like?", run="r", thread="t"),
        Row("told", "The museum by the river, I liked it.", run="r", thread="t"),
        *(Row(f"n{n}", f"noise number {n}", run="s") for n in range(20)),
    )

    assert ["told", "asked"] == rows.keys("which museum did you like", associate=True)[:2]


def test_a_run_with_several_matches_raises_all_of_them() -> None:
    """The same text is worth more among others that match than alone."""
    rows = _rows(
        *(Row(f"r{n}", f"the museum, part {n}", run="r", thread="t") for n in range(3)),
        *(Row(f"n{n}", f"noise {n}", run=f"s{n}") for n in range(20)),
        Row("alone", "the museum, part 4", run="q", thread="t"),
    )

    assert {"r0", "r1", "r2"} == set(rows.keys("museum", associate=True)[:3])


def test_a_run_that_holds_most_matches_tells_nothing() -> None:
    """The bonus of a run falls with the number of its matches, as a run of everything has no subject."""
    lengths = dict.fromkeys(range(500), 5)
    bonus = [
        of_runs(dict.fromkeys(range(size), 1.0), dict.fromkeys(range(size), ("r", "t")), lengths)[("r", "t")]
        for size in (2, 10, 200, 400)
    ]

    assert bonus[0] < bonus[1] > bonus[2] > bonus[3]
