"""LazyMirror opens its inner mirror by its first use, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import Mirror
from mirrors import LazyMirror, MemoryMirror


def test_nothing_is_opened_before_the_first_call() -> None:
    """And then once, whichever threads ask."""
    opened: list[Mirror] = []

    def open_inner() -> Mirror:
        opened.append(MemoryMirror())
        return opened[-1]

    mirror = LazyMirror(open_inner)
    before = len(opened)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: mirror.put(f"{number}.json", b"1"), range(40)))

    assert (0, 1) == (before, len(opened))
    assert 40 == len(list(mirror.list()))


def test_a_failure_to_open_is_that_calls() -> None:
    """The next call tries again."""
    failures = [MirrorUnavailable("no network yet")]

    def open_inner() -> Mirror:
        if failures:
            raise failures.pop()
        return MemoryMirror()

    mirror = LazyMirror(open_inner)
    with pytest.raises(MirrorUnavailable):
        mirror.get("a.json")

    assert mirror.get("a.json") is None


def test_a_failure_to_open_is_the_answer_of_each_of_many() -> None:
    """Asked for many, it raises nothing."""
    error = MirrorUnavailable("no network yet")

    def open_inner() -> Mirror:
        raise error

    assert [("a.json", error), ("b.json", error)] == list(LazyMirror(open_inner).get_many(["a.json", "b.json"]))
