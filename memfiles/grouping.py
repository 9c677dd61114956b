"""Threads that commit at the same time are served by one of them, in one go and with one flush.

The rule this file guards: every request that was handed in is served exactly once, by whichever waiting
thread leads, and a thread that was served needs nothing more from the others to go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Request(Generic[T]):
    """Something one thread wants done; ``error`` is what whoever served it could not do."""

    __slots__ = ("error", "gate", "must_lead", "wanted")

    def __init__(self, wanted: T) -> None:
        """The gate is closed until the request was served or is to lead."""
        self.wanted = wanted
        self.error: BaseException | None = None
        self.must_lead = False
        self.gate = threading.Lock()
        self.gate.acquire()


class Group(Generic[T]):
    """Hands the requests of all waiting threads to one of them at a time.

    On CPython this also keeps eight threads from passing the interpreter's lock around at every system
    call: one makes all the calls while the others sleep.
    """

    def __init__(self, serve: Callable[[list[Request[T]]], None]) -> None:
        """``serve`` is given every waiting request; it marks those that failed and never runs twice at once."""
        self._serve = serve
        self._queueing = threading.Lock()
        self._waiting: deque[Request[T]] = deque()
        self._has_leader = False

    def submit(self, wanted: T) -> None:
        """Return when the request was served; raises what made it fail."""
        request = Request(wanted)
        if self._leads(request):
            self._lead(request)
        if request.error is not None:
            raise request.error

    def _leads(self, request: Request[T]) -> bool:
        """Queue up. False once another thread has served this request; True to serve all that wait."""
        with self._queueing:
            self._waiting.append(request)
            lead, self._has_leader = not self._has_leader, True
        if lead:
            return True
        request.gate.acquire()
        return request.must_lead

    def _lead(self, leader: Request[T]) -> None:
        requests = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._serve(requests)
        finally:
            for request in requests:
                if request is not leader:
                    request.gate.release()
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the first of those who came meanwhile lead next."""
        with self._queueing:
            following = self._waiting[0] if self._waiting else None
            self._has_leader = following is not None
        if following is not None:
            following.must_lead = True
            following.gate.release()
