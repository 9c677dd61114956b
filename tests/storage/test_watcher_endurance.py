"""Watching goes on whatever happens, and ends when it is told to."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest

from memfiles.errors import InvalidArgument, StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.storage.events import RecordChanged
from memfiles.storage.watcher import FolderEvents, Watcher
from tests.support.records import declared, rewrite, wait_until

FILES = [declared("notes", content="# Notes\n", cap=1000), declared("plan")]
FLOOD = 200


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(tmp_path / "memory", durability="os") as manager:
        manager.restore(FILES)
        yield manager


@pytest.fixture
def told(manager: MemoryManager) -> Iterator[list[RecordChanged]]:
    """What the watched manager's subscriber is told."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    watcher = Watcher(manager.watched)
    yield told
    watcher.close()


@pytest.fixture
def path(manager: MemoryManager) -> Path:
    """Where the record of the notes lies."""
    return manager.directory / "notes.json"


def test_a_callback_that_fails_ends_nothing(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """The next change is noticed like any other."""

    def fail(event: RecordChanged) -> None:
        raise ZeroDivisionError

    manager.subscribe(fail)
    rewrite(path, content="changed")
    wait_until(lambda: len(told) == 1)
    rewrite(path, content="changed again")
    wait_until(lambda: len(told) == 2)

    assert [2, 3] == [event.revision for event in told]


def put_broken(path: Path) -> None:
    """Replace a record by something broken that nobody can be in the middle of saving."""
    temp = path.parent / "temp"
    temp.write_text("{")
    os.utime(temp, (0, 0))
    temp.replace(path)


def test_whatever_goes_wrong_is_logged_once_and_ends_nothing(
    manager: MemoryManager, told: list[RecordChanged], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here: nothing can be set aside, because a file is in the way. When it is gone, the next look mends."""
    (manager.directory / "quarantine").write_text("in the way")
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        for content in ("still", "being", "watched"):
            put_broken(path)
            rewrite(manager.directory / "plan.json", content=content)
            wait_until(lambda: manager.card("plan").revision == len(told) + 1 > 1)
    (manager.directory / "quarantine").unlink()
    put_broken(path)
    wait_until(lambda: len(told) == 4)

    assert [*[("plan", "external")] * 3, ("notes", "restored")] == [(event.uid, event.origin) for event in told]
    assert 1 == caplog.text.count("could not be followed")


def test_the_watching_survives_that_its_folder_is_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing left to watch; reads go on from memory, closing works, and no thread has died of it."""
    manager = MemoryManager(tmp_path / "memory", durability="os")
    manager.restore(FILES)
    watcher = Watcher(manager.watched)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        wait_until(lambda: is_removed(tmp_path / "memory"))
        wait_until(lambda: "could not be followed" in caplog.text)
    content = manager.read("notes")
    watcher.close()
    with suppress(StorageFailed):
        manager.close()

    assert "# Notes\n" == content


def is_removed(folder: Path) -> bool:
    """Remove a folder; a record that is put back meanwhile may be in the way."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_closing_ends_the_watching(manager: MemoryManager, path: Path) -> None:
    """It may be done again, leaves no thread behind, and what happens afterwards is nobody's business."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    before = set(threading.enumerate())
    watcher = Watcher(manager.watched)
    watcher.close()
    watcher.close()
    rewrite(path, content="changed")

    assert (set(), []) == (set(threading.enumerate()) - before, told)


def test_a_callback_may_close_the_watcher(manager: MemoryManager, path: Path) -> None:
    """Although it is called in the watcher's own thread."""
    closed = threading.Event()
    watcher = Watcher(manager.watched)

    def close(event: RecordChanged) -> None:
        watcher.close()
        closed.set()

    manager.subscribe(close)
    rewrite(path, content="changed")

    assert closed.wait(60)


def test_only_a_restored_manager_can_be_watched(tmp_path: Path) -> None:
    """Before that there is no folder."""
    with pytest.raises(InvalidArgument, match="call restore"):
        Watcher(MemoryManager(tmp_path / "new").watched)


def test_where_the_system_gives_no_events_every_file_is_looked_at(
    manager: MemoryManager, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watches may be used up, which is no reason not to start: one warning, and a look every second."""

    def none_left(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("watchdog.observers.api.BaseObserver.schedule", none_left)
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        watcher = Watcher(manager.watched)
    rewrite(path, content="changed")
    wait_until(lambda: told)
    watcher.close()

    assert ["external"] == [event.origin for event in told]
    assert 1 == caplog.text.count("inotify watch limit reached): its records are checked every second")


FEW_WATCHES = """
import logging, sys
from pathlib import Path
from memfiles.storage.watcher import FolderEvents
from tests.support.records import wait_until
logging.basicConfig()
folder, found = Path(sys.argv[1]), []
for number in range(60):
    (folder / str(number)).mkdir()
events = FolderEvents(str(folder), is_deep=True, expect=found.append, expect_all=lambda: None, flooded=lambda: None)
events.start()
for number in range(60):
    (folder / f"{number}/a.json").write_text("{}")
wait_until(lambda: found)
events.close()
"""


@pytest.mark.skipif(
    which("unshare") is None or subprocess.run(["unshare", "-Ur", "true"], check=False).returncode != 0,
    reason="needs user namespaces, in which the system's limit can be lowered",
)
def test_more_folders_than_the_system_watches_are_told_of(tmp_path: Path) -> None:
    """It is no failure: the others are examined now and then."""
    limited = 'echo 40 > /proc/sys/user/max_inotify_watches && exec "$0" "$@"'
    program = [sys.executable, "-c", FEW_WATCHES, str(tmp_path)]
    ran = subprocess.run(["unshare", "-Ur", "sh", "-c", limited, *program], capture_output=True, text=True, check=False)

    assert (0, 1) == (ran.returncode, ran.stderr.count("has 61 folders, and the system watches at most 40")), ran.stderr


def test_a_flood_of_events_is_told_once(tmp_path: Path) -> None:
    """They are then paused: looking at every file now and then is cheaper. Afterwards they come again."""
    expected, floods = list[str](), list[str]()
    events = FolderEvents(
        str(tmp_path), expect=expected.append, expect_all=lambda: None, flooded=lambda: floods.append("flood")
    )
    events.start()
    for number in range(FLOOD):
        (tmp_path / f"{number}.txt").write_text("x")
    wait_until(lambda: events.are_flooding)
    events.pause()
    (tmp_path / "unseen.json").write_text("x")
    paused = (events.are_on, events.are_flooding)
    events.start()
    (tmp_path / "seen.json").write_text("x")
    wait_until(lambda: expected)
    resumed = (events.are_on, events.are_flooding)
    events.close()

    assert (["flood"], {"seen.json"}) == (floods, set(expected))
    assert ((False, False), (True, False), False) == (paused, resumed, events.are_on)


def test_while_we_write_a_lot_ourselves_others_are_noticed_all_the_same(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """A second later at most; and our own changes are told once."""
    for number in range(FLOOD):
        manager.append("plan", f"{number}\n")
        if number == FLOOD // 2:
            rewrite(path, content="changed")
    wait_until(lambda: len(told) == FLOOD + 1)

    assert ["notes"] == [event.uid for event in told if event.origin == "external"]
    assert FLOOD == sum(event.origin == "local" for event in told)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # as a server does that forks its workers
def test_a_child_can_close_although_an_event_was_under_way(manager: MemoryManager) -> None:
    """Locks that the watching threads held at the fork do not hang the child."""
    watcher = Watcher(manager.watched)
    observer = watcher._events._observer
    assert observer is not None
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with observer._lock, watcher._turn:
            held.set()
            assert forked.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(20)
        watcher.close()
        os._exit(0)
    forked.set()
    thread.join()
    _, status = os.waitpid(child, 0)
    watcher.close()

    assert 0 == status
