"""The words of the mirror's contract: which keys it takes, and when a condition holds."""

from __future__ import annotations

import pytest

from memfiles.errors import InvalidArgument
from memfiles.mirror import ABSENT, ANY, Condition, check_key, equals


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


@pytest.mark.parametrize(
    ("condition", "of_absent", "of_v1"),
    [(ANY, True, True), (ABSENT, True, False), (equals("v1"), False, True), (equals("v2"), False, False)],
)
def test_when_a_condition_holds(condition: Condition, of_absent: bool, of_v1: bool) -> None:
    """``ANY`` always, ``ABSENT`` without a version, ``equals`` at exactly that version."""

    assert (of_absent, of_v1) == (condition.holds(None), condition.holds("v1"))
