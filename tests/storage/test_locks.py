"""Record locks: one holder at a time among all threads and processes, and an owner to blame when it takes long."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import LockTimeout, StorageFailed
from memfiles.storage.atomic import Descriptor
from memfiles.storage.locks import FOLDER, STRIPES, RecordLocks
from tests.durability.interrupted import Interrupted
from tests.support.another_process import another_process

PATH = "notes.json"
HOLD = f"""
import os, sys
from memfiles.storage.locks import RecordLocks
with RecordLocks(os.open(sys.argv[1], os.O_RDONLY), timeout=9).hold([{PATH!r}]):
    print("held")
    input()
print("released")
"""


@pytest.fixture
def directory(tmp_path: Path) -> int:
    return Descriptor.of_directory(tmp_path)


def take(locks: RecordLocks, *paths: str) -> None:
    """Get the locks of these records and let them go again."""
    with locks.hold(paths or (PATH,)):
        pass


def locks(directory: int, *, timeout: float = 0.0) -> RecordLocks:
    return RecordLocks(directory, timeout=timeout)


class LeapingClock:
    """Every look at it is a second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_held_record_is_nobody_elses(directory: int) -> None:
    """Not another manager's in this process either; a thread that asks twice does not get it twice."""
    mine = locks(directory)
    for others in (locks(directory), mine):
        with mine.hold([PATH]), pytest.raises(LockTimeout):
            take(others)


def test_a_lock_is_let_go_whatever_happens(directory: int) -> None:
    """Also when the change under it fails."""
    held = locks(directory)
    with pytest.raises(ZeroDivisionError), held.hold([PATH]):
        raise ZeroDivisionError
    take(held)


def test_no_locks_are_held_when_one_of_several_cannot_be_had(directory: int) -> None:
    """Whoever waits for the others is not kept waiting."""
    with locks(directory).hold([PATH]), pytest.raises(LockTimeout):
        take(locks(directory), "a.json", "b.json", PATH)
    take(locks(directory), "a.json", "b.json", PATH)


def test_threads_take_turns(directory: int) -> None:
    """Nobody reads while another is between reading and writing."""
    shared, count = locks(directory, timeout=30.0), [0]

    def add() -> None:
        for _ in range(50):
            with shared.hold([PATH]):
                seen = count[0]
                time.sleep(0)
                count[0] = seen + 1

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add) for _ in range(4)]:
            done.result()

    assert [200] == count


def test_holders_of_several_never_wait_for_each_other(directory: int) -> None:
    """In whatever order they name them."""
    shared, paths = locks(directory, timeout=30.0), [f"{number}.json" for number in range(8)]

    def hold(names: list[str]) -> None:
        for _ in range(25):
            take(shared, *names)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(hold, paths), pool.submit(hold, paths[::-1])]:
            done.result()


def test_any_number_of_records_needs_a_bounded_number_of_lock_files(tmp_path: Path, directory: int) -> None:
    """Also when several of them share one."""
    take(locks(directory), *(f"{number}.json" for number in range(2 * STRIPES)))

    assert len(os.listdir(tmp_path / FOLDER)) <= STRIPES


def test_a_timeout_names_the_thread(directory: int) -> None:
    """In this process, by name; how long was waited stands there too."""
    shared, held, done = locks(directory), threading.Event(), threading.Event()

    def hold() -> None:
        with shared.hold([PATH]):
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold, name="the slow one")
    thread.start()
    held.wait(60)
    with pytest.raises(
        LockTimeout, match=rf"notes.json has been locked by thread 'the slow one' .*\({os.getpid()}\) .* 0 s"
    ):
        take(shared)
    done.set()
    thread.join()


def test_a_timeout_names_the_process(tmp_path: Path, directory: int) -> None:
    """So that a person can see what it is doing; its arguments, which may be secret, are not shown."""
    with another_process(HOLD, tmp_path) as other:
        assert "held" == other.hear()
        with pytest.raises(LockTimeout, match=rf"locked by process {other.pid} \(\S+\)") as error:
            take(locks(directory))
        other.tell()

    assert str(tmp_path) not in str(error.value)


def test_a_waiter_gets_the_lock_when_the_other_process_is_done(tmp_path: Path, directory: int) -> None:
    """Within milliseconds, not at the end of the timeout."""
    with another_process(HOLD, tmp_path) as other:
        assert "held" == other.hear()
        threading.Timer(0.1, other.tell).start()
        with locks(directory, timeout=30.0).hold([PATH]):
            assert "released" == other.hear()


def test_a_killed_process_holds_nothing(tmp_path: Path, directory: int) -> None:
    """The next one needs no help and no waiting."""
    with another_process(HOLD, tmp_path) as other:
        assert "held" == other.hear()
        other.process.kill()
        other.process.wait()
        take(locks(directory))


def test_a_deleted_lock_file_is_made_again(tmp_path: Path, directory: int) -> None:
    """Someone deleted derived state: the next holder is the only one at the new file."""
    with locks(directory).hold([PATH]):
        shutil.rmtree(tmp_path / ".state")
    with locks(directory).hold([PATH]), pytest.raises(LockTimeout):
        take(locks(directory))

    assert 1 == len(os.listdir(tmp_path / FOLDER))


def test_lock_files_are_private_whatever_the_umask(tmp_path: Path, directory: int) -> None:
    """A world-writable one would let anyone stop us."""
    earlier = os.umask(0)
    take(locks(directory))
    os.umask(earlier)

    assert {0o700} == {path.stat().st_mode & 0o777 for path in (tmp_path / ".state", tmp_path / FOLDER)}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER).iterdir()}


def test_the_timeout_is_counted_on_a_clock_of_its_own(directory: int) -> None:
    """The wall clock may be set at any time; here a second passes at each look."""
    clock = LeapingClock()
    with locks(directory).hold([PATH]), pytest.raises(LockTimeout, match="more than 9 s"):
        take(RecordLocks(directory, timeout=9.0, monotonic=clock))

    assert 9.0 < clock.now < 15.0


@pytest.mark.parametrize("in_place_of", [".state", ".state/locks"])
def test_where_no_lock_file_can_be_made_nothing_is_changed(tmp_path: Path, directory: int, in_place_of: str) -> None:
    """It is a failure of the storage, and the same call may succeed later."""
    (tmp_path / in_place_of).parent.mkdir(exist_ok=True)
    (tmp_path / in_place_of).write_text("a file")
    held = locks(directory)
    with pytest.raises(StorageFailed, match="notes.json cannot be locked") as error:
        take(held)
    (tmp_path / in_place_of).unlink()
    take(held)

    assert error.value.transient


def open_lock_files(tmp_path: Path) -> int:
    """How many lock files below this folder this process has open."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(name.startswith(f"{tmp_path / FOLDER}/") for name in names)


def test_some_lock_files_are_kept_open_and_not_locked(tmp_path: Path, directory: int) -> None:
    """Opening one takes longer than locking it; whoever else wants it gets it."""
    keeping = RecordLocks(directory, timeout=0.0, keep_open=2)
    for _ in range(2):
        take(keeping, *(f"{number}.json" for number in range(9)))
        take(locks(directory), *(f"{number}.json" for number in range(9)))

    assert 2 == open_lock_files(tmp_path)


def test_no_lock_file_stays_open_after_the_end(tmp_path: Path, directory: int) -> None:
    """Nor when nobody said that it was the end."""
    closed, forgotten = (RecordLocks(directory, timeout=0.0, keep_open=9) for _ in range(2))
    with closed.hold([PATH]):
        closed.close()
        with pytest.raises(LockTimeout):
            take(locks(directory))
    take(forgotten)
    del forgotten

    assert 0 == open_lock_files(tmp_path)


def test_a_lock_file_that_was_deleted_while_it_was_kept_open_is_made_again(tmp_path: Path, directory: int) -> None:
    """A lock on the deleted one would keep nobody out."""
    keeping = RecordLocks(directory, timeout=9.0, keep_open=9)
    take(keeping)
    shutil.rmtree(tmp_path / FOLDER)
    with keeping.hold([PATH]), pytest.raises(LockTimeout):
        take(locks(directory))


def test_a_lock_file_that_is_kept_open_is_not_shared_with_a_fork(tmp_path: Path, directory: int) -> None:
    """With the same open file parent and child would both hold the lock."""
    keeping = RecordLocks(directory, timeout=0.0, keep_open=9)
    take(keeping)
    child = os.fork()
    if child == 0:
        keeping.leave_to_parent()
        os._exit(open_lock_files(tmp_path))
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    assert 1 == open_lock_files(tmp_path)


def test_a_fork_has_no_locks_of_the_threads_of_its_parent(directory: int) -> None:
    """Nobody would release them there; once the parent did, the child can take them."""
    shared, held, may_go = locks(directory), threading.Event(), threading.Event()

    def hold() -> None:
        with shared.hold([PATH]):
            held.set()
            may_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        shared.leave_to_parent()
        os.read(reading, 1)
        with suppress(LockTimeout), shared.hold([PATH]):
            os._exit(0)
        os._exit(1)
    may_go.set()
    holder.join()
    os.write(writing, b".")
    _, status = os.waitpid(child, 0)
    for end in (reading, writing):
        os.close(end)

    assert 0 == os.waitstatus_to_exitcode(status)


def test_a_lock_file_that_a_fork_may_have_copied_unseen_is_not_kept_open(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child forked while it was being opened does not know of its copy, and would hold the lock of a dead parent."""

    def open_beside_a_fork(*arguments: Any, **more: Any) -> int:
        if os.getpid() != parent:  # whatever renews itself in the child opens files as well
            return real(*arguments, **more)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return real(*arguments, **more)

    real, parent = os.open, os.getpid()
    monkeypatch.setattr(os, "open", open_beside_a_fork)
    keeping = RecordLocks(directory, timeout=0.0, keep_open=9)
    take(keeping)
    monkeypatch.undo()

    assert 0 == open_lock_files(tmp_path)


def test_nothing_is_held_after_an_interrupt_at_any_call(directory: int) -> None:
    """Python raises one as a function begins: also as the release does, of which the context knows nothing then."""
    mine, step, seen = locks(directory), 0, 0

    def interrupt_there(_: object, what: str, __: object) -> None:
        nonlocal seen
        seen += what == "call"
        if what == "call" and seen == step:
            raise Interrupted

    with ThreadPoolExecutor(1) as other:
        while seen >= step:
            step, seen = step + 1, 0
            try:
                sys.setprofile(interrupt_there)
                mine.while_held(["a.json", "b.json"], lambda: None)
            except Interrupted:
                pass
            finally:
                sys.setprofile(None)
            other.submit(mine.while_held, ["a.json", "b.json"], lambda: None).result()

    assert step > 5
