"""Meaning adds to words: once for every content and model, and only over what is visible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memfiles.index.search import vectors
from memfiles.index.text import fts as texts
from tests.index.entry_rows import Row, Rows

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
    vectors.fill(rows.connection, [1], SubjectEmbedder())
    rows.remove("a")
    texts.scrub(rows.connection)

    assert [(1,)] == rows.connection.execute("SELECT count(*) FROM vector").fetchall()


def test_hidden_entries_change_no_meaning() -> None:
    """Entries of other partitions shift no score."""
    alone, among = _rows(), _rows()
    among.save(*(Row(f"h{n}", "drink tea and coffee", part=2) for n in range(100)))

    assert alone.said("drink", embedder=SubjectEmbedder()) == among.said("drink", embedder=SubjectEmbedder())
