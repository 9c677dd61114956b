"""The lease of a workspace: one process at a time syncs it with a mirror, and takes turns with the others.

The rules this file guards: a process that died or lost the server keeps the lease for some seconds at most; one that
has nothing to do gives it back, so that a command gets it while a server runs; and a lease that ran out is no danger,
as a mirror takes a copy only in place of the version that was seen.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from memfiles.errors import LockTimeout, MemfilesError
from memfiles.storage.fork_safety import renew_in_child, start_thread

if TYPE_CHECKING:
    from memfiles.storage.postgres.home import Workspace

LEASE_SECONDS = 20.0
_RENEWED_SECONDS = 10.0  # before it runs out
_IDLE_SECONDS = 0.25
_LOOK_SECONDS = 0.05


class Lease:
    """The lease as this process has it or not; threads share it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._renew()
        renew_in_child(self, Lease._renew)
        _leases.add(self)

    def _renew(self) -> None:
        """Start without the lease, also in a forked child: it is the parent's."""
        self._taking = threading.Lock()
        self._holder = int.from_bytes(os.urandom(8)) >> 2
        self._users = set[object]()
        self._until = self._used_at = 0.0
        self._thread: threading.Thread | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease within; ``LockTimeout`` at once if another process has it."""
        user = object()
        try:
            with self._taking:
                if time.monotonic() > self._until - _RENEWED_SECONDS:
                    self._take()
                self._users.add(user)
                if self._thread is None or not self._thread.is_alive():  # an interrupt may have come before its start
                    self._thread = threading.Thread(target=self._keep, name="memfiles-lease", daemon=True)
                    start_thread(self._thread)
            yield
        finally:  # without waiting: an interrupt in a wait would leave it counted
            self._used_at = time.monotonic()
            self._users.discard(user)

    def _take(self) -> None:
        begun, what = time.monotonic(), "the turn at the mirror cannot be taken"
        if not self._workspace.ask("take_lease", holder=self._holder, seconds=LEASE_SECONDS, what=what):
            self._until = 0.0
            raise LockTimeout("another process syncs this memory with the mirror now")
        self._until = begun + LEASE_SECONDS

    def give_back(self) -> None:
        """Give the lease back now, unless a thread uses it."""
        with self._taking:
            if not self._users:
                self._give()

    def _give(self) -> None:
        if self._until:
            self._until = 0.0
            with suppress(MemfilesError):  # it runs out
                self._workspace.ask("give_lease", holder=self._holder, what="the turn at the mirror is kept")

    def _keep(self) -> None:
        """Renew the lease while it is used, and give it back once it is not."""
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._taking:
                now = time.monotonic()
                if not self._users and now - self._used_at >= _IDLE_SECONDS:
                    self._thread = None
                    self._give()
                    return
                if self._users and now > self._until - _RENEWED_SECONDS:
                    with suppress(MemfilesError):  # tried again; the mirror's conditions hold in any case
                        self._take()


_leases = WeakSet[Lease]()


@atexit.register
def _give_all_back() -> None:
    """Give back the leases of memories that nobody closed: later at exit, a lock that a thread holds stays held."""
    for lease in list(_leases):
        lease.give_back()


class LeaseTurns:
    """The turns of records in this process, under the lease; see ``home.Turns``."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.leave_to_parent()

    @contextmanager
    def hold(self, paths: Sequence[str]) -> Iterator[None]:
        with self._entering:
            if not self._in_hand.isdisjoint(paths):
                raise LockTimeout(f"{paths[0]} is being reconciled by another thread")
            self._in_hand.update(paths)
        try:
            with self._lease.held():
                yield
        finally:
            with self._entering:
                self._in_hand.difference_update(paths)

    def leave_to_parent(self) -> None:
        """See ``Turns``: no thread of this process has one yet."""
        self._entering = threading.Lock()
        self._in_hand: set[str] = set()
