"""Threads that commit at the same time are served by one of them, in one go and with one flush.

The rule this file guards: every request that was handed in is served exactly once, by whichever waiting
thread leads, and a thread that was served needs nothing more from the others to go on.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_LOOKS_AGAIN_SECONDS = 0.0001


class Request(Generic[T]):
    """Something one thread wants done; ``error`` is what whoever served it could not do."""

    __slots__ = ("error", "gate", "is_served", "wanted")

    def __init__(self, wanted: T) -> None:
        """The gate is closed until the request was dealt with or is to lead, and open from then on."""
        self.wanted = wanted
        self.error: BaseException | None = None
        self.is_served = False
        self.gate = threading.Lock()
        self.gate.acquire()

    def wait(self) -> None:
        """Until the gate is open."""
        with self.gate:  # and leave it open, also in an interrupt
            return

    def open_gate(self) -> None:
        """Let its thread go on; nothing happens the second time."""
        if self.gate.locked():
            self.gate.release()


class Group(Generic[T]):
    """Hands the requests of all waiting threads to one of them at a time.

    On CPython this also keeps eight threads from passing the interpreter's lock around at every system
    call: one makes all the calls while the others sleep.
    """

    def __init__(
        self, serve: Callable[[list[Request[T]]], None], *, patience: Callable[[], float] = lambda: 0.0
    ) -> None:
        """``serve`` is given every waiting request, marks each as served or failed, and never runs twice at once.

        ``patience`` tells for how many seconds at most it is worth while to wait for more requests.
        """
        self._serve = serve
        self._patience = patience
        self._together = 1  # how many were served the last time
        self._queueing = threading.Lock()
        self._waiting: deque[Request[T]] = deque()
        self._serving: deque[Request[T]] = deque()
        self._leader: Request[T] | None = None

    @property
    def waiting(self) -> int:
        """How many requests are not being served yet."""
        return len(self._waiting)

    def submit(self, wanted: T) -> None:
        """Return when the request was served; raises what made it fail."""
        request = Request(wanted)
        try:
            self._queue_up(request)
            if self._leader is request:
                self._lead(request)
        except BaseException:
            self._withdraw(request)
            raise
        if request.error is not None:
            raise request.error

    def _queue_up(self, request: Request[T]) -> None:
        """Return when another thread has served this request, or when it is to lead."""
        with self._queueing:
            if self._leader is None:
                self._leader = request
            self._waiting.append(request)
        if self._leader is not request:
            request.wait()

    def _lead(self, leader: Request[T]) -> None:
        try:
            if self._together > 1:
                self._gather()
            with self._queueing:
                self._together = len(self._waiting)
                self._serving, self._waiting = self._waiting, deque()
            self._serve(list(self._serving))
        finally:
            self._resign(leader)

    def _gather(self) -> None:
        """Wait for as many as were served together the last time: they come back, and one flush will do for them.

        The first to come back would be served alone in every other turn.
        """
        deadline = time.monotonic() + self._patience()
        while self.waiting < self._together and time.monotonic() < deadline:
            time.sleep(_LOOKS_AGAIN_SECONDS)

    def _resign(self, leader: Request[T]) -> None:
        """Let those who were served go on, and the first of those who came meanwhile lead next.

        Only half done when an interrupt comes, and then done again.
        """
        while self._serving:
            request = self._serving[-1]
            if not request.is_served and request.error is None:  # never tell anyone what did not happen
                request.error = InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            if request is not leader:
                request.open_gate()
            self._serving.pop()
        with self._queueing:
            if self._leader is leader:
                self._leader = self._waiting[0] if self._waiting else None
            self._let_lead()

    def _withdraw(self, request: Request[T]) -> None:
        """Something interrupted this thread (Ctrl-C, say): nobody may wait for it, nor it go while it is served."""
        with self._queueing:
            if request in self._waiting:
                self._waiting.remove(request)
            is_being_served = request in self._serving
            self._let_lead()
        if self._leader is request:
            self._resign(request)
        elif is_being_served:
            request.wait()

    def _let_lead(self) -> None:
        """Open the leader's gate, the queue held; whoever was about to do it may have been interrupted."""
        if self._leader is not None:
            self._leader.open_gate()
