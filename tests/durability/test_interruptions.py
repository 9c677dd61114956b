"""Threads of one process that are interrupted, or whose manager is closed or listed while they write."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from durability.conftest import Program
from durability.crowd import UID, restored
from durability.interrupted import Interrupted, append_until, interrupt
from memfiles.errors import MemfilesError
from memfiles.grouping import Group, Request
from memfiles.manager import MemoryManager
from memfiles.workflow import MemoryFile

INTERRUPTS = 300
BARE_INTERRUPTS = 2000
CLOSES = 10
MOMENT = 0.5  # seconds
LONG = 60


@pytest.fixture
def alarm() -> Iterator[None]:
    """The alarm clock interrupts the main thread."""
    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Clerk:
    """Serves groups of requests, each once it has a permit."""

    def __init__(self) -> None:
        """There are no permits yet."""
        self.groups: list[list[str]] = []
        self.begun: queue.Queue[None] = queue.Queue()
        self.permits: queue.Queue[None] = queue.Queue()

    def serve(self, requests: list[Request[str]]) -> None:
        """Serve them all."""
        self.groups.append([request.wanted for request in requests])
        self.begun.put(None)
        self.permits.get(timeout=LONG)
        for request in requests:
            request.is_served = True


def _submitting(group: Group[str], wanted: str) -> threading.Thread:
    thread = threading.Thread(target=group.submit, args=(wanted,))
    thread.start()
    return thread


def test_interrupts_at_any_moment_lose_nothing(program: Program, scratch: Path) -> None:
    """The main thread is interrupted 300 times beside three threads: each acknowledged line is there, none twice."""
    (said,) = program("durability.interrupted", scratch / "memory", INTERRUPTS)
    with restored(scratch / "memory") as manager:
        lines = Counter(manager.read(UID).splitlines())

    assert [] == [line for line in said["acknowledged"] if lines[line] != 1]
    assert [] == [line for line, times in lines.items() if times != 1]


def test_interrupts_at_any_step_of_a_group_keep_nobody_waiting(program: Program, scratch: Path) -> None:
    """With no disk to wait for, 2000 interrupts come everywhere: what is acknowledged was done once, and all go on."""
    (said,) = program("durability.interrupted", scratch, BARE_INTERRUPTS, "--bare")
    served: Counter[str] = Counter(said["served"])

    assert [] == said["waiting"]
    assert [] == [name for name in said["acknowledged"] if served[name] != 1]


@pytest.mark.usefixtures("alarm")
def test_an_interrupted_waiter_is_not_served_later() -> None:
    """Whoever is interrupted before its turn came has changed nothing, and holds nobody up."""
    clerk = Clerk()
    group = Group(clerk.serve)
    first = _submitting(group, "first")
    clerk.begun.get(timeout=LONG)
    signal.setitimer(signal.ITIMER_REAL, MOMENT)
    with pytest.raises(Interrupted):
        group.submit("interrupted")
    clerk.permits.put(None)
    first.join()
    clerk.permits.put(None)
    group.submit("later")

    assert [["first"], ["later"]] == clerk.groups


@pytest.mark.usefixtures("alarm")
def test_an_interrupted_waiter_stays_while_it_is_served() -> None:
    """Once its change is under way it keeps its locks until that is done."""
    clerk = Clerk()
    group = Group(clerk.serve)
    first = _submitting(group, "first")
    clerk.begun.get(timeout=LONG)
    second = _submitting(group, "second")
    time.sleep(MOMENT)  # it queues up before the main thread and so leads next, for both
    permits = [threading.Timer(delay * MOMENT, clerk.permits.put, [None]) for delay in (1, 4)]
    started = time.monotonic()
    for permit in permits:
        permit.start()
    signal.setitimer(signal.ITIMER_REAL, 2 * MOMENT)
    with pytest.raises(Interrupted):
        group.submit("interrupted")
    waited = time.monotonic() - started
    for thread in (first, second, *permits):
        thread.join()

    assert [["first"], ["second", "interrupted"]] == clerk.groups
    assert waited >= 4 * MOMENT


@pytest.mark.usefixtures("alarm")
def test_an_interrupted_leader_tells_the_others() -> None:
    """Those whose changes were not done when their leader was interrupted are not told that they were."""
    clerk = Clerk()
    group = Group(clerk.serve)
    failed: list[BaseException] = []

    def follow() -> None:
        try:
            group.submit("follower")
        except OSError as error:
            failed.append(error)

    first = _submitting(group, "first")
    clerk.begun.get(timeout=LONG)
    follower = threading.Timer(MOMENT, follow)
    follower.start()
    threading.Timer(2 * MOMENT, clerk.permits.put, [None]).start()
    signal.setitimer(signal.ITIMER_REAL, 4 * MOMENT)
    with pytest.raises(Interrupted):
        group.submit("leader")
    for thread in (first, follower):
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
