"""The change log: what every process on the directory is about to change and has changed, line by line.

The rule this file guards: a line is written by one call, whole, before the change it announces; so that a process
that is killed between its record and the index is seen by all others. A line names records, never what is in them::

    #<id of this log>
    +<token> <folder>/<uid> ...     about to be changed
    =<token>                        changed, or not; over
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable
from typing import NamedTuple

from memfiles.index.unusable import IndexUnusable
from memfiles.records.keys import ENTRIES, RECORD_SUFFIX, entry_path, entry_place
from memfiles.storage import atomic

PATH = ".state/entries.log"
HEADER_BYTES = 14
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HEADER = re.compile(rb"#([0-9a-f]{12})\n", re.ASCII)
_LINE = re.compile(r"([+=])([0-9a-f]+:[0-9a-f]+)((?: [^ ]+)*)", re.ASCII)
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.001
_PREFIX = len(ENTRIES) + 1
_SUFFIX = -len(RECORD_SUFFIX)
_ATTEMPTS = 5


class Line(NamedTuple):
    """One line: whether it announces changes of ``paths`` or says that those announced under the token are over."""

    token: str
    is_intent: bool
    paths: tuple[str, ...] = ()


class ChangeLog:
    """This process's end of the log. A shared lock is held while it is open: nobody else empties it meanwhile."""

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor. Opens the log; ``IndexUnusable`` if it cannot."""
        self._directory = directory
        self.id = ""
        self.is_alone = False  # nobody else had it open when it was opened
        for _ in range(_ATTEMPTS):
            self._descriptor = self._open()
            try:
                if self._begin():
                    return
            except BaseException:  # an open descriptor would go on holding the lock
                os.close(self._descriptor)
                raise
            os.close(self._descriptor)
        raise IndexUnusable(f"{PATH} is replaced again and again")

    def close(self) -> None:
        """Let go of the log."""
        os.close(self._descriptor)

    def size(self) -> int | None:
        """How many bytes it has; None if this is no longer the log of the directory."""
        try:
            found = os.stat(PATH, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return None
        return found.st_size if found.st_ino == self._inode else None

    def is_linked(self) -> bool:
        """Whether it lies anywhere at all: cheaper to ask than ``size``, and as good unless folders are moved."""
        return os.fstat(self._descriptor).st_nlink > 0

    def append(self, line: bytes) -> None:
        """Write a line. One that could not be written as a whole costs everybody a look at all records."""
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            written = 0
        if written < len(line):
            remove(self._directory)

    def read(self, offset: int, *, but: str) -> tuple[list[Line], int, bool]:
        """The whole lines from ``offset`` on, where they end, and whether all of them could be understood.

        Those with a token that begins with ``but`` are left out.
        """
        data = self._bytes(offset)
        end = data.rfind(b"\n") + 1
        texts = data[:end].decode(errors="replace").split("\n")[:-1]
        lines = [parsed(text) for text in texts if not text.startswith(but, 1)]
        known = [line for line in lines if line is not None]
        return known, offset + end, len(known) == len(lines)

    def take_alone(self) -> bool:
        """Whether nobody else has the log open; if so, nobody can open it until this one is closed."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return self.size() is not None

    def empty(self) -> None:
        """Begin a new log in the same file; the caller is alone. ``IndexUnusable``: then it has no beginning."""
        self.id = secrets.token_hex(6)
        header = f"#{self.id}\n".encode()
        try:
            os.ftruncate(self._descriptor, 0)
            is_written = os.write(self._descriptor, header) == len(header)
        except OSError as error:
            raise IndexUnusable(f"{PATH} cannot be written: {error.strerror}") from error
        if not is_written:
            raise IndexUnusable(f"{PATH} cannot be written: the disk is full")

    def share(self) -> None:
        """Let others open it again."""
        self.is_alone = False
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def _open(self) -> int:
        try:
            atomic.make_folder(self._directory, ".state")
            try:
                return os.open(PATH, _FLAGS, 0o600, dir_fd=self._directory)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
                    raise
                remove(self._directory)
                return os.open(PATH, _FLAGS, 0o600, dir_fd=self._directory)
        except OSError as error:
            raise IndexUnusable(f"{PATH} cannot be opened: {error.strerror}") from error

    def _begin(self) -> bool:
        """Lock and understand the open file; False if it is to be opened anew."""
        found = os.fstat(self._descriptor)
        self._inode = found.st_ino
        if not stat.S_ISREG(found.st_mode):
            remove(self._directory)
            return False
        self.is_alone = self._lock()
        header = _HEADER.match(os.pread(self._descriptor, HEADER_BYTES, 0))
        if header is None and self.is_alone:
            self.empty()
        elif header is None:
            remove(self._directory)
            return False
        else:
            self.id = header[1].decode()
        return self.size() is not None

    def _lock(self) -> bool:
        """Take the lock, alone if possible."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                try:
                    fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                        raise IndexUnusable(f"{PATH} cannot be locked: {error.strerror}") from error
                else:
                    return kind == fcntl.LOCK_EX
            if time.monotonic() >= deadline:
                raise IndexUnusable(f"{PATH} is locked by another process for more than {_PATIENCE_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)

    def _bytes(self, offset: int) -> bytes:
        chunks = []
        while chunk := os.pread(self._descriptor, 1 << 20, offset):
            chunks.append(chunk)
            offset += len(chunk)
        return b"".join(chunks)


def intent_line(token: str, paths: Iterable[str]) -> bytes:
    """That these records are about to be changed."""
    places = [path[_PREFIX:_SUFFIX] for path in paths]
    return f"+{token} {' '.join(places)}\n".encode()


def done_line(token: str) -> bytes:
    """That what was announced under this token is over."""
    return f"={token}\n".encode()


def parsed(line: str) -> Line | None:
    """What a line says, None if it is none of ours."""
    found = _LINE.fullmatch(line)
    if found is None:
        return Line("", is_intent=False) if _HEADER.match(f"{line}\n".encode()) else None
    sign, token, places = found.groups()
    paths = tuple(entry_path(*place.split("/", 1)) for place in places.split() if "/" in place)
    if not all(entry_place(path) for path in paths):
        return None
    return Line(token, sign == "+", paths)


def remove(directory: int) -> None:
    """Remove the log, so that every process notices and looks at all records."""
    try:
        atomic.remove(directory, PATH)
    except OSError as error:
        raise IndexUnusable(f"{PATH} cannot be replaced: {error.strerror}") from error
