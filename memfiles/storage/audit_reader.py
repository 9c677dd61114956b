"""Audit reader: the events, newest first; the audit's files in a memory directory; and the removal of old months.

The rules this file guards: a log of any size is read in bounded memory, backwards, and only as far as it is asked for;
a damaged line is counted and named, and hides no other; no link is followed; a line is written whole, by one call.
Events come ordered by ``at``: processes that share a log keep lines for up to a second before they write them.
"""

from __future__ import annotations

import os
import stat
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count, islice
from os import PathLike
from typing import Any, BinaryIO

from msgspec import Struct, field
from msgspec.json import Decoder

from memfiles.errors import MemfilesError
from memfiles.records import late_pattern
from memfiles.records.keys import RECORD_SUFFIX, entry_place, entry_uid, is_record_path
from memfiles.records.record import MAX_RECORD_BYTES, TIMESTAMP_PATTERN
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, storage_failure
from memfiles.storage.events import AuditEvent
from memfiles.storage.home import AUDIT, MemoryPlace, home_of

NAMED_MAX = 20  # damaged places that are named; more are only counted
_AT = late_pattern(TIMESTAMP_PATTERN[1:-1])
_WINDOW, _WINDOW_MAX = 1024, 4096  # lines among which a late one finds its place, at least and at most
_LATEST = timedelta(seconds=3)  # that a line comes, counted from its second, unless a process was stopped
_EVENT = Decoder(AuditEvent)
_MONTH = late_pattern(rb"\d{4}-\d\d\.jsonl")
_RUN = late_pattern(rb'"run":"(?:[^"\\]|\\.)*"')
NAMES_OF_RUNS = late_pattern(rb'"(?:run|call|actor)":"(?:[^"\\]|\\.)*"')
_USER = late_pattern(rb'"user":"([0-9a-f]*)"')
_OF_OPERATOR = b'-user","outcome":'  # forget-user, export-user
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLANKED = ".state/blanked"  # the paths of tombstones, one a line
_BLOCK = 1 << 16
_LINE_MAX = 1 << 16


class AuditTrail(Struct, frozen=True):
    """Events of the audit, newest first.

    ``older`` is the ``until`` of the next page, which leaves no event out and repeats none; "" on the last page.
    ``damaged`` counts lines that could not be read, and ``places`` says where the first of them are.
    """

    events: tuple[AuditEvent, ...]
    older: str = ""
    damaged: int = 0
    places: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        events = [event.to_dict() for event in self.events]
        known = {"more": self.more, "older": self.older or None}
        return {"events": events, **known, "damaged": self.damaged, "places": list(self.places)}

    @property
    def more(self) -> bool:
        """Whether a next page has other events, which are older than the last one here, or of its time."""
        return bool(self.older)


class AuditFilter(Struct, frozen=True):
    """The events that are asked for: they fit every field that is not empty.

    ``since`` is the first moment, ``until`` the one after the last. With a number of events ``seen``, ``until`` is the
    last moment, and that many of its newest events are left out. ``user`` is the hash of a user's name. ``records``
    are paths or uids of records, or keys of entries; ``levels`` the levels that such entries may have. ``readable``
    are the only levels of events; None: events of any level, and of none.
    """

    since: str = ""
    until: str = ""
    seen: int | None = None
    agent: str | None = None
    user: str | None = None
    actor: str | None = None
    op: str | None = None
    outcome: str | None = None
    records: Sequence[str] = ()
    levels: Sequence[str] = ()
    readable: Sequence[str] | None = None

    def fits(self, event: AuditEvent) -> bool:
        """Whether the event, which is in the time that is asked for, fits the other fields."""
        return (
            self.agent in (None, event.agent)
            and self.actor in (None, event.actor)
            and self.op in (None, event.op)
            and self.outcome in (None, event.outcome)
            and (self.readable is None or event.level in self.readable)
            and (self.user is None or self._is_user(event))
            and (not self.records or self._is_about(event))
        )

    def _is_user(self, event: AuditEvent) -> bool:
        return event.user == self.user or any(f"/{self.user}/" in path for path in _paths_of(event))

    def _is_about(self, event: AuditEvent) -> bool:
        return any(self._is_record(path, it, event) for path in _paths_of(event) for it in self.records)

    def _is_record(self, path: str, wanted: str, event: AuditEvent) -> bool:
        place = entry_place(path)
        if place is None or path == wanted:
            return path in (wanted, wanted + RECORD_SUFFIX)
        folder, uid = place
        levels = (*self.levels, event.level or "")
        return uid == wanted or uid in _entry_uids(folder, wanted, levels=levels, run=event.run or "")


@lru_cache(maxsize=1024)
def _entry_uids(folder: str, key: str, *, levels: Sequence[str], run: str) -> frozenset[str]:
    """The uids that an entry of this key may have in a folder, in a run or in none."""
    return frozenset(entry_uid(folder, level, key, of_run) for level in levels for of_run in ("", run))


def _paths_of(event: AuditEvent) -> Sequence[str]:
    return (*(event.paths or ()), *((event.path,) if event.path else ()))


class AuditReader(Struct):
    """Reads one log once, and counts what is ``damaged``."""

    where: MemoryPlace
    wanted: AuditFilter = AuditFilter()
    damaged: int = 0
    places: list[str] = field(default_factory=list)

    def trail(self, *, limit: int) -> AuditTrail:
        """The newest events that fit, ``limit`` at most."""
        found = self.events()
        events, older = tuple(islice(found, limit)), ""
        if (other := next(found, None)) is not None:
            older, wanted = events[-1].at, self.wanted
            if other.at == older:
                known = (wanted.seen or 0) if older == wanted.until else 0
                older += f"#{known + sum(event.at == older for event in events)}"
        return AuditTrail(events, older, self.damaged, tuple(self.places))

    def events(self) -> Iterator[AuditEvent]:
        """The events that fit, newest first."""
        until, seen = self.wanted.until, self.wanted.seen
        for event in self._in_order():
            if event.at < self.wanted.since:
                return  # those after it are older
            if until and (event.at > until or (event.at == until and seen is None)) or not self.wanted.fits(event):
                continue
            if event.at == until and seen:
                seen -= 1
                continue
            yield event

    def _in_order(self) -> Iterator[AuditEvent]:
        """All events of the months that count, newest first; a late line finds its place in the ``window``."""
        window: list[tuple[str, int, AuditEvent]] = []
        numbers = count(0, -1)
        for event in self._as_written():
            insort(window, (event.at, next(numbers), event))
            while len(window) > _WINDOW and (
                window[-1][0] > _latest_before(event.at[:19]) or len(window) > _WINDOW_MAX
            ):
                yield window.pop()[2]
        yield from (event for _, _, event in reversed(window))

    def _as_written(self) -> Iterator[AuditEvent]:
        since, until = self.wanted.since[:7], self.wanted.until[:7]
        pages = home_of(self.where).audit
        for month, place, line in pages.backwards(lambda name: since <= name[:7] <= (until or name[:7])):
            if (event := _event_in(line)) is not None:
                yield event
            elif isinstance(place, str):
                self._note(f"{AUDIT}/{month}: {place}")
            elif line is None or line.strip():
                self._note(f"{AUDIT}/{month}: the line at byte {place} is damaged")

    def _note(self, place: str) -> None:
        self.damaged += 1
        if len(self.places) < NAMED_MAX:
            self.places.append(place)


@lru_cache(maxsize=16)
def _latest_before(second: str) -> str:
    """The latest time of a line that is before one of this second in its file."""
    try:
        return (datetime.fromisoformat(second) + _LATEST).isoformat()
    except (ValueError, OverflowError):  # no such day
        return second


def _event_in(line: bytes | None) -> AuditEvent | None:
    """The event in a line; None if there is none."""
    try:
        event = _EVENT.decode(line or b"")
    except (ValueError, RecursionError):
        return None
    return event if _AT.fullmatch(event.at) else None


def drop_months(where: MemoryPlace, *, now: str, after_seconds: int, dry_run: bool = False) -> tuple[str, ...]:
    """Remove the months of the audit that have been over for so long; returns them, such as ``2026-11``.

    ``StorageFailed``.
    """
    try:
        before = (datetime.fromisoformat(now) - timedelta(seconds=after_seconds)).isoformat()
    except OverflowError:  # longer than there are years
        return ()
    return home_of(where).audit.drop(before[:7], dry_run=dry_run)


class AuditFiles:
    """The audit of a memory directory, one file a month; see ``AuditPages``.

    The month's file stays open; it is opened again after it was moved or deleted. A line that a full disk cut off is
    ended before the next one.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self._directory = os.fspath(directory)
        self._torn = False
        self.let_go()

    def let_go(self) -> None:
        self._descriptor: int = -1  # the file is closed when nothing refers to its descriptor
        self._inode = -1
        self._name = self._path = ""

    def append(self, month: str, lines: bytes, *, is_hurried: bool = False) -> None:
        """See ``AuditPages``; a directory has no server that could be away, so ``is_hurried`` changes nothing."""
        if self._descriptor < 0 or month != self._name or not self._is_current():
            self._descriptor = -1
            self._open(month)
        if self._torn:
            lines = b"\n" + lines
        self._torn = os.write(self._descriptor, lines) != len(lines)
        if self._torn:  # the disk is full; the next line must not continue this one
            raise OSError("only part of a line was written")

    def backwards(self, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, int | str, bytes | None]]:
        """See ``AuditPages``: in bounded memory."""
        for name, month in self._months():
            if name and not is_wanted(name):
                continue
            if isinstance(month, Descriptor):
                yield from ((name, offset, line) for offset, line in _lines_backwards(month))
            else:
                yield name, month, None

    def blank(self, tombstones: Collection[str], user_of: Callable[[str], str]) -> None:
        """See ``AuditPages``: a line keeps its length, so that what others append meanwhile stays whole."""
        if not (due := {*tombstones}.difference(self.blanked())):
            return
        root, months = Descriptor.of_directory(self._directory), list[str]()
        with suppress(FileNotFoundError):
            months = [f"{AUDIT}/{name}" for name in _months_among(atomic.names(root, AUDIT))]
        users, runs = {user_of(path) for path in due}, set[bytes]()
        for month in months:
            with suppress(FileNotFoundError), _opened(root, month, os.O_RDONLY) as file:  # dropped meanwhile
                runs |= runs_in(file, users)
        for month in months:
            with suppress(FileNotFoundError):
                _blank(root, month, users=users, runs=runs)
        atomic.make_folder(root, _BLANKED.rpartition("/")[0])
        try:  # added at the end by one call, as other processes may do the same
            note = Descriptor(os.open(_BLANKED, _APPEND, 0o600, dir_fd=root))
        except OSError:  # a folder, a link, a file of root: what it said is only done once more
            atomic.remove_all(root, _BLANKED)
            note = Descriptor(os.open(_BLANKED, _APPEND, 0o600, dir_fd=root))
        os.write(note, "\n".join(["", *sorted(due), ""]).encode())

    def blanked(self) -> frozenset[str]:
        """See ``AuditPages``; none if the note of them cannot be read."""
        with suppress(OSError, MemfilesError):
            root = Descriptor.of_directory(self._directory)
            data, _ = atomic.read(root, _BLANKED, limit=MAX_RECORD_BYTES) or (b"", None)
            return frozenset(filter(is_record_path, data.decode(errors="replace").splitlines()))
        return frozenset()

    def drop(self, before: str, *, dry_run: bool) -> tuple[str, ...]:
        """See ``AuditPages``. ``StorageFailed``."""
        with storage_failure("an old month of the audit cannot be removed"):
            try:
                folder = Descriptor.of_folder(Descriptor.of_directory(self._directory), AUDIT)
            except FileNotFoundError:
                return ()
            found = [name for name in _months_among(os.listdir(folder)) if name[:7] < before]
            for name in found if not dry_run else ():
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
        return tuple(name[:7] for name in found)

    def _is_current(self) -> bool:
        """Whether the name still leads to the open file."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return found.st_ino == self._inode

    def _open(self, name: str) -> None:
        """Open a month's file for appending, without following a link below the memory directory."""
        root = Descriptor.of_directory(self._directory)
        atomic.make_folder(root, AUDIT)
        descriptor = Descriptor(os.open(name, _APPEND, 0o600, dir_fd=Descriptor.of_folder(root, AUDIT)))
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{AUDIT}/{name} is not a regular file")
        os.fchmod(descriptor, 0o600)
        self._name, self._path = name, os.path.join(self._directory, AUDIT, name)
        self._descriptor, self._inode = descriptor, found.st_ino

    def _months(self) -> Iterator[tuple[str, Descriptor | str]]:
        """The files of the log, the last month first, each open to read or with the reason why it cannot be read."""
        try:
            folder = Descriptor.of_folder(Descriptor.of_directory(self._directory), AUDIT)
            names = _months_among(os.listdir(folder))[::-1]
        except FileNotFoundError:
            return
        except OSError as error:
            yield "", f"the folder cannot be read: {error.strerror}"
            return
        for name in names:
            try:
                opened = Descriptor(os.open(name, _READ, dir_fd=folder))
            except OSError as error:
                yield name, f"it cannot be read: {error.strerror}"
                continue
            yield name, opened if stat.S_ISREG(os.fstat(opened).st_mode) else "it is not a regular file"


def _months_among(names: Iterable[str]) -> list[str]:
    """The names of months, earliest first; other files in the folder are not the audit's."""
    return sorted(name for name in names if _MONTH.fullmatch(os.fsencode(name)))


def runs_in(lines: Iterator[bytes] | BinaryIO, users: Collection[str]) -> set[bytes]:
    """The runs, as they are written, in the lines of the audit about these users."""
    return {found[0] for line in lines if _user_in(line) in users and (found := _RUN.search(line)) is not None}


def _user_in(line: bytes) -> str | None:
    found = _USER.search(line)
    return found[1].decode() if found is not None else None


def blanked(line: bytes, users: Collection[str], runs: set[bytes]) -> Iterator[tuple[int, bytes]]:
    """The bytes to write over a line, and where, so that it names no run of these users; see ``AuditPages.blank``."""
    user = _user_in(line)
    if user in users:
        gone = [] if _OF_OPERATOR in line else [*NAMES_OF_RUNS.finditer(line)]
    else:
        gone = [] if user is not None else [found for found in _RUN.finditer(line) if found[0] in runs]
    for found in gone:
        yield found.start(), (found[0][: found[0].index(b":")] + b':""').ljust(len(found[0]))


def _blank(root: int, month: str, *, users: Collection[str], runs: set[bytes]) -> None:
    at = 0
    with _opened(root, month, os.O_RDWR) as file:
        for line in file:
            for start, over in blanked(line, users, runs):
                os.pwrite(file.fileno(), over, at + start)
            at += len(line)
    atomic.sync_file(root, month)


def _opened(root: int, month: str, mode: int) -> BinaryIO:
    return os.fdopen(os.open(month, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root), "rb")


def _lines_backwards(file: int) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file from the last to the first, each with its offset; None for one that is too long."""
    end, rest, is_too_long = os.fstat(file).st_size, b"", False
    while end > 0:
        start = max(0, end - _BLOCK)
        rest, *complete = (os.pread(file, end - start, start) + rest).split(b"\n")
        lines: list[tuple[int, bytes | None]] = []
        offset = start + len(rest) + 1
        for line in complete:
            lines.append((offset, line))
            offset += len(line) + 1
        if lines and is_too_long:
            lines[-1], is_too_long = (lines[-1][0], None), False
        yield from reversed(lines)
        is_too_long = is_too_long or len(rest) > _LINE_MAX
        end, rest = start, b"" if is_too_long else rest
    yield 0, None if is_too_long else rest
