"""A disk that is full, read-only or failing: clear errors, nothing changed, and the next write works again."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.errors import MemfilesError, StorageFailed
from memfiles.files.manager import MemoryManager
from tests.durability.conftest import Program
from tests.durability.disks import Disk, disk
from tests.durability.operations import FILES, OPERATIONS, append_to_all, contents_on_disk, opened, warm
from tests.durability.stops import EVERY_CALL
from tests.support.another_process import another_process
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

WRITES = ["first append of a process", "append that makes the journal", "append to three files at once", "redeploy"]
SAME_CALLS = {"first edit of a process", "journaled edit", "undo"}  # as an append: they differ in what is decided
REFUSALS = [("ENOSPC", "--lasting"), ("EROFS", "--lasting"), ("EMFILE",)]  # as they come
EVERY_REFUSAL = [*REFUSALS, ("ENOSPC",), ("EROFS",), ("EMFILE", "--lasting")]
EVERY_SEEN_ERROR = {None, "StorageFailed", "OutcomeUnknown"}


def _badly_taken(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fault for fault in faults if fault["problems"]]


@pytest.mark.usefixtures("require_tracing")
def test_any_call_may_fail_once(program: Program, scratch: Path) -> None:
    """With EIO at any call of any operation the caller is told right, and the same call made again works."""
    faults = program(
        "tests.durability.fault_sweep", scratch, "EIO", *(name for name in OPERATIONS if name not in SAME_CALLS)
    )

    assert [] == _badly_taken(faults)
    assert EVERY_SEEN_ERROR == {fault["error"] for fault in faults}


@pytest.mark.usefixtures("require_tracing")
def test_all_calls_may_fail_for_a_while(program: Program, scratch: Path) -> None:
    """With EIO from any call on, also at those that clean up, the same holds once the disk is well again."""
    faults = program(
        "tests.durability.fault_sweep", scratch, "EIO", *WRITES, "journaled edit", "checkpoint", "--lasting"
    )

    assert [] == _badly_taken(faults)
    assert EVERY_SEEN_ERROR == {fault["error"] for fault in faults}


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("refused", EVERY_REFUSAL if EVERY_CALL else REFUSALS, ids=" ".join)
def test_a_disk_may_refuse(refused: tuple[str, ...], program: Program, scratch: Path) -> None:
    """A full disk, a read-only one and too many open files: the same."""
    error, *lasting = refused
    faults = program("tests.durability.fault_sweep", scratch, error, *WRITES, *lasting)

    assert [] == _badly_taken(faults)
    assert "StorageFailed" in {fault["error"] for fault in faults}


@pytest.fixture
def ground(require_disks: None, images: Path) -> Iterator[Disk]:
    """A small file system that turns read-only when it finds an error."""
    with disk("ext4-watchful", images / "ground") as made:
        yield made


@pytest.mark.power
def test_a_full_disk_refuses_and_changes_nothing(ground: Disk) -> None:
    """Appends fail while the disk is full, memory and disk stay as they were, and once there is room they work."""
    directory = ground.path / "memory"
    manager = warm(directory)
    before = manager.read("notes")
    filler = ground.fill()
    with pytest.raises(StorageFailed, match="No space left on device"):
        manager.append("notes", "- no room\n")
    with pytest.raises(StorageFailed, match="No space left on device"):
        append_to_all(manager)
    full = (manager.read("notes"), contents_on_disk(directory)["notes"])
    filler.unlink()
    manager.append("notes", "- room again\n")
    manager.close()

    assert (before, before) == full
    assert before + "- room again\n" == contents_on_disk(directory)["notes"]


@pytest.mark.power
def test_a_full_disk_does_not_keep_a_process_from_starting(ground: Disk) -> None:
    """On a disk that is full everything can be read, and what needs no room works."""
    directory = ground.path / "memory"
    warm(directory).close()
    ground.fill()
    with MemoryManager(directory) as manager:
        report = manager.restore(FILES)
        content = manager.read("notes")

    assert {"kept"} == {row.status for row in report.files}
    assert "# Start\n- first\n- second\n" == content


@pytest.mark.power
@pytest.mark.parametrize(("left", "taken"), [(190, 64), (60, 16)])
def test_a_nearly_full_disk_takes_a_small_journal(ground: Disk, left: int, taken: int) -> None:
    """A process whose journal would not fit makes a smaller one, and leaves the rest of the room to others."""
    directory = ground.path / "memory"
    opened(directory).close()
    ground.fill(leaving=left << 10)
    with MemoryManager(directory) as manager:
        manager.restore(FILES)
        for number in range(200):
            manager.append("notes", f"- {number}: {'x' * 20}\n")
        sizes = [path.stat().st_size for path in (directory / ".journal").iterdir()]
        lines = manager.read("notes").count("\n")

    assert 201 == lines
    assert [taken] == [size // 16384 * 16 for size in sizes]  # a larger frame makes it longer for a while


@pytest.mark.power
def test_a_read_only_disk_refuses_and_changes_nothing(ground: Disk) -> None:
    """While the disk is read-only a start works, reads work and writes fail; afterwards writes work again."""
    directory = ground.path / "memory"
    warm(directory).close()
    ground.remount("ro")
    manager = MemoryManager(directory)
    report = manager.restore(FILES)
    with pytest.raises(StorageFailed, match="Read-only file system"):
        manager.append("notes", "- never\n")
    read = manager.read("notes")
    ground.remount("rw")
    manager.append("notes", "- third\n")
    manager.close()

    assert {"kept"} == {row.status for row in report.files}
    assert "# Start\n- first\n- second\n" == read
    assert "# Start\n- first\n- second\n- third\n" == contents_on_disk(directory)["notes"]


def _fail_under(manager: MemoryManager, failure: Callable[[], None]) -> None:
    failure()
    with pytest.raises(MemfilesError):
        manager.append("notes", "- never\n")
    with pytest.raises(MemfilesError):
        append_to_all(manager)
    with pytest.raises(MemfilesError):
        manager.checkpoint()
    with pytest.raises(StorageFailed):
        manager.close()


@pytest.mark.power
@pytest.mark.parametrize("failure", [Disk.break_down, Disk.cut_power], ids=["read-only", "gone"])
def test_a_disk_that_fails_under_a_process(ground: Disk, failure: Callable[[Disk], None]) -> None:
    """Every call fails with an error of ours, close as well; what was acknowledged is there at the next start."""
    directory = ground.path / "memory"
    _fail_under(warm(directory), lambda: failure(ground))
    gc.collect()  # its directory is open for as long as anyone may be in the middle of a call
    ground.power_up()

    assert "# Start\n- first\n- second\n" == opened(directory).read("notes")


@pytest.mark.power
def test_an_index_that_finds_no_room_leaves_it_to_records(require_disks: None, images: Path) -> None:
    """Its write-ahead log does not fill the disk for good, if the index itself no longer fits: it answers in memory."""
    words = " ".join(f"w{number}" for number in range(150))
    items = [{"key": f"cup/{number}", "content": f"tea {number} {words}"} for number in range(900)]
    found = []
    with disk("ext4-large-blocks", images / "ground") as ground:
        workflow = write_workflow(ground.path / "desk", "name: d\nmemory: {entries: {}}\nagents: {writer: {}}\n")
        with memfiles.open(workflow, watch=False) as memory:
            memory.entries.save_many(memory.session("writer"), items)
        state = workflow.parent / ".memory" / ".state"
        size = (state / "index.sqlite").stat().st_size
        shutil.rmtree(state)
        ground.fill(leaving=size * 3 // 2)
        for number in range(3):
            with memfiles.open(workflow, watch=False) as memory:
                session = memory.session("writer")
                found.append(len(memory.entries.search(session, "tea").matches))
                memory.entries.save(session, f"cup/last {number}", "The last cup of tea.")

    assert [10, 10, 10] == found


_INDEXED = """
import sys
from pathlib import Path
import memfiles

print("ready", flush=True)
for line in sys.stdin:
    with memfiles.open(sys.argv[1], watch=False) as memory:
        session = memory.session("writer")
        if line == "save\\n":
            for number in range(50):
                memory.entries.save(session, f"cup/{number}", f"Ada had {number} cups of tea.")
        print(len(memory.entries.search(session, "tea").matches), flush=True)
        session.call("memory_save", {"key": "cup/last", "content": "The last cup of tea."})
        memory.entries.search(session, "tea")
    print("closed", flush=True)
"""


@pytest.mark.power
@pytest.mark.parametrize("has_log", [False, True], ids=["new", "of an earlier version"])
def test_a_nearly_full_disk_with_small_blocks_does_not_kill_the_index(
    has_log: bool, require_disks: None, images: Path
) -> None:
    """However little room is left: searches answer, and no process dies of a page that has no block."""
    with disk("ext4-small-blocks", images / "ground") as ground:
        workflow = write_workflow(ground.path / "desk", "name: d\nmemory: {entries: {}}\nagents: {writer: {}}\n")
        found = []
        with another_process(_INDEXED, workflow) as other:
            other.hear()
            for left in range(4, 52, 4):
                other.tell("save")
                other.hear()
                other.hear()  # it is closed: nobody else uses the index now
                if has_log:
                    path = workflow.parent / ".memory" / ".state" / "index.sqlite"
                    with closing(sqlite3.connect(path)) as index:
                        index.execute("PRAGMA journal_mode = WAL")
                filler = ground.fill(leaving=left << 10)
                other.tell("search")
                found.append(other.hear())
                filler.unlink()
                other.hear()

    assert ["10"] * 12 == found
