"""The dispatcher of the sync: a thread that hands out the records that are due, for workers to carry the tasks out.

The rules this file guards: readers and writers never wait for these threads; a record is in the hands of one worker at
a time; waiting for the threads has a time limit; a call that hangs does not keep the program from ending; a thread that
has nothing to do keeps no dispatcher alive that nobody refers to; changes in quick succession wait for a short quiet
and are pushed as one, but not for ever; and while the mirror does not answer, one worker at a time asks it, less and
less often (exponential with full jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from random import SystemRandom
from typing import Any, TypeVar

from msgspec import Struct

from memfiles.errors import CopyRefused, FileNotDeclared, InvalidArgument, LockTimeout, MirrorRefused, MirrorUnavailable
from memfiles.records.keys import record_path
from memfiles.storage.events import Progress, RecordChanged
from memfiles.storage.fork_safety import start_thread
from memfiles.sync.workers import Job, Timer, Workers

QUIET_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 30.0
WRITING_SECONDS = 0.25  # after a write, its thread is assumed to go on writing for this time
T = TypeVar("T")
_WORKERS = 16
_ELSEWHERE_SECONDS = 0.2  # until a record that another process works on is tried again
_OWN_FAULT_SECONDS = 30.0  # until a record is tried again that failed although the mirror answers
_REFUSED_SECONDS = 300.0  # until a record is tried again whose copy does not verify: a person has to do something
_TICK_SECONDS = 0.1
_CLOSE_SECONDS = 0.5  # for jobs under way when the memory is closed
_LONGEST_SLEEP_SECONDS = 3600.0
_REST = 10.0  # times the processor time of a transfer
_LONGEST_REST_SECONDS = 0.5
_log = logging.getLogger("memfiles.sync")
_chance = SystemRandom()  # the module-level generator belongs to the program, which may have seeded it


class Task(Struct, frozen=True):
    """A record to reconcile; ``look`` at its copy even if nothing changed here."""

    path: str
    look: bool


@dataclass(slots=True)
class _Due:
    """When a record is due, since when it waits, and whether to look at its copy."""

    at: float
    since: float
    look: bool = False


class Dispatcher:
    """Hands out tasks when they are due, from the first task until it is closed."""

    def __init__(self, carry_out: Callable[[Task], bool], *, timers: Callable[[float], Sequence[Timer]]) -> None:
        """``carry_out`` returns whether the mirror had to be asked; ``timers`` are made when the thread starts."""
        self._carry_out, self._make_timers = carry_out, timers
        self.is_closed = False
        self.renew()

    def renew(self) -> None:
        """Reset to a state in which nothing runs, as at first and in the child of a fork."""
        self._turn = threading.RLock()
        self._calls, self._wanted = SimpleQueue[None](), SimpleQueue[Job[Any]]()
        self._waiting: dict[int, SimpleQueue[None]] = {}  # one for each thread in ``wait``
        self._schedule = Schedule(hands=_WORKERS)
        self._workers = Workers(_WORKERS, name="memfiles-sync")
        self._throttle = Throttle()
        self._thread: threading.Thread | None = None
        self._timers: Sequence[Timer] = ()
        self._failed_at, self._answers, self._is_refused = 0.0, False, False  # refused: to repeat it does not help

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due or being done."""
        return not self._schedule.pending

    def start(self) -> None:
        """Start the thread if it does not run."""
        with self._turn:
            self._ensure_running()

    def notice(self, event: RecordChanged) -> None:
        """A record changed: it is due after a short quiet. Called after every write, so it must be cheap."""
        if event.origin == "mirror":
            return
        self._throttle.notice_write()
        with self._turn:
            self._ensure_running()
            is_new = self._schedule.changed(event.path or record_path(event.uid), now=time.monotonic())
        if is_new:
            self._wake()

    def at_once(self, path: str, *, look: bool = False) -> None:
        """The record at ``path`` is due now; ``look`` at its copy even if nothing changed here."""
        with self._turn:
            self._schedule.at_once(path, now=time.monotonic(), look=look)
        self._wake()

    def in_background(self, run: Callable[[], T]) -> Job[T]:
        """Queue a job for a worker; the thread hands it out, as the caller may be interrupted.

        Once the dispatcher is closed, the job ends with ``InvalidArgument``.
        """
        self.start()
        self._wanted.put(job := Job(run))
        if self.is_closed:  # else ``close`` finds it
            self._refuse_wanted()
        elif not self._is_running():  # none can be started
            self._hand_out_here()
        self._wake()
        return job

    def wait(self, timeout: float, *, insist: bool, progress: Progress | None) -> bool:
        """Wait at most ``timeout`` seconds until everything due now is done; returns whether it is.

        Gives up if all remaining tasks are postponed for long, or if the mirror refuses whatever it gets; with
        ``insist`` False also if it does not answer. ``progress`` is called with (done, total).
        """
        begun, call = time.monotonic(), SimpleQueue[None]()
        with self._throttle.waived():
            self._waiting[id(call)] = call
            try:
                return self._wait(begun, call, timeout, insist=insist, progress=progress)
            finally:
                self._waiting.pop(id(call), None)

    def _wait(
        self, begun: float, call: SimpleQueue[None], timeout: float, *, insist: bool, progress: Progress | None
    ) -> bool:
        with self._turn:
            self._schedule.hurry(now=begun)
            total = self._schedule.pending
        self._wake()
        while True:
            left = begun + timeout - time.monotonic()
            with self._turn:  # counted and judged in one turn: the last task may end at any other moment
                self._ensure_running()
                pending, is_done = self._schedule.pending, not self._schedule.waits_since(begun)
                is_over = is_done or self.is_closed or left <= 0 or self._is_hopeless(begun, insist=insist)
            if progress is not None:
                progress(total if is_done else max(0, total - pending), total)
            if is_over:
                return is_done
            if not self._is_running():  # none can be started
                self._hand_out_here()
            with suppress(Empty):
                call.get(timeout=min(left, _TICK_SECONDS))

    def _is_hopeless(self, begun: float, *, insist: bool) -> bool:
        """Whether to give up waiting, which began at ``begun``; the caller holds the turn."""
        may_give_up = (not insist or self._is_refused) and self._failed_at >= begun
        return self._schedule.is_put_off(now=time.monotonic()) or (may_give_up and self._schedule.failures > 0)

    def close(self) -> None:
        """Hand out nothing more, and wait a moment for what is under way; calls that hang are left to end later."""
        with self._turn:
            self.is_closed = True
        self._wake(all_waiting=True)
        until, thread = time.monotonic() + _CLOSE_SECONDS, self._thread
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(_CLOSE_SECONDS)
        self._refuse_wanted()
        self._workers.close(max(0.0, until - time.monotonic()))

    def _refuse_wanted(self) -> None:
        """End the jobs that were not handed out before the close: their callers would wait in vain."""
        with suppress(Empty):
            while True:
                self._wanted.get_nowait().refuse(InvalidArgument("this memory is closed; open it again"))

    def _wake(self, *, all_waiting: bool = False) -> None:
        """Wake the thread, and with ``all_waiting`` also every caller of ``wait``."""
        for call in (self._calls, *(list(self._waiting.values()) if all_waiting else ())):
            if call.empty():
                call.put(None)

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ensure_running(self) -> None:
        """Start the thread that hands out tasks if it does not run; the caller holds the turn."""
        if not self.is_closed and not self._is_running():  # its start may have failed
            reference = weakref.ref(self, lambda _, calls=self._calls: calls.put(None))  # type: ignore[misc]
            given = reference, self._calls, self._workers
            self._thread = threading.Thread(target=_run, args=given, name="memfiles-sync", daemon=True)
            start_thread(self._thread)

    def hand_out(self) -> float:
        """Hand out all that is due; returns the seconds until the next task or timer is due."""
        self._timers = self._timers or self._make_timers(time.monotonic())
        for timer in self._timers:
            if not self.is_closed:
                timer.run_if_due(time.monotonic())
        with suppress(Empty):
            while not self.is_closed:
                self._workers.submit(self._wanted.get_nowait())
        while (task := self._take()) is not None:  # without the turn: where no thread can be started, it is done here
            self._workers.submit(partial(self._throttle.transfer, partial(self._do, task)))
        with self._turn:
            at = min(at for at in (*(timer.at for timer in self._timers), self._schedule.next_at()) if at is not None)
        return min(max(0.0, at - time.monotonic()), _LONGEST_SLEEP_SECONDS)

    def _hand_out_here(self) -> None:
        """Do ``hand_out`` in the waiting thread, as no other can be started; an interrupt leaves nothing in hand."""
        try:
            self.hand_out()
        except BaseException:
            with self._turn:  # another thread may have one of them in hand: a record has one turn
                self._workers = Workers(_WORKERS, name="memfiles-sync")
                self._schedule.taken_back(now=time.monotonic())
            raise

    def _take(self) -> Task | None:
        with self._turn:
            return None if self.is_closed else self._schedule.take(now=time.monotonic())

    def _do(self, task: Task) -> None:
        """Carry out one task and report the result to the schedule."""
        error: BaseException | None = None
        try:
            answered = self._carry_out(task)
        except BaseException as raised:  # carry_out has logged it, or whoever waits does this and is interrupted
            answered, error = False, raised
        now = time.monotonic()
        with self._turn:
            if error is None or isinstance(error, FileNotDeclared):
                self._answers = self._answers or answered
                self._schedule.done(task, answered=answered)
            elif isinstance(error, CopyRefused):
                self._schedule.postponed(task, now=now, seconds=_REFUSED_SECONDS)
            elif isinstance(error, MirrorUnavailable) and not (isinstance(error, MirrorRefused) and self._answers):
                self._failed_at, self._answers, self._is_refused = now, False, isinstance(error, MirrorRefused)
                self._schedule.failed(task, now=now, share=_chance.random())  # spreads machines out
            else:  # a record that the mirror refuses while it accepts others is itself at fault
                seconds = _ELSEWHERE_SECONDS if isinstance(error, LockTimeout) else _OWN_FAULT_SECONDS
                self._schedule.postponed(task, now=now, seconds=seconds)
        self._wake(all_waiting=True)
        if error is not None and not isinstance(error, Exception):
            raise error


def _run(reference: weakref.ref[Dispatcher], calls: SimpleQueue[None], workers: Workers) -> None:
    """Hand out what is due until the dispatcher is closed, or nobody refers to it any more."""
    while (dispatcher := reference()) is not None and not dispatcher.is_closed:
        seconds = dispatcher.hand_out()
        del dispatcher
        with suppress(Empty):
            calls.get(timeout=seconds)
    workers.close(0.0)


class Throttle:
    """Slows transfers down while somebody writes in this process.

    All threads share one interpreter, of which a transfer takes 2 to 4 ms: sixteen at once made an append take 27 ms
    instead of half a one. While somebody writes, transfers therefore run one at a time, and each is followed by a rest
    ten times as long.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``cpu_time`` is the processor time of the calling thread; all are in seconds."""
        self._monotonic, self._cpu_time, self._sleep = monotonic, cpu_time, sleep
        self._written_at, self._waiting = float("-inf"), 0
        self._one_at_a_time = threading.Lock()

    def notice_write(self) -> None:
        """Somebody writes."""
        self._written_at = self._monotonic()

    @contextmanager
    def waived(self) -> Iterator[None]:
        """Somebody waits for the transfers: meanwhile they are not slowed down."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def transfer(self, carry_out: Callable[[], None]) -> None:
        """Carry out a transfer; while somebody writes, alone and with a rest after it."""
        while self._is_due():  # asked again while it waits: the one before it may hang
            if self._one_at_a_time.acquire(timeout=_TICK_SECONDS):
                break
        else:
            carry_out()
            return
        try:
            begun = self._cpu_time()
            carry_out()
            if self._is_due():
                self._sleep(min(_LONGEST_REST_SECONDS, _REST * (self._cpu_time() - begun)))
        finally:
            self._one_at_a_time.release()

    def _is_due(self) -> bool:
        return not self._waiting and self._monotonic() - self._written_at < WRITING_SECONDS


class Schedule:
    """When which record is due, which ones are in hand, and whether the mirror answers. Pure; times are in seconds."""

    def __init__(self, *, hands: int) -> None:
        """At most ``hands`` records are in hand at once."""
        self._hands = hands
        self._due: dict[str, _Due] = {}
        self._in_hand: dict[str, float] = {}
        self.failures = 0  # in a row: the mirror did not answer
        self._not_before = 0.0

    @property
    def pending(self) -> int:
        """How many records wait or are in hand."""
        return len(self._due.keys() | self._in_hand.keys())

    def waits_since(self, then: float) -> bool:
        """Whether a record that was due then is not done; later changes do not count, as they may never end."""
        return any(it <= then for it in self._in_hand.values()) or any(it.since <= then for it in self._due.values())

    @property
    def _is_full(self) -> bool:
        """Whether no record may be taken: all workers are busy, or one is trying a mirror that does not answer."""
        return len(self._in_hand) >= (1 if self.failures else self._hands)

    def is_put_off(self, *, now: float) -> bool:
        """Whether nothing is in hand, and nothing will be due for longer than a change waits for a quiet."""
        return not self._in_hand and all(due.at > now + LONGEST_WAIT_SECONDS for due in self._due.values())

    def changed(self, path: str, *, now: float) -> bool:
        """A record changed: it is due after a short quiet. True if it did not wait already."""
        if (due := self._due.get(path)) is not None:
            due.at = max(due.at, min(due.since + LONGEST_WAIT_SECONDS, now + QUIET_SECONDS))
            return False
        self._due[path] = _Due(now + QUIET_SECONDS, now)
        return True

    def at_once(self, path: str, *, now: float, look: bool = False) -> None:
        """A record is due now."""
        due = self._due.setdefault(path, _Due(now, now))
        due.at, due.since, due.look = min(due.at, now), float("-inf"), due.look or look

    def hurry(self, *, now: float) -> None:
        """Someone waits: everything is due now, even if the mirror did not answer."""
        self._not_before = min(self._not_before, now)
        for due in self._due.values():
            due.at = min(due.at, now)

    def take(self, *, now: float) -> Task | None:
        """Take the next record that is due; None if there is none yet."""
        if now < self._not_before or self._is_full:
            return None
        for path, due in self._due.items():
            if due.at <= now and path not in self._in_hand:
                self._in_hand[path] = due.since  # first: an interrupt in between loses nothing
                del self._due[path]
                return Task(path, due.look)
        return None

    def next_at(self) -> float | None:
        """When to call ``take`` again; None: only after another call changed the schedule."""
        if self._is_full:  # called after every task: with thousands waiting, there is no time to look at each
            return None
        earliest = min((due.at for path, due in self._due.items() if path not in self._in_hand), default=None)
        return None if earliest is None else max(self._not_before, earliest)

    def done(self, task: Task, *, answered: bool) -> None:
        """The record was reconciled as of when it was taken; ``answered``: the mirror had to be asked."""
        self._in_hand.pop(task.path, None)
        if answered:
            self.failures, self._not_before = 0, 0.0

    def postponed(self, task: Task, *, now: float, seconds: float) -> None:
        """Try the record again later: another process has it in hand, or it failed although the mirror answers."""
        since = self._in_hand.pop(task.path, now + seconds)
        due = self._due.setdefault(task.path, _Due(now + seconds, since))
        due.since, due.look = min(due.since, since), due.look or task.look

    def taken_back(self, *, now: float) -> None:
        """Make all records in hand due again, as their worker was interrupted."""
        for path in list(self._in_hand):
            self.postponed(Task(path, look=True), now=now, seconds=0.0)

    def failed(self, task: Task, *, now: float, share: float) -> None:
        """The mirror did not answer; ``share`` is between 0 and 1, and random."""
        if now >= self._not_before:  # simultaneous failures count as one
            self.failures += 1
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 30))
        self._not_before = now + share * pause
        self.postponed(task, now=now, seconds=0.0)
