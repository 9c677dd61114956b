"""PrefixedMirror keeps to its folder."""

from __future__ import annotations

import pytest

from memfiles.errors import InvalidArgument
from memfiles.sync.mirror import shortcomings_of
from mirrors import LazyMirror, MemoryMirror, PrefixedMirror


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
