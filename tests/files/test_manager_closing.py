"""Closing a manager, and forking one, while other threads are at work."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles.errors import InvalidArgument, MemfilesError, RevisionUnknown, StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.records.record import NOBODY
from memfiles.storage.events import RecordChanged
from memfiles.storage.store import Durability
from tests.support.records import declared, files_of, held, records_in, wait_until
from tests.support.stores import place_of, put_by_hand
from tests.support.workflows import opened


@pytest.mark.directory("it holds the lock of a file")
def test_a_change_under_way_stays_in_its_directory(tmp_path: Path) -> None:
    """A manager that is closed meanwhile does not let the change land in the directory opened next."""
    one, other = MemoryManager(place_of(tmp_path / "one")), MemoryManager(place_of(tmp_path / "other"))
    one.restore([declared("notes", content="one\n")])
    at_work, closed = threading.Event(), threading.Event()

    def closed_meanwhile() -> str:
        at_work.set()
        assert closed.wait(60)
        return "2026-11-21T09:00:00.000Z"

    live = one._live
    store = files_of(one)

    def change() -> None:
        with held(store, "notes.json"):
            closed_meanwhile()
            outcome.append(live.current("notes.json").content)

    outcome: list[str] = []
    thread = threading.Thread(target=change)
    thread.start()
    assert at_work.wait(60)
    one.close()
    other.restore([declared("notes", content="other\n")])
    closed.set()
    thread.join(60)
    other.close()

    assert ["one\n"] == outcome


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_can_read_although_a_thread_was_remembering(tmp_path: Path) -> None:
    """A lock that another thread of the parent held at the fork does not hang the child."""
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore([declared("notes", content="parent\n")])
        with manager._live._remembering:
            child = os.fork()
            if not child:
                manager.append("notes", "child\n", by=NOBODY)
                os._exit(0 if manager.read("notes") == "parent\nchild\n" else 1)
            _, status = os.waitpid(child, 0)

        assert (0, "parent\nchild\n") == (status, manager.read("notes"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_can_use_entries_that_a_thread_was_opening(tmp_path: Path) -> None:
    """And can make and close sessions, whatever a thread of the parent did at the fork."""
    parent, begun, may_end = os.getpid(), threading.Event(), threading.Event()

    def wait_in_parent(_: object) -> None:
        if os.getpid() == parent:
            begun.set()
            assert may_end.wait(60)

    with opened(tmp_path, "memory: {}\nagents: {desk: {}}\n") as memory:  # entries it declared might be swept at once
        memory._entries.when_opened(wait_in_parent)
        first = threading.Thread(target=lambda: memory.entries)
        first.start()
        assert begun.wait(60)
        with memory._closing:
            child = os.fork()
            if not child:
                signal.alarm(30)  # ends a child that hangs
                memory.entries.save(memory.session("desk"), "k", "from the child")
                memory.close()
                os._exit(0)
        _, status = os.waitpid(child, 0)
        may_end.set()
        first.join()
        found = memory.entries.get(memory.session("desk"), "k")

    assert (0, "from the child") == (status, found.content if found else None)


@pytest.mark.directory("there is no such file elsewhere")
def test_a_directory_that_is_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    """Planning there is a clear error, not a foreign one."""
    (tmp_path / "memory").write_text("a file")
    manager = MemoryManager(place_of(tmp_path / "memory"))

    with pytest.raises(StorageFailed, match="ENOTDIR"):
        manager.plan([declared("notes")])


def test_a_history_that_cuts_a_character_is_refused_and_redacted(tmp_path: Path) -> None:
    """A history damaged by hand is an error to walk, and no obstacle to a redaction."""
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore([declared("notes", content="é secret\n")])
        manager.edit("notes", "secret", "secret é")
    put_by_hand(tmp_path, "notes.json", records_in(tmp_path)["notes.json"].replace(b'"offset":3,', b'"offset":1,'))
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore([declared("notes")])

        with pytest.raises(RevisionUnknown):
            manager.diff("notes", 1, 2)
        manager.redact("notes", "secret")

        assert "é [redacted] é\n" == manager.read("notes")


def test_events_after_a_fork_reach_new_subscribers(tmp_path: Path) -> None:
    """Subscribing in the child works as well."""
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore([declared("notes")])
        seen: list[RecordChanged] = []
        child = os.fork()
        if not child:
            manager.subscribe(seen.append)
            manager.append("notes", "child\n")
            os._exit(0 if [event.op for event in seen] == ["append"] else 1)

        assert 0 == os.waitpid(child, 0)[1]


@pytest.mark.directory("it holds the lock of a file")
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_change_that_waited_for_its_turn_is_not_made_after_the_end(tmp_path: Path, durability: Durability) -> None:
    """It is refused, since whoever closed the memory takes what is there for all there is."""
    refused: list[BaseException] = []
    manager = MemoryManager(place_of(tmp_path / "memory"), durability=durability)
    manager.restore([declared("notes", content="one\n", cap=1000)])

    def append() -> None:
        try:
            manager.append("notes", "two\n")
        except MemfilesError as error:
            refused.append(error)

    waiting = threading.Thread(target=append)
    with held(files_of(manager), "notes.json"):
        waiting.start()
        wait_until(lambda: "_take" in _running(waiting))
        manager.close()
    waiting.join()

    assert [InvalidArgument] == [type(error) for error in refused]
    with MemoryManager(place_of(tmp_path / "memory")) as manager:
        manager.restore([declared("notes", cap=1000)])
        assert "one\n" == manager.read("notes")


def _running(thread: threading.Thread) -> list[str]:
    """The names of the functions that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.directory("only it has a journal")
def test_a_close_leaves_no_journal_that_was_given_up(tmp_path: Path) -> None:
    """What could not be flushed for a while is, at the latest, then: the records are all there is."""
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore([declared("notes", content="one\n"), declared("plan")])
        manager.append_many([("notes", "two\n"), ("plan", "a\n")])
        (tmp_path / "notes.json").rename(tmp_path / "moved")
        (tmp_path / "notes.json").symlink_to("moved")  # which is not followed, and so cannot be flushed
        with suppress(StorageFailed):
            manager.checkpoint()
        manager.append("plan", "b\n")

    assert ([], False) == (os.listdir(tmp_path / ".journal"), (tmp_path / "notes.json").is_symlink())
