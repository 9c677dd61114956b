"""Meaning adds to words: once for every content and model, and only over what is visible."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy
import pytest

from memfiles.index.search import vectors
from memfiles.index.search.scope import RARE
from memfiles.index.search.vectors import Matrices
from memfiles.index.text import fts as texts
from tests.index.entry_rows import Row, Rows
from tests.support.saved import Visitor, entries_in

SUBJECTS = ({"cat", "dog", "pet", "animal"}, {"tea", "coffee", "drink"}, {"car", "train", "travel"})


class SubjectEmbedder:
    """An embedder that knows three subjects, and what it was asked for."""

    def __init__(self, model_id: str = "subjects-1") -> None:
        self.model_id = model_id
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """How many words of each subject are in each text."""
        self.asked += texts
        return [[float(len(subject & set(text.lower().split()))) for subject in SUBJECTS] for text in texts]


class NearEmbedder(SubjectEmbedder):
    """An embedder that finds the texts of no subject near, and knows which words are."""

    def __init__(self, **near: Sequence[str]) -> None:
        super().__init__("near-1")
        self._near = near

    def near_words(self, word: str) -> Sequence[tuple[str, float]]:
        """See ``WordNeighbours``."""
        return [(other, 0.9 - 0.1 * place) for place, other in enumerate(self._near.get(word, ()))]


class NumberedEmbedder:
    """An embedder to which a letter and a number are a direction that depends on the number, and no more."""

    model_id = "numbered-1"

    def embed(self, texts: Sequence[str]) -> Sequence[Any]:
        """The sum of the directions, in 256 numbers."""
        return [sum(self._direction(word[1:]) for word in text.split()) for text in texts]

    def _direction(self, word: str) -> Any:
        return numpy.random.default_rng(crc32(word.encode())).standard_normal(256)


def _many(*more: Row) -> Rows:
    """More entries than a question is compared with by all numbers, in runs of three."""
    rows = Rows()
    numbered = (Row(f"k{n}", f"t{n}", run=f"r{n // 3}", thread="t") for n in range(vectors.ALL_UP_TO + 200))
    rows.save_many([*numbered, *more])
    return rows


def _rows() -> Rows:
    rows = Rows()
    rows.save(Row("pet", "a dog"), Row("breakfast", "coffee with milk"), Row("trip", "by train"), Row("same", "a dog"))
    return rows


def test_an_entry_is_found_by_its_meaning() -> None:
    """Without a word in common with the question, and the hit says so."""
    found = _rows().said("drink", embedder=SubjectEmbedder())

    assert [("breakfast", ("meaning",))] == [(key, legs) for key, _, legs, _ in found]


def test_words_lead() -> None:
    """What has the words of the question stays before what only means the same."""
    rows = _rows()
    rows.save(Row("menu", "a drink"))

    assert ["menu", "breakfast"] == [key for key, *_ in rows.said("drink", embedder=SubjectEmbedder())]


def test_a_content_is_embedded_once_a_model() -> None:
    """Equal contents share a vector, a second search embeds nothing but the question, another model all anew."""
    rows = _rows()
    one, other = SubjectEmbedder(), SubjectEmbedder("subjects-2")
    for embedder in (one, one, other):
        rows.search("drink", embedder=embedder)

    assert sorted(["a dog", "by train", "coffee with milk", "drink", "drink"]) == sorted(one.asked)
    assert 4 == len(other.asked)


def test_vectors_can_be_dropped() -> None:
    """They come back when they are next needed."""
    rows = _rows()
    embedder = SubjectEmbedder()
    first = rows.said("drink", embedder=embedder)
    dropped = rows.connection.execute("DELETE FROM vector").rowcount

    assert (3, first) == (dropped, rows.said("drink", embedder=embedder))


def test_a_scrub_takes_vectors_of_removed_contents_along(tmp_path: Path) -> None:
    """A vector tells about its text, so it goes with it."""
    rows = Rows(str(tmp_path / "index.db"))
    rows.save(Row("a", "a dog"), Row("b", "coffee"))
    vectors.embed_missing(rows.connection, [1], SubjectEmbedder())
    rows.remove("a")
    texts.scrub(rows.connection)

    assert [(1,)] == rows.connection.execute("SELECT count(*) FROM vector").fetchall()


def test_among_many_entries_the_nearest_are_found() -> None:
    """Whatever the first numbers of their vectors have in common with others."""
    near = _many().search("q600 q1201 q1200 q1202", embedder=NumberedEmbedder(), associate=False)

    assert {"k600", "k1200", "k1201", "k1202"} == {hit.source.key for hit in near[:4]}


@pytest.mark.slow
def test_among_many_entries_those_that_a_filter_keeps_are_found() -> None:
    """However many others are nearer: all are compared then."""
    rows = _many()
    kept = [rows.id(f"k{n}") for n in range(0, 300, 5)]
    question = " ".join(f"q{n}" for n in range(300, 900)) + " q0" * 20

    def keep(ids: Sequence[int]) -> Sequence[int]:
        return [id for id in ids if id in kept]

    found = rows.search(question, keep=keep, limit=50, embedder=NumberedEmbedder(), associate=False)

    assert "k0" == found[0].source.key
    assert len(found) > 10


@pytest.mark.slow
def test_among_many_entries_those_that_do_not_count_change_no_meaning() -> None:
    """Neither what is nearest nor how near it is, though they stand between others of a run."""
    shadowed = [Row(f"s{n}", f"t{600 + n}", run=f"r{n}", thread="t") for n in range(40)]
    alone, among = _many(), _many(*shadowed)
    hidden = frozenset(among.id(row.key) for row in shadowed)

    def said(rows: Rows, question: str, **options: object) -> list[tuple[str, float]]:
        return [
            (key, round(score, 5)) for key, score, *_ in rows.said(question, embedder=NumberedEmbedder(), **options)
        ]

    for question in ("q601", "q1 q2 q3 q4", "q17 q630 q2000"):
        assert said(alone, question) == said(among, question, shadowed=hidden)


def test_hidden_entries_change_no_meaning() -> None:
    """Entries of other partitions shift no score."""
    alone, among = _rows(), _rows()
    among.save(*(Row(f"h{n}", "drink tea and coffee", part=2) for n in range(100)))

    assert alone.said("drink", embedder=SubjectEmbedder()) == among.said("drink", embedder=SubjectEmbedder())


def test_what_was_searched_before_changes_no_bit_of_a_score() -> None:
    """A search by another user reads vectors earlier: they are in another order then, and as near as before."""
    early, late, kept, embedder = Rows(), Rows(), Matrices(), NumberedEmbedder()
    rows = [Row(f"k{n}", f"t{n} t{n % 7}", run=f"r{n // 3}", thread="t") for n in range(30)]
    for portion in (rows[:11], rows[11:12], rows[12:]):
        early.save_many(portion)
        early.search("q3", embedder=embedder, matrices=kept)
    late.save_many(rows)

    for question in ("q2 q9", "q5 q1 q20", "q0"):
        assert late.said(question, embedder=embedder) == early.said(question, embedder=embedder, matrices=kept)


def test_the_matrix_follows_every_change() -> None:
    """Whatever is saved or removed: a search finds what it finds with all vectors read anew."""
    dice, rows, kept, embedder = random.Random(3), Rows(), Matrices(), SubjectEmbedder()
    words = sorted(set.union(*SUBJECTS))
    there: list[str] = []
    for turn in range(150):
        for _ in range(dice.choice((0, 1, 4))):
            if there and dice.random() < 0.5:
                rows.remove(there.pop(dice.randrange(len(there))))
            else:
                there.append(f"k{turn}-{len(there)}-{dice.random()}")
                rows.save(Row(there[-1], " ".join(dice.choices(words, k=4)), run=dice.choice("rs"), thread="t"))
        asked = dice.choice(words)

        assert rows.said(asked, embedder=embedder, matrices=kept) == rows.said(asked, embedder=embedder)
        assert len(kept) == len(there)


def test_a_change_rereads_no_other_vector() -> None:
    """Of a removal none is read, of a save its own: all at 20,000 entries took longer than the search."""
    rows, kept, embedder = _rows(), Matrices(), SubjectEmbedder()
    rows.search("drink", embedder=embedder, matrices=kept)
    rows.remove("same")
    rows.save(Row("new", "a car"))
    vectors.embed_missing(rows.connection, [1], embedder, kept)
    rows.connection.execute("UPDATE vector SET data = x'00' WHERE digest NOT IN (SELECT digest FROM text WHERE id = 5)")
    found = rows.keys("car", associate=False)
    rows.search("drink", embedder=embedder, matrices=kept)

    assert (["new"], 4) == (found, len(kept))


def test_a_forget_takes_the_vector_out_of_memory(tmp_path: Path) -> None:
    """At once: the next search by meaning may be far away."""
    with entries_in(tmp_path, embedder=SubjectEmbedder()) as entries:
        for key, content in (("pet", "a dog"), ("breakfast", "coffee"), ("trip", "by train")):
            entries.save(Visitor(), key, content)
        entries.search(Visitor(), "drink")
        before = len(entries.parts.meaning.matrices)
        entries.forget(Visitor(), key="breakfast", why="asked to")

        assert (3, 2) == (before, len(entries.parts.meaning.matrices))


def test_what_another_process_forgets_leaves_memory_with_the_next_search(tmp_path: Path) -> None:
    """Not before: nobody tells a process that does not watch."""
    with entries_in(tmp_path, embedder=SubjectEmbedder()) as entries, entries_in(tmp_path) as others:
        for key, content in (("pet", "a dog"), ("breakfast", "coffee")):
            entries.save(Visitor(), key, content)
        entries.search(Visitor(), "drink")
        others.forget(Visitor(), key="breakfast", why="asked to")
        before = len(entries.parts.meaning.matrices)
        entries.search(Visitor(), "pet")

        assert (2, 1) == (before, len(entries.parts.meaning.matrices))


def test_a_rare_word_finds_what_is_near_in_meaning() -> None:
    """The hit says by which leg; a word that several entries hold needs no others."""
    rows, embedder = Rows(), NearEmbedder(kitten=["puppy", "feline"], sofa=["couch"])
    rows.save(Row("couch", "our old couch"), Row("feline", "a feline moved in"))
    rows.save(*(Row(f"sofa {n}", "a sofa") for n in range(RARE + 1)))

    assert [("feline", ("meaning",))] == [(key, legs) for key, _, legs, _ in rows.said("kitten", embedder=embedder)]
    assert "couch" not in [key for key, *_ in rows.said("sofa", embedder=embedder)]


def test_the_word_itself_counts_more_than_one_near_it() -> None:
    """Also if more entries hold the other one, and neither is a name because it is near one."""
    rows, embedder = Rows(), NearEmbedder(kitten=["cub"])
    rows.save(
        Row("near", "a cub, a cub"), Row("named", "Cub: well"), Row("itself", "one kitten, and much else to tell of")
    )

    assert ["itself", "near", "named"] == [key for key, *_ in rows.said("kitten", embedder=embedder)]


def test_no_hidden_word_is_near() -> None:
    """What only hidden entries hold takes no place of a word that others hold, and makes no word common."""
    near = NearEmbedder(kitten=["cub", "pup", "foal", "calf", "lamb"], calf=["lamb"])
    visible = [Row("lamb", "a lamb"), Row("calf", "one calf"), Row("other", "else"), Row("far", "a foal", part=2)]
    alone, among = Rows(), Rows()
    alone.save(*visible)
    among.save(*visible, *(Row(f"h{n}", "kitten cub pup calf", part=3) for n in range(300)))

    for query in ("kitten", "calf"):
        said = alone.said(query, parts=[1, 2], embedder=near)
        assert len(said) > 1
        assert said == among.said(query, parts=[1, 2], embedder=near)
