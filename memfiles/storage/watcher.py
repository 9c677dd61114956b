"""Watchers: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is examined soon, and again once things have calmed
down; nothing that goes wrong here ends the watching; and our own commits, which cause seven events each, cost little.
Therefore the system keeps the events until things have calmed down, or half a second if they do not, and they are then
read at once. Of a flat folder with few files it gives a single event, after which every file there is examined.
Examining every file makes way for the threads that answer an agent. The object given to a ``Watcher`` decides what a
change means.

Where there is no inotify (macOS), and where the system has no watches left, every file is examined every second
instead, with one stat each. If there are so many files that it takes long, it is done less often, so that it takes a
twenty-fifth of the time. As events may be lost (a full queue, a network file system), the same is done now and then in
any case.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.records.keys import ENTRIES, RECORD_SUFFIX, record_path, uid_of
from memfiles.storage.entry_folders import Pause, in_parts
from memfiles.storage.folder_events import SWEEP_SECONDS, FolderEvents
from memfiles.storage.fork_safety import Flag, join_thread, renew_in_child, start_thread
from memfiles.storage.record_store import RecordStore, RemoteStore

if TYPE_CHECKING:
    from memfiles.storage.repository import RecordRepository

_CALM_SECONDS = 0.05
_FEW_FILES = 32  # to examine so many files takes 0.2 ms, which is less than a thread takes to wake up
_LONGEST_CALM_SECONDS = 0.5  # while somebody writes without pause
_UNSAVED_SECONDS = 0.25
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_RAREST_SWEEP_SECONDS = 10.0  # without events
_SWEEP_SHARE = 25
_REST_SHARE = 2  # a sweep leaves the interpreter to the other threads for so much longer than it uses it
_FEED_SECONDS = 0.5  # a close waits for so long at most


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

    def suspects(self, pause: Pause) -> Iterable[str]:
        """The records to examine in a sweep: all of them, or those found to differ.

        Whatever takes long calls ``pause`` now and then, and lets through what it raises.
        """


class DeclaredFiles:
    """The files of the declared records of a repository; see ``Watched``."""

    is_deep = False
    what = "record"

    def __init__(self, repository: RecordRepository[Any], directory: Path | None) -> None:
        self._repository, self._directory = repository, directory

    def folder(self) -> Path:
        """See ``Watched``; ``InvalidArgument`` while it is gone."""
        if self._directory is None or not self._directory.is_dir():
            raise InvalidArgument(f"there is no memory directory {self._directory} to watch")
        return self._directory

    def record_at(self, path: str) -> str | None:
        return uid_of(path)

    def look(self, record: str) -> bool:
        return self._repository.notice(record_path(record))

    def suspects(self, pause: Pause) -> Iterable[str]:
        """See ``Watched``: all of them."""
        return [path.removesuffix(RECORD_SUFFIX) for path in self._repository.paths()]


class _Ended(Exception):
    """The watcher closes."""


class Watcher:
    """Has one type of record examined in a thread of its own: those named by events, and now and then all."""

    def __init__(self, watched: Watched, cleanup: ExitStack | None = None) -> None:
        """Start watching, until the ``cleanup`` or its end; if the system provides no events, that is logged."""
        self._watched = watched
        self._due: dict[str, float] = {}
        self._ended = Flag()
        self._sweep_took = self._resumed = 0.0  # without its pauses
        self._calm = _CALM_SECONDS
        self._examined = 0  # records in the last sweep
        self._complaints: dict[str, str] = {}
        self._events = FolderEvents(os.path.realpath(watched.folder()), is_deep=watched.is_deep, pause=self._pause)
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        renew_in_child(self, Watcher._leave_to_parent)
        _end_with(cleanup, close=self.close, end=self.end)
        if not watched.is_deep:  # of 10,000 folders it takes 0.2 s, which the thread has
            self._events.start()
        if not _start(self._thread):
            self._sweep()  # reads leave this to the thread
            self._events.close()

    def end(self) -> None:
        """Stop watching soon: a memory was dropped without a close."""
        self._ended.set()
        self._events.interrupt()

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        self.end()
        join_thread(self._thread)
        self._events.close()

    def _leave_to_parent(self) -> None:
        """In a forked child, where no thread watches: ``close`` must not wait for one."""
        self._ended = Flag()
        self._events.close()  # the child's copy of the descriptor: the queue is the parent's

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(_Ended):
                self._sweep()
                self._sweep_took += time.monotonic() - self._resumed
                self._follow_events()
        self._events.close()

    def _pause(self) -> None:
        took = time.monotonic() - self._resumed
        self._sweep_took += took
        if self._ended.wait(_REST_SHARE * took):
            raise _Ended
        self._resumed = time.monotonic()

    def _sweep(self) -> None:
        """Examine all suspects; a failure is retried in the next sweep."""
        self._sweep_took, self._resumed = 0.0, time.monotonic()
        try:
            self._watched.folder()
            self._events.start(with_names=self._examined > _FEW_FILES)  # before examining, so that nothing is missed
            suspects = self._watched.suspects(self._pause)
            self._complaints.pop("", None)
        except _Ended:
            raise
        except Exception as error:
            self._complain("", f"the {self._watched.what} files could not be examined", error)
            return
        self._examined = 0
        for record in in_parts(suspects, self._pause):
            self._look(record)
            self._examined += 1

    def _follow_events(self) -> None:
        """Examine the records that events name, until the next sweep is due: with the next event if it has no names."""
        begun = quiet_since = time.monotonic()
        share = _SWEEP_SHARE * self._sweep_took
        pause = min(_RAREST_SWEEP_SECONDS, max(_SWEEP_WITHOUT_EVENTS_SECONDS, share))
        until = begun + (max(SWEEP_SECONDS, share) if self._events.are_on else pause)
        while not self._ended.is_set() and (now := time.monotonic()) < until:
            if self._events.are_incomplete:
                until = min(until, begun + pause)
            if self._wait(min([*self._due.values(), until]) - now):
                self._let_calm_down(quiet_since)
                self._resumed = time.monotonic()  # a new folder with many files pauses for its own time, not the wait
                self._expect(self._events.read())
                quiet_since = time.monotonic()
                if not self._events.have_names:
                    return
            for record in self._take_due():
                self._look(record)

    def _let_calm_down(self, quiet_since: float) -> None:
        """Wait for more events, and longer while somebody writes without pause."""
        is_busy = time.monotonic() - quiet_since < self._calm
        self._calm = min(2 * self._calm, _LONGEST_CALM_SECONDS) if is_busy else _CALM_SECONDS
        self._ended.wait(self._calm)

    def _wait(self, seconds: float) -> bool:
        """Wait for events, at most ``seconds``; returns whether there are some."""
        if self._events.are_on:
            return self._events.wait(seconds)
        self._ended.wait(max(0.0, seconds))
        return False

    def _expect(self, paths: Iterable[str]) -> None:
        """Schedule the records at these paths."""
        for path in paths:
            if (record := self._watched.record_at(path)) is not None:
                self._due[record] = 0.0

    def _take_due(self) -> list[str]:
        now = time.monotonic()
        due = [record for record, at in self._due.items() if at <= now]
        for record in due:
            del self._due[record]
        return due

    def _look(self, record: str) -> None:
        """Examine a record; a failure that repeats is logged once."""
        try:
            if not self._ended.is_set() and not self._watched.look(record):
                self._due.setdefault(record, time.monotonic() + _UNSAVED_SECONDS)
            self._complaints.pop(record, None)
        except Exception as error:
            self._complain(record, f"a change of {self._watched.what} {record} could not be followed", error)

    def _complain(self, record: str, what: str, error: Exception) -> None:
        if self._complaints.get(record) != str(error):
            self._complaints[record] = str(error)
            _log.warning("%s: %s", what, error, exc_info=error)


class FeedWatcher:
    """Has records of a store without files examined when others change them, as its feed says."""

    def __init__(
        self, store: RecordStore, files: Watched, entries: Watched | None, cleanup: ExitStack | None = None
    ) -> None:
        """Start watching, until the ``cleanup`` or its end."""
        self._store, self._files, self._entries = store, files, entries
        self._ended = Flag()
        self._point: str | None = None
        self._left: dict[str, None] = {}  # the paths of records that are still to be examined
        self._complaints: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        if isinstance(store, RemoteStore):
            self._point = store.point()  # before anyone relies on its events
        renew_in_child(self, FeedWatcher._leave_to_parent)
        _end_with(cleanup, close=self.close, end=self._ended.set)
        _start(self._thread)

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        self._ended.set()
        join_thread(self._thread)

    def _leave_to_parent(self) -> None:
        self._ended = Flag()
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                has_news = self._point is None or self._store.wait(self._point, seconds=_FEED_SECONDS)
                if has_news or self._left:
                    changes = self._store.changes(self._point)
                    # a change that every process hears of after a restart of the server is not news
                    self._left |= dict.fromkeys(changes.recent if changes.complete else changes.records)
                    self._point = changes.until
                    self._look()
                    self._ended.wait(_CALM_SECONDS)  # what is changed meanwhile is asked for together
                if not self._left:
                    self._complaints.clear()
            except Exception as error:
                self._complain(error)
                self._ended.wait(_SWEEP_WITHOUT_EVENTS_SECONDS)

    def _look(self) -> None:
        """Examine the records that are left; one that cannot be examined now stays among them."""
        for path in list(self._left):
            is_entry = path.startswith(f"{ENTRIES}/")
            watched, short = (self._entries, path[len(ENTRIES) + 1 :]) if is_entry else (self._files, path)
            try:
                if watched is not None and (record := watched.record_at(short)) is not None:
                    watched.look(record)
                del self._left[path]
            except Exception as error:
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Say once what is wrong, until all works again."""
        if not self._ended.is_set() and str(error) not in self._complaints:
            self._complaints.add(str(error))
            trace = None if isinstance(error, MemfilesError) else error
            _log.warning("changes of others are heard of later: %s", error, exc_info=trace)


def _end_with(cleanup: ExitStack | None, *, close: Callable[[], None], end: Callable[[], object]) -> None:
    """Have the ``cleanup`` call ``close``; ``end`` is called if a memory is dropped without it.

    It comes before any start, in which an interrupt may come.
    """
    if cleanup is not None:
        cleanup.callback(close)
        dropped = weakref.finalize(cleanup, end)
        dropped.atexit = False
        cleanup.callback(dropped.detach)  # else it would keep the watcher until the collector finds the rest


def _start(thread: threading.Thread) -> bool:
    if start_thread(thread):
        return True
    _log.warning("no thread can be started to watch for changes of others: each is noticed when its record is used")
    return False


def watch(store: RecordStore, files: Watched, entries: Watched | None, cleanup: ExitStack) -> None:
    """Watch the records for changes by people, other programs and other processes until the ``cleanup``."""
    if isinstance(store, RemoteStore):
        FeedWatcher(store, files, entries, cleanup)
        return
    for watched in (files, entries):
        if watched is not None:
            Watcher(watched, cleanup)
