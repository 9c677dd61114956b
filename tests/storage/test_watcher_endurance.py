"""Watching goes on whatever happens, and ends when it is told to."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest

from memfiles.errors import InvalidArgument, StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.records.keys import uid_of
from memfiles.storage.entry_folders import Pause
from memfiles.storage.events import RecordChanged
from memfiles.storage.folder_events import SWEEP_SECONDS, FolderEvents
from memfiles.storage.watcher import Watcher
from tests.support.records import declared, rewrite, wait_until

pytestmark = pytest.mark.slow

FILES = [declared("notes", content="# Notes\n", cap=1000), declared("plan")]
BURST = 500


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
        wait_until(lambda: "could not be examined" in caplog.text)
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
    """At once, also again. It leaves no thread behind, and what happens afterwards is nobody's business."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    before = set(threading.enumerate())
    watcher = Watcher(manager.watched)
    time.sleep(0.3)  # until it waits for events
    begun = time.monotonic()
    watcher.close()
    watcher.close()
    took = time.monotonic() - begun
    rewrite(path, content="changed")

    assert (set(), []) == (set(threading.enumerate()) - before, told)
    assert took < SWEEP_SECONDS / 2


class _Folders:
    """Files in subfolders that somebody watches."""

    is_deep, what = True, "file"

    def __init__(self, folder: Path) -> None:
        self.root, self.swept = folder, threading.Event()

    def folder(self) -> Path:
        return self.root

    def record_at(self, path: str) -> str | None:
        return path

    def look(self, record: str) -> bool:
        return True

    def suspects(self, pause: Pause) -> list[str]:
        self.swept.set()
        return []


def test_closing_while_a_new_folder_of_many_files_is_read_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the thread, which may be in a pause, as at any other moment."""
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    (tmp_path / "watched").mkdir()
    (tmp_path / "new").mkdir()
    for number in range(3 * 128):  # it pauses after each 128
        (tmp_path / f"new/{number}").touch()
    watched = _Folders(tmp_path / "watched")
    watcher = Watcher(watched)
    assert watched.swept.wait(60)
    time.sleep(0.4)
    (tmp_path / "new").rename(tmp_path / "watched/new")
    time.sleep(0.1)  # by now it reads, or has read
    watcher.close()

    assert [] == failed


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


NO_WATCHES = """
import logging, sys
from pathlib import Path
from memfiles.files.manager import MemoryManager
from memfiles.storage.watcher import Watcher
from tests.support.records import declared, rewrite, wait_until
logging.basicConfig()
told = []
with MemoryManager(sys.argv[1], durability="os") as manager:
    manager.restore([declared("notes")])
    manager.subscribe(told.append)
    watcher = Watcher(manager.watched)
    for number in (1, 2):
        rewrite(Path(sys.argv[1]) / "notes.json", content=f"{number}")
        wait_until(lambda: len(told) == number)
    watcher.close()
assert {"external"} == {event.origin for event in told}
"""

FEW_WATCHES = """
import logging, sys
from pathlib import Path
from memfiles.storage.folder_events import FolderEvents
logging.basicConfig()
folder = Path(sys.argv[1])
for number in range(60):
    (folder / str(number)).mkdir()
events = FolderEvents(str(folder), is_deep=True)
events.start()
for number in range(60):
    (folder / f"{number}/a.json").write_text("{}")
assert len(events.read()) == 39
events.close()
"""


@pytest.mark.skipif(
    which("unshare") is None or subprocess.run(["unshare", "-Ur", "true"], check=False).returncode != 0,
    reason="needs user namespaces, in which the system's limit can be lowered",
)
@pytest.mark.parametrize(
    ("program", "limit", "warning"),
    [
        (NO_WATCHES, "max_inotify_watches", "max_user_watches): its records are checked every second"),
        (NO_WATCHES, "max_inotify_instances", "max_user_instances): its records are checked every second"),
        (FEW_WATCHES, "max_inotify_watches", "has 61 folders, and the system has watches for 40 of them"),
    ],
    ids=["no watches", "no queue", "few watches"],
)
def test_where_the_system_gives_too_few_watches_files_are_looked_at(
    tmp_path: Path, program: str, limit: str, warning: str
) -> None:
    """They may be used up, which is no reason not to start: one warning, and a look every second or now and then."""
    most = 40 if program is FEW_WATCHES else 0
    limited = f'echo {most} > /proc/sys/user/{limit} && exec "$0" "$@"'
    command = ["unshare", "-Ur", "sh", "-c", limited, sys.executable, "-c", program, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, 1) == (ran.returncode, ran.stderr.count(warning)), ran.stderr


def test_our_own_changes_hardly_wake_the_watching(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """The system keeps the events of a burst: hundreds of commits send no thread to sleep more than some ten times.

    On a slow disk a burst takes long, and the watching, which pauses for 50 ms after an event, reads more often.
    """
    before, begun = _times_woken(), time.monotonic()
    for number in range(BURST):
        manager.replace("plan", f"{number}")
    woken, took = _times_woken() - before, time.monotonic() - begun

    assert BURST == len(told)
    assert 0 < woken < BURST / 10 + 2 * took / 0.05


def _times_woken() -> int:
    """How often the watching threads of this process went to sleep so far; those of other tests' parts may be busy.

    Python lists a thread whose start was interrupted by another test as well, which has no id.
    """
    threads = (thread for thread in threading.enumerate() if thread.name.startswith("memfiles-watch"))
    watching = [thread.native_id for thread in threads if thread.native_id is not None]
    statuses = [Path(f"/proc/self/task/{number}/status").read_text().splitlines() for number in watching]
    lines = [line for status in statuses for line in status]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_more_events_than_the_system_keeps_are_made_up_for(tmp_path: Path) -> None:
    """The folder has to be examined as a whole then, and is watched again, with the folders in it."""
    events = FolderEvents(str(tmp_path), is_deep=True)
    events.start()
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [tmp_path / "a", tmp_path / "b"]
    names[0].touch()
    for number in range(kept // 2 + 1):
        names[number % 2].rename(names[not number % 2])  # two events
    (tmp_path / "late").mkdir()
    while events.wait(0):
        events.read()
    lost = events.are_incomplete
    events.start()
    (tmp_path / "late" / "a.json").write_text("x")
    found = events.read()
    after = events.are_incomplete
    events.close()

    assert (True, {"late/a.json"}, False) == (lost, found, after)


def test_all_is_examined_once_after_a_folder_was_moved(tmp_path: Path) -> None:
    """Not every second from then on."""
    (tmp_path / "one").mkdir()
    events = FolderEvents(str(tmp_path), is_deep=True)
    events.start()
    (tmp_path / "one").rename(tmp_path / "other")
    events.wait(10)
    events.read()
    before = events.are_incomplete
    events.start()
    after = events.are_incomplete
    events.close()

    assert (True, False) == (before, after)


def test_while_we_write_without_pause_others_are_noticed_all_the_same(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """Not only once we stop; and our own changes are told once."""
    written, noticed = 0, threading.Event()
    manager.subscribe(lambda event: noticed.set() if event.origin == "external" else None)
    while not noticed.is_set():
        assert written < 200_000
        manager.replace("plan", f"{written}")
        written += 1
        if written == BURST:
            rewrite(path, content="changed")

    assert ["notes"] == [event.uid for event in told if event.origin == "external"]
    assert written == sum(event.origin == "local" for event in told)


def _event_queues() -> int:
    """How many queues of inotify this process has."""
    return sum("inotify" in os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


def test_a_flat_folder_gives_one_event_until_it_is_asked_for_the_next(tmp_path: Path) -> None:
    """However much is written meanwhile costs nothing; what is written after the next start is told again."""
    events = FolderEvents(str(tmp_path))
    events.start()
    (tmp_path / "one.json").write_text("{}")
    first, named = events.wait(10), events.read()
    (tmp_path / "two.json").write_text("{}")
    meanwhile = events.wait(0.2)
    events.start()
    (tmp_path / "three.json").write_text("{}")
    next_one = events.wait(10)
    events.close()

    assert (True, set(), False, True) == (first, named, meanwhile, next_one)


class Counted:
    """Records of one folder, and which of them were examined."""

    is_deep, what = False, "counted"

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self.names, self.examined = folder, [f"file-{number}" for number in range(count)], list[str]()

    def folder(self) -> Path:
        """See ``Watched``."""
        return self._folder

    def record_at(self, path: str) -> str | None:
        """See ``Watched``."""
        return uid_of(path)

    def look(self, record: str) -> bool:
        """See ``Watched``."""
        self.examined.append(record)
        return True

    def suspects(self, pause: Pause) -> list[str]:
        """See ``Watched``."""
        return self.names


def test_a_change_among_many_files_does_not_examine_all(tmp_path: Path) -> None:
    """After a change of one of 3,000, that took 20 ms of the processor; events name it once the number is known."""
    counted = Counted(tmp_path, 40)
    watcher = Watcher(counted)
    wait_until(lambda: len(counted.examined) == 40)
    (tmp_path / "file-7.json").write_text("{}")
    wait_until(lambda: len(counted.examined) >= 80)
    (tmp_path / "file-8.json").write_text("{}")
    wait_until(lambda: "file-8" in counted.examined[80:])
    time.sleep(0.3)  # for the others, if they are to come
    watcher.close()

    assert {"file-7", "file-8"} >= {*counted.examined[80:]}


class _Late(_Folders):
    """Files in one folder, where another one is written while the records to examine in the second sweep are named."""

    is_deep = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sweeps = 0

    def suspects(self, pause: Pause) -> list[str]:
        self.sweeps += 1
        if self.sweeps == 2:
            (self.root / "late").write_text("")
        return []


def test_a_change_while_the_records_to_examine_are_named_is_noticed(tmp_path: Path) -> None:
    """The events are asked for first: none would tell of it, until everything is examined half a minute later."""
    watched = _Late(tmp_path)
    watcher = Watcher(watched)
    wait_until(lambda: watched.sweeps == 1)
    time.sleep(0.3)  # until it waits for events
    (tmp_path / "first").write_text("")
    wait_until(lambda: watched.sweeps > 2, seconds=10)
    watcher.close()


class _SlowFiles(_Folders):
    """Ten files in one folder, each of which takes long to examine."""

    is_deep = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sweeps: list[float] = []

    def look(self, record: str) -> bool:
        time.sleep(0.02)
        return True

    def suspects(self, pause: Pause) -> list[str]:
        self.sweeps.append(time.monotonic())
        return [f"{number}" for number in range(10)]


def test_slow_looks_at_few_files_do_not_put_off_the_next_ones(tmp_path: Path) -> None:
    """While somebody writes without pause, they come every half second; busy threads make looks slow."""
    watched = _SlowFiles(tmp_path)
    watcher = Watcher(watched)
    while len(watched.sweeps) < 9:
        (tmp_path / "7").write_text("")
        time.sleep(0.005)
    watcher.close()

    assert watched.sweeps[8] - watched.sweeps[7] < 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # as a server does that forks its workers
def test_a_child_does_not_hold_the_events_of_its_parent(tmp_path: Path) -> None:
    """They would pile up in the system for as long as it runs, with nobody to read them."""
    before = _event_queues()  # that other tests left, as an interrupted one may
    events = FolderEvents(str(tmp_path))
    events.start()
    thread = threading.Thread(target=events.wait, args=(60,))
    thread.start()
    wait_until(lambda: "poll" in sys._current_frames()[thread.ident or 0].f_locals)
    child = os.fork()
    if not child:
        events.close()
        os._exit(_event_queues() - before)
    _, status = os.waitpid(child, 0)
    events.interrupt()
    thread.join()
    events.close()

    assert 0 == os.waitstatus_to_exitcode(status)
