"""Earlier versions' files are written over for later ones, and nobody who looks on can tell."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from another_process import another_process
from records import declared

from memfiles import atomic
from memfiles.atomic import Signature
from memfiles.errors import SizeExceeded
from memfiles.events import RecordChanged
from memfiles.frames import Version
from memfiles.keys import temp_path
from memfiles.manager import MemoryManager
from memfiles.spares import Spares

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="files can be leased on Linux only")

FILES = [declared("notes", content="# Notes\n", cap=1 << 20), declared("plan", cap=1 << 20)]
RECORD, SPARE = "notes.json", temp_path("notes.json")
TEXT = "Grüße von hunter2"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    """A process with a spare of the notes."""
    with MemoryManager(tmp_path) as manager:
        manager.restore(FILES)
        for number in range(4):
            manager.append("notes", f"- {number}\n")
        yield manager


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """The descriptor of the manager's directory."""
    descriptor = atomic.open_directory(tmp_path)
    yield descriptor
    os.close(descriptor)


def inode(path: Path) -> int:
    return path.stat().st_ino


def append_some(manager: MemoryManager) -> None:
    for number in range(5):
        manager.append("notes", f"- {number}, at some length\n" * 100)


def test_two_files_take_turns(manager: MemoryManager) -> None:
    """The record is always a file that was the record before."""
    files = {inode(manager.directory / RECORD), inode(manager.directory / SPARE)}
    seen = set()
    for number in range(5):
        manager.append("notes", f"- {number}\n")
        seen.add(inode(manager.directory / RECORD))

    assert files == seen


def test_a_shorter_version_ends_where_it_ends(manager: MemoryManager, directory: int) -> None:
    """Nothing of a longer earlier version is behind it."""
    Spares(directory).stage(RECORD, b"short", after=None)

    assert b"short" == (manager.directory / SPARE).read_bytes()


def test_whoever_has_an_earlier_version_open_reads_on(manager: MemoryManager) -> None:
    """The file is not written over, nor is one that is mapped into memory."""
    path = manager.directory / RECORD
    whole = path.read_bytes()
    with path.open("rb") as file:
        append_some(manager)
        assert whole == file.read()
    whole = path.read_bytes()
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    append_some(manager)

    assert whole == bytes(mapped)


def test_a_second_name_keeps_its_version(manager: MemoryManager, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A hard link to a record is a copy as of then, its time as well."""
    link = tmp_path_factory.mktemp("backup") / RECORD
    link.hardlink_to(manager.directory / RECORD)
    before = (link.read_bytes(), link.stat().st_mtime_ns)
    append_some(manager)

    assert before == (link.read_bytes(), link.stat().st_mtime_ns)


def test_a_file_that_others_may_read_is_not_taken(manager: MemoryManager) -> None:
    """The next version is private, whatever was done to an earlier one."""
    (manager.directory / SPARE).chmod(0o644)
    os.utime(manager.directory / SPARE, ns=(0, 0))
    manager.append("notes", "- private\n")

    assert 0o600 == (manager.directory / RECORD).stat().st_mode & 0o777


def test_what_was_saved_by_hand_is_not_kept(manager: MemoryManager) -> None:
    """Nobody knows what of it is on the disk: the next version gets a new file."""
    path = manager.directory / RECORD
    path.write_text(path.read_text().replace("# Notes", "# Mine"))
    manager.append("notes", "- on\n")

    assert not (manager.directory / SPARE).exists()
    assert manager.read("notes").startswith("# Mine\n")


def test_only_what_the_journal_says_was_replaced_is_kept(tmp_path: Path, directory: int) -> None:
    """Not what is under the temp name for whatever other reason, nor what was touched since."""
    spares = Spares(directory)
    versions: list[Version] = []
    for number in (1, 2):
        staged = spares.stage(RECORD, b"data", after=None)
        versions.append(Version(RECORD, number, b"data", staged, versions[0].staged if versions else None))
        atomic.publish(directory, RECORD)
        if number == 1:
            spares.note(versions[0])
    other = replace(versions[1], replaced=Signature(1, 2, 3))
    is_kept = [spares.retire(other)]
    spares.note(versions[0])
    os.utime(tmp_path / SPARE, ns=(1, 1))
    is_kept.append(spares.retire(versions[1]))
    spares.note(versions[0])
    os.utime(tmp_path / SPARE, ns=(1, versions[0].staged.mtime_ns))
    is_kept.append(spares.retire(versions[1]))

    assert [False, False, True] == is_kept


def test_a_staged_version_is_no_spare(manager: MemoryManager, directory: int) -> None:
    """A dead writer's, or someone's own file of that name: it was not retired, and is not written over."""
    spare = manager.directory / SPARE
    os.utime(spare, ns=(0, 1))
    with pytest.raises(FileExistsError):
        Spares(directory).stage(RECORD, b"new", after=None)
    manager.append("notes", "- on\n")

    assert manager.read("notes").endswith("- on\n")


def test_a_later_version_is_later_whatever_the_clock_says(manager: MemoryManager, directory: int) -> None:
    """Also in a file that was written over: two versions in one file never look the same."""
    ahead = time.time_ns() + 10**15
    os.utime(SPARE, ns=(ahead, 0), dir_fd=directory)
    spares = Spares(directory)
    moments = [spares.stage(RECORD, b"1", after=None).mtime_ns]
    os.utime(SPARE, ns=(0, 0), dir_fd=directory)
    moments.append(spares.stage(RECORD, b"2", after=Signature(1, 1, ahead * 2)).mtime_ns)

    assert [ahead + 1, ahead * 2 + 1] == moments


OPENER = """
import os, sys
while True:
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY))
        if not opened: print("opening")
        opened = True
    except FileNotFoundError:
        opened = False
"""


def test_a_lease_that_someone_breaks_kills_nobody(manager: MemoryManager) -> None:
    """The system's signal to whoever has the lease ends a process unless it is told to send another one."""
    with another_process(OPENER.replace("import", "opened = False\nimport", 1), manager.directory / SPARE) as other:
        other.hear()
        for number in range(300):
            manager.append("notes", f"- {number}\n" * 20)
        other.process.kill()

    assert manager.read("notes").endswith("- 299\n" * 20)


def test_a_fork_does_not_keep_the_lease(tmp_path: Path, directory: int) -> None:
    """A child that lives on has the descriptor as well: the record can be opened at once nevertheless."""
    spares, data, refused = Spares(directory), b"x" * (32 << 20), 0
    for _ in range(6):
        (tmp_path / SPARE).write_bytes(b"")
        (tmp_path / SPARE).chmod(0o600)
        os.utime(tmp_path / SPARE, ns=(0, 0))
        thread = threading.Thread(target=spares.stage, args=(RECORD, data), kwargs={"after": None})
        thread.start()
        while (tmp_path / SPARE).stat().st_size == 0:
            pass
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        thread.join()
        try:
            os.close(os.open(SPARE, os.O_RDONLY | os.O_NONBLOCK, dir_fd=directory))
        except BlockingIOError:
            refused += 1
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert 0 == refused


def test_a_record_that_is_leased_for_a_moment_is_not_corrupt(manager: MemoryManager, directory: int) -> None:
    """Reading and flushing try again."""
    descriptor = os.open(manager.directory / RECORD, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    threading.Timer(0.1, lambda: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)).start()
    found = atomic.read(directory, RECORD, limit=1 << 20)
    atomic.sync_file(directory, RECORD)
    os.close(descriptor)

    assert found is not None


def test_a_quiet_second_and_a_close_leave_none(manager: MemoryManager) -> None:
    """What is on the disk is then what there is."""
    assert (manager.directory / SPARE).exists()
    deadline = time.monotonic() + 10
    while (manager.directory / SPARE).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (manager.directory / SPARE).exists()
    append_some(manager)
    assert (manager.directory / SPARE).exists()
    manager.close()

    assert [] == [path.name for path in manager.directory.glob(".*.tmp")]


def test_a_redaction_waits_for_whoever_could_keep_the_earlier_version(manager: MemoryManager) -> None:
    """Someone has the record locked just when its earlier version is to go, and then changes nothing."""
    manager.append("notes", TEXT)
    manager.append("notes", TEXT)
    with MemoryManager(manager.directory) as other:
        other.restore(FILES)
        is_held, threads = threading.Event(), []

        def hold() -> None:
            with other._opened.hold([RECORD]):
                is_held.set()
                time.sleep(0.3)

        def take_turns(event: RecordChanged) -> None:
            threads.append(threading.Thread(target=hold))
            threads[0].start()
            is_held.wait()

        stop = manager.subscribe(take_turns)
        manager.redact("notes", TEXT)
        stop()
        is_left = (manager.directory / SPARE).exists()
        threads[0].join()

    assert not is_left


def test_nothing_of_another_process_s_spares_is_left_by_a_redaction(tmp_path: Path) -> None:
    """It has written over files for a while, and holds the text in what it keeps."""
    program = """
import sys
from pathlib import Path
from records import declared
from memfiles.manager import MemoryManager
manager = MemoryManager(Path(sys.argv[1]))
manager.restore([declared("notes", content="# Notes\\n", cap=1 << 20), declared("plan", cap=1 << 20)])
for number in range(5):
    manager.append("notes", sys.argv[2])
print("appended")
input()
"""
    with another_process(program, tmp_path, TEXT) as other:
        other.hear()
        with MemoryManager(tmp_path) as manager:
            manager.restore(FILES)
            manager.redact("notes", TEXT)
            held = [path.name for path in tmp_path.rglob("*") if path.is_file() and TEXT.encode() in path.read_bytes()]
        other.tell()

    assert [] == held


def test_a_failed_change_leaves_the_spare_to_the_next(manager: MemoryManager) -> None:
    """What is refused has not touched it."""
    with pytest.raises(SizeExceeded):
        manager.append("notes", "x" * (1 << 20))
    manager.append("notes", "- on\n")

    assert manager.read("notes").endswith("- on\n")
