"""Mirrors that wrap another: one keeps to a folder, one opens its store at the first use, one counts the objects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from memfiles.errors import InvalidArgument, MirrorUnavailable
from memfiles.sync.mirror import Mirror, shortcomings_of
from mirrors import CountingMirror, LazyMirror, MemoryMirror, PrefixedMirror


def test_the_objects_lie_below_the_prefix() -> None:
    """What is put through it is in the whole mirror, under its full key."""
    whole = MemoryMirror()
    version = PrefixedMirror(whole, "team/desk").put("entries/a.json", b"1")

    assert [("team/desk/entries/a.json", version)] == list(whole.list())


@pytest.mark.parametrize("prefix", ["", "/a", "a/", "..", "a//b"])
def test_a_prefix_is_a_key(prefix: str) -> None:
    """No slash at either end, nothing that leads elsewhere."""
    with pytest.raises(InvalidArgument):
        PrefixedMirror(MemoryMirror(), prefix)


def test_prefix_and_key_share_the_limit() -> None:
    """What is too long together is refused, not cut."""
    with pytest.raises(InvalidArgument, match="at most 1024"):
        PrefixedMirror(MemoryMirror(), "p" * 600).put("k" * 600, b"1")


def test_what_is_no_key_without_the_prefix_is_not_listed() -> None:
    """A store's own folder looks like anyone's from above."""
    whole = MemoryMirror()
    for key in ("desk/.state/locks/1", "desk/a.json"):
        whole.put(key, b"1")

    assert ["a.json"] == [key for key, _ in PrefixedMirror(whole, "desk").list()]


def test_shortcomings_are_found_out_below_the_prefix() -> None:
    """Who may write only there learns it too; a mirror that cannot tell has none."""

    class Weak(MemoryMirror):
        def shortcomings(self, key: str) -> tuple[str, ...]:
            return (f"forgetful at {key}",)

    wrapped = LazyMirror(lambda: PrefixedMirror(Weak(), "desk"))

    assert ("forgetful at desk/a.json",) == shortcomings_of(wrapped, "a.json")
    assert () == shortcomings_of(MemoryMirror(), "a.json") == shortcomings_of(PrefixedMirror(MemoryMirror(), "p"), "a")


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


def test_it_tells_how_far_it_is() -> None:
    """After each object, how many there are and how many there will be; other calls tell nothing."""
    told: list[tuple[int, int]] = []
    inner = MemoryMirror()
    mirror = CountingMirror(inner, lambda done, total: told.append((done, total)))
    version = mirror.put("a.json", b"1")
    before = (mirror.get("a.json"), list(mirror.list()), list(told))

    answers = dict(mirror.get_many(["a.json", "b.json"]))
    mirror.delete("a.json")

    assert (inner.get("a.json"), [("a.json", version)], []) == (None, before[1], before[2])
    assert {"a.json": before[0], "b.json": None} == answers
    assert [(1, 2), (2, 2)] == told
