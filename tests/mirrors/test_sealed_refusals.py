"""Refused objects are noted in the memory directory, until they are sound, changed or gone."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from memfiles.errors import CopyRefused
from memfiles.storage.home import home_of
from memfiles.sync.mirror import get_many, takes
from memfiles.sync.status import REFUSED, refused_in
from mirrors import CountingMirror, DirectoryMirror, MemoryMirror, MirrorKeys, SealedMirror
from mirrors.sealed.refusals import NOTED_MAX, PATH, NotedMirror

KEYS = MirrorKeys.parse(secrets.token_hex(32), source="the test")


@pytest.fixture
def bucket() -> MemoryMirror:
    """A store with two sound objects and three that are not signed."""
    bucket = MemoryMirror()
    for key in ("a.json", "b.json"):
        bucket.put(key, KEYS.seal(key, b"sound", encrypt=False))
    for key in ("x.json", "y.json", "z.json"):
        bucket.put(key, b"planted")
    return bucket


@pytest.fixture
def mirror(bucket: MemoryMirror, tmp_path: Path) -> NotedMirror:
    return NotedMirror(SealedMirror(bucket, KEYS), home_of(tmp_path).notes)


def asked(mirror: NotedMirror, *keys: str) -> None:
    for key in keys:
        with pytest.raises(CopyRefused):
            mirror.get(key)


def test_every_refusal_is_noted_for_all_processes(mirror: NotedMirror, bucket: MemoryMirror, tmp_path: Path) -> None:
    """Alone or among many; what is sound or missing is not."""
    mirror.get("a.json")
    asked(mirror, "x.json")
    list(get_many(mirror, ["b.json", "y.json", "missing.json"]))
    another = NotedMirror(SealedMirror(bucket, KEYS), home_of(tmp_path).notes)
    asked(another, "z.json")
    noted = refused_in(tmp_path)

    assert ["x.json", "y.json", "z.json"] == sorted(noted)
    assert noted["x.json"].startswith("x.json: the mirror's object is not signed")
    assert PATH == REFUSED


def test_a_note_goes_when_the_object_is_sound_changed_or_gone(
    mirror: NotedMirror, bucket: MemoryMirror, tmp_path: Path
) -> None:
    """It is read whole, put again, deleted, or listed with another version or not at all."""
    list(mirror.list())
    seen = []
    for change in ("read", "put", "deleted", "changed", "gone"):
        asked(mirror, "x.json", "y.json")
        if change == "read":
            bucket.put("x.json", KEYS.seal("x.json", b"sound", encrypt=False))
            mirror.get("x.json")
        elif change == "put":
            mirror.put("x.json", b"ours")
        elif change == "deleted":
            mirror.delete("x.json")
        elif change == "changed":
            list(mirror.list())
            bucket.put("x.json", b"other")
            list(mirror.list())
        else:
            bucket.delete("x.json")
            list(mirror.list())
        seen.append(sorted(refused_in(tmp_path)))
        bucket.put("x.json", b"planted")
        list(mirror.list())

    assert [["y.json"]] * 5 == seen


def test_a_refusal_without_a_version_is_noted_until_the_next_listing(tmp_path: Path) -> None:
    """A folder was in the place of the object, which has been listed before and is back with the same version."""
    (tmp_path / "bucket").mkdir()
    mirror = NotedMirror(DirectoryMirror(tmp_path / "bucket"), home_of(tmp_path).notes)
    mirror.put("a.json", b"sound")
    list(mirror.list())
    (tmp_path / "bucket" / "a.json").unlink()
    (tmp_path / "bucket" / "a.json").mkdir()
    asked(mirror, "a.json")
    noted = list(refused_in(tmp_path))
    (tmp_path / "bucket" / "a.json").rmdir()
    (tmp_path / "bucket" / "a.json").write_bytes(b"sound")
    list(mirror.list())

    assert (["a.json"], {}) == (noted, refused_in(tmp_path))


def test_what_a_reader_cannot_use_is_noted_as_well(mirror: NotedMirror, tmp_path: Path) -> None:
    """Through any wrapper, for the version that it read."""
    mirror.put("a.json", b"not a record")
    version = dict(mirror.list())["a.json"]
    CountingMirror(mirror, print).note("a.json", "a.json: not a record", version=version)
    list(mirror.list())
    noted = refused_in(tmp_path)
    mirror.put("a.json", b"another")
    list(mirror.list())

    assert ({"a.json": "a.json: not a record"}, {}) == (noted, refused_in(tmp_path))


def test_a_listing_of_a_folder_says_nothing_of_the_rest(mirror: NotedMirror, tmp_path: Path) -> None:
    """What is outside it stays noted."""
    asked(mirror, "x.json")
    list(mirror.list("entries/"))
    list(mirror.list())

    assert ["x.json"] == list(refused_in(tmp_path))


def test_a_bucket_full_of_planted_objects_does_not_fill_the_disk(bucket: MemoryMirror, tmp_path: Path) -> None:
    """A bounded number is noted; each is still refused."""
    keys = [f"planted-{number}.json" for number in range(NOTED_MAX + 20)]
    for key in keys:
        bucket.put(key, b"planted")
    mirror = NotedMirror(SealedMirror(bucket, KEYS), home_of(tmp_path).notes)

    assert all(isinstance(answer, CopyRefused) for _, answer in get_many(mirror, keys))
    assert NOTED_MAX == len(refused_in(tmp_path))


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b'{"a.json": 1}', b"\xff"])
def test_damaged_notes_are_no_notes(mirror: NotedMirror, tmp_path: Path, damage: bytes) -> None:
    """They are derived: the next refusal writes them anew."""
    (tmp_path / ".state").mkdir()
    (tmp_path / PATH).write_bytes(damage)

    assert {} == refused_in(tmp_path)
    list(mirror.list())
    asked(mirror, "x.json")
    assert ["x.json"] == list(refused_in(tmp_path))


def test_without_a_directory_nothing_is_noted(bucket: MemoryMirror, tmp_path: Path) -> None:
    """A plan asks the mirror before there is a memory; the refusal is an answer all the same."""
    asked(NotedMirror(SealedMirror(bucket, KEYS), home_of(tmp_path / "none").notes), "x.json")

    assert not (tmp_path / "none").exists()
    assert takes(NotedMirror(bucket, home_of(tmp_path).notes), "entries/any.json")
