"""Watchers: notice records that a person or another program changes while the process runs.

The rules this file guards: whatever happens to a record, its file is examined soon, and again once things have calmed
down; nothing that goes wrong here ends the watching; and our own commits, which cause seven events each, cost little.
Therefore the system keeps the events until things have calmed down, or half a second if they do not, and they are then
read at once. The object given to a ``Watcher`` decides what a change means.

Events come from inotify, without a library: watchdog wakes three threads for each event and takes 60 us for it, an
entry of a batch takes 1. Where there is no inotify (macOS), and where the system has no watches left, every file is
examined every second instead, with one stat each. If there are so many files that it takes long, it is done less often,
so that it takes a twenty-fifth of the time. As events may be lost (a full queue, a network file system), the same is
done now and then in any case.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from memfiles.errors import MemfilesError
from memfiles.records import late_logger as _log
from memfiles.records.keys import ENTRIES, TEMP_PREFIX
from memfiles.storage.atomic import Descriptor
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.record_store import RecordStore, RemoteStore

_CALM_SECONDS = 0.05
_LONGEST_CALM_SECONDS = 0.5  # while somebody writes without pause
_UNSAVED_SECONDS = 0.25
_SWEEP_SECONDS = 30.0
_SWEEP_WITHOUT_EVENTS_SECONDS = 1.0
_RAREST_SWEEP_SECONDS = 10.0  # without events
_SWEEP_SHARE = 25
_FEED_SECONDS = 0.5  # a close waits for so long at most

# <sys/inotify.h>
_CLOSED_AFTER_WRITING, _MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x8, 0x40, 0x80, 0x100, 0x200
_LOST, _IGNORED, _IS_FOLDER, _ONLY_FOLDERS, _NO_LINKS = 0x4000, 0x8000, 0x40000000, 0x01000000, 0x02000000
_RARE = _LOST | _IGNORED | _IS_FOLDER
_CHANGES = _CLOSED_AFTER_WRITING | _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED  # reading a file causes none
_USED_UP = {
    errno.ENOSPC: "the watches are used up: fs.inotify.max_user_watches",
    errno.EMFILE: "the queues for events are used up: fs.inotify.max_user_instances",
}
_HEADER = struct.Struct("iIII")  # the watch, what happened, a number that joins two events, the length of the name
_READ_BYTES = 1 << 20  # all that the system keeps (16,384 events), if names are short
_HIDDEN = ord(TEMP_PREFIX)
_DEEPEST = 8  # folders below the folder, more than any record lies
_libc = ctypes.CDLL(None, use_errno=True)


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
        self._ended = threading.Event()
        self._sweep_took = 0.0
        self._complaints: dict[str, str] = {}
        self._events = FolderEvents(os.path.realpath(watched.folder()), is_deep=watched.is_deep)
        if not watched.is_deep:  # of 10,000 folders it takes 0.2 s, which the thread has
            self._events.start()
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        self._thread.start()
        renew_in_child(self, Watcher._leave_to_parent)

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        self._ended.set()
        self._events.interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._events.close()

    def _leave_to_parent(self) -> None:
        """In a forked child, where no thread watches: ``close`` must not wait for one."""
        self._ended = threading.Event()
        self._events.close()  # the child's copy of the descriptor: the queue is the parent's

    def _run(self) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
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
        calm, read = _CALM_SECONDS, 0.0
        while not self._ended.is_set() and (now := time.monotonic()) < until:
            if self._wait(min([*self._due.values(), until]) - now):
                is_busy = time.monotonic() - read < calm
                calm = min(2 * calm, _LONGEST_CALM_SECONDS) if is_busy else _CALM_SECONDS
                self._ended.wait(calm)
                self._expect(self._events.read())
                read = time.monotonic()
            for record in self._take_due():
                self._look(record)
            if self._events.are_incomplete:
                until = min(until, begun + pause)

    def _wait(self, seconds: float) -> bool:
        """Return whether there are events, after so many seconds at the latest."""
        if self._events.are_on:
            return self._events.wait(seconds)
        self._ended.wait(max(0.0, seconds))
        return False

    def _expect(self, paths: Iterable[str]) -> None:
        """Have the records at these paths examined."""
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


class FolderEvents:
    """The system's events for one folder, as far as they name records. One thread uses it; any may ``interrupt`` it."""

    def __init__(self, folder: str, *, is_deep: bool = False) -> None:
        """``folder`` is not a link; ``is_deep``: subfolders count as well."""
        self._folder = folder
        self._is_deep = is_deep
        self._queue: Descriptor | None = None
        self._opened: Descriptor | None = None  # the folder, so that no other gets its inode number
        self._root = -1  # its watch
        self._watched: dict[int, str] = {}  # the folders by their watches, relative to the folder, with a slash each
        self._unwatched = 0
        self._are_lost = self._has_moved = False
        self._warned: set[str] = set()

    @property
    def are_on(self) -> bool:
        """Whether events are coming in."""
        return self._queue is not None

    @property
    def are_incomplete(self) -> bool:
        """Whether every file must be examined: events were lost, or the folder or one in it was moved."""
        return self._has_moved or self._is_broken()

    def start(self) -> None:
        """Let events come in. If the system provides none (its watches may be used up), that is logged once."""
        if not hasattr(_libc, "inotify_init1"):
            return
        if self._is_broken():
            self.close()
        self._has_moved = False
        try:
            if not self.are_on:
                self._open()
        except OSError as error:
            self.close()
            why = error.strerror or error
            self._warn("no events for %s (%s): its records are checked every second", self._folder, why)

    def wait(self, seconds: float) -> bool:
        """Whether events came in, after so many seconds at the latest."""
        if self._queue is None:
            return False
        poll = select.poll()
        poll.register(self._queue, select.POLLIN)  # a local name would keep it open in a forked child
        return bool(poll.poll(max(0.0, 1000 * seconds)))

    def read(self) -> set[str]:
        """The paths, relative to the folder, of the files that events named since the last call."""
        found: set[str] = set()
        data, position = self._read(), 0
        while position < len(data):
            watch, what, _, length = _HEADER.unpack_from(data, position)
            start, position = position + _HEADER.size, position + _HEADER.size + length
            if what & _RARE:
                found.update(self._follow(watch, what, data[start:position]))
            elif data[start] != _HIDDEN and (folder := self._watched.get(watch)) is not None:
                found.add(folder + _name(data[start:position]))
        return found

    def interrupt(self) -> None:
        """End a ``wait`` in another thread: that the folder is no longer watched is an event as well."""
        if (queue := self._queue) is not None:
            _libc.inotify_rm_watch(queue, self._root)

    def close(self) -> None:
        """Let no events come in until the next ``start``."""
        self._queue = self._opened = None
        self._watched, self._unwatched, self._are_lost = {}, 0, False

    def _is_broken(self) -> bool:
        """Whether events were lost, or come from a folder that is no longer the one at its path."""
        if self._are_lost or self._opened is None:
            return self._are_lost
        try:
            return not os.path.samestat(os.stat(self._folder), os.fstat(self._opened))
        except OSError:
            return True

    def _open(self) -> None:
        self._opened = Descriptor.of_directory(self._folder)
        queue = Descriptor(_checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)))
        self._root = self._watch(queue, "")
        self._queue = queue
        for _ in self._below(queue, "") if self._is_deep else ():
            pass
        if self._unwatched:
            number = len(self._watched)
            self._warn(
                "%s has %d folders, and the system has watches for %d of them (fs.inotify.max_user_watches): changes "
                "by hand in the others are noticed within %.0f seconds or at the user's next session, not at once",
                self._folder, number + self._unwatched, number, _SWEEP_SECONDS,
            )  # fmt: skip

    def _watch(self, queue: int, folder: str) -> int:
        path = os.fsencode(f"{self._folder}/{folder}")
        watch = _checked(_libc.inotify_add_watch(queue, path, _CHANGES | _ONLY_FOLDERS | _NO_LINKS))
        self._watched[watch] = folder
        return watch

    def _below(self, queue: int, folder: str) -> Iterator[str]:
        """Watch the folders in a folder; the files in it and in them."""
        if folder.count("/") > _DEEPEST:
            return
        try:
            with os.scandir(f"{self._folder}/{folder}") as found:
                names = [(each.name, each.is_dir(follow_symlinks=False)) for each in found]
        except OSError:  # it is gone, or may not be read
            return
        for name, is_folder in names:
            if is_folder:
                yield from self._enter(queue, f"{folder}{name}/")
            else:
                yield folder + name

    def _enter(self, queue: int, folder: str) -> Iterator[str]:
        """Watch a folder and those in it; the files in all of them."""
        try:
            self._watch(queue, folder)
        except OSError as error:
            self._unwatched += error.errno == errno.ENOSPC
        yield from self._below(queue, folder)

    def _read(self) -> bytes:
        try:
            return os.read(self._queue, _READ_BYTES) if self._queue is not None else b""
        except BlockingIOError:
            return b""

    def _follow(self, watch: int, what: int, name: bytes) -> Iterable[str]:
        """Watch a folder that is new here, and no longer one that went; the files in it."""
        if what & (_LOST | _IGNORED):
            self._watched.pop(watch, None)
            self._are_lost = self._are_lost or watch in (-1, self._root)
        elif self._is_deep and self._queue is not None and (folder := self._watched.get(watch)) is not None:
            path = f"{folder}{_name(name)}/"
            self._has_moved = self._has_moved or bool(what & (_MOVED_FROM | _MOVED_TO))  # with the files in it
            if what & (_CREATED | _MOVED_TO):
                return self._enter(self._queue, path)
            if what & _MOVED_FROM:
                for each in [each for each, of in self._watched.items() if of.startswith(path)]:
                    _libc.inotify_rm_watch(self._queue, each)
                    del self._watched[each]
        return ()

    def _warn(self, message: str, *details: object) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message, *details)


def _name(padded: bytes) -> str:
    return os.fsdecode(padded.rstrip(b"\0"))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, _USED_UP.get(number) or os.strerror(number))
    return result


class FeedWatcher:
    """Has the records of a store without files examined that others change, as its feed tells of them."""

    def __init__(self, store: RecordStore, files: Watched, entries: Watched | None) -> None:
        self._store, self._files, self._entries = store, files, entries
        self._ended = threading.Event()
        self._point: str | None = None
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="memfiles-watch", daemon=True)
        if isinstance(store, RemoteStore):
            self._point = store.point()  # before anyone relies on being told
        self._thread.start()
        renew_in_child(self, FeedWatcher._leave_to_parent)

    def close(self) -> None:
        """Stop watching. May be called again, and from a callback."""
        self._ended.set()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join()

    def _leave_to_parent(self) -> None:
        self._ended = threading.Event()
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if self._point is None or self._store.wait(self._point, seconds=_FEED_SECONDS):
                    told = self._store.changes(self._point)
                    # what everybody would be told of after a restart of the server is no news
                    self._look(told.recent if told.complete else told.records)
                    self._point = told.until
                self._complaint = ""
            except Exception as error:
                self._complain(error)
                self._ended.wait(_SWEEP_WITHOUT_EVENTS_SECONDS)

    def _look(self, changed: Iterable[str]) -> None:
        for path in changed:
            is_entry = path.startswith(f"{ENTRIES}/")
            watched, short = (self._entries, path[len(ENTRIES) + 1 :]) if is_entry else (self._files, path)
            record = watched.record_at(short) if watched is not None else None
            if watched is None or record is None:
                continue
            try:
                watched.look(record)
            except Exception as error:
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Say once what is wrong, until it works again."""
        if not self._ended.is_set() and str(error) != self._complaint:
            self._complaint = str(error)
            trace = None if isinstance(error, MemfilesError) else error
            _log.warning("changes of others are heard of later: %s", error, exc_info=trace)


def watch(store: RecordStore, files: Watched, entries: Watched | None, cleanup: ExitStack) -> None:
    """Watch the records for changes by people, other programs and other processes until the ``cleanup``."""
    if isinstance(store, RemoteStore):
        cleanup.callback(FeedWatcher(store, files, entries).close)
        return
    for watched in (files, entries):
        if watched is not None:
            cleanup.callback(Watcher(watched).close)
