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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pydantic_core import from_json, to_json

from memfiles.errors import InvalidArgument
from memfiles.storage import descriptors
from memfiles.storage.clock import utc_now
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
    root = descriptors.open_directory(directory)
    try:
        descriptors.make_folder(root, FOLDER)
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
