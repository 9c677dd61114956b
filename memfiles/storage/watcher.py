"""Watchers: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is examined soon, and again once things have calmed
down; nothing that goes wrong here ends the watching; and an event costs as little as possible, because each of our own
commits causes five. The object given to a ``Watcher`` decides what a change means.

Events may be lost (a full queue, a network file system), so every file is also examined now and then, with one stat
each. Without events from the system, and during a flood of them, that happens every second instead. If there are so
many files that it takes long, it is done less often, so that it takes a twenty-fifth of the time.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from watchdog import events
from watchdog.observers import Observer

from memfiles.records.keys import RECORD_SUFFIX
from memfiles.storage.atomic import Descriptor
from memfiles.storage.fork_safety import renew_in_child

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver, ObservedWatch

FLOOD = 200
"""More events than this within a second are a flood: examining every file now and then is cheaper."""

_CALM_SECONDS = 0.05
_UNSAVED_SECONDS = 0.25
_SWEEP_SECONDS = 30.0
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_RAREST_SWEEP_SECONDS = 10.0  # without events
_SWEEP_SHARE = 25
# Reading a file causes events too: ask for no more than is needed.
_EVENTS: list[type[events.FileSystemEvent]] = [
    events.FileClosedEvent,  # written in place
    events.FileMovedEvent,  # replaced atomically: one event, whose destination is the record; or moved away
    events.FileDeletedEvent,
    events.FileCreatedEvent,  # also: moved in from another folder
    events.DirCreatedEvent,
    events.DirMovedEvent,
    *([] if sys.platform.startswith("linux") else [events.FileModifiedEvent]),  # only Linux tells of closed files
]
_LIMITS = (Path("/proc/sys/fs/inotify/max_user_watches"), Path("/proc/sys/user/max_inotify_watches"))
_log = logging.getLogger("memfiles")
# watchdog logs an error if it is stopped while events come in
logging.getLogger("watchdog.observers.inotify").addFilter(
    lambda record: "called when the thread is inactive" not in record.getMessage()
)
# and warns of a folder that is made while its parent begins to be watched: it is watched once, by the later of two
warnings.filterwarnings("ignore", "Callback with id .* already exists for watch", RuntimeWarning)


class Watched(Protocol):
    """One type of record whose files others may change. ``record_at`` may be called in any thread."""

    is_deep: bool  # whether the records are in subfolders of the folder, not in itself
    what: str  # the word for a record in log messages

    def folder(self) -> Path:
        """The folder of the records, created if needed."""

    def record_at(self, path: str) -> str | None:
        """The record of the file at ``path``, relative to the folder; None if it is not a record. Must be cheap."""

    def look(self, record: str) -> bool:
        """Take in any change of the record. False: call again in a moment. May raise anything."""

    def suspects(self) -> Iterable[str]:
        """The records to examine in a sweep: all of them, or those found to differ."""


class Watcher:
    """Has one type of record examined in a thread of its own: those that events name, and all of them now and then."""

    def __init__(self, watched: Watched) -> None:
        """Start watching; if the system provides no events, that is logged."""
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
        if not watched.is_deep:  # of 10,000 folders it takes a second, which the thread has
            self._events.start()
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        self._thread.start()
        renew_in_child(self, Watcher._leave_to_parent)

    def expect(self, record: str, *, seconds: float = _CALM_SECONDS) -> None:
        """Examine a record within ``seconds``; a burst of events leads to one examination."""
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
        """In a forked child, where no thread watches: ``close`` must not wait for one."""
        self._turn = threading.Condition()
        self._events.leave_to_parent()

    def _expect_at(self, path: str) -> None:
        if (record := self._watched.record_at(path)) is not None:
            self.expect(record)

    def _expect_all(self) -> None:
        """A whole folder appeared or disappeared."""
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
        """Examine all suspects; a failure is retried in the next sweep."""
        try:
            self._watched.folder()
            self._events.start()  # before examining, so that nothing is missed in between
            suspects = self._watched.suspects()
            self._complaints.pop("", None)
        except Exception as error:
            self._complain("", f"the {self._watched.what} files could not be examined", error)
            return
        for record in suspects:
            self._look(record)

    def _follow_events(self) -> None:
        """Examine the records that events name, until the next sweep is due."""
        begun, share = time.monotonic(), _SWEEP_SHARE * self._sweep_took
        pause = min(_RAREST_SWEEP_SECONDS, max(_SWEEP_WITHOUT_EVENTS_SECONDS, share))
        until = begun + (max(_SWEEP_SECONDS, share) if self._events.are_on else pause)
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

    def _wait(self, *, until: float) -> list[str]:
        """Wait for the next due record; returns all that are due, perhaps none."""
        with self._turn:
            if not self._closed:
                self._turn.wait(max(0.0, min([*self._due.values(), until]) - time.monotonic()))
            now = time.monotonic()
            due = [record for record, at in self._due.items() if at <= now]
            for record in due:
                del self._due[record]
            return due

    def _look(self, record: str) -> None:
        """Examine a record; a failure that repeats is logged once."""
        try:
            if not self._closed and not self._watched.look(record):
                self.expect(record, seconds=_UNSAVED_SECONDS)
            self._complaints.pop(record, None)
        except Exception as error:
            self._complain(record, f"a change of {self._watched.what} {record} could not be followed", error)

    def _complain(self, record: str, what: str, error: Exception) -> None:
        if self._complaints.get(record) != str(error):
            self._complaints[record] = str(error)
            _log.warning("%s: %s", what, error, exc_info=error)


class FolderEvents(events.FileSystemEventHandler):
    """The system's events for one folder, as far as they name records. They can be paused during a flood."""

    def __init__(
        self,
        folder: str,
        *,
        is_deep: bool = False,
        expect: Callable[[str], None],
        expect_all: Callable[[], None],
        flooded: Callable[[], None],
    ) -> None:
        """``folder`` is not a link; ``is_deep``: subfolders count as well.

        ``expect`` is called with the path, relative to the folder, of each file that an event names and that may be a
        record; ``expect_all`` when a subfolder appeared or disappeared; ``flooded`` when there are too many events.
        """
        self._folder = folder
        self._is_deep = is_deep
        self._expect = expect
        self._expect_all = expect_all
        self._flooded = flooded
        self._observer: BaseObserver | None = None
        self._watch: ObservedWatch | None = None
        self._inode = 0
        self._opened: Descriptor | None = None  # so that no other folder gets its inode number
        self._has_failed = self._has_warned = False
        self._since = time.monotonic()
        self._count = 0

    @property
    def are_on(self) -> bool:
        """Whether events are coming in."""
        return self._watch is not None

    @property
    def are_lost(self) -> bool:
        """Whether the folder that the events come from is no longer the one at its path."""
        try:
            return self.are_on and os.stat(self._folder).st_ino != self._inode
        except OSError:
            return True

    @property
    def are_flooding(self) -> bool:
        """Whether too many events came within the last second."""
        return self.are_on and self._count >= FLOOD

    def start(self) -> None:
        """Let events come in. If the system provides none (its watches may be used up), that is logged once."""
        if self._has_failed:
            return
        try:
            if self.are_lost:
                self.pause()  # another folder is there now
            if not self.are_on:
                self._schedule()
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._has_failed = True
            _log.warning("no events for %s (%s): its records are checked every second", self._folder, error)
            self.close()

    def pause(self) -> None:
        """Let no events come in until the next ``start``."""
        if self._observer is not None and self._watch is not None:
            self._observer.unschedule(self._watch)
        self._watch = self._opened = None

    def close(self) -> None:
        """Stop the events and their thread. May be called again."""
        observer, self._observer, self._watch = self._observer, None, None
        if observer is not None:
            observer.stop()
            observer.join()
        self._opened = None

    def leave_to_parent(self) -> None:
        """In a forked child: drop the observer, whose threads are missing and whose locks may be held for ever."""
        self._observer = self._watch = self._opened = None

    def dispatch(self, event: events.FileSystemEvent) -> None:
        """Handle one event, in the observer's thread."""
        if (now := time.monotonic()) - self._since > 1.0:
            self._since, self._count = now, 0
        self._count += 1
        if self._count == FLOOD:
            self._flooded()
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
        self._opened = Descriptor.of_directory(self._folder)
        self._inode = os.fstat(self._opened).st_ino
        self._watch = self._observer.schedule(self, self._folder, recursive=self._is_deep, event_filter=_EVENTS)
        if self._is_deep and not self._has_warned:
            self._has_warned = _warn_of_limits(self._folder)


def _warn_of_limits(folder: str) -> bool:
    """Log a warning if there are more folders below than the system watches: watchdog leaves out the others silently.

    Other programs use watches too, so there may be fewer left than assumed here.
    """
    limits = [int(path.read_text()) for path in _LIMITS if path.exists()]
    found = sum(1 for _ in os.walk(folder)) if limits else 0
    if is_over := bool(limits) and found > min(limits):
        _log.warning(
            "%s has %d folders, and the system watches at most %d (fs.inotify.max_user_watches): changes by hand in "
            "the others are noticed within %.0f seconds or at the user's next session, not at once",
            folder, found, min(limits), _SWEEP_SECONDS,
        )  # fmt: skip
    return is_over
