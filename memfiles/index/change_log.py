"""The change log: intents of all processes on the directory to change records, and their ends, line by line.

The rule this file guards: a line is written whole, by one call, before the change that it announces; so other processes
notice a process that is killed between its record and the index. A line names records, never their content::

    #<id of this log>
    +<token> <folder>/<uid> ...     these records are about to change
    =<token>                        done, changed or not

A log that has grown large is replaced by a short one, whose second line is the id of the first log in this row. Whoever
writes a line looks afterwards whether the log was replaced meanwhile, and then writes it to the new one as well. Until
then only the lock of the folder tells others that it is there, as the lock of the log is that of the old one.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress

from msgspec import Struct

from memfiles.errors import StorageFailed
from memfiles.index.database import IndexUnusable
from memfiles.records import NamedTuple
from memfiles.records.keys import ENTRIES, RECORD_SUFFIX, entry_path, entry_place
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature, storage_failure
from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import with_files

PATH = ".state/entries.log"
LARGEST = 4 * 1024 * 1024
_NEXT = ".state/entries.log.new"
HEADER_BYTES = 14
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HEX = frozenset(b"0123456789abcdef")
_LINE = re.compile(r"([+=])([0-9a-f]+:[0-9a-f]+)((?: [^ ]+)*)", re.ASCII)
_LOCK_SECONDS = 10.0
_PAUSE_SECONDS = 0.001
_PREFIX = len(ENTRIES) + 1
_SUFFIX = -len(RECORD_SUFFIX)
_ATTEMPTS = 5


class Line(Struct, frozen=True):
    """One line: it announces changes of ``paths``, or ends those announced under the token."""

    token: str
    is_intent: bool
    paths: tuple[str, ...] = ()


class LinesRead(NamedTuple):
    """Lines of the log, the offset of their end, whether all of them were understood, and the log's id."""

    lines: list[Line]
    end: int
    is_whole: bool
    log: str


class ChangeLog:
    """The open log. It holds shared locks of the file and its folder, so that no other process is alone meanwhile."""

    _descriptor = _folder = -1

    def __init__(self, directory: int, path: str = PATH) -> None:
        """Open the log; ``directory`` is the memory directory's descriptor. Raises ``IndexUnusable``."""
        self._directory, self._path = directory, path
        self.id = self.first = ""  # its id, and that of the first of the logs that took each other's place
        self.is_alone = False  # no other process had it open, or one that it replaced, when it was opened
        self._inode = 0
        for _ in range(_ATTEMPTS):
            self._descriptor = self._open()
            try:
                if self._begin():
                    return
            except BaseException:  # an open descriptor would keep the lock
                self.close()
                raise
            self.close()
        raise IndexUnusable(f"{PATH} is replaced again and again")

    def close(self) -> None:
        """Close the log and release its locks. May be called again, also after an interrupt."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        folder, self._folder = self._folder, -1
        if folder >= 0:
            os.close(folder)

    __del__ = close

    def size(self) -> int | None:
        """Its size in bytes; None if another log has taken its place."""
        try:
            found = os.stat(self._path, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return None
        return found.st_size if found.st_ino == self._inode else None

    def is_linked(self) -> bool:
        """Whether it is still in some folder: cheaper than ``size``, and as good unless folders are moved."""
        try:
            return os.fstat(self._descriptor).st_nlink > 0
        except OSError:
            return False  # it is opened again

    def append(self, line: bytes) -> bool:
        """Write a line. If it cannot be written whole, the log is removed, and all processes verify all records."""
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            written = 0
        if written < len(line):
            _remove(self._directory, self._path)
        return written == len(line)

    def read(self, offset: int, *, but: str) -> LinesRead:
        """The complete lines from ``offset`` on, without those whose token begins with ``but``."""
        size = os.fstat(self._descriptor).st_size
        data = os.pread(self._descriptor, max(0, size - offset), offset)
        end = data.rfind(b"\n") + 1
        texts = data[:end].decode(errors="replace").split("\n")[:-1]
        lines = [_parsed(text) for text in texts if not text.startswith(but, 1)]
        known = [line for line in lines if line is not None]
        return LinesRead(known, offset + end, len(known) == len(lines), self.id)

    def replace(self, lines: bytes, offset: int, *, but: str) -> LinesRead:
        """Put a log with these lines in its place; returns what ``read`` does, with the end of the new log.

        It reads the old log last: whoever writes there later notices that it was replaced. Raises ``IndexUnusable``.
        """
        with storage_failure(f"{self._path} cannot be replaced", IndexUnusable):
            atomic.remove(self._directory, _NEXT)  # of a process that was killed here
            new = ChangeLog(self._directory, _NEXT)
            try:
                new.append(_header(self.first) + lines)
                atomic.move(self._directory, _NEXT, to=self._path)
                found = self.read(offset, but=but)._replace(end=2 * HEADER_BYTES + len(lines), log=new.id)
                self._descriptor, new._descriptor = new._descriptor, self._descriptor
                self.id, self._inode = new.id, new._inode
            finally:
                new.close()
        return found

    def take_alone(self) -> bool:
        """Lock it exclusively, unless another process has any log open; nobody can open one until this is closed."""
        try:
            for descriptor in (self._folder, self._descriptor):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return self.size() is not None

    def empty(self) -> None:
        """Begin a new log in the same file, locked exclusively. Raises ``IndexUnusable``: then it has no header."""
        self.id = self.first = os.urandom(6).hex()
        header = _header(self.id)
        with storage_failure(f"{PATH} cannot be written", IndexUnusable):
            os.ftruncate(self._descriptor, 0)
            if os.write(self._descriptor, header) < len(header):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def share(self) -> None:
        """Let other processes open it again."""
        self.is_alone = False
        for descriptor in (self._descriptor, self._folder):  # opening locks them in the other order
            fcntl.flock(descriptor, fcntl.LOCK_SH)

    def _open(self) -> int:
        with storage_failure(f"{PATH} cannot be opened", IndexUnusable):
            atomic.make_folder(self._directory, ".state")
            self._folder = os.open(".state", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)
            try:
                return os.open(self._path, _FLAGS, 0o600, dir_fd=self._directory)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
                    raise
                _remove(self._directory, self._path)
                return os.open(self._path, _FLAGS, 0o600, dir_fd=self._directory)

    def _begin(self) -> bool:
        """Lock the folder and the open file, and read its header; False if the log must be opened again."""
        found = os.fstat(self._descriptor)
        self._inode = found.st_ino
        if not stat.S_ISREG(found.st_mode):
            _remove(self._directory, self._path)
            return False
        self.is_alone = _lock(self._folder)
        is_own = _lock(self._descriptor)
        begun = os.pread(self._descriptor, 2 * HEADER_BYTES, 0)
        header, second = begun[:HEADER_BYTES], begun[HEADER_BYTES:]
        is_whole = _is_header(header)
        if not is_whole and is_own:
            self.empty()
        elif not is_whole:
            _remove(self._directory, self._path)
            return False
        else:
            self.id = header[1:-1].decode()
            self.first = second[1:-1].decode() if _is_header(second) else self.id
        if not (self.is_alone and is_own):
            self.share()
        return self.size() is not None


class Announcements:
    """This process's lines in the log. The caller sees to it that one thread uses it at a time."""

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor. The log is opened when it is first used."""
        self._directory = directory
        self.log: ChangeLog | None = None
        self.is_incomplete = False  # a log was lost: the database may lack changes of any process
        self._reset()

    def _reset(self) -> None:
        self.process = os.urandom(6).hex()  # begins all tokens of this process
        self.open_intents: dict[str, tuple[str, ...]] = {}
        self._numbers = itertools.count()
        self._end = -1  # of the log as far as it was read, with this process's lines since then

    def open(self) -> ChangeLog:
        """The log that all processes write now; if this process is alone with it, the caller must share it."""
        if self.log is None:
            self.log = ChangeLog(self._directory)
        size = self.log.size()
        return self._linked() if size is not None and size >= self._end else self._reopened()

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records; returns its token."""
        token = f"{self.process}:{next(self._numbers):x}"
        try:
            self._append(self._linked(), intent_line(token, paths))
        except OSError as error:
            raise IndexUnusable(f"{PATH} cannot be used: {atomic.reason(error)}") from error
        self.open_intents[token] = tuple(paths)
        return token

    def finish(self, token: str) -> tuple[str, ...]:
        """End a change, done or not; returns its paths. If that cannot be written, all records must be verified."""
        try:
            self._append(self._linked(), done_line(token))
        except (StorageFailed, OSError):
            self.is_incomplete = True
        finally:  # not before: a log that took another's place is to have both lines
            paths = self.open_intents.pop(token, ())
        return paths

    def has_news(self) -> bool:
        """Whether other processes may have written lines since the last ``read``."""
        return self.log is None or self.log.size() != self._end

    def read(self, log: ChangeLog, offset: int, *, intents: Mapping[str, tuple[str, ...]] | None = None) -> LinesRead:
        """The lines of other processes from ``offset`` on, which leave nothing to read before them in a large log.

        That is replaced, if the open ``intents`` of others at ``offset`` are known. The caller notes the end, before
        anybody else reads the log.
        """
        found = log.read(offset, but=self.process)
        if intents is not None and found.end > LARGEST:
            known = {**intents, **self.open_intents}
            advance(known, found.lines)
            lines = b"".join([intent_line(*intent) for intent in known.items()])
            with suppress(IndexUnusable):  # a full disk, say: it goes on growing
                found = log.replace(lines, offset, but=self.process)
        self._end = found.end
        return found

    def close(self) -> None:
        """Close the log."""
        if self.log is not None:
            self.log.close()
            self.log = None

    def leave_to_parent(self) -> None:
        """In a forked child: the open intents are the parent's."""
        self.close()
        self._reset()

    def _linked(self) -> ChangeLog:
        log = self.log
        return log if log is not None and log.is_linked() else self._reopened()

    def _reopened(self) -> ChangeLog:
        """Open the log that has replaced this one, and announce there what is under way."""
        before, was_incomplete = self.log, self.is_incomplete
        if before is not None:
            before.share()
            self.is_incomplete = True
        self.log = log = ChangeLog(self._directory)  # before the other is closed: never without a log
        log.share()
        if before is not None:
            before.close()
        if before is not None and before.first == log.first and before.id != log.id:  # its replacer has read all
            self.is_incomplete = was_incomplete
        self._end = -1
        for token, paths in self.open_intents.items():
            self._append(self.log, intent_line(token, paths))
        return self.log

    def _append(self, log: ChangeLog, line: bytes) -> None:
        while log.append(line) and not log.is_linked():  # it was replaced, and perhaps read for the last time before
            log = self._reopened()
        self._end += len(line)


class Announced:
    """Commits of a program that has no index, announced to the indexes of others; see ``CommitHook``."""

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor."""
        self._announcements = Announcements(directory)
        self._token: str | None = None

    def before(self, paths: Sequence[str]) -> None:
        """See ``CommitHook``."""
        self.failed()
        self._token = self._announcements.intend([path for path in paths if entry_place(path) is not None])

    def after(self, written: Mapping[str, Signature]) -> None:
        """See ``CommitHook``."""
        self.failed()

    def failed(self) -> None:
        """See ``CommitHook``: the reader of a change's end looks at its records."""
        if self._token is not None:
            self._announcements.finish(self._token)
            self._token = None

    def close(self) -> None:
        """Close the log."""
        self._announcements.close()


@contextmanager
def announced(store: RecordStore) -> Iterator[Announced | None]:
    """See ``Announced``; None for a store without files, whose feed has every commit."""
    if (files := with_files(store)) is None:
        yield None
        return
    with closing(Announced(files.descriptor)) as hook:
        yield hook


def intent_line(token: str, paths: Iterable[str]) -> bytes:
    """The line that announces a change of these records."""
    places = [path[_PREFIX:_SUFFIX] for path in paths]
    return f"+{token} {' '.join(places)}\n".encode()


def done_line(token: str) -> bytes:
    """The line that ends the change announced under this token."""
    return f"={token}\n".encode()


def advance(intents: dict[str, tuple[str, ...]], lines: Iterable[Line]) -> set[str]:
    """Add the intents in these lines and remove the ones that they end; returns the records of the latter."""
    ended: set[str] = set()
    for line in lines:
        if line.is_intent:
            intents[line.token] = line.paths
        else:
            ended.update(intents.pop(line.token, ()))
    return ended


def _header(id: str) -> bytes:
    return f"#{id}\n".encode()


def _is_header(data: bytes) -> bool:
    return len(data) == HEADER_BYTES and data[:1] == b"#" and data[-1:] == b"\n" and _HEX.issuperset(data[1:-1])


def _parsed(line: str) -> Line | None:
    """A line as a value; None if it is not in this format."""
    found = _LINE.fullmatch(line)
    if found is None:
        return Line("", is_intent=False) if _is_header(f"{line}\n".encode()) else None
    sign, token, places = found.groups()
    paths = tuple(entry_path(*place.split("/", 1)) for place in places.split() if "/" in place)
    if not all(entry_place(path) for path in paths):
        return None
    return Line(token, sign == "+", paths)


def _lock(descriptor: int) -> bool:
    """Lock exclusively if possible, else shared; whether it is exclusive."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    raise IndexUnusable(f"{PATH} cannot be locked: {error.strerror}") from error
            else:
                return kind == fcntl.LOCK_EX
        if time.monotonic() >= deadline:
            raise IndexUnusable(f"{PATH} is locked by another process for more than {_LOCK_SECONDS:g} s")
        time.sleep(_PAUSE_SECONDS)


def _remove(directory: int, path: str) -> None:
    """Remove the log: every process notices that and verifies all records."""
    with storage_failure(f"{path} cannot be replaced", IndexUnusable):
        atomic.remove(directory, path)
