"""Courtesy: transfers that make way for those who write at the same time.

All threads of a process share one interpreter, of which a single transfer takes 2 to 4 ms: sixteen of them at once
made an append take 27 ms instead of half a one. While somebody writes, transfers therefore go one at a time, and each
is followed by a rest ten times as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WRITING_SECONDS = 0.25  # after a write, for so long its thread is taken to go on writing
_REST = 10.0
_LONGEST_REST_SECONDS = 0.5


class Courtesy:
    """Whose turn it is to transfer, given who writes and who waits."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``cpu_time`` is what the calling thread has used of a processor; all are in seconds."""
        self._monotonic = monotonic
        self._cpu_time = cpu_time
        self._sleep = sleep
        self._written_at = float("-inf")
        self._waiting = 0
        self._one_at_a_time = threading.Lock()

    def notice_write(self) -> None:
        """Somebody writes."""
        self._written_at = self._monotonic()

    @contextmanager
    def waived(self) -> Iterator[None]:
        """Meanwhile somebody waits for the transfers, and no way is made for others."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def transfer(self, carry_out: Callable[[], None]) -> None:
        """Carry out a transfer when it is its turn, and rest afterwards if somebody writes."""
        if not self._is_due():
            carry_out()
            return
        with self._one_at_a_time:
            begun = self._cpu_time()
            carry_out()
            if self._is_due():
                self._sleep(min(_LONGEST_REST_SECONDS, _REST * (self._cpu_time() - begun)))

    def _is_due(self) -> bool:
        return not self._waiting and self._monotonic() - self._written_at < WRITING_SECONDS
