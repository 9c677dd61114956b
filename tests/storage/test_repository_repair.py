"""The record repository repairs files that were broken or deleted behind its back."""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles.errors import RecordCorrupt, StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.records.record import encode
from memfiles.storage.events import RecordChanged
from tests.support.records import TickingClock, declared, files_under, rewrite, seeded

FILES = [declared("notes", content="# Notes\n", cap=100), declared("plan")]


def opened(directory: Path) -> MemoryManager:
    manager = MemoryManager(directory, durability="os", now=TickingClock())
    manager.restore(FILES)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with opened(tmp_path) as manager:
        yield manager


@pytest.fixture
def told(manager: MemoryManager) -> list[RecordChanged]:
    """What a subscriber is told, in order."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    return told


@pytest.fixture
def path(manager: MemoryManager) -> Path:
    """Where the record of the notes lies."""
    return manager.directory / "notes.json"


def summary(events: list[RecordChanged]) -> list[tuple[int, str, str]]:
    return [(event.revision, event.op, event.origin) for event in events]


def quarantined(manager: MemoryManager) -> list[Path]:
    return [manager.directory / kept["path"] for kept in manager.status()["quarantine"]]


def let_time_pass(path: Path) -> None:
    """As if the file had been left alone since a while ago."""
    moment = time.time_ns() - 10**9
    os.utime(path, ns=(moment, moment), follow_symlinks=False)


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def put_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "plan.json")


BROKEN: dict[str, Callable[[Path], object]] = {
    "half a record": lambda path: path.write_text('{"format": "memf'),
    "nothing in it": lambda path: path.write_text(""),
    "another record": lambda path: path.write_bytes(encode(seeded("x", uid="other"))),
    "over the cap": lambda path: rewrite(path, content="x" * 101),
    "a folder": put_folder,
    "a FIFO": put_fifo,
    "a link": put_link,
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_set_aside_and_the_last_good_record_put_back(
    manager: MemoryManager, told: list[RecordChanged], path: Path, what: str
) -> None:
    """Everyone is told, with the reason."""
    manager.append("notes", "- Bob\n")
    good = path.read_bytes()
    BROKEN[what](path)
    let_time_pass(path)

    assert manager.notice("notes")
    assert (good, 1, "# Notes\n- Bob\n") == (path.read_bytes(), len(quarantined(manager)), manager.read("notes"))
    assert (2, "append", "restored") == summary(told)[-1]
    assert "in quarantine, and the last good version was put back" in (told[-1].warning or "")


def test_a_deleted_record_is_put_back(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """At once: nobody is in the middle of anything. There is nothing to set aside."""
    good = path.read_bytes()
    path.unlink()
    manager.notice("notes")

    assert (good, [], [(1, "seed", "restored")]) == (path.read_bytes(), quarantined(manager), summary(told))
    assert "it is gone; the last good version was put back" in (told[-1].warning or "")


@pytest.mark.parametrize("what", BROKEN)
def test_a_read_of_a_broken_file_gives_the_last_good_record(
    manager: MemoryManager, path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """And leaves the file alone: someone may be saving it. One warning says so, not one a read."""
    BROKEN[what](path)
    before = files_under(manager.directory)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        contents = [manager.read("notes") for _ in range(3)]

    assert ["# Notes\n"] * 3 == contents
    assert 1 == caplog.text.count("the last good version is used")
    assert before == files_under(manager.directory)


def test_a_file_that_may_be_in_the_middle_of_being_saved_is_not_judged(manager: MemoryManager, path: Path) -> None:
    """Whoever asks is told to look again; when the saving is done, it is a change by hand."""
    path.write_text('{"half": ')

    assert (False, []) == (manager.notice("notes"), quarantined(manager))
    path.write_bytes(encode(seeded("# Saved\n", cap=100)))
    assert (True, "# Saved\n", []) == (manager.notice("notes"), manager.read("notes"), quarantined(manager))


def test_a_broken_file_from_the_future_is_not_waited_for(manager: MemoryManager, path: Path) -> None:
    """A copied time of change says nothing about when someone was saving."""
    path.write_text("{")
    os.utime(path, (time.time() + 3600, time.time() + 3600))

    assert (True, 1) == (manager.notice("notes"), len(quarantined(manager)))


def test_a_write_over_a_broken_file_stands_on_the_last_good_record(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """What was there is in quarantine first; that it was broken is told first."""
    path.write_text("{")
    manager.append("notes", "x")

    assert ("# Notes\nx", [b"{"]) == (manager.read("notes"), [kept.read_bytes() for kept in quarantined(manager)])
    assert [(1, "seed", "restored"), (2, "append", "local")] == summary(told)


def test_a_change_by_hand_that_was_read_and_then_broken_is_not_lost(manager: MemoryManager, path: Path) -> None:
    """The last good version is the one that was read last, also if nobody had written it yet."""
    rewrite(path, content="by hand")
    manager.read("notes")
    path.write_text("{")
    let_time_pass(path)
    manager.notice("notes")

    assert ("by hand", 2) == (manager.read("notes"), manager.card("notes").revision)
    assert manager.snapshot("notes").is_intact


def test_a_restore_in_a_running_process_mends_from_memory(manager: MemoryManager, path: Path) -> None:
    """The process knows the last good version, which no seed and no mirror does; and what was there before."""
    manager.append("notes", "- Bob\n")
    path.write_text("{")
    manager.restore(FILES)
    rewrite(path, content="by hand")
    manager.restore(FILES)
    manager.undo("notes")

    assert "# Notes\n- Bob\n" == manager.read("notes")


def test_what_nobody_has_read_yet_cannot_be_mended_from_memory(tmp_path: Path) -> None:
    """With many unchanged files a start reads none: then it is an error, and the file is left for the next start."""
    many = [declared(f"file-{number}") for number in range(20)]
    for _ in range(2):
        with MemoryManager(tmp_path, durability="os") as manager:
            manager.restore(many)
    with MemoryManager(tmp_path, durability="os") as manager:
        manager.restore(many)
        (tmp_path / "file-1.json").write_text("{")
        for call in (manager.read, manager.notice, lambda uid: manager.append(uid, "x")):
            with pytest.raises(RecordCorrupt, match="Invalid JSON"):
                call("file-1")

        assert "{" == (tmp_path / "file-1.json").read_text()


def test_too_many_open_files_is_no_broken_record(manager: MemoryManager, path: Path) -> None:
    """The record is good; the system cannot say so now. Nothing is set aside, and the next call works."""
    rewrite(path, content="by hand")
    let_time_pass(path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        for call in (manager.read, manager.notice, lambda uid: manager.append(uid, "x")):
            with pytest.raises(StorageFailed):
                call("notes")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert ("by hand", True, []) == (manager.read("notes"), manager.notice("notes"), quarantined(manager))
