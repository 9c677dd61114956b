"""A few daemon threads that carry out jobs: a call that hangs keeps nobody from leaving the program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger("memfiles.sync")


class Workers:
    """At most ``limit`` threads, each started when all others are busy."""

    def __init__(self, limit: int, *, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._counting = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Have ``job`` carried out soon; what it raises is logged."""
        with self._counting:
            self._unfinished += 1
            is_needed = self._unfinished > self._threads and self._threads < self._limit
            self._threads += is_needed
            number = self._threads
        self._jobs.put(job)
        if is_needed:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()

    def close(self) -> None:
        """Let every thread end once its job is done; nobody waits for them."""
        with self._counting:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                _log.exception("a job of the mirror's synchronisation failed")
            finally:
                with self._counting:
                    self._unfinished -= 1
