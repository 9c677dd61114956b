"""Records that are not records, and other traps: they are set aside with a reason, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.storage.atomic import Signature
from memfiles.storage.journal_frames import Version, encode_frame, encode_payload, journal_header
from tests.durability.operations import FILES, records_on_disk

DEPTH = 100_000
TOO_LARGE = 100 * 1024 * 1024
Trap = Callable[[Path, Path], object]


def _record(path: Path, **fields: Any) -> bytes:
    return json.dumps(json.loads(path.read_bytes()) | fields).encode()


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    """Put something in the place of a record."""
    path.unlink()
    make(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TOO_LARGE)


REDACTIONS = ".state/redactions"


def _noted(memory: Path) -> Path:
    """Where a redaction of the file is noted."""
    (memory / REDACTIONS).mkdir()
    return memory / REDACTIONS / "notes.json"


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")


def _linked(path: Path) -> None:
    """A sound record, but elsewhere."""
    elsewhere = path.parent.with_name("elsewhere")
    os.rename(path, elsewhere)
    path.symlink_to(elsewhere)


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/{path.name}")  # the path itself may be too long
    os.close(here)


BAD: dict[str, Trap] = {
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[:-20]),
    "zeros": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "an array": lambda path, _: path.write_bytes(b"[1, 2, 3]\n"),
    "a word": lambda path, _: path.write_bytes(b"null"),
    "not UTF-8": lambda path, _: path.write_bytes(path.read_bytes().replace(b"Start", b"St\xff\xfet")),
    "100 MB": lambda path, _: _instead(path, _sparse),
    "deeply nested": lambda path, _: path.write_bytes(b'{"content":' + b"[" * DEPTH + b"]" * DEPTH + b"}"),
    "a duplicate key": lambda path, _: path.write_bytes(path.read_bytes().replace(b"{", b'{"name":"notes",', 1)),
    "not a number": lambda path, _: path.write_bytes(_record(path, revision=float("nan"))),
    "a NaN beside": lambda path, _: path.write_bytes(_record(path, extra=float("nan"))),
    "a lone surrogate": lambda path, _: path.write_bytes(_record(path, content="\ud800")),
    "another's record": lambda path, _: path.write_bytes((path.parent / "facts.json").read_bytes()),
    "a revision that nobody got to": lambda path, _: path.write_bytes(_record(path, revision=2**53 - 2, history=[])),
    "a path for a uid": lambda path, _: path.write_bytes(_record(path, uid="../notes")),
    "a link to a file": lambda path, outside: _instead(path, lambda p: p.symlink_to(outside / "private")),
    "a link to a sound record": lambda path, _: _linked(path),
    "a link to a device": lambda path, _: _instead(path, lambda p: p.symlink_to("/dev/zero")),
    "a link to itself": lambda path, _: _instead(path, lambda p: p.symlink_to(p.name)),
    "a hard link": lambda path, outside: _instead(path, lambda p: p.hardlink_to(outside / "private")),
    "a FIFO": lambda path, _: _instead(path, os.mkfifo),
    "a socket": lambda path, _: _instead(path, _socket),
    "a folder": lambda path, _: _instead(path, _folder),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the memory directory that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "private").write_text('{"content": "private"}')
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """A memory directory after a clean close, with a change in each file."""
    with MemoryManager(tmp_path / "memory") as manager:
        manager.restore(FILES)
        manager.append_many([(file.uid, "- remembered\n") for file in FILES])
    return tmp_path / "memory"


def _untouched(outside: Path) -> bool:
    private = outside / "private"
    return [private] == list(outside.iterdir()) and '{"content": "private"}' == private.read_text()


def _reasons(memory: Path) -> list[str]:
    return [str(json.loads(note.read_bytes())["reason"]) for note in (memory / "quarantine").glob("*.reason.json")]


def _kept(memory: Path) -> list[Path]:
    return [path for path in (memory / "quarantine").iterdir() if not path.name.endswith(".reason.json")]


@pytest.mark.parametrize("trap", BAD.values(), ids=BAD)
def test_a_start_survives_a_bad_record(trap: Trap, memory: Path, outside: Path) -> None:
    """The bad one is in quarantine with its reason and falls back to its seed; the others are as they were."""
    trap(memory / "notes.json", outside)
    with MemoryManager(memory) as manager:
        report = manager.restore(FILES)
        manager.append("notes", "- anew\n")
        contents = {file.uid: manager.read(file.uid) for file in FILES}

    assert ["quarantined", "kept", "kept"] == [row.status for row in report.files]
    assert report["notes"].detail
    assert "# Start\n- anew\n" == contents["notes"]
    assert "# Start\n- remembered\n" == contents["plans"] == contents["facts"]
    assert 1 == len(_kept(memory)) == len(_reasons(memory))
    assert _reasons(memory)[0]
    assert _untouched(outside)


@pytest.mark.parametrize("trap", BAD.values(), ids=BAD)
def test_a_process_survives_a_record_that_goes_bad(trap: Trap, memory: Path, outside: Path) -> None:
    """While it runs, the last good version is read, and the next write puts it back, changed, over the bad one."""
    with MemoryManager(memory) as manager:
        manager.restore(FILES)
        before = manager.read("notes")
        trap(memory / "notes.json", outside)
        read = manager.read("notes")
        manager.append("notes", "- anew\n")
        found = records_on_disk(memory)["notes"]["content"]

    assert "# Start\n- remembered\n" == before == read
    assert "# Start\n- remembered\n- anew\n" == found
    assert 1 == len(_kept(memory)) == len(_reasons(memory))
    assert _untouched(outside)


def test_a_huge_record_is_not_read(memory: Path, outside: Path) -> None:
    """Its size is enough to know that it is none."""
    BAD["100 MB"](memory / "notes.json", outside)
    with MemoryManager(memory) as manager:
        manager.restore(FILES)

    assert "notes.json has 104857600 bytes, more than the 67108864 a record may have" in _reasons(memory)[0]


def test_what_was_set_aside_is_what_lay_there(memory: Path, outside: Path) -> None:
    """Byte for byte, links as links and folders with all that is in them."""
    (memory / "notes.json").write_bytes(b"\0half a rec\xffrd")
    BAD["a folder"](memory / "plans.json", outside)
    BAD["a link to a file"](memory / "facts.json", outside)
    with MemoryManager(memory) as manager:
        manager.restore(FILES)
    kept = {path.name.partition(".")[0]: path for path in _kept(memory)}

    assert b"\0half a rec\xffrd" == kept["notes"].read_bytes()
    assert "kept" == (kept["plans"] / "inside").read_text()
    assert outside / "private" == kept["facts"].readlink()


def test_a_change_made_by_hand_is_taken_over(memory: Path) -> None:
    """A sound record whose digest does not fit was edited by a person: that is a revision like any other."""
    path = memory / "notes.json"
    path.write_bytes(path.read_bytes().replace(b"remembered", b"corrected"))
    with MemoryManager(memory) as manager:
        report = manager.restore(FILES)
        content, last = manager.read("notes"), manager.log("notes")[0]

    assert "updated" == report["notes"].status
    assert "# Start\n- corrected\n" == content
    assert ("external", 3) == (last.op, last.revision)


@pytest.mark.parametrize("revisions", [[], [1], [1, 2]])
def test_a_record_at_the_largest_revision_that_is_believed_can_be_changed(memory: Path, revisions: list[int]) -> None:
    """Its next revisions follow one another, so they are believed as well, also by the next process."""
    record = memory / "notes.json"
    history = json.loads(record.read_bytes())["history"][: len(revisions)]
    for change, revision in zip(history[::-1], [2**48, 1], strict=False):
        change["revision"] = revision
    record.write_bytes(_record(record, revision=2**48, history=history))
    for line in ("- one\n", "- secret\n", "- three\n"):
        with MemoryManager(memory) as manager:
            report = manager.restore(FILES)
            manager.append("notes", line)
            manager.redact("notes", "secret")
            content, revision = manager.read("notes"), manager.snapshot("notes").revision

            assert {"kept"} == {row.status for row in report.files}

    assert "# Start\n- remembered\n- one\n- [redacted]\n- three\n" == content
    assert 2**48 + 4 == revision


def test_a_hard_link_to_a_sound_record_is_never_written_through(memory: Path, tmp_path: Path) -> None:
    """A record is replaced, not written into: the other name keeps the earlier version."""
    (tmp_path / "backup.json").hardlink_to(memory / "notes.json")
    before = (tmp_path / "backup.json").read_bytes()
    with MemoryManager(memory) as manager:
        manager.restore(FILES)
        manager.append("notes", "- first\n")
        manager.append("notes", "- second\n")

    assert before == (tmp_path / "backup.json").read_bytes()


JOURNALS: dict[str, Callable[[Path, Path], object]] = {
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: _folder(path),
    "a link": lambda path, outside: path.symlink_to(outside / "private"),
    "a link to a journal": lambda path, _: _linked_journal(path),
    "a link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "noise": lambda path, _: path.write_bytes(os.urandom(100_000)),
    "a path outside": lambda path, _: path.write_bytes(_journal("../outside/private")),
    "an absolute path": lambda path, outside: path.write_bytes(_journal(str(outside / "private"))),
    "a path into its folders": lambda path, _: path.write_bytes(_journal(".state/unchanged.json")),
    "a frame of nothing": lambda path, _: path.write_bytes(b"".join([journal_header(), *encode_frame(1, b"\1\2\3")])),
}


def _linked_journal(path: Path) -> None:
    """One that speaks of a newer version, but elsewhere."""
    elsewhere = path.parent.parent.with_name("elsewhere")
    elsewhere.write_bytes(_journal("notes.json"))
    path.symlink_to(elsewhere)


def _journal(path: str) -> bytes:
    """A journal that speaks of a record at any path, with the right checksums."""
    return b"".join(
        [journal_header(), *encode_frame(1, encode_payload([Version(path, 9, b"harm", Signature(1, 4, 1))])[0])]
    )


@pytest.mark.parametrize("make", JOURNALS.values(), ids=JOURNALS)
def test_a_start_survives_a_bad_journal(make: Trap, memory: Path, outside: Path) -> None:
    """Whatever lies there as a dead process's journal, only records are written, and only sound frames count."""
    make(memory / ".journal" / "1-bad.journal", outside)
    with MemoryManager(memory) as manager:
        report = manager.restore(FILES)
        manager.append_many([(file.uid, "- anew\n") for file in FILES])

    assert {"kept"} == {row.status for row in report.files}
    assert [] == list((memory / ".journal").iterdir())
    assert _untouched(outside)


TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "a folder as a temp file": lambda memory, _: _folder(memory / ".notes.json.tmp"),
    "a link as a temp file": lambda memory, outside: (memory / ".notes.json.tmp").symlink_to(outside / "private"),
    "a FIFO as a temp file": lambda memory, _: os.mkfifo(memory / ".notes.json.tmp"),
    "a hard link as a temp file": lambda memory, outside: (memory / ".notes.json.tmp").hardlink_to(outside / "private"),
    "a FIFO as a request": lambda memory, _: os.mkfifo(memory / ".journal" / "scrub-request"),
    "a hard link as a request": lambda memory, outside: (memory / ".journal" / "scrub-request").hardlink_to(
        outside / "private"
    ),
    "a FIFO as the notes of a start": lambda memory, _: os.mkfifo(memory / ".state" / "unchanged.json"),
    "a link as the notes of a start": lambda memory, outside: (memory / ".state" / "unchanged.json").symlink_to(
        outside / "private"
    ),
    "a FIFO as the note of a redaction": lambda memory, _: os.mkfifo(_noted(memory)),
    "a link as the note of a redaction": lambda memory, outside: _noted(memory).symlink_to(outside / "private"),
    "a folder as the note of a redaction": lambda memory, _: _folder(_noted(memory)),
    "noise as the note of a redaction": lambda memory, _: _noted(memory).write_bytes(b"[" * DEPTH),
    "a file as the notes of redactions": lambda memory, _: (memory / REDACTIONS).write_bytes(b"8"),
    "a link as the notes of redactions": lambda memory, outside: (memory / REDACTIONS).symlink_to(outside),
    "noise as the notes of a start": lambda memory, _: (memory / ".state" / "unchanged.json").write_bytes(b"[" * DEPTH),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
@pytest.mark.parametrize("is_running", [False, True], ids=["before a start", "while it runs"])
def test_other_traps_do_no_harm(trap: Trap, memory: Path, outside: Path, is_running: bool) -> None:
    """Reading, writing and redacting work all the same."""
    with MemoryManager(memory) as manager:
        if is_running:
            manager.restore(FILES)
        trap(memory, outside)
        manager.restore(FILES)
        manager.append("notes", "- anew\n")
        manager.redact("notes", "remembered")
        content = manager.read("notes")

    assert "# Start\n- [redacted]\n- anew\n" == content
    assert _untouched(outside)


@pytest.mark.parametrize("folder", [".journal", ".state", ".state/locks", "quarantine"])
def test_a_folder_that_leads_outside_is_refused(folder: str, memory: Path, outside: Path) -> None:
    """With a link in the place of one of its folders a start that needs it fails, says so, and follows it nowhere."""
    place = memory / folder
    if place.exists():
        os.rename(place, memory.parent / "moved")
    place.symlink_to(outside)
    (memory / "notes.json").write_bytes(b"bad")

    with pytest.raises(StorageFailed, match="directory|link"):
        MemoryManager(memory).restore(FILES)
    assert _untouched(outside)
