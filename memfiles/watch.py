"""Human edits in: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is looked at soon, and once when things have
calmed down; and nothing that goes wrong here ends the watching. What a change means is decided elsewhere
(``MemoryManager.notice``): here is only told that, and when, to look.

Events may be lost (a full queue, a network file system), so every file is looked at now and then as well: one
stat each. Where the system has no events to give, that is all there is, and it happens every second.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from watchdog.events import (
    DirCreatedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from memfiles.errors import InvalidArgument
from memfiles.keys import RECORD_SUFFIX, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.api import BaseObserver

    from memfiles.manager import MemoryManager

_CALM_SECONDS = 0.05
_UNSAVED_SECONDS = 0.25
_SWEEP_SECONDS = 30.0
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_HAS_CLOSED_EVENTS = sys.platform.startswith("linux")

# Reading a file gives events too, and each of ours costs five in the folder: ask for no more than is needed.
_EVENTS: list[type[FileSystemEvent]] = [
    FileClosedEvent,  # written in place
    FileMovedEvent,  # replaced atomically: one event, whose destination is the record; or moved away
    FileDeletedEvent,
    FileCreatedEvent,  # also: moved in from another folder
    DirCreatedEvent,
    DirMovedEvent,
    *([] if _HAS_CLOSED_EVENTS else [FileModifiedEvent]),
]
_log = logging.getLogger("memfiles")


def watch(manager: MemoryManager) -> Watcher:
    """Have a restored manager notice what others change in its records, until the watcher is closed."""
    if not manager.directory.is_dir():
        raise InvalidArgument(f"there is no memory directory {manager.directory} to watch: call restore first")
    return Watcher(manager)


class Watcher:
    """Tells the manager to look at records, in a thread of its own: at all of them first, then where events point."""

    def __init__(self, manager: MemoryManager) -> None:
        """Start watching; that the system gives no events is logged and no error."""
        self._manager = manager
        self._due: dict[str, float] = {}
        self._turn = threading.Condition()
        self._closed = False
        self._complaints: dict[str, str] = {}
        self._observer = _observe(os.path.realpath(manager.directory), _Handler(self.expect))
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        self._thread.start()

    def expect(self, uid: str, *, seconds: float = _CALM_SECONDS) -> None:
        """Look at a record in a moment, at the latest; a burst of events ends in one look."""
        with self._turn:
            if uid not in self._due:
                self._due[uid] = time.monotonic() + seconds
                self._turn.notify()

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        every = _SWEEP_SECONDS if self._observer is not None else _SWEEP_WITHOUT_EVENTS_SECONDS
        sweep = time.monotonic()
        while not self._closed:
            if time.monotonic() >= sweep:
                due, sweep = self._manager.uids(), time.monotonic() + every
            else:
                due = self._wait(until=sweep)
            for uid in due:
                self._look(uid)

    def _wait(self, *, until: float) -> list[str]:
        """The records whose time has come, as soon as there are any; none at ``until`` or when closed."""
        with self._turn:
            while not self._closed:
                now = time.monotonic()
                due = [uid for uid, at in self._due.items() if at <= now]
                if due or now >= until:
                    break
                self._turn.wait(min([*self._due.values(), until]) - now)
            else:
                due = []
            for uid in due:
                del self._due[uid]
            return due

    def _look(self, uid: str) -> None:
        """Have the manager look; a failure is said once, however often it happens again."""
        try:
            if not self._closed and not self._manager.notice(uid):
                self.expect(uid, seconds=_UNSAVED_SECONDS)
            self._complaints.pop(uid, None)
        except Exception as error:
            if self._complaints.get(uid) != str(error):
                self._complaints[uid] = str(error)
                _log.warning("what happened to record %s could not be followed: %s", uid, error, exc_info=True)


class _Handler(FileSystemEventHandler):
    """Picks the records out of the events of a folder."""

    def __init__(self, expect: Callable[[str], None]) -> None:
        self._expect = expect

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by the observer's thread: as little as can be, since each of our own commits gets here as well."""
        for path in (event.src_path, event.dest_path):
            name = os.path.basename(os.fsdecode(path))
            if name.endswith(RECORD_SUFFIX) and (uid := uid_of(name)) is not None:
                self._expect(uid)


def _observe(directory: str, handler: FileSystemEventHandler) -> BaseObserver | None:
    """A started observer of one folder, None if the system gives no events (its watches may be used up)."""
    observer = None
    try:
        observer = Observer()
        observer.schedule(handler, directory, event_filter=_EVENTS)
        observer.start()
    except OSError as error:
        _log.warning("no events for %s (%s): its records are looked at every second instead", directory, error)
        if observer is not None:
            observer.stop()
        return None
    return observer
