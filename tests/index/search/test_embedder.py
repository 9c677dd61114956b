"""Whatever an embedder does, entries are saved and found; a search reports whether meaning took part."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

from memfiles.entries.drafts import Draft
from memfiles.index.search.embedder import GuardedEmbedder, ModelUnavailable
from tests.support.saved import Visitor, entries_in

NAN, INFINITE = float("nan"), float("inf")
Gives = Callable[[Sequence[str]], Any]


class OddEmbedder:
    """A named fake: gives what it is told to give."""

    def __init__(self, gives: Gives, model_id: Any = "odd-1") -> None:
        self._gives = gives
        self.model_id = model_id

    def embed(self, texts: Sequence[str]) -> Any:
        """See ``Embedder``."""
        return self._gives(texts)


def _the_same(vector: list[float], texts: Sequence[str]) -> Any:
    return [vector] * len(texts)


def raises(texts: Sequence[str]) -> Any:
    raise RuntimeError("out of memory")


def ends(texts: Sequence[str]) -> Any:
    raise SystemExit(3)


def fails_for_questions(texts: Sequence[str]) -> Any:
    return raises(texts) if len(texts) == 1 else [[1.0, 2.0]] * len(texts)


ODD: dict[str, Gives] = {
    "raises": raises,
    "ends": ends,
    "fails for questions": fails_for_questions,
    "nothing": lambda texts: None,
    "not finite": lambda texts: [[NAN, 1.0]] * len(texts),
    "without end": lambda texts: [[INFINITE, 1.0]] * len(texts),
    "too few": lambda texts: [[1.0, 2.0]] * (len(texts) - 1),
    "too many": lambda texts: [[1.0, 2.0]] * (len(texts) + 1),
    "text": lambda texts: ["vector"] * len(texts),
    "of several lengths": lambda texts: [[1.0] * (1 + place) for place, _ in enumerate(texts)] + [[]],
    "in three dimensions": lambda texts: numpy.ones((len(texts), 2, 2)),
    "numbers alone": lambda texts: [1.0] * len(texts),
    "empty": lambda texts: [[]] * len(texts),
}


@pytest.mark.parametrize("gives", ODD)
def test_what_an_embedder_gives_fails_nothing(tmp_path: Path, gives: str, caplog: pytest.LogCaptureFixture) -> None:
    """A search goes by words, says so, and the reason stands in the log, once."""
    with entries_in(tmp_path, embedder=OddEmbedder(ODD[gives])) as entries:
        entries.save_many(Visitor(), [Draft(f"color/{number}", f"a color, {number}") for number in range(5)])
        with caplog.at_level(logging.WARNING):
            first = entries.search(Visitor(), "color")
        entries.save(Visitor(), "shape", "a circle")
        second = entries.search(Visitor(), "circle")

    assert (5, False, "shape", False) == (
        len(first.matches),
        first.meaning,
        second.matches[0].found.key,
        second.meaning,
    )
    assert 1 == caplog.text.count("search uses words alone")


@pytest.mark.parametrize("name", [None, 7, "", "a\nb"])
def test_a_model_without_a_name_is_not_asked(tmp_path: Path, name: Any) -> None:
    """Its vectors could be taken for another one's."""
    with entries_in(tmp_path, embedder=OddEmbedder(lambda texts: [[1.0]] * len(texts), name)) as entries:
        entries.save(Visitor(), "color", "blue")

        assert (1, False) == ((found := entries.search(Visitor(), "blue")).matches.__len__(), found.meaning)


def test_another_length_under_the_same_name_is_another_model(tmp_path: Path) -> None:
    """Old vectors are compared with nothing that they cannot be compared with."""
    for length in (2, 3, 4):
        vector = [1.0] * length
        with entries_in(tmp_path, embedder=OddEmbedder(partial(_the_same, vector))) as entries:
            entries.save(Visitor(), f"color/{length}", f"blue {length}")

            assert entries.search(Visitor(), "blue").meaning


def test_vectors_of_any_size_count_by_their_direction(tmp_path: Path) -> None:
    """Also where their length is more than a small float can hold."""

    def gives(texts: Sequence[str]) -> Any:
        return [[1e300, 0.0] if "tea" in text or "drink" in text else [0.0, 1e300] for text in texts]

    with entries_in(tmp_path, embedder=OddEmbedder(gives)) as entries:
        entries.save_many(Visitor(), [Draft("a", "tea"), Draft("b", "train"), Draft("c", "road")])

        assert ["a"] == [match.found.key for match in entries.search(Visitor(), "drink").matches]


def test_one_that_hangs_is_left_behind() -> None:
    """It is not asked again as long as it hangs, nor soon after."""
    going_on, begun, asked = threading.Event(), threading.Event(), []

    def hangs(texts: Sequence[str]) -> Any:
        asked.append(texts)
        begun.set()
        going_on.wait(60)
        return [[1.0]] * len(texts)

    careful = GuardedEmbedder(OddEmbedder(hangs), seconds=0.01, rest_seconds=0.0)
    for _ in range(3):
        with pytest.raises(ModelUnavailable):
            careful.embed(["tea"])
    assert begun.wait(60)
    assert 1 == len(asked)
    going_on.set()


def test_several_threads_ask_at_once() -> None:
    """Nobody's search goes by words because somebody else's is under way."""
    both = threading.Barrier(2, timeout=60)

    def gives(texts: Sequence[str]) -> Any:
        both.wait()
        return [[1.0]] * len(texts)

    careful, found = GuardedEmbedder(OddEmbedder(gives)), []
    threads = [threading.Thread(target=lambda: found.append(careful.embed(["tea"]).shape)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [(1, 1), (1, 1)] == found


def test_nobody_waits_for_the_embedder_but_the_search(tmp_path: Path) -> None:
    """While it thinks, others save and search: it is asked without the index."""
    thinking, going_on = threading.Event(), threading.Event()

    def slow(texts: Sequence[str]) -> Any:
        thinking.set()
        going_on.wait(60)
        return [[1.0]] * len(texts)

    with entries_in(tmp_path, embedder=OddEmbedder(slow)) as entries, entries_in(tmp_path) as others:
        entries.save(Visitor(), "color", "blue")
        found: list[bool] = []
        search = threading.Thread(target=lambda: found.append(entries.search(Visitor(), "blue").meaning))
        search.start()
        assert thinking.wait(60)
        others.save(Visitor(), "shape", "circle")
        entries.save(Visitor(), "size", "large")

        assert "shape" == others.search(Visitor(), "circle").matches[0].found.key
        going_on.set()
        search.join()
        assert [True] == found
