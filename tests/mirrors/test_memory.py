"""MemoryMirror keeps every promise of the Mirror Protocol: it is what the real mirrors are compared with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from memfiles.errors import InvalidArgument, MirrorConflict
from memfiles.sync.mirror import ABSENT, Mirror, equals
from mirrors import MemoryMirror


@pytest.fixture
def mirror() -> Mirror:
    return MemoryMirror()


def test_what_is_put_can_be_got_with_its_version(mirror: Mirror) -> None:
    """The bytes come back whole, with the version that the put returned."""
    version = mirror.put("a.json", b"1")
    stored = mirror.get("a.json")

    assert stored is not None
    assert (b"1", version) == (stored.body, stored.version)


def test_what_is_not_there_is_none(mirror: Mirror) -> None:
    """Absence is an answer, not an error."""

    assert mirror.get("a.json") is None


def test_the_list_is_every_key_under_the_prefix_in_order(mirror: Mirror) -> None:
    """Keys are listed with their versions, in the order of their bytes."""
    versions = {key: mirror.put(key, key.encode()) for key in ("b.json", "entries/z.json", "a.json", "entries/é.json")}

    assert [(key, versions[key]) for key in ("a.json", "b.json", "entries/z.json", "entries/é.json")] == list(
        mirror.list()
    )
    assert ["entries/z.json", "entries/é.json"] == [key for key, _ in mirror.list("entries/")]
    assert [] == list(mirror.list("none/"))


def test_different_bytes_have_different_versions(mirror: Mirror) -> None:
    """A version stands for the bytes, so that a condition on it protects them."""

    assert mirror.put("a.json", b"1") != mirror.put("a.json", b"2")


def test_a_put_that_must_be_the_first_is_refused_after_another(mirror: Mirror) -> None:
    """What someone else put stays."""
    mirror.put("a.json", b"theirs")
    with pytest.raises(MirrorConflict, match="a.json is at version"):
        mirror.put("a.json", b"ours", when=ABSENT)

    assert b"theirs" == content(mirror, "a.json")


def test_a_put_over_a_version_that_is_gone_is_refused(mirror: Mirror) -> None:
    """Of two writers that saw the same version the second learns of the first."""
    seen = mirror.put("a.json", b"1")
    mirror.put("a.json", b"2", when=equals(seen))
    with pytest.raises(MirrorConflict):
        mirror.put("a.json", b"3", when=equals(seen))

    assert b"2" == content(mirror, "a.json")


def test_a_put_over_a_version_of_what_is_absent_is_refused(mirror: Mirror) -> None:
    """A deleted object is not brought back by someone who has not seen that it is gone."""
    seen = mirror.put("a.json", b"1")
    mirror.delete("a.json")
    with pytest.raises(MirrorConflict, match="version none"):
        mirror.put("a.json", b"2", when=equals(seen))


def test_a_put_may_be_repeated_when_its_answer_was_lost(mirror: Mirror) -> None:
    """The same bytes are there already, so the condition that held the first time is not asked again."""
    first = mirror.put("a.json", b"1", when=ABSENT)
    second = mirror.put("a.json", b"2", when=equals(first))

    assert second == mirror.put("a.json", b"2", when=equals(first))
    assert second == mirror.put("a.json", b"2", when=ABSENT)


def test_a_delete_may_be_repeated(mirror: Mirror) -> None:
    """What is not there is deleted already, whatever version it had."""
    version = mirror.put("a.json", b"1")
    mirror.delete("a.json", when=equals(version))
    mirror.delete("a.json", when=equals(version))

    assert mirror.get("a.json") is None


def test_a_delete_of_another_version_is_refused(mirror: Mirror) -> None:
    """Nobody deletes what they have not seen."""
    seen = mirror.put("a.json", b"1")
    mirror.put("a.json", b"2")
    with pytest.raises(MirrorConflict):
        mirror.delete("a.json", when=equals(seen))

    assert b"2" == content(mirror, "a.json")


@pytest.mark.parametrize("key", ["", "../a", "a//b", "a\n"])
def test_a_bad_key_is_refused_before_anything_happens(mirror: Mirror, key: str) -> None:
    """Every call that takes a key checks it."""
    for call in (mirror.get, mirror.delete, lambda key: mirror.put(key, b"")):
        with pytest.raises(InvalidArgument):
            call(key)


def test_of_many_writers_over_one_version_exactly_one_wins(mirror: Mirror) -> None:
    """The condition and the put are one step."""
    seen = mirror.put("a.json", b"start")

    def attempt(number: int) -> bool:
        try:
            mirror.put("a.json", str(number).encode(), when=equals(seen))
        except MirrorConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert 1 == sum(pool.map(attempt, range(200)))


def content(mirror: Mirror, key: str) -> bytes:
    stored = mirror.get(key)
    assert stored is not None
    return stored.body
