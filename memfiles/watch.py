"""Human edits in: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is looked at soon, and once when things have
calmed down; and nothing that goes wrong here ends the watching. What a change means is decided elsewhere
(``MemoryManager.notice``): here is only told that, and when, to look.

Events may be lost (a full queue, a network file system), so every file is looked at now and then as well: one
stat each. Where the system has no events to give, that is all there is, and it happens every second. The same
goes while events come in a flood: each of our own commits gives five, which cost as much as the commit itself.
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

    from watchdog.observers.api import BaseObserver, ObservedWatch

    from memfiles.manager import MemoryManager

_CALM_SECONDS = 0.05
_UNSAVED_SECONDS = 0.25
_SWEEP_SECONDS = 30.0
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_FLOOD = 200  # events within a second
_HAS_CLOSED_EVENTS = sys.platform.startswith("linux")

# Reading a file gives events too: ask for no more than is needed.
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


def _is_news(record: logging.LogRecord) -> bool:
    """Not news: watchdog calls it an error when it is stopped while events come in."""
    return "called when the thread is inactive" not in record.getMessage()


logging.getLogger("watchdog.observers.inotify").addFilter(_is_news)


def watch(manager: MemoryManager) -> Watcher:
    """Have a restored manager notice what others change in its records, until the watcher is closed."""
    if not manager.directory.is_dir():
        raise InvalidArgument(f"there is no memory directory {manager.directory} to watch: call restore first")
    return Watcher(manager)


class Watcher:
    """Tells the manager, in its own thread, to look at records: where events point, and at all of them now and then."""

    def __init__(self, manager: MemoryManager) -> None:
        """Start watching; that the system gives no events is logged and no error."""
        self._manager = manager
        self._due: dict[str, float] = {}
        self._turn = threading.Condition()
        self._closed = False
        self._complaints: dict[str, str] = {}
        self._events = FolderEvents(os.path.realpath(manager.directory), expect=self.expect, flooded=self._wake)
        self._events.start()
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
        self._closed = True
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._events.close()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify()

    def _run(self) -> None:
        while not self._closed:
            self._events.start()  # before looking, so that nothing falls in between
            for uid in self._manager.uids():
                self._look(uid)
            self._follow_events()

    def _follow_events(self) -> None:
        """Look where events point, until it is time to look at everything again."""
        seconds = _SWEEP_SECONDS if self._events.are_on else _SWEEP_WITHOUT_EVENTS_SECONDS
        until = time.monotonic() + seconds
        while not self._closed and time.monotonic() < until:
            if self._events.are_flooding:
                self._events.pause()
                until = min(until, time.monotonic() + _SWEEP_WITHOUT_EVENTS_SECONDS)
            for uid in self._wait(until=until):
                self._look(uid)

    def _wait(self, *, until: float) -> list[str]:
        """The records whose time has come, after waiting for the next one; maybe none."""
        with self._turn:
            if not self._closed:
                self._turn.wait(max(0.0, min([*self._due.values(), until]) - time.monotonic()))
            now = time.monotonic()
            due = [uid for uid, at in self._due.items() if at <= now]
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


class FolderEvents(FileSystemEventHandler):
    """The events of one folder, as far as they point at records. They can be paused when they come in a flood."""

    def __init__(self, directory: str, *, expect: Callable[[str], None], flooded: Callable[[], None]) -> None:
        """``expect`` is called with each uid that an event points at, ``flooded`` when there are too many events."""
        self._directory = directory
        self._expect = expect
        self._flooded = flooded
        self._observer: BaseObserver | None = None
        self._watch: ObservedWatch | None = None
        self._has_failed = False
        self._since = time.monotonic()
        self._count = 0

    @property
    def are_on(self) -> bool:
        """Whether events are coming in."""
        return self._watch is not None

    @property
    def are_flooding(self) -> bool:
        """Whether so many came within a second that looking at every file now and then is cheaper."""
        return self.are_on and self._count >= _FLOOD

    def start(self) -> None:
        """Let events come in. Where the system gives none (its watches may be used up), that is logged, once."""
        if self.are_on or self._has_failed:
            return
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.start()
            self._count = 0
            self._watch = self._observer.schedule(self, self._directory, event_filter=_EVENTS)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._has_failed = True
            _log.warning("no events for %s (%s): its records are looked at every second", self._directory, error)
            self.close()

    def pause(self) -> None:
        """Let no events come in until the next ``start``."""
        if self._observer is not None and self._watch is not None:
            self._observer.unschedule(self._watch)
        self._watch = None

    def close(self) -> None:
        """No more events; no thread is left behind. May be called again."""
        observer, self._observer, self._watch = self._observer, None, None
        if observer is not None:
            observer.stop()
            observer.join()

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by the observer's thread for every event: as little as can be."""
        self._count_one()
        for path in (event.src_path, event.dest_path):
            name = os.path.basename(os.fsdecode(path))
            if name.endswith(RECORD_SUFFIX) and (uid := uid_of(name)) is not None:
                self._expect(uid)

    def _count_one(self) -> None:
        now = time.monotonic()
        if now - self._since > 1.0:
            self._since, self._count = now, 0
        self._count += 1
        if self._count == _FLOOD:
            self._flooded()
