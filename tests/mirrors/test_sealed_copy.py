"""A copied bucket becomes a memory directory, in its place or elsewhere, with nothing in it that did not verify."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

import pytest

from memfiles.errors import InvalidArgument, MirrorUnavailable
from memfiles.sync.mirror import Stored
from mirrors import DirectoryMirror, MemoryMirror, MirrorKeys, SealedMirror
from mirrors.sealed.copy import open_all, open_copy

KEYS = MirrorKeys.parse(secrets.token_hex(32), source="the test")
BODIES = {f"entries/desk/{number}.json": b"body %d" % number for number in range(5)} | {"notes.json": b"notes"}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What `aws s3 sync` made of an encrypted bucket."""
    (tmp_path / "copied").mkdir()
    mirror = SealedMirror(DirectoryMirror(tmp_path / "copied"), KEYS, encrypt=True)
    for key, body in BODIES.items():
        mirror.put(key, body)
    mirror.put(".state/pack/index.json", b"a pack")
    return tmp_path / "copied"


class VanishingMirror(MemoryMirror):
    """Lists objects that are gone when they are asked for."""

    def get(self, key: str) -> Stored | None:
        return None


def test_what_is_gone_does_not_count_as_opened() -> None:
    """A file that is removed between the listing and the reading is in no memory directory."""
    source, target = VanishingMirror(), MemoryMirror()
    source.put("notes.json", KEYS.seal("notes.json", b"notes", encrypt=False))
    report = open_all(source, target, KEYS)

    assert (0, 1, []) == (report.current, report.gone, list(target.list()))


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_it_is_opened_in_its_place(copied: Path) -> None:
    """The records are there, private, and nothing else; the copy stays next to it."""
    before = files_in(copied)
    report = open_copy(copied, KEYS)

    assert (len(BODIES), {}) == (report.current, report.refused)
    assert (BODIES, before) == (files_in(copied), files_in(copied.with_name("copied.sealed")))
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in copied.rglob("*.json")}
    assert ["copied", "copied.sealed"] == sorted(path.name for path in copied.parent.iterdir())


def test_it_is_opened_elsewhere(copied: Path, tmp_path: Path) -> None:
    """An empty directory or a new one; the copy stays as it is."""
    before = files_in(copied)
    (tmp_path / "empty").mkdir()
    for to in (tmp_path / "empty", tmp_path / "new"):
        open_copy(copied, KEYS, to=to)
        assert BODIES == files_in(to)

    assert before == files_in(copied)


def test_nothing_that_does_not_verify_gets_in(copied: Path) -> None:
    """Altered, moved, unsigned, a planted journal or search index: each is named and left in the copy."""
    moved = (copied / "notes.json").read_bytes()
    planted = {"entries/desk/0.json": moved, "planted.json": b"{}", ".journal/1": b"frames", "audit/x.jsonl": b"{}"}
    for name, body in planted.items():
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_bytes(body)
    (copied / ".state/index.sqlite").write_bytes(b"terms")
    (copied / "link.json").symlink_to("/etc/passwd")
    report = open_copy(copied, KEYS)

    assert sorted(planted) == sorted(report.refused)
    assert {key: body for key, body in BODIES.items() if key not in planted} == files_in(copied)


def test_with_the_wrong_key_nothing_changes(copied: Path) -> None:
    """Every object is named, and the copy is where it was."""
    before = files_in(copied)
    report = open_copy(copied, MirrorKeys.parse(secrets.token_hex(32), source="x"))

    assert (0, sorted(BODIES)) == (report.current, sorted(report.refused))
    assert before == files_in(copied)
    assert ["copied"] == [path.name for path in copied.parent.iterdir()]


def test_a_call_that_was_killed_is_repeated(copied: Path) -> None:
    """Killed while it opens, or between its two renames: the same call finishes."""
    (copied.with_name(".copied.opening")).mkdir()
    (copied.with_name(".copied.opening") / "half.json").write_bytes(b"half")
    copied.rename(copied.with_name("copied.sealed"))
    open_copy(copied, KEYS)

    assert BODIES == files_in(copied)
    assert ["copied", "copied.sealed"] == sorted(path.name for path in copied.parent.iterdir())


def test_what_is_in_the_way_is_an_error(copied: Path, tmp_path: Path) -> None:
    """Nothing is overwritten: a directory that is not empty, an earlier copy, a copy that is not there."""
    with pytest.raises(InvalidArgument, match="is not empty"):
        open_copy(copied, KEYS, to=copied.parent)
    with pytest.raises(InvalidArgument, match="is not a directory"):
        open_copy(tmp_path / "nowhere", KEYS)
    open_copy(copied, KEYS)
    with pytest.raises(InvalidArgument, match=r"copied\.sealed exists already"):
        open_copy(copied, KEYS)
    with pytest.raises(MirrorUnavailable, match="No such file"):
        open_copy(copied.with_name("copied.sealed"), KEYS, to=tmp_path / "no" / "folder")
    assert BODIES == files_in(copied)
