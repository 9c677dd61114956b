"""The threads of the synchronisation: one hands out what is due, a few others carry it out.

The rules this file guards: nobody who reads or writes waits for any of them; a record is in one pair of hands at a
time; and whoever waits for them has set a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import SystemRandom

from memfiles.errors import FileNotDeclared, LockTimeout, MirrorRefused, MirrorUnavailable
from memfiles.sync.schedule import Schedule, Task
from memfiles.sync.throttle import Courtesy
from memfiles.sync.timer import Timer
from memfiles.sync.workers import Workers

Progress = Callable[[int, int], None]
_HANDS = 16
_ELSEWHERE_SECONDS = 0.2  # until a record that another process has in hand is looked at again
_OWN_FAULT_SECONDS = 30.0  # until a record is tried again that failed although the mirror answers
_TICK_SECONDS = 0.1
_chance = SystemRandom()  # the module's own numbers are the program's, which may have seeded them


class Dispatcher:
    """Has tasks carried out when they are due; runs from the first one on until it is closed."""

    def __init__(self, carry_out: Callable[[Task], bool], *, timers: Callable[[float], Sequence[Timer]]) -> None:
        """``carry_out`` returns whether the mirror had to be asked; ``timers`` are made when it starts to run."""
        self._carry_out = carry_out
        self._make_timers = timers
        self.is_closed = False
        self.renew()

    def renew(self) -> None:
        """Nothing is running: at the beginning, and in the child of a fork."""
        self._turn = threading.Condition()
        self._schedule = Schedule(hands=_HANDS)
        self._workers = Workers(_HANDS, name="memfiles-sync")
        self._courtesy = Courtesy()
        self._thread: threading.Thread | None = None
        self._failed_at = 0.0
        self._answers = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due or being done."""
        return not self._schedule.pending

    @property
    def is_failing(self) -> bool:
        """Whether the mirror did not answer when it was last asked."""
        return self._schedule.is_failing

    def start(self) -> None:
        """Run, if that has not begun."""
        with self._turn:
            self._ensure_running()

    def changed(self, path: str) -> None:
        """Somebody changed the record at ``path``: it is due after a short quiet."""
        self._courtesy.notice_write()
        with self._turn:
            self._ensure_running()
            if self._schedule.changed(path, now=time.monotonic()):
                self._turn.notify_all()

    def at_once(self, path: str, *, look: bool = False) -> None:
        """The record at ``path`` is due now; ``look`` at its copy even if nothing changed here."""
        with self._turn:
            self._schedule.at_once(path, now=time.monotonic(), look=look)
            self._turn.notify_all()

    def in_background(self, job: Callable[[], None]) -> threading.Event:
        """Have a worker do this; the event is set once it is done."""
        done = threading.Event()

        def run() -> None:
            try:
                job()
            finally:
                done.set()

        self._workers.submit(run)
        return done

    def wait(self, timeout: float, *, insist: bool, progress: Progress | None) -> bool:
        """Wait until everything due is done, at most ``timeout`` seconds; whether it is.

        Gives up when all that is left was put off for long; ``insist`` False also when the mirror does not answer.
        ``progress`` is told how many of how many are done.
        """
        begun = time.monotonic()
        with self._courtesy.waived(), self._turn:
            self._ensure_running()
            self._schedule.hurry(now=begun)
            self._turn.notify_all()
            total = self._schedule.pending
            while (pending := self._schedule.pending) and not self.is_closed:
                if progress is not None:
                    progress(max(0, total - pending), total)
                now = time.monotonic()
                left = begun + timeout - now
                if left <= 0 or self._schedule.is_put_off(now=now):
                    return False
                if not insist and self._schedule.is_failing and self._failed_at >= begun:
                    return False
                self._turn.wait(min(left, _TICK_SECONDS))
        if progress is not None:
            progress(total, total)
        return not pending

    def close(self) -> None:
        """Hand out nothing more; what hangs is left to itself."""
        with self._turn:
            self.is_closed = True
            self._turn.notify_all()
        self._workers.close()

    def _ensure_running(self) -> None:
        """The thread that hands out, started if it is not there; the turn is held."""
        if self._thread is None and not self.is_closed:
            self._thread = threading.Thread(target=self._run, name="memfiles-sync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        timers = self._make_timers(time.monotonic())
        while not self.is_closed:
            for timer in timers:
                timer.run_if_due(time.monotonic())
            with self._turn:
                while (task := self._schedule.take(now=time.monotonic())) is not None:
                    self._workers.submit(partial(self._courtesy.transfer, partial(self._do, task)))
                at = min(at for at in (*(timer.at for timer in timers), self._schedule.next_at()) if at is not None)
                if not self.is_closed:
                    self._turn.wait(max(0.0, at - time.monotonic()))

    def _do(self, task: Task) -> None:
        """Carry out one task, and tell the schedule how that went."""
        answered, error = False, None
        try:
            answered = self._carry_out(task)
        except Exception as raised:  # carry_out has said what there is to say
            error = raised
        now = time.monotonic()
        with self._turn:
            if error is None or isinstance(error, FileNotDeclared):
                self._answers = self._answers or answered
                self._schedule.done(task, answered=answered)
            elif isinstance(error, LockTimeout):
                self._schedule.postponed(task, now=now, seconds=_ELSEWHERE_SECONDS)
            elif isinstance(error, MirrorRefused) and self._answers:  # others are taken: it is this record's fault
                self._schedule.postponed(task, now=now, seconds=_OWN_FAULT_SECONDS)
            elif isinstance(error, MirrorUnavailable):
                self._failed_at, self._answers = now, False
                self._schedule.failed(task, now=now, share=_chance.random())  # spreads machines out
            else:
                self._schedule.postponed(task, now=now, seconds=_OWN_FAULT_SECONDS)
            self._turn.notify_all()
