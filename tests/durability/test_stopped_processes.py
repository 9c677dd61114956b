"""A process that is stopped in the middle of a change: the others read on, are told who it is, and wait no longer."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles.errors import LockTimeout
from memfiles.files.manager import MemoryManager
from tests.durability.crowd import FILES as CROWDED
from tests.durability.crowd import UID
from tests.durability.operations import FILES, append_to_all, opened, warm
from tests.durability.tracer import Traced
from tests.support.programs import environment
from tests.support.records import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 0.3  # seconds
_GET_DESCRIPTOR = 438  # the system call pidfd_getfd, on every processor


@pytest.fixture
def impatient(scratch: Path) -> Iterator[MemoryManager]:
    """A manager that waits for locks for a moment only."""
    manager = MemoryManager(scratch / "memory", lock_timeout=PATIENCE)
    manager.restore(FILES)
    yield manager
    manager.close()


@pytest.fixture
def patient(scratch: Path) -> Iterator[MemoryManager]:
    """A manager that waits for locks as long as they usually do."""
    with MemoryManager(scratch / "memory") as manager:
        manager.restore(FILES)
        yield manager


def _doing(
    act: Callable[[MemoryManager], object], directory: Path, start: Callable[[Path], MemoryManager] = warm
) -> Traced:
    """A process, with a journal unless it was started otherwise, that is about to do something."""

    def setup() -> Callable[[], None]:
        manager = start(directory)
        return lambda: print(act(manager))

    return Traced(setup)


def _append(manager: MemoryManager) -> object:
    return manager.append("notes", "- from the stopped one\n")


def _is_redacted(manager: MemoryManager, text: str) -> bool:
    """Redact a text; whether every process did its part in time."""
    try:
        manager.redact(UID, text)
    except LockTimeout:
        return False
    return True


def _stop_before(child: Traced, call_name: str) -> None:
    assert call_name in (call.name for call in child.calls())


def _copied_descriptor(pid: int, path: Path) -> int:
    """A descriptor of the same open file that a process has at a path."""
    (number,) = [int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(link) == str(path)]
    process = os.pidfd_open(pid)
    try:
        return int(ctypes.CDLL(None).syscall(_GET_DESCRIPTOR, process, number, 0))
    finally:
        os.close(process)


@pytest.mark.usefixtures("require_tracing")
def test_who_holds_a_lock_too_long_is_named(impatient: MemoryManager) -> None:
    """A writer waits for a stopped one as long as it was told to, and learns its process id."""
    with _doing(_append, impatient.directory) as child:
        _stop_before(child, "fdatasync")
        started = time.monotonic()
        with pytest.raises(LockTimeout, match=rf"process {child.pid} \("):
            impatient.append("notes", "- too early\n")
        waited = time.monotonic() - started

    assert PATIENCE <= waited
    assert "too early" not in impatient.read("notes")


@pytest.mark.usefixtures("require_tracing")
def test_reads_and_other_files_do_not_wait(impatient: MemoryManager) -> None:
    """Readers see the last published version, and writers of other files go on."""
    with _doing(_append, impatient.directory) as child:
        _stop_before(child, "renameat2")
        seen = impatient.read("notes")
        impatient.append("plans", "- a plan\n")  # no ``LockTimeout``

    assert "# Start\n- first\n- second\n" == seen


@pytest.mark.usefixtures("require_tracing")
def test_a_killed_writer_s_change_is_finished_by_the_next(impatient: MemoryManager) -> None:
    """Killed once its change was in the journal: the next writer brings it into place and puts its own on top."""
    with _doing(_append, impatient.directory) as child:
        _stop_before(child, "renameat2")
    impatient.append("notes", "- the next\n")

    assert "# Start\n- first\n- second\n- from the stopped one\n- the next\n" == impatient.read("notes")


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("start", [opened, warm], ids=["without a journal", "with a journal"])
def test_what_is_saved_by_hand_in_the_last_moment_is_kept(
    start: Callable[[Path], MemoryManager], impatient: MemoryManager
) -> None:
    """Someone saves the file in place after the last look at it: the new version wins, theirs is in quarantine."""
    path = impatient.directory / "notes.json"
    with _doing(_append, impatient.directory, start) as child:
        _stop_before(child, "renameat2")
        by_hand = path.read_bytes().replace(b"Start", b"Stand")
        path.write_bytes(by_hand)
        child.release()
    (kept,) = impatient.status()["quarantine"]

    assert impatient.read("notes").endswith("- from the stopped one\n")
    assert by_hand == (impatient.directory / kept["path"]).read_bytes()
    assert "edited by hand just before" in kept["reason"]
    assert kept["path"].startswith("quarantine/notes.json.")


@pytest.mark.usefixtures("require_tracing")
def test_a_version_that_another_of_its_revision_keeps_out_is_kept(tmp_path: Path, scratch: Path) -> None:
    """A sound record of the same revision was copied over a killed process's: it stays, the other is in quarantine."""
    with opened(tmp_path / "other") as elsewhere:
        for text in ("- one\n", "- two\n", "- from elsewhere\n"):
            elsewhere.append("notes", text)
    with _doing(_append, scratch / "memory") as child:
        _stop_before(child, "unlinkat")  # of the earlier version: the new one is in the journal and in place
    ours = (scratch / "memory" / "notes.json").read_bytes()
    theirs = (tmp_path / "other" / "notes.json").read_bytes()
    (scratch / "memory" / "notes.json").write_bytes(theirs)
    with opened(scratch / "memory") as manager:
        (kept,) = manager.status()["quarantine"]
        content = manager.read("notes")

    assert json.loads(ours)["revision"] == json.loads(theirs)["revision"]
    assert "# Start\n- one\n- two\n- from elsewhere\n" == content
    assert ours == (scratch / "memory" / kept["path"]).read_bytes()
    assert "the file stays, as another version of that revision" in kept["reason"]


@pytest.mark.usefixtures("require_tracing")
def test_a_dying_process_is_waited_for(patient: MemoryManager) -> None:
    """It gives up its locks one by one: while it holds its journal, its half of a commit is not thrown away."""
    directory = patient.directory
    with _doing(append_to_all, directory) as child:
        _stop_before(child, "renameat2")
        (journal,) = directory.glob(f".journal/{child.pid}-*")
        held = _copied_descriptor(child.pid, journal)
    end_of_life = threading.Timer(PATIENCE, os.close, [held])
    end_of_life.start()
    patient.append("facts", "- the next\n")
    end_of_life.join()

    assert "# Start\n- for all: facts\n- the next\n" == patient.read("facts")
    assert "# Start\n- for all: plans\n" == patient.read("plans")


def test_a_redaction_names_who_does_not_answer(scratch: Path) -> None:
    """The text is out of the record at once; whose journal may hold it is told, and a second try completes it."""
    directory = scratch / "memory"
    command = [sys.executable, "-m", "tests.durability.crowd", str(directory), "pause", "7", "3"]
    pipe = subprocess.PIPE
    manager = MemoryManager(directory, lock_timeout=PATIENCE)
    with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdin.write("\n")
        other.stdin.flush()
        assert ["ready\n", "written\n"] == [other.stdout.readline(), other.stdout.readline()]
        other.send_signal(signal.SIGSTOP)
        manager.restore(CROWDED)
        with pytest.raises(LockTimeout, match=str(other.pid)):
            manager.redact(UID, "7.2")
        redacted = manager.read(UID)
        other.send_signal(signal.SIGCONT)
        wait_until(lambda: _is_redacted(manager, "7.2"))
        other.communicate("\n")
    manager.close()
    everything = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]

    assert "7.0\n7.1\n[redacted]\n" == redacted
    lines = (rb"7.2\n", b"7.2\n")  # in JSON and as it is; without its end a time of day may hold it
    assert not any(line in data for data in everything for line in lines)
