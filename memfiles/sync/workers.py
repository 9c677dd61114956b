"""The threads of the sync: jobs, the few workers that do them, and the timers of jobs that are done again and again.

What writers and those who wait call may be interrupted by Ctrl-C. In a ``Condition``, an ``Event`` or a ``Future`` that
could leave a lock held for ever, so the threads of the sync wake each other through queues written in C.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from memfiles.storage.fork_safety import start_thread

_log = logging.getLogger("memfiles.sync")
T = TypeVar("T")
_AGAIN_SECONDS = 1.0


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
        """Queue ``job``, or do it at once if no thread can be started; its errors are logged."""
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
        """End all threads once the queue is empty, and wait at most ``timeout`` seconds for the last job."""
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


@dataclass(slots=True)
class Timer:
    """A job that is due ``at`` a time, and then every ``every`` seconds (infinite: never again).

    ``run`` returns False if it could not begin; then it is due again in a second.
    """

    run: Callable[[], bool | None]
    at: float
    every: float

    def run_if_due(self, now: float) -> None:
        """Run the job if it is due."""
        if now >= self.at:
            self.at = now + self.every
            if self.run() is False:
                self.at = now + _AGAIN_SECONDS
