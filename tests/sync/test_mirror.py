"""The words of the mirror's contract: which keys it takes, when a condition holds, and how many objects are read.

Each key is answered once, and nobody waits for what is not wanted any more.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from memfiles.errors import InvalidArgument, MirrorConflict, MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import (
    ABSENT,
    ANY,
    BODY_MAX_BYTES,
    Answer,
    BulkMirror,
    Condition,
    Stored,
    check_body,
    check_key,
    check_prefix,
    equals,
    get_many,
    in_parallel,
    is_key,
)
from mirrors import FaultyMirror, HttpMirror, LazyMirror, MemoryMirror, PrefixedMirror, S3Mirror
from tests.support.records import no_thread_starts, wait_until


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


KEYS = [f"{number}.json" for number in range(50)]


class PowerfulMirror(MemoryMirror):
    """A mirror in memory that gets many in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ...]] = []

    def get(self, key: str) -> Stored | None:
        raise AssertionError("this one has more power than that")

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        self.asked.append(tuple(keys))
        return ((key, super(PowerfulMirror, self).get(key)) for key in self.asked[-1])


def test_a_mirror_with_the_power_uses_it() -> None:
    """One call, for all keys."""
    mirror = PowerfulMirror()
    version = mirror.put("1.json", b"1")

    assert [("0.json", None), ("1.json", Stored(b"1", version))] == list(get_many(mirror, KEYS[:2]))
    assert [tuple(KEYS[:2])] == mirror.asked


def test_a_mirror_without_the_power_is_asked_by_threads() -> None:
    """All at the same time."""
    together = threading.Barrier(8, timeout=60)

    class Slow(MemoryMirror):
        def get(self, key: str) -> Stored | None:
            together.wait()
            return super().get(key)

    assert dict.fromkeys(KEYS[:8]) == dict(get_many(Slow(), KEYS[:8]))


def test_a_mirror_is_asked_one_by_one_where_no_thread_can_be_started() -> None:
    """By whoever wants the objects."""
    with no_thread_starts():
        found = dict(get_many(MemoryMirror(), KEYS[:8]))

    assert dict.fromkeys(KEYS[:8]) == found


def test_the_wrappers_pass_it_on() -> None:
    """Through all of them the inner mirror is asked once, by its own power."""
    inner = PowerfulMirror()
    inner.put("desk/1.json", b"1")
    wrapped = FaultyMirror(LazyMirror(lambda: PrefixedMirror(inner, "desk")), rate=0)

    assert {key: b"1" if key == "1.json" else None for key in KEYS} == {
        key: answer.body if isinstance(answer, Stored) else answer for key, answer in get_many(wrapped, KEYS)
    }
    assert 1 == len(inner.asked)


@pytest.mark.parametrize("kind", [FaultyMirror, HttpMirror, LazyMirror, PrefixedMirror, S3Mirror])
def test_who_has_the_power(kind: type) -> None:
    """The wrappers, and the stores that have a better way than a call for each key."""

    assert issubclass(kind, BulkMirror)


@pytest.mark.parametrize("error", [MirrorUnavailable("down"), MirrorRefused("no access")])
def test_a_failure_is_the_answer_of_its_key(error: MirrorUnavailable) -> None:
    """And not that of the others."""

    def get(key: str) -> Stored | None:
        if key == "1.json":
            raise error
        return None

    assert {"0.json": None, "1.json": error, "2.json": None} == dict(in_parallel(get, KEYS[:3]))


def test_any_other_error_is_raised() -> None:
    """A mistake in a mirror is not hidden in an answer."""

    def get(key: str) -> Stored | None:
        raise ZeroDivisionError(key)

    with pytest.raises(ZeroDivisionError):
        list(in_parallel(get, KEYS))


def test_a_bad_key_is_refused_before_anything_is_asked() -> None:
    """Also where threads would ask."""
    with pytest.raises(InvalidArgument):
        get_many(MemoryMirror(), ["a.json", "../b.json"])


def test_nothing_more_is_asked_when_nobody_listens() -> None:
    """What is in flight comes to its end, and no thread stays."""
    asked: list[str] = []

    def get(key: str) -> Stored | None:
        asked.append(key)
        time.sleep(0.01)
        return None

    earlier = set(threading.enumerate())  # an earlier test's threads may still wait for their stores
    answers = in_parallel(get, [f"{number}.json" for number in range(10_000)], threads=4)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    wait_until(lambda: not [each for each in set(threading.enumerate()) - earlier if each.name == "memfiles-mirror"])

    assert len(asked) < 100


HANGING = """
import threading
from memfiles.sync.mirror import in_parallel
answers = in_parallel(lambda key: threading.Event().wait(600) if key == "hang.json" else None, ["hang.json", "a.json"])
print(next(answers)[0], flush=True)
"""


def test_a_store_that_hangs_does_not_keep_the_process() -> None:
    """Its threads are daemons."""
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=180, check=True)

    assert "a.json\n" == ended.stdout
