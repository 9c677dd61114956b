"""The audit log: who did what to which record, appended to one file a month below ``audit/``.

The rules this file guards: a line tells that something was done and never what it was about, so it holds no content,
no key and no free text; lines of several processes never mix, for each is one write to a file opened for appending;
and an operation is never held up or failed by its log. Nothing is flushed: the log tells what happened, and is
not what makes it durable.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from pydantic_core import from_json, to_json

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.record import NOBODY, Actor
from memfiles.storage import atomic
from memfiles.storage.fork_safety import renew_in_child

FOLDER = "audit"
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}\.jsonl", re.ASCII)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINE_MAX_BYTES = 64 * 1024

_SAID = ("op", "outcome", "path", "level", "agent", "run", "call", "code", "count")
_said_by = attrgetter(*_SAID)
_CHECKED_EVERY_SECONDS = 0.02  # a look costs a quarter of a line; what is written just before a deletion is lost anyway

_log = logging.getLogger("memfiles")


_second = (0, "")  # the last second that was written out: that costs five times as much as the rest


def utc_now() -> str:
    """The present moment as ``2026-11-21T09:00:00.000Z``."""
    global _second
    second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
    known, text = _second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{millisecond:03d}Z"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done, or was not allowed.

    ``op`` is the operation's word (``save``, ``forget``, ``evict``), ``outcome`` is ``ok`` or ``refused`` or
    ``failed``, and then ``code`` is the error's. ``path`` is the record's path in the memory directory, ``count``
    how many records it was about. ``agent``, ``run`` and ``call`` say who. ``at`` is set when it is logged.
    """

    op: str
    outcome: str = "ok"
    path: str | None = None
    level: str | None = None
    agent: str | None = None
    run: str | None = None
    call: str | None = None
    code: str | None = None
    count: int | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no event, as ``file:line``: a disk was full, or somebody else wrote there."""

    where: str


class AuditLog:
    """The log of one memory directory. Threads may share it; processes may share the directory.

    The month's file stays open, and is opened anew after it was moved or deleted, and in the child of a fork.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        now: Callable[[], str] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing touches the disk before the first event. ``monotonic`` tells when to look for the file again."""
        self._directory = os.fspath(directory)
        self._now = now
        self._monotonic = monotonic
        self._failing = False
        self._torn = False
        self._checked_until = 0.0
        self._renew()
        renew_in_child(self, AuditLog._renew)

    def record(self, event: Event) -> None:
        """Append ``event``; never raises. That nothing can be logged is told once, until it can be again."""
        at = self._now()
        try:
            line = _line(event, at)
            with self._lock:
                self._append(at[:7] + ".jsonl", line)
        except (OSError, ValueError) as error:
            self._failed(error)
        else:
            self._failing = False

    def close(self) -> None:
        """Let go of the file; a further event opens it again."""
        with self._lock:
            self._let_go()

    def _append(self, name: str, line: bytes) -> None:
        if self._descriptor < 0 or name != self._name or not self._is_current():
            self._let_go()
            self._open(name)
        if self._torn:
            line = b"\n" + line
        self._torn = os.write(self._descriptor, line) != len(line)
        if self._torn:  # a full disk; the next line must not go on in this one
            raise OSError("the disk took only a part of a line")

    def _is_current(self) -> bool:
        """Whether the name still leads to the open file, as far as was looked lately."""
        if (moment := self._monotonic()) < self._checked_until:
            return True
        self._checked_until = moment + _CHECKED_EVERY_SECONDS
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return found.st_ino == self._inode

    def _open(self, name: str) -> None:
        self._descriptor = _open_month(self._directory, name)
        self._name, self._path = name, os.path.join(self._directory, FOLDER, name)
        self._inode = os.fstat(self._descriptor).st_ino
        self._checked_until = self._monotonic() + _CHECKED_EVERY_SECONDS

    def _let_go(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _renew(self) -> None:
        """Start without an open file; in a child, the parent's descriptors stay open until it ends."""
        self._lock = threading.Lock()
        self._descriptor = self._inode = -1
        self._name = self._path = ""
        self._checked_until = 0.0

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            _log.warning("the audit log in %s cannot be written, operations go on without it: %s", FOLDER, error)
        with suppress(OSError), self._lock:
            self._let_go()


def read(directory: str | os.PathLike[str], *, since: str = "", until: str = "9999") -> Iterator[Event | Unreadable]:
    """The logged events of a memory directory, month by month, in the order in which they were written.

    ``since`` (included) and ``until`` (excluded) are times such as ``2026-11-21`` or ``2026-11-21T09:00:00.000Z``.
    A directory without a log has none. ``InvalidArgument`` if the log cannot be read.
    """
    try:
        names = [name for name in sorted(os.listdir(os.path.join(directory, FOLDER))) if _MONTH.fullmatch(name)]
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the audit log cannot be read: {error}") from error
    for name in names:
        if since[:7] <= name[:7] < until:
            yield from (item for item in _month(os.path.join(directory, FOLDER, name), name)
                        if isinstance(item, Unreadable) or since <= item.at < until)  # fmt: skip


def _open_month(directory: str, name: str) -> int:
    """A descriptor that appends to a month's file; no link is followed below the memory directory."""
    root = atomic.open_directory(directory)
    try:
        atomic.make_folder(root, FOLDER)
        folder = os.open(FOLDER, _FOLDER, dir_fd=root)
    finally:
        os.close(root)
    try:
        descriptor = os.open(name, _APPEND, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{FOLDER}/{name} is not a regular file")
    os.fchmod(descriptor, 0o600)
    return descriptor


def _month(path: str, name: str) -> Iterator[Event | Unreadable]:
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidArgument(f"{FOLDER}/{name} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidArgument(f"{FOLDER}/{name} is not a regular file")
        number = 0
        while line := file.readline(_LINE_MAX_BYTES):
            number += line.endswith(b"\n")
            if line != b"\n":
                yield _event(line) or Unreadable(f"{name}:{max(1, number)}")


def _line(event: Event, at: str) -> bytes:
    fields: dict[str, Any] = {"at": at}
    for name, value in zip(_SAID, _said_by(event), strict=True):
        if value is not None:
            fields[name] = value
    return to_json(fields) + b"\n"


def _event(line: bytes) -> Event | None:
    try:
        found: Any = from_json(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("at", "op", "outcome")):
        return None
    return Event(**{name: value for name, value in found.items() if name in ("at", *_SAID)})


REFUSED = ("read_only", "level_denied", "secret_refused", "budget_exceeded", "size_exceeded")


def logging_changes(log: AuditLog) -> Callable[[RecordChanged], None]:
    """A subscriber that logs each change; those that another process made are logged there."""

    def note(event: RecordChanged) -> None:
        if event.origin != "process":
            by = event.by if event.origin == "local" else Actor()
            log.record(
                Event(
                    op=event.op,
                    path=event.path,
                    level=event.level,
                    agent=by.agent,
                    run=by.session,
                    call=by.call,
                )
            )

    return note


class Refusals:
    """Logs the calls that were refused; what failed for another reason changed nothing and is no denial."""

    def __init__(self, log: AuditLog | None = None) -> None:
        """Without a log nothing is noted."""
        self._log = log

    def note(self, error: BaseException, op: str, *, agent: str, level: str, run: str | None) -> None:
        """Log the error if it is a refusal; an error that only says that there is nothing is none."""
        if self._log is not None and isinstance(error, MemfilesError) and error.code in REFUSED:
            self._log.record(Event(op, "refused", level=level, agent=agent, run=run, code=error.code))


Origin = Literal["local", "process", "external", "restored", "mirror"]


@dataclass(frozen=True, slots=True)
class RecordChanged:
    """A memory file, or an entry, is at a new revision.

    ``origin``: local (this manager), process (another process of memfiles, or another manager in this one), external
    (a person or another program), restored (the record was deleted or broken, and the last good one was put back;
    ``warning`` says why), mirror (fetched from the mirror, or merged with its copy). Of changes that came quickly one
    after another, only the last may be told. Two threads may tell of two changes at once, the later one first: the
    revision gives the order. ``path`` is where the record lies; an entry's ``name`` is its key, "" once forgotten.
    ``op`` is ``remove`` when the file of an entry was removed by hand: it is gone, and not forgotten.
    """

    uid: str
    name: str
    revision: int
    op: str
    origin: Origin
    warning: str | None = None
    path: str = ""
    level: str = ""
    by: Actor = NOBODY


class Subscribers:
    """Callbacks that are told of every change, in the thread that made or noticed it."""

    def __init__(self) -> None:
        """Nobody is told anything yet."""
        self._callbacks: dict[int, Callable[[RecordChanged], None]] = {}
        self._next = 0
        self._adding = threading.Lock()

    def renew(self) -> None:
        """In the child of a fork: another thread may have been adding when it was made."""
        self._adding = threading.Lock()

    def add(self, callback: Callable[[RecordChanged], None]) -> Callable[[], None]:
        """Tell ``callback`` of every change from now on; the returned function ends that."""
        with self._adding:
            number, self._next = self._next, self._next + 1
            self._callbacks[number] = callback
        return lambda: self._callbacks.pop(number, None) and None

    def tell(self, events: Iterable[RecordChanged]) -> None:
        """Call everyone; a callback that raises is logged and does not disturb the change or the others.

        No lock may be held: a callback may change memory files itself.
        """
        for event in events:
            for callback in list(self._callbacks.values()):
                try:
                    callback(event)
                except Exception:
                    _log.exception("a callback for changes of memory files failed")
