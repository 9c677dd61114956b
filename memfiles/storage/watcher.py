"""Human edits in: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is looked at soon, and once when things have
calmed down; and nothing that goes wrong here ends the watching. What a change means is decided elsewhere
(``MemoryManager.notice``, ``EntryFiles``): here is only told that, and when, to look.

Events may be lost (a full queue, a network file system), so every file is looked at now and then as well: one stat
each. Where the system has no events to give, that is all there is, and it happens every second. The same goes while
events come in a flood: each of our own commits gives five, which cost as much as the commit itself. Where there are so
many files that looking at them takes long, it is done less often, so that it takes a twenty-fifth of the time.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
from memfiles.storage.fork_safety import renew_in_child

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

_CALM_SECONDS = 0.05
_UNSAVED_SECONDS = 0.25
_SWEEP_SECONDS = 30.0
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_RAREST_SWEEP_SECONDS = 10.0  # without events
_SWEEP_SHARE = 25


class Watched(Protocol):
    """A type of record whose files others may change. ``record_at`` may be called in any thread."""

    @property
    def is_deep(self) -> bool:
        """Whether the records lie in folders of the folder, not in itself."""
        ...

    @property
    def what(self) -> str:
        """The word for a record."""
        ...

    def folder(self) -> Path:
        """Where the records lie; it is there when this returns."""
        ...

    def record_at(self, path: str) -> str | None:
        """Which record the file at ``path``, relative to the folder, is; None if it is none. Costs next to nothing."""
        ...

    def look(self, record: str) -> bool:
        """Take in what happened to the record, if anything did. False: look again in a moment. May raise anything."""
        ...

    def suspects(self) -> Iterable[str]:
        """The records to look at when all are to be looked at: all of them, or those that are found to differ."""
        ...


class Watching:
    """Several watchers that begin and end together."""

    def __init__(self, watched: Iterable[Watched]) -> None:
        """Start them all, or none."""
        with ExitStack() as begun:
            self._watchers = [_begun(each, begun) for each in watched]
            begun.pop_all()

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        for watcher in self._watchers:
            watcher.close()


class Watcher:
    """Has one type of record looked at, in its own thread: where events point, and all of them now and then."""

    def __init__(self, watched: Watched) -> None:
        """Start watching; that the system gives no events is logged and no error."""
        self._watched = watched
        self._due: dict[str, float] = {}
        self._turn = threading.Condition()
        self._closed = False
        self._must_sweep = False
        self._sweep_took = 0.0
        self._complaints: dict[str, str] = {}
        self._events = FolderEvents(
            os.path.realpath(watched.folder()),
            is_deep=watched.is_deep,
            expect=self._expect_at,
            expect_all=self._expect_all,
            flooded=self._wake,
        )
        self._events.start()
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        self._thread.start()
        renew_in_child(self, Watcher._leave_to_parent)

    def expect(self, record: str, *, seconds: float = _CALM_SECONDS) -> None:
        """Look at a record in a moment, at the latest; a burst of events ends in one look."""
        with self._turn:
            if record not in self._due:
                self._due[record] = time.monotonic() + seconds
                self._turn.notify()

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        self._closed = True
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._events.close()

    def _leave_to_parent(self) -> None:
        """In the child of a fork, where no thread watches: there is nothing to wait for when this is closed."""
        self._turn = threading.Condition()
        self._events.leave_to_parent()

    def _expect_at(self, path: str) -> None:
        if (record := self._watched.record_at(path)) is not None:
            self.expect(record)

    def _expect_all(self) -> None:
        """A whole folder came or went, with whatever was in it."""
        self._must_sweep = True
        self._wake()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify()

    def _run(self) -> None:
        while not self._closed:
            begun, self._must_sweep = time.monotonic(), False
            self._sweep()
            self._sweep_took = time.monotonic() - begun
            self._follow_events()

    def _sweep(self) -> None:
        """Look at everything; what cannot be done is tried again the next time."""
        try:
            self._watched.folder()
            self._events.start()  # before looking, so that nothing falls in between
            suspects = self._watched.suspects()
            self._complaints.pop("", None)
        except Exception as error:
            self._complain("", f"the {self._watched.what} files could not be looked at", error)
            return
        for record in suspects:
            self._look(record)

    def _follow_events(self) -> None:
        """Look where events point, until it is time to look at everything again."""
        begun, pause = time.monotonic(), self._pause_without_events()
        until = begun + (_SWEEP_SECONDS if self._events.are_on else pause)
        while not self._closed and time.monotonic() < until:
            if self._events.are_flooding:
                self._events.pause()
                until = min(until, time.monotonic() + pause)
            if self._must_sweep:
                until = min(until, begun + pause)
            for record in self._wait(until=until):
                self._look(record)
                if self._events.are_lost:
                    self._must_sweep = True

    def _pause_without_events(self) -> float:
        pause = max(_SWEEP_WITHOUT_EVENTS_SECONDS, _SWEEP_SHARE * self._sweep_took)
        return min(_RAREST_SWEEP_SECONDS, pause)

    def _wait(self, *, until: float) -> list[str]:
        """The records whose time has come, after waiting for the next one; maybe none."""
        with self._turn:
            if not self._closed:
                self._turn.wait(max(0.0, min([*self._due.values(), until]) - time.monotonic()))
            now = time.monotonic()
            due = [record for record, at in self._due.items() if at <= now]
            for record in due:
                del self._due[record]
            return due

    def _look(self, record: str) -> None:
        """Have it looked at; a failure is said once, however often it happens again."""
        try:
            if not self._closed and not self._watched.look(record):
                self.expect(record, seconds=_UNSAVED_SECONDS)
            self._complaints.pop(record, None)
        except Exception as error:
            self._complain(record, f"what happened to {self._watched.what} {record} could not be followed", error)

    def _complain(self, record: str, what: str, error: Exception) -> None:
        if self._complaints.get(record) != str(error):
            self._complaints[record] = str(error)
            _log.warning("%s: %s", what, error, exc_info=error)


def _begun(watched: Watched, all_or_none: ExitStack) -> Watcher:
    watcher = Watcher(watched)
    all_or_none.callback(watcher.close)
    return watcher


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
