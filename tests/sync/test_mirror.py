"""The words of the mirror's contract: which keys it takes, and when a condition holds."""

from __future__ import annotations

import pytest

from memfiles.errors import InvalidArgument, MirrorConflict
from memfiles.sync.mirror import (
    ABSENT,
    ANY,
    BODY_MAX_BYTES,
    Condition,
    check_body,
    check_key,
    check_prefix,
    equals,
    is_key,
)


@pytest.mark.parametrize("key", ["a.json", "entries/@workspace/a.json", "Ünïcode 1.json", "x" * 1024, "a.b", "..a"])
def test_relative_paths_are_keys(key: str) -> None:
    """A record's path relative to the memory directory can be used as it is."""

    assert key == check_key(key)


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "a\nb", "a\0", "a\u2028b", "\ud800"],
)
def test_what_a_reader_of_the_bucket_could_take_for_another_path_is_refused(key: str) -> None:
    """Such a key never reaches the store."""
    with pytest.raises(InvalidArgument, match="mirror key"):
        check_key(key)


def test_the_length_of_a_key_is_counted_in_bytes() -> None:
    """The limit is 1,024 bytes of UTF-8, as in S3."""
    with pytest.raises(InvalidArgument, match="is 1026 bytes; at most 1024"):
        check_key("é" * 513)


@pytest.mark.parametrize("key", [".state/locks/017.lock", ".a.json.tmp", "entries/support/.a.json.tmp"])
def test_what_stores_keep_for_themselves_is_refused(key: str) -> None:
    """Locks and staged files lie beside the objects, and are none."""
    with pytest.raises(InvalidArgument, match="reserved for the locks and temp files"):
        check_key(key)

    assert not is_key(key)
    assert is_key(key.replace(".", "", 1))


@pytest.mark.parametrize("prefix", ["", "a", "entries/", "entries/support/e", ".state", "."])
def test_what_a_key_may_begin_with_is_a_prefix(prefix: str) -> None:
    """It may end anywhere, also within a segment."""

    assert prefix == check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["/", "../", "a//", "a\\", "a\n", "\ud800"])
def test_what_no_key_begins_with_is_no_prefix(prefix: str) -> None:
    """Nothing could be listed under it."""
    with pytest.raises(InvalidArgument):
        check_prefix(prefix)


def test_the_size_of_a_body_is_bounded() -> None:
    """By what a record may have on disk."""

    assert b"" == check_body("a.json", b"")
    with pytest.raises(InvalidArgument, match=f"a.json has {BODY_MAX_BYTES + 1} bytes"):
        check_body("a.json", bytes(BODY_MAX_BYTES + 1))


def test_a_condition_that_does_not_hold_is_a_conflict() -> None:
    """The message names the key and what it is at."""
    equals("v1").check("a.json", "v1")

    with pytest.raises(MirrorConflict, match="a.json is at version v2 in the mirror"):
        equals("v1").check("a.json", "v2")
    with pytest.raises(MirrorConflict, match="a.json is at version none"):
        equals("v1").check("a.json", None)


@pytest.mark.parametrize(
    ("condition", "of_absent", "of_v1"),
    [(ANY, True, True), (ABSENT, True, False), (equals("v1"), False, True), (equals("v2"), False, False)],
)
def test_when_a_condition_holds(condition: Condition, of_absent: bool, of_v1: bool) -> None:
    """``ANY`` always, ``ABSENT`` without a version, ``equals`` at exactly that version."""

    assert (of_absent, of_v1) == (condition.holds(None), condition.holds("v1"))
