"""The threads of the sync: jobs, the few workers that do them, and their rests while somebody writes.

What writers and those who wait call may be interrupted by Ctrl-C. In a ``Condition``, an ``Event`` or a ``Future`` that
could leave a lock held for ever, so the threads of the sync wake each other through queues written in C.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from memfiles.storage.fork_safety import start_thread

_log = logging.getLogger("memfiles.sync")
T = TypeVar("T")
WRITING_SECONDS = 0.25  # after a write, its thread is assumed to go on writing for this time
_TICK_SECONDS = 0.1
_REST = 10.0  # times the processor time of a transfer
_LONGEST_REST_SECONDS = 0.5


class Job(Generic[T]):
    """A job of a worker, and what became of it."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._outcome: tuple[T | None, BaseException | None] | None = None
        self._ended = SimpleQueue[None]()

    def __call__(self) -> None:
        """Do it."""
        try:
            self._outcome = self._run(), None
        except BaseException as error:  # the edge of the thread: raised where the result is read
            self._outcome = None, error
            if not isinstance(error, Exception):  # or an interrupt of who does it, as no thread can be started
                raise
        finally:
            self._ended.put(None)

    def refuse(self, error: Exception) -> None:
        """End it with this error, as nobody will do it."""
        self._outcome = None, error
        self._ended.put(None)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None

    def result(self, timeout: float = 0.0) -> T:
        """Its result or error; ``TimeoutError`` if it has not ended within ``timeout`` seconds."""
        if self._outcome is None:
            with suppress(Empty):
                self._ended.put(self._ended.get(timeout=timeout))  # back, for another that waits
        if self._outcome is None:
            raise TimeoutError
        result, error = self._outcome
        if error is not None:
            raise error
        return cast("T", result)


class Workers:
    """At most ``limit`` daemon threads, each started when all others are busy by the one thread that submits jobs."""

    def __init__(self, limit: int, *, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._counting = threading.Lock()
        self._threads = 0
        self._unfinished = 0
        self._ended = SimpleQueue[None]()

    def submit(self, job: Callable[[], None]) -> None:
        """Have ``job`` carried out soon, or at once if no thread can be started; errors that it raises are logged."""
        with self._counting:
            self._unfinished += 1
            is_needed = self._unfinished > self._threads and self._threads < self._limit
            self._threads += is_needed
            number = self._threads
        self._jobs.put(job)
        given = self._jobs.get, BaseException  # which would leave what waits to a thread that is no more
        thread = threading.Thread(target=self._work, args=given, name=f"{self._name}-{number}", daemon=True)
        if not is_needed or start_thread(thread):
            return
        with self._counting:
            self._threads -= 1
            is_alone = not self._threads
        _log.info("no thread can be started: the sync does with %d", self._threads)
        if is_alone:  # else the others do it
            with suppress(Empty):
                self._work(self._jobs.get_nowait, Exception)

    def close(self, timeout: float) -> None:
        """Let every thread end once the queue is empty, and wait at most ``timeout`` seconds for the last job."""
        with self._counting:
            for _ in range(self._threads):
                self._jobs.put(None)
        until = time.monotonic() + timeout
        while self._unfinished and (left := until - time.monotonic()) > 0:
            with suppress(Empty):
                self._ended.get(timeout=left)

    def _work(self, next_job: Callable[[], Callable[[], None] | None], logged: type[BaseException]) -> None:
        while (job := next_job()) is not None:
            try:
                job()
            except logged:
                _log.exception("a job of the sync failed")
            finally:
                del job  # it keeps alive what it works for
                with self._counting:
                    self._unfinished -= 1
                if not self._unfinished and self._ended.empty():
                    self._ended.put(None)


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
