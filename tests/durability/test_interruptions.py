"""Threads of one process that are interrupted, or whose manager is closed or listed while they write."""

from __future__ import annotations

import fcntl
import queue
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import memfiles
from memfiles.entries.callers import own_level
from memfiles.errors import MemfilesError
from memfiles.files.manager import MemoryManager
from memfiles.index.change_log import PATH as LOG
from memfiles.storage.events import AuditEvent, AuditLog
from memfiles.storage.locks import lock_descriptor
from memfiles.storage.transaction import GroupCommit, Request
from memfiles.storage.watcher import watch
from memfiles.tools.session import Session
from memfiles.workflow.workflow import MemoryFile
from mirrors.directory import DirectoryMirror
from tests.durability.conftest import Program
from tests.durability.crowd import UID, restored
from tests.durability.interrupted import (
    MIRRORED,
    WORK,
    WORKFLOW,
    Interrupted,
    append_until,
    interrupt,
    interrupt_at,
    interrupt_everywhere,
    starts_hidden,
    time_limit,
)
from tests.durability.stops import EVERY_CALL
from tests.support.records import wait_until
from tests.support.workflows import opened

pytestmark = pytest.mark.slow

INTERRUPTS = 300
BARE_INTERRUPTS = 2000
CLOSES = 10
MOMENT = 0.3  # seconds
LONG = 60
FEWEST_CALLS = 100
STRIDE = 61  # calls
STRIDE_OF_CLOSE = 17
STRIDE_OF_SYNC = 7  # fewer calls are in the main thread


@pytest.fixture
def rung() -> Iterator[threading.Event]:
    """The alarm interrupts the main thread, the first time that it comes, and sets this."""
    has_rung = threading.Event()

    def ring(number: int, frame: FrameType | None) -> None:
        if not has_rung.is_set():
            has_rung.set()
            interrupt(number, frame)

    before = signal.signal(signal.SIGALRM, ring)
    yield has_rung
    signal.signal(signal.SIGALRM, before)


def _ring(rung: threading.Event) -> None:
    """Interrupt the main thread; one signal may come just before it begins to wait, which does not wake it up."""
    main = threading.main_thread().ident
    assert main is not None
    while not rung.wait(0.01):
        signal.pthread_kill(main, signal.SIGALRM)


class Clerk:
    """Serves groups of requests, each once it has a permit."""

    def __init__(self) -> None:
        """There are no permits yet."""
        self.groups: list[list[str]] = []
        self.begun: queue.Queue[None] = queue.Queue()
        self.permits: queue.Queue[None] = queue.Queue()

    def serve(self, requests: list[Request[str]]) -> None:
        """Serve them all."""
        self.groups.append([request.work for request in requests])
        self.begun.put(None)
        self.permits.get(timeout=LONG)
        for request in requests:
            request.is_served = True


def _submitting(group: GroupCommit[str], wanted: str, clerk: Clerk) -> threading.Thread:
    thread = threading.Thread(target=group.submit, args=(wanted, clerk.serve))
    thread.start()
    return thread


def test_interrupts_at_any_moment_lose_nothing(program: Program, scratch: Path) -> None:
    """The main thread is interrupted 300 times beside three threads: each acknowledged line is there, none twice."""
    (said,) = program("tests.durability.interrupted", scratch / "memory", INTERRUPTS)
    with restored(scratch / "memory") as manager:
        lines = Counter(manager.read(UID).splitlines())

    assert [] == [line for line in said["acknowledged"] if lines[line] != 1]
    assert [] == [line for line, times in lines.items() if times != 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in a finaliser
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_at_any_call_leaves_nothing_locked(name: str, event: str, scratch: Path) -> None:
    """After each, another thread can do the same, and no line is lost or doubled; of thousands, some are tried."""
    stride = 1 if EVERY_CALL or name in ("append", "edit", "save") else STRIDE_OF_SYNC if name in MIRRORED else STRIDE
    (scratch / "mirror").mkdir()
    memory = opened(scratch, WORKFLOW, mirror=DirectoryMirror(scratch / "mirror") if name in MIRRORED else None)
    calls = interrupt_everywhere(memory, WORK[name], event, stride=stride)
    lines = Counter(memory.manager.read(UID).splitlines())
    with time_limit(LONG):
        memory.close()

    assert calls > FEWEST_CALLS
    assert 1 == max(lines.values())
    assert name != "append" or {f"after {call}" for call in range(1, calls + 1)} <= lines.keys()


@pytest.mark.directory(reason="the log of the index is a file of a memory directory")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_at_any_call_of_a_close_lets_others_open_the_memory(event: str, scratch: Path) -> None:
    """Their index was locked until the process ended, and each of their calls waited for it."""
    seen = step = random.randrange(STRIDE_OF_CLOSE)
    while seen >= step:
        step += STRIDE_OF_CLOSE
        memory = opened(scratch, WORKFLOW)
        memory.entries.save(memory.session("guide"), "plan", f"step {step}")
        with time_limit(LONG):
            seen = interrupt_at(step, memory.close, event)
            memory.close()  # the interrupt may have come before anything was closed
            with (memory.manager.directory / LOG).open() as log:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert step > FEWEST_CALLS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_at_any_call_of_a_save_leaves_it_to_be_found_and_counted(event: str, scratch: Path) -> None:
    """What was saved when it came was missing from searches, or from what budgets count, until the process ended."""
    seen = step = 0
    with opened(scratch, WORKFLOW) as memory:
        session, entries = memory.session("guide"), memory.entries
        index, home, saved = entries.parts.purger.db.index, own_level(session)["agent"], 0
        wrong: list[int] = []
        while seen >= step:
            step += 1
            seen = interrupt_at(step, partial(entries.save, session, f"plan {step}", f"word{step}"), event)
            is_saved = entries.get(session, f"plan {step}") is not None
            saved += is_saved
            if is_saved != bool(entries.search(session, f"word{step}").matches) or index.totals(home).count != saved:
                wrong.append(step)

    assert [] == wrong
    assert step > FEWEST_CALLS


@pytest.mark.directory(reason="the journal is a file of a memory directory")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_at_any_call_of_a_close_gives_the_journal_up(event: str, scratch: Path) -> None:
    """Every forget waited half a minute for it in vain; left is the instant in which the store begins to close."""
    seen = step = 1  # at the first call of all, nothing has begun
    kept: list[int] = []
    while seen >= step:
        step += 1
        with restored(scratch / f"{step}") as manager:
            manager.append(UID, "a line\n")
            with time_limit(LONG):
                seen = interrupt_at(step, manager.close, event)
            journals = [path.open("rb+") for path in scratch.glob(f"{step}/.journal/*")]
            kept += [step for file in journals if not lock_descriptor(file.fileno())]
            for file in journals:
                file.close()

    assert len(kept) <= 1
    assert step > 30


@pytest.mark.directory(reason="watches files")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_while_a_memory_opens_leaves_no_thread_that_watches(event: str, scratch: Path) -> None:
    """They kept the memory open, and its directory watched, until the process ended."""
    seen = step = 0
    with opened(scratch, WORKFLOW) as memory:
        while seen >= step:
            step += 1
            with time_limit(LONG), ExitStack() as cleanup:
                parts = memory.manager.records, memory.manager.watched, memory.entries.files
                seen = interrupt_at(step, partial(watch, *parts, cleanup), event)
        watching = [it for it in threading.enumerate() if it.name == "memfiles-watch" and it.is_alive()]

    assert [] == watching
    assert step > 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_while_lines_of_the_audit_are_written_loses_none(scratch: Path) -> None:
    """Those of earlier calls are still there, at worst twice."""
    seen = step = 0
    log = AuditLog(scratch)
    while seen >= step:
        step += 1
        log.record(AuditEvent("save", path=f"{step}.json"))
        seen = interrupt_at(step, log.flush, "c_return")
    log.close()
    kept = b"".join(path.read_bytes() for path in (scratch / "audit").iterdir())

    assert step > 5
    assert [] == [at for at in range(1, step + 1) if f'"{at}.json"'.encode() not in kept]


def test_what_stays_locked_fails_a_sweep(scratch: Path) -> None:
    """The sweep does not wait for ever, and says what all threads are doing."""
    lock = threading.Lock()

    def work(memory: memfiles.Memory, session: Session, text: str) -> None:
        if text.startswith("after"):
            lock.acquire()

    with opened(scratch, WORKFLOW) as memory, lock, pytest.raises(AssertionError, match="lock.acquire"):
        interrupt_everywhere(memory, work, "call", patience=MOMENT)


def test_a_thread_whose_start_was_interrupted_is_started_later(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change starts it: lines of the audit are written, the journal is emptied, and closing waits for none."""
    start, interrupted = threading.Thread.start, list[str]()

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith("memfiles-") and thread.name not in interrupted:
            interrupted.append(thread.name)
            raise Interrupted
        start(thread)

    def audited() -> bool:
        return any(path.read_bytes() for path in home.glob("audit/*"))

    with opened(scratch, WORKFLOW) as memory:
        home, session = memory.manager.directory, memory.session("guide")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_later)
            for turn in range(5):
                with suppress(Interrupted):
                    memory.entries.save(session, f"plan {turn}", "begun")
        memory.entries.save(session, "last", "begun")
        wait_until(audited, what="lines in the audit")
        wait_until(
            lambda: b"last" not in b"".join(path.read_bytes() for path in home.glob(".journal/*")), what="a checkpoint"
        )

    assert ["memfiles-audit", "memfiles-checkpoint"] == sorted(set(interrupted) - {"memfiles-index"})


def test_a_thread_whose_start_was_hidden_ends_as_well(scratch: Path) -> None:
    """It runs next to the one that a later change started, and a close wakes both."""
    with starts_hidden("memfiles-checkpoint") as started, opened(scratch, WORKFLOW) as memory:
        with pytest.raises(Interrupted):
            memory.manager.append(UID, "first\n")
        memory.manager.append(UID, "second\n")

        def functions() -> list[str]:
            frames = sys._current_frames()
            return [frames[thread.ident].f_code.co_name for thread in started if thread.ident in frames]

        wait_until(lambda: ["_run", "_run"] == functions(), what="two threads with nothing to do")
        with time_limit(60):
            memory.close()
        wait_until(lambda: not any(thread.is_alive() for thread in started), what="the end of both threads")


def test_interrupts_at_any_step_of_a_group_keep_nobody_waiting(program: Program, scratch: Path) -> None:
    """With no disk to wait for, 2000 interrupts come everywhere: what is acknowledged was done once, and all go on."""
    (said,) = program("tests.durability.interrupted", scratch, BARE_INTERRUPTS, "--bare")
    served: Counter[str] = Counter(said["served"])

    assert [] == said["waiting"]
    assert [] == [name for name in said["acknowledged"] if served[name] != 1]


def _wait_for(group: GroupCommit[str], count: int) -> None:
    """Until so many wait for their turn."""
    wait_until(lambda: group.waiting == count, what=f"{count} waiting")


def _meanwhile(*steps: Callable[[], object]) -> threading.Thread:
    """Take these steps, one after the other, in another thread."""

    def take() -> None:
        for step in steps:
            step()

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def test_who_waits_may_be_let_through_twice() -> None:
    """After an interrupt, the next leader may be told a second time, also in the instant in which it goes on."""
    request, opened_at = Request("served"), list[int]()

    def open_again(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and request.gate.locked():
            opened_at.append(frame.f_lineno)
            request.open_gate()
        return open_again if frame.f_code is Request.wait.__code__ else None

    request.open_gate()
    sys.settrace(open_again)
    try:
        request.wait()
    finally:
        sys.settrace(None)

    with time_limit(LONG):
        request.wait()
    assert 1 == len(opened_at)


def test_an_interrupted_waiter_is_not_served_later(rung: threading.Event) -> None:
    """Whoever is interrupted before its turn came has changed nothing, and holds nobody up."""
    clerk = Clerk()
    group: GroupCommit[str] = GroupCommit()
    first = _submitting(group, "first", clerk)
    clerk.begun.get(timeout=LONG)
    with pytest.raises(Interrupted):
        alarm = _meanwhile(lambda: _wait_for(group, 1), lambda: _ring(rung))
        group.submit("interrupted", clerk.serve)
    clerk.permits.put(None)
    for thread in (first, alarm):
        thread.join()
    clerk.permits.put(None)
    group.submit("later", clerk.serve)

    assert [["first"], ["later"]] == clerk.groups


def test_an_interrupted_waiter_stays_while_it_is_served(rung: threading.Event) -> None:
    """Once its change is under way it keeps its locks until that is done."""
    clerk = Clerk()
    group: GroupCommit[str] = GroupCommit()
    has_gone = threading.Event()
    gone_early: list[bool] = []
    first = _submitting(group, "first", clerk)
    clerk.begun.get(timeout=LONG)
    second = _submitting(group, "second", clerk)
    _wait_for(group, 1)  # it queues up before the main thread and so leads next, for both
    with pytest.raises(Interrupted):
        meanwhile = _meanwhile(
            lambda: _wait_for(group, 2),
            lambda: clerk.permits.put(None),
            lambda: clerk.begun.get(timeout=LONG),
            lambda: _ring(rung),
            lambda: gone_early.append(has_gone.wait(MOMENT)),
            lambda: clerk.permits.put(None),
        )
        group.submit("interrupted", clerk.serve)
    has_gone.set()
    for thread in (first, second, meanwhile):
        thread.join()

    assert [["first"], ["second", "interrupted"]] == clerk.groups
    assert [False] == gone_early


def test_an_interrupted_leader_tells_the_others(rung: threading.Event) -> None:
    """Those whose changes were not done when their leader was interrupted are not told that they were."""
    clerk = Clerk()
    group: GroupCommit[str] = GroupCommit()
    failed: list[BaseException] = []

    def follow() -> None:
        try:
            group.submit("follower", clerk.serve)
        except OSError as error:
            failed.append(error)

    follower = threading.Thread(target=follow)
    first = _submitting(group, "first", clerk)
    clerk.begun.get(timeout=LONG)
    with pytest.raises(Interrupted):
        meanwhile = _meanwhile(
            lambda: _wait_for(group, 1),
            follower.start,
            lambda: _wait_for(group, 2),
            lambda: clerk.permits.put(None),
            lambda: clerk.begun.get(timeout=LONG),
            lambda: _ring(rung),
        )
        group.submit("leader", clerk.serve)
    for thread in (meanwhile, first, follower):
        thread.join()

    assert [["first"], ["leader", "follower"]] == clerk.groups
    assert [InterruptedError] == [type(error) for error in failed]


def test_a_manager_may_be_closed_while_threads_write(scratch: Path) -> None:
    """The threads are refused from then on, and what was acknowledged is there."""
    done: list[str] = []
    refused: list[BaseException] = []

    def write(manager: MemoryManager, name: str) -> None:
        try:
            append_until(manager, name, done, threading.Event())
        except MemfilesError as error:
            refused.append(error)

    for number in range(CLOSES):
        manager = restored(scratch / "memory")
        threads = [threading.Thread(target=write, args=(manager, f"{number}-{n}")) for n in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01 * number)
        manager.close()
        for thread in threads:
            thread.join()
    with restored(scratch / "memory") as manager:
        lines = Counter(manager.read(UID).splitlines())

    assert 4 * CLOSES == len(refused)
    assert [] == [line for line in done if lines[line] != 1]
    assert [] == list((scratch / "memory" / ".journal").iterdir())


def test_threads_that_list_the_directory_see_all_of_it(scratch: Path) -> None:
    """The records are listed by each thread for itself: none of them takes names away from another."""
    files = [MemoryFile(uid=f"file-{number}", name=f"file-{number}") for number in range(300)]
    with MemoryManager(scratch / "memory") as manager:
        manager.restore(files)
        manager.restore(files[:1])
        seen: list[int] = []

        def look() -> None:
            seen.extend(len(manager.status()["orphans"]) for _ in range(30))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [299] * 120 == seen
