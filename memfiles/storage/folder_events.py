"""The system's events of one folder, as far as they point at records.

The rule this file guards: an event costs as little as can be, because each of our own commits gives five; and where the
system has no events to give, that is said once and is no error.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
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

from memfiles.records.keys import RECORD_SUFFIX

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

FLOOD = 200
"""So many events within a second are a flood: looking at every file now and then is cheaper."""

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


class FolderEvents(FileSystemEventHandler):
    """The events of one folder. They can be paused when they come in a flood."""

    def __init__(
        self,
        folder: str,
        *,
        is_deep: bool = False,
        expect: Callable[[str], None],
        expect_all: Callable[[], None],
        flooded: Callable[[], None],
    ) -> None:
        """``folder`` is no link; ``is_deep``: folders in it count as well.

        ``expect`` is called with the path, relative to the folder, of each file that an event points at and that may
        be a record; ``expect_all`` when a folder in it came or went; ``flooded`` when there are too many events.
        """
        self._folder = folder
        self._is_deep = is_deep
        self._expect = expect
        self._expect_all = expect_all
        self._flooded = flooded
        self._observer: BaseObserver | None = None
        self._watch: ObservedWatch | None = None
        self._inode, self._descriptor = 0, -1
        self._has_failed = False
        self._since = time.monotonic()
        self._count = 0

    @property
    def are_on(self) -> bool:
        """Whether events are coming in."""
        return self._watch is not None

    @property
    def are_lost(self) -> bool:
        """Whether the folder that the events come from is not the one at its path any more."""
        try:
            return self.are_on and os.stat(self._folder).st_ino != self._inode
        except OSError:
            return True

    @property
    def are_flooding(self) -> bool:
        """Whether so many came within a second that looking at every file now and then is cheaper."""
        return self.are_on and self._count >= FLOOD

    def start(self) -> None:
        """Let events come in. Where the system gives none (its watches may be used up), that is logged, once."""
        if self._has_failed:
            return
        try:
            if self.are_lost:
                self.pause()  # another folder lies there now
            if not self.are_on:
                self._schedule()
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._has_failed = True
            _log.warning("no events for %s (%s): its records are looked at every second", self._folder, error)
            self.close()

    def pause(self) -> None:
        """Let no events come in until the next ``start``."""
        if self._observer is not None and self._watch is not None:
            self._observer.unschedule(self._watch)
        self._watch = None
        self._let_go()

    def close(self) -> None:
        """No more events; no thread is left behind. May be called again."""
        observer, self._observer, self._watch = self._observer, None, None
        if observer is not None:
            observer.stop()
            observer.join()
        self._let_go()

    def leave_to_parent(self) -> None:
        """In the child of a fork: the observer's threads are not here, and a lock that one of them held is for ever."""
        self._observer, self._watch = None, None
        self._let_go()

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by the observer's thread for every event: as little as can be."""
        self._count_one()
        if event.is_directory and self._is_deep:
            self._expect_all()
        for path in (event.src_path, event.dest_path):
            name = os.fsdecode(path)
            if name.endswith(RECORD_SUFFIX):
                self._expect(name[len(self._folder) + 1 :])

    def _schedule(self) -> None:
        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        self._count = 0
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._inode = os.fstat(self._descriptor).st_ino
        self._watch = self._observer.schedule(self, self._folder, recursive=self._is_deep, event_filter=_EVENTS)

    def _let_go(self) -> None:
        """Close the folder, which was kept open so that no other one gets its number."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _count_one(self) -> None:
        now = time.monotonic()
        if now - self._since > 1.0:
            self._since, self._count = now, 0
        self._count += 1
        if self._count == FLOOD:
            self._flooded()
