"""A hit lends to what is tied to it, and to nothing else."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from math import fsum

import pytest

from memfiles.index.database import create_tables
from memfiles.index.rows import Row as WholeRow
from memfiles.index.rows import RowWriter
from memfiles.index.search import association
from memfiles.index.search.association import Near, RunOrders, Ties, lent_scores, run_bonuses
from memfiles.index.search.weights import WEIGHTS, Weights
from memfiles.index.text import fts
from memfiles.records.entry import Provenance
from memfiles.storage.atomic import Signature
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
    lengths, run = dict.fromkeys(range(500), 5), ("r", "t")
    bonus = [
        run_bonuses(dict.fromkeys(range(size), 1.0), dict.fromkeys(range(size), run), lengths, weights=WEIGHTS)[run]
        for size in (2, 10, 200, 400)
    ]

    assert bonus[0] < bonus[1] > bonus[2] > bonus[3]


def test_who_wants_fewer_hits_gets_the_first_of_them() -> None:
    """With the same scores: what cannot be among the first is left out early, and nothing else is."""
    dice = random.Random(7)
    words = "museum river paris ticket boat bridge market tower garden train when many".split()
    for _ in range(20):
        rows = _rows(
            *(
                Row(
                    f"k{n}",
                    " ".join(dice.choices(words, k=dice.randint(1, 9))) + dice.choice("?..."),
                    run=dice.choice("rst"),
                )
                for n in range(120)
            )
        )
        for asked in (" ".join(dice.sample(words, 2)), "when did many see the museum"):
            every = rows.said(asked, limit=50)

            assert every[:3] == rows.said(asked, limit=3)
            assert every[:10] == rows.said(asked, limit=10)


def _plainly_lent(
    scores: dict[int, float], tied: Ties, asking: set[int], weights: Weights = WEIGHTS
) -> dict[int, float]:
    """What ``lent_scores`` must find, one entry after the other and nothing left out."""
    found = {}
    for target in range(60):
        loans, best, asked = [], 0.0, 0.0
        for lender, other, share in tied.others:
            if target == other != lender:
                loans.append(scores[lender] * share)
                best = max(best, scores[lender])
        for lender, (after, before, _) in tied.near.items():
            sides = (after, weights.after), (before if lender in tied.leading else (), weights.before)
            for ids, shares in sides:
                for place, id in enumerate(ids):
                    if id != target:
                        continue
                    if lender in asking and ids is after and place == 0:
                        asked = max(asked, scores[lender])
                    else:
                        loans.append(scores[lender] * shares[place])
                        best = max(best, scores[lender])
        gain = weights.answer * asked
        gain += min(fsum(loans), weights.most * max(0.0, best - scores.get(target, 0.0) - gain))
        if gain:
            found[target] = min(gain, weights.most * max(asked, best))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_loans_are_those_that_are_added_up_one_by_one(seed: int) -> None:
    """Of all hits, and of every other entry that can reach what is enough."""
    dice = random.Random(seed)
    scores = {id: dice.choice((0.5, 1.0, dice.random() * 3)) for id in dice.sample(range(60), 25)}
    best = sorted(scores, key=lambda id: -scores[id])
    near = {
        id: Near(
            [n for n in (id + 1, id + 2) if n % 12 > id % 12], [n for n in (id - 1, id - 2) if n >= id // 12 * 12], run
        )
        for id in best
        if (run := (f"run {id // 12}", "t")) != ("run 0", "t")
    }
    others = [(dice.choice(best[:5]), dice.randrange(60), dice.choice((0.2, 0.4))) for _ in range(dice.choice((0, 8)))]
    tied = Ties(near, others, leading=frozenset(best[:10]))
    bonus = {("run 1", "t"): 0.4, ("run 3", "t"): 0.1}
    asking = set(dice.sample(best, 6))
    enough = dice.choice((0.0, 0.6, 1.5))

    expected = _plainly_lent(scores, tied, asking)
    found = lent_scores(scores, tied, asking=asking, bonus=bonus, enough=enough)
    left_out = expected.keys() - found.keys()

    assert {id: expected[id] for id in found} == found
    assert [] == [id for id in left_out if id in scores or expected[id] >= enough]


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        create_tables(connection)
        yield connection


def _put(connection: sqlite3.Connection, number: int, *, run: str, at: int, level: str = "INTERNAL") -> None:
    """Save an entry with that number as its key and content, or save it again."""
    path, key = f"entries/support/{level}-{number}.json", f"k{number}"
    provenance = Provenance(run=run or None, thread=f"{run}-1", ordinal=at)
    row = WholeRow(path, "support", level, key=key, provenance=provenance, state="live", digest="d", content=key)
    writer = RowWriter(connection)
    writer.put(row._replace(signature=Signature(random.getrandbits(40), 1, 1)))
    writer.finish()


def _remove(connection: sqlite3.Connection, number: int, *, level: str) -> None:
    writer = RowWriter(connection)
    writer.remove(f"entries/support/{level}-{number}.json")
    writer.finish()


@pytest.mark.parametrize("levels", [("INTERNAL",), ("INTERNAL", "PUBLIC")])
@pytest.mark.parametrize("moments", [10_000, 12])
def test_neighbours_are_remembered_as_they_are(
    levels: tuple[str, ...], moments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is saved, saved again in another run, or removed: they are those that are looked up."""
    monkeypatch.setattr(association, "READ_AT_ONCE", 2)
    dice = random.Random(moments)
    with _database() as connection:
        orders = RunOrders()
        for turn in range(300):
            for _ in range(dice.choice((0, 0, 1, 3))):
                number, level = dice.randrange(40), dice.choice(levels)
                if dice.random() < 0.3:
                    _remove(connection, number, level=level)
                else:
                    _put(
                        connection,
                        number,
                        run=dice.choice(("", "r", "s", f"t{turn}")),
                        at=dice.randrange(moments),
                        level=level,
                    )
            ids = [id for (id,) in connection.execute("SELECT id FROM text")]
            texts = fts.open_texts(
                connection, [part for (part,) in connection.execute("SELECT id FROM part ORDER BY id")]
            )
            but = dice.sample(ids, len(ids) // 8) if dice.random() < 0.5 else []
            asked = dice.sample(ids, len(ids) // 2)

            told = association.neighbours(connection, [each.part for each in texts], asked, but=but)
            assert told == orders.neighbours(connection, texts, asked, but=but), turn


def test_neighbours_are_looked_up_a_few_times_only() -> None:
    """And again where something changed, until it is worth to read the order of all once more."""
    with _database() as connection:
        for number in range(100):
            _put(connection, number, run="rs"[number % 2], at=number)
        looked: list[str] = []
        connection.set_trace_callback(
            lambda statement: looked.append(statement) if "group_concat" in statement else None
        )
        orders, ids = RunOrders(), [id for (id,) in connection.execute("SELECT id FROM text")]
        counts = []
        for turn in range(8):
            if turn == 3:
                _put(connection, 100, run="r", at=100)
            looked.clear()
            orders.neighbours(connection, fts.open_texts(connection, [1]), ids[:2], but=())
            counts.append(len(looked))

    assert [1, 1, 0, 1, 1, 1, 1, 0] == counts
