"""News of commits: sent outside of them, heard on a connection of its own, and never relied on.

A NOTIFY inside a commit takes a lock over the whole database: eight writers fell from 5,388 to 3,096 commits a second.
So a thread sends one after commits, at most some twenty times a second; it holds nothing but the channel's name. Where
a pooler stands between, nobody can listen, and who waits looks into the feed again and again.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import psycopg
from psycopg import sql

from memfiles.errors import MemfilesError
from memfiles.records import late_logger as _log
from memfiles.storage.fork_safety import join_thread, start_thread
from memfiles.storage.postgres.connections import Connections, is_pooled

COALESCED_SECONDS = 0.05
_POLL_SECONDS = 0.5
_HEARD_AT_ONCE = 0.02  # after a notification, further ones of the same moment are taken with it


class CommitNews:
    """Sends and hears of commits in one workspace, for this process and all its threads."""

    def __init__(self, connections: Connections) -> None:
        location = connections.location
        place = f"{location.schema}\0{location.workspace}".encode()
        self.channel = f"memfiles_{hashlib.blake2b(place, digest_size=16).hexdigest()}"
        self._connections = connections
        self._send = location.named("SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, '')")
        self._due = SimpleQueue[None]()  # an interrupt in the middle of an Event leaves that locked for good
        self._listening = threading.Lock()
        self._ear: psycopg.Connection[Any] | None = None
        self._can_listen = True
        self._is_ending = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def tell(self) -> None:
        """Notify others soon that something was committed."""
        if not self._is_running():  # started before queuing: an interrupt in between would leave the item unsent
            with self._starting:
                if not self._is_running():
                    given = weakref.ref(self, lambda _, due=self._due: due.put(None)), self._due  # type: ignore[misc]
                    self._thread = threading.Thread(target=_run, args=given, name="memfiles-news", daemon=True)
                    start_thread(self._thread)
        if self._due.empty():
            self._due.put(None)

    def wait(self, is_behind: Callable[[], bool], *, seconds: float) -> bool:
        """Wait until ``is_behind``, asked after every notification, and now and then without one."""
        deadline = time.monotonic() + seconds
        if seconds > 0:
            self._listen()  # before the first look, so that nothing comes between
        while not is_behind():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._hear(min(left, _POLL_SECONDS))
        return True

    def close(self) -> None:
        """Send what is due, and stop."""
        self._is_ending = True
        self._due.put(None)
        join_thread(self._thread)
        with self._listening:
            if self._ear is not None:
                self._ear.close()

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def send(self) -> bool:
        """Notify others now; returns whether more may follow."""
        try:
            given = {"channel": self.channel}
            self._connections.ask(self._send, given, what="news of a change", patience=_POLL_SECONDS)
        except MemfilesError as error:
            _log.debug("others hear of a change only when they look: %s", error)
        return not self._is_ending

    def _listen(self) -> None:
        """Listen from now on, if nobody does yet and no pooler is in between."""
        with self._listening:
            if not self._can_listen or (self._ear is not None and not self._ear.closed):
                return
            try:
                ear = self._connections.dedicated()
                self._can_listen = not is_pooled(ear)
                ear.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
                self._ear = ear
            except (MemfilesError, psycopg.Error) as error:
                _log.debug("changes by others are polled for: %s", error)

    def _hear(self, seconds: float) -> None:
        """Return after a notification, or after some seconds at the latest."""
        if self._ear is None or not self._listening.acquire(blocking=False):
            time.sleep(seconds)
            return
        try:
            for _ in self._ear.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error:
            self._ear.close()
            time.sleep(min(seconds, _HEARD_AT_ONCE))
        finally:
            self._listening.release()


def _run(reference: weakref.ref[CommitNews], due: SimpleQueue[None]) -> None:
    """Send what is due until the news are closed, or nobody refers to them any more."""
    due.get()
    while (news := reference()) is not None and news.send():
        del news
        time.sleep(COALESCED_SECONDS)
        due.get()
    due.put(None)  # for a second thread: an interrupt may have hidden that the first one had started
