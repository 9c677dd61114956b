"""The store of a memory directory: what a process holds of it, and what becomes of it without a close."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import memfiles
from memfiles import MemoryFile, MemoryManager
from memfiles.errors import StorageFailed, StorageRefused
from memfiles.index.index import BackgroundWriter
from memfiles.storage.atomic import Descriptor
from memfiles.storage.events import utc_now
from memfiles.storage.home import home_of, needs_recovery
from memfiles.storage.journal import Journal
from memfiles.storage.store import Checkpointer, Store
from mirrors.testing.stores.place import put, read, remove
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.records import rewrite, wait_until
from tests.support.stores import directory_store
from tests.support.workflows import write_workflow

WORKFLOW = """
    name: desk
    memory:
      mirror: {{url: "{mirror}"}}
      entries: {{}}
      files: [{{uid: notes, name: notes, description: What is known.}}]
    agents:
      assistant: {{memory: [{{id: notes, mode: rw}}]}}
"""

CYCLES = """
import gc, json, os, sys, threading, time

handlers = []
register = os.register_at_fork
os.register_at_fork = lambda **given: (handlers.append(given), register(**given))[1]
import memfiles

def cycle():
    with memfiles.open(sys.argv[1]) as memory:
        session = memory.session("assistant", run="r")
        session.call("append_memory", {"file": "notes", "content": "-\\n"})
        session.call("memory_save", {"key": "k", "content": "c"})

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def held():
    least = descriptors()
    for _ in range(20):  # a thread that has just ended lets go of what it held a moment later
        time.sleep(0.01)
        least = min(least, descriptors())
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [least, threading.active_count(), len(handlers), resident]

print("ready")
for count in map(int, iter(input, "")):
    for _ in range(count):
        cycle()
    print(json.dumps(held()))
"""


ROUNDS = int(os.environ.get("MEMFILES_ROUNDS", "100"))


@pytest.mark.slow
def test_a_memory_that_was_closed_leaves_nothing_in_the_process(tmp_path: Path) -> None:
    """After many rounds of open, change and close there are the descriptors, threads and fork handlers of the first."""
    (tmp_path / "mirror").mkdir()
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    with another_process(CYCLES, workflow) as other:
        assert "ready" == other.hear()
        counted: list[list[int]] = []
        for cycles in (1, 49, ROUNDS):
            other.tell(str(cycles))
            counted.append(json.loads(other.hear()))
        other.tell()
    *first, _ = counted[0]
    *last, resident = counted[-1]

    assert first == last
    assert resident < counted[1][-1] + 40_000 * ROUNDS


GONE = """
import os, shutil, sys
import memfiles

with memfiles.open(sys.argv[1]) as memory:
    pass
shutil.rmtree(os.path.dirname(sys.argv[1]))
if (child := os.fork()) == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_fork_after_a_memory_is_gone_says_nothing(tmp_path: Path) -> None:
    """Closed, with its directory removed, it is left alone in the child, and no error is printed there."""
    (tmp_path / "mirror").mkdir()
    workflow = write_workflow(tmp_path / "desk", WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    done = subprocess.run([sys.executable, "-c", GONE, workflow], cwd=ROOT, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)


EARLY = """
import os, sys, time

early = -300 * 86400 * 10**9  # from a machine without a battery, or with a wrong one
begun = time.time_ns()
time.time_ns = lambda now=time.time_ns: early + now() - begun
time.time = lambda: time.time_ns() / 1e9
import memfiles
from tests.cli.command_line import run

workflow = sys.argv[1]
memory = memfiles.open(workflow, watch=False)
session = memory.session("assistant", run="r")
for turn in range(3):
    assert not session.call("append_memory", {"file": "notes", "content": f"- {turn}\\n"}).is_error
    memory.entries.save(session, "k", f"tea {turn}", ttl=3600)
assert not session.call("memory_search", {"query": "tea"}).is_error
assert "tea 2" in session.system_prompt()
memory.status()
for command in ("log notes", "read notes", "entries list", "status", "sync status"):
    assert 0 == run("-w", workflow, *command.split()).code, command
print("killed", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_clock_before_1970_fails_nothing(tmp_path: Path) -> None:
    """Changes are journaled, recovered and found, also by a process whose clock is right."""
    (tmp_path / "mirror").mkdir()
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    with another_process(EARLY, workflow) as other:
        assert "killed" == other.hear()
    with memfiles.open(workflow, watch=False) as memory:
        session = memory.session("assistant", run="r")
        found = session.call("memory_get", {"key": "k"})
        notes = session.call("read_memory", {"file": "notes"}).text

    assert "- 0\n- 1\n- 2\n" == notes
    assert {"found": False, "key": "k"} == found.data  # its hour is long over


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """The workflow of a memory whose directory is a link to one elsewhere."""
    for name in ("mirror", "real", "trap"):
        (tmp_path / name).mkdir()
    workflow = write_workflow(tmp_path / "desk", WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    (workflow.parent / ".memory").symlink_to(tmp_path / "real")
    return workflow


def _worked(memory: memfiles.Memory, number: int) -> str:
    """The notes after one of everything that writes."""
    session = memory.session("assistant", run="r")
    memory.manager.append("notes", f"- {number} and private\n")
    memory.manager.redact("notes", f"{number} and private")
    session.call("memory_save", {"key": f"k{number}", "content": f"tea {number}"})
    session.call("memory_search", {"query": "tea"})
    session.call("append_memory", {"file": "unknown", "content": "x"})
    memory.sync.flush(60)
    return memory.manager.read("notes")


def test_a_memory_directory_may_be_a_link_and_is_followed_once(linked: Path, tmp_path: Path) -> None:
    """While it is open, nobody who puts the link elsewhere gets anything, and changes by hand are still noticed."""
    told: list[str] = []
    with memfiles.open(linked) as memory:
        _worked(memory, 1)
        (linked.parent / ".memory").unlink()
        (linked.parent / ".memory").symlink_to(tmp_path / "trap")
        (tmp_path / "real" / "audit").rename(tmp_path / "real" / "audit-before")
        (tmp_path / "real" / ".state" / "index.sqlite").unlink()
        (tmp_path / "real" / ".state" / "mirror.sqlite").unlink()
        notes = _worked(memory, 2)
        memory.manager.subscribe(lambda event: told.append(event.origin))
        rewrite(tmp_path / "real" / "notes.json", content="by hand")
        wait_until(lambda: "external" in told)

    assert "- [redacted]\n- [redacted]\n" == notes
    assert [] == list((tmp_path / "trap").iterdir())
    assert "by hand" == json.loads((tmp_path / "real" / "notes.json").read_bytes())["content"]


def test_a_link_to_a_directory_that_is_missing_is_refused(linked: Path, tmp_path: Path) -> None:
    """Its disk may not be mounted: nothing is made in its place."""
    (tmp_path / "real").rmdir()
    with pytest.raises(StorageFailed, match=r"\.memory links to .*/real, which does not exist: create it"):
        memfiles.open(linked)

    assert not (tmp_path / "real").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_directory_that_was_moved_takes_no_changes(tmp_path: Path, is_replaced: bool) -> None:
    """What was acknowledged would be missing where the memory is opened next; the error says what to do."""
    there, aside = tmp_path / "memory", tmp_path / "aside"
    with MemoryManager(there) as manager:
        manager.restore([MemoryFile(uid="notes", name="notes")])
        there.rename(aside)
        if is_replaced:
            shutil.copytree(aside, there)
        time.sleep(1.0)  # it is looked at once a second
        with pytest.raises(StorageRefused, match="was moved or replaced while it was open.* move it back, or close"):
            manager.append("notes", "- a\n")
        content = manager.read("notes")
        shutil.rmtree(there, ignore_errors=True)
        aside.rename(there)
        manager.append("notes", "- b\n")

    assert ("", "- b\n") == (content, json.loads((there / "notes.json").read_bytes())["content"])


def test_a_manager_that_is_gone_holds_nothing_open(tmp_path: Path) -> None:
    """At once, not when the garbage collector comes by: the disk below may be about to be unmounted."""
    gc.collect()
    gc.disable()
    try:
        manager = MemoryManager(tmp_path / "memory")
        manager.restore([MemoryFile(uid="notes", name="notes")])
        for turn in range(3):
            manager.append("notes", f"- {turn}\n")
        manager.close()
        del manager
        held = [path for each in Path("/proc/self/fd").iterdir() if str(tmp_path) in (path := os.path.realpath(each))]
    finally:
        gc.enable()

    assert [] == held


def _ended_while_starting(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], object], end: Callable[[], None]) -> str:
    """Call ``begin``, and ``end`` in another thread at the moment when ``begin`` starts a thread; returns the error."""
    start, told = threading.Thread.start, [""]
    monkeypatch.setattr(threading, "excepthook", lambda failed: told.append(str(failed.exc_value)))
    ending = threading.Thread(target=end, name="ending")

    def start_late(thread: threading.Thread) -> None:
        if thread.name in ("memfiles-checkpoint", "memfiles-index"):
            start(ending)
            ending.join(0.2)  # until it has failed, or waits for this start
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    begin()
    ending.join()
    return told[-1]


def test_a_close_waits_for_a_checkpointer_that_another_thread_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync may make the first change of a process just when the memory is closed."""
    directory = Descriptor.of_directory(tmp_path)
    checkpointer = Checkpointer(directory, Journal(directory, new_id=lambda: "one"), recover=lambda: None)

    assert "" == _ended_while_starting(monkeypatch, checkpointer.wake, checkpointer.stop)


def test_a_close_waits_for_an_index_writer_that_another_thread_is_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the checkpointer; and the work is done."""
    done: list[int] = []
    writer = BackgroundWriter(lambda: done.append(1))

    assert "" == _ended_while_starting(monkeypatch, writer.begin, writer.wait)
    assert [1] == done


LEAVES = """
import sys
from tests.support.stores import directory_store
from mirrors.testing.stores.place import put

store = directory_store(sys.argv[1])
for text in "ab":
    put(store, {sys.argv[2]: text})
print("journaled")
input()
store.close()
print("closed")
"""
ENTRY = f"entries/support/{0:040}.json"


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_folder_that_is_removed_by_hand_hinders_nobody(tmp_path: Path, end: str) -> None:
    """Removed records stay so at a close; a start after a kill takes them for lost, as it does any missing record."""
    with another_process(LEAVES, tmp_path, ENTRY) as other:
        assert "journaled" == other.hear()
        shutil.rmtree(tmp_path / "entries")
        if end == "kill":
            os.kill(other.pid, signal.SIGKILL)
        else:
            other.tell()
            assert "closed" == other.hear()
    store = directory_store(str(tmp_path))
    found = read(store, ENTRY)
    store.close()

    assert {"close": None, "kill": "b"}[end] == found
    assert [] == sorted((tmp_path / ".journal").iterdir())


@pytest.mark.parametrize("erase", ["scrub", "remove"])
def test_what_is_erased_is_overwritten_on_the_disk_in_all_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erase: str
) -> None:
    """The process of a journal overwrites it without a flush when it is idle."""
    unflushed = set[int]()
    for call in ("pwrite", "fdatasync", "fsync"):
        monkeypatch.setattr(os, call, _noting(call, unflushed))
    store, other = (Store(tmp_path, now=utc_now) for _ in range(2))
    for text in "ab":
        put(other, {"a.json": text, "b.json": text})
    other.checkpoint()
    (journal,) = (path.stat().st_ino for path in (tmp_path / ".journal").iterdir())
    before = journal in unflushed
    store.scrub() if erase == "scrub" else remove(store, ["a.json"])
    after = journal in unflushed
    store.close()
    other.close()

    assert (True, False) == (before, after)


def _noting(call: str, unflushed: set[int]) -> Callable[..., object]:
    """A system call that notes which files were written, and not flushed since then."""
    real = getattr(os, call)

    def do(descriptor: int, *arguments: object) -> object:
        (unflushed.add if call == "pwrite" else unflushed.discard)(os.fstat(descriptor).st_ino)
        return real(descriptor, *arguments)

    return do


def test_what_a_failed_change_left_in_the_journal_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the first one to be journaled; else no other process could redact until this one ends."""
    store, other = (Store(tmp_path, now=utc_now, lock_timeout=20) for _ in range(2))
    put(store, {"a.json": "a"})

    def fail(_: int) -> None:
        monkeypatch.undo()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageFailed):
        put(store, {"a.json": "secret" * 500})
    other.scrub()
    found = [path.name for path in (tmp_path / ".journal").iterdir() if b"secret" in path.read_bytes()]
    other.close()
    store.close()

    assert [] == found


FORKS = """
import os, sys
from tests.support.stores import directory_store
from mirrors.testing.stores.place import put

store = directory_store(sys.argv[1])
put(store, {"a.json": "a"})
write = os.pwrite

def fork_first(*arguments):
    os.pwrite = write
    child = os.fork()
    if not child:
        sys.stdin.read()
        os._exit(0)
    return write(*arguments)

os.pwrite = fork_first
put(store, {"a.json": "b", "b.json": "b"})
print("journaled")
input()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_journal_is_created_does_not_keep_it(tmp_path: Path) -> None:
    """It may outlive its parent, and nobody could recover from the journal until it ends."""
    with another_process(FORKS, tmp_path) as other:
        assert "journaled" == other.hear()
        os.kill(other.pid, signal.SIGKILL)
        other.process.wait(60)
        is_free = needs_recovery(home_of(tmp_path))

    assert is_free
