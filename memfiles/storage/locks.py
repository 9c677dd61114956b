"""Record locks, across threads and processes.

The rule this file guards: only the holder of a record's lock may change the record. Records share a fixed number of
lock files, the stripes (a hash of the path picks one), so that 100,000 records do not need 100,000 lock files, nor a
change of 1,000 records as many descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from memfiles.errors import LockTimeout, StorageFailed
from memfiles.storage.atomic import make_folder

FOLDER = ".state/locks"
STRIPES = 512
_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_SHORTEST_WAIT = 0.0002
_LONGEST_WAIT = 0.002
T = TypeVar("T")


class _Forks:
    """Counts the forks begun and done by this process and its ancestors."""

    begun = 0
    done = 0

    @classmethod
    def so_far(cls) -> int | None:
        """A number that changes with every fork; None while one is under way."""
        return cls.begun if cls.begun == cls.done else None

    @classmethod
    def begin(cls) -> None:
        cls.begun += 1

    @classmethod
    def end(cls) -> None:
        cls.done += 1


forks_so_far = _Forks.so_far
os.register_at_fork(before=_Forks.begin, after_in_parent=_Forks.end, after_in_child=_Forks.end)


def lock_descriptor(descriptor: int) -> bool:
    """Lock an open file, if nobody else has: by ``flock``, which ends with the last descriptor. ``OSError``."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


class ThreadLocks:
    """The locks of records among the threads of this process. Not reentrant: a thread must not ask for one it holds."""

    def __init__(self, *, timeout: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``timeout`` is in seconds; ``monotonic`` must not jump with the clock."""
        self._timeout = timeout
        self._monotonic = monotonic
        self._renew()

    def _renew(self) -> None:
        """Start with locks that no thread holds."""
        self._threads = [threading.RLock() for _ in range(STRIPES)]
        self._owners: dict[int, threading.Thread] = {}

    def hold(self, paths: Iterable[str], *, check: Callable[[], None] = lambda: None) -> HeldLocks:
        """Hold the locks of these records; ``LockTimeout`` names the holder that did not release one in time.

        Locks are always taken in the same order, so that two holders of several never wait for each other. ``check``
        is called once they are held, and may raise.
        """
        return HeldLocks(self, {zlib.crc32(path.encode()) % STRIPES: path for path in paths}, check)

    def while_held(self, paths: Iterable[str], work: Callable[[], T]) -> T:
        """Call ``work`` while the locks of these records are held; an interrupt releases them as well."""
        held = self.hold(paths)
        try:
            with held:
                return work()
        except BaseException:
            held.release()  # the interrupt may have come just before the context did that
            raise

    def _take_all(self, wanted: Mapping[int, str], begun: list[int]) -> None:
        """Take these stripes, of the records at the paths; ``begun`` are those to release afterwards."""
        deadline, thread = self._monotonic() + self._timeout, threading.current_thread()
        for stripe in sorted(wanted):
            if self._owners.get(stripe) is thread:  # it would wait for ever
                again = f"{wanted[stripe]} is already being changed by this thread: do it after that change"
                raise LockTimeout(again)
            begun.append(stripe)
            self._take(stripe, thread, deadline=deadline, path=wanted[stripe])

    def _release_all(self, begun: list[int]) -> None:
        thread = threading.current_thread()
        while begun:
            self._release(begun[-1], thread)
            begun.pop()

    def _take(self, stripe: int, thread: threading.Thread, *, deadline: float, path: str) -> None:
        """Take one stripe, first among this process's threads and then among processes."""
        if not self._threads[stripe].acquire(timeout=max(0.0, deadline - self._monotonic())):
            owner = self._owners.get(stripe)
            name = repr(owner.name) if owner is not None else "another"
            raise LockTimeout(self._message(path, f"thread {name} of this process ({os.getpid()})"))
        self._owners[stripe] = thread
        try:
            self._lock_file(stripe, deadline=deadline, path=path)
        except OSError as error:
            raise StorageFailed(f"{path} cannot be locked: {error.strerror}; nothing was changed") from error

    def _release(self, stripe: int, thread: threading.Thread) -> None:
        """Release what this thread holds of a stripe, however far it got: an interrupt may come anywhere, also here."""
        if self._owners.get(stripe) is thread:
            self._unlock_file(stripe)
            self._owners.pop(stripe, None)
        try:
            self._threads[stripe].release()
        except RuntimeError:
            return  # another thread holds it

    def _lock_file(self, stripe: int, *, deadline: float, path: str) -> None:
        """Keep other processes out as well; only ``RecordLocks`` does."""

    def _unlock_file(self, stripe: int) -> None:
        """Let other processes in."""

    def _message(self, path: str, holder: str) -> str:
        waited = f"for more than {self._timeout:g} s"
        return f"{path} has been locked by {holder} {waited}: try again, or check what that one is doing"


class RecordLocks(ThreadLocks):
    """The locks of one memory directory, among all processes."""

    def __init__(
        self,
        directory: int,
        *,
        timeout: float,
        folder: str = FOLDER,
        keep_open: int = 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """See ``ThreadLocks``; ``folder`` is for the lock files.

        Up to ``keep_open`` lock files stay open between uses, until ``close`` or, in a fork, ``leave_to_parent``.
        """
        super().__init__(timeout=timeout, monotonic=monotonic)
        self._directory = directory
        self._folder = folder
        self._keep_open = keep_open
        self._files: dict[int, int] = {}  # descriptors of the open lock files, locked or not
        self._inodes: dict[int, int] = {}  # of the open files; a name may lead to another file by now
        self._unknown_to_child: set[int] = set()  # stripes whose descriptor a child may have without knowing
        weakref.finalize(self, _close_all, self._files)

    def leave_to_parent(self) -> None:
        """In a forked child: close the files, whose locks are shared with the parent, and start with free locks."""
        self._keep_open = 0
        _close_all(self._files)
        self._inodes.clear()
        self._renew()

    def close(self) -> None:
        """Close the lock files that are not held, and keep none open from now on."""
        self._keep_open = 0
        for stripe in list(self._files):
            if self._threads[stripe].acquire(blocking=False):
                if stripe not in self._owners:
                    self._close_file(stripe)
                self._threads[stripe].release()

    def _lock_file(self, stripe: int, *, deadline: float, path: str) -> None:
        """Lock the stripe's file, waiting for other processes."""
        name = f"{self._folder}/{stripe:03}.lock"
        while True:
            try:
                descriptor = self._files[stripe] if stripe in self._files else self._open_file(stripe, name)
                if lock_descriptor(descriptor) and self._is_current(stripe, name, descriptor):
                    return
                if self._monotonic() >= deadline:
                    raise LockTimeout(self._message(path, _holder_of(descriptor)))
            except BaseException:
                self._close_file(stripe)
                raise
            self._close_file(stripe)
            share = int.from_bytes(os.urandom(2)) / 0xFFFF  # spreads out the waiters; a program may have seeded random
            time.sleep(_SHORTEST_WAIT + share * (_LONGEST_WAIT - _SHORTEST_WAIT))

    def _unlock_file(self, stripe: int) -> None:
        """Unlock the file, and close it unless it is kept open.

        Closing alone is not enough: a program that is just being started may hold the descriptor for a moment, too.
        """
        descriptor = self._files.get(stripe)
        if descriptor is None:
            return
        is_kept = len(self._files) <= self._keep_open and stripe not in self._unknown_to_child
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            is_kept = False
        if not is_kept:
            self._close_file(stripe)

    def _open_file(self, stripe: int, name: str) -> int:
        """Open the stripe's file, and note whether a fork came in between.

        The child would not know of its copy of the descriptor, which keeps the lock beyond the parent's life.
        """
        forks = _Forks.so_far()
        descriptor = self._files[stripe] = self._open(name)
        if forks is None or forks != _Forks.so_far():
            self._unknown_to_child.add(stripe)
        return descriptor

    def _close_file(self, stripe: int) -> None:
        descriptor = self._files.pop(stripe, None)
        self._inodes.pop(stripe, None)
        self._unknown_to_child.discard(stripe)
        if descriptor is not None:
            os.close(descriptor)

    def _open(self, name: str) -> int:
        try:
            return os.open(name, _LOCK_FILE, 0o600, dir_fd=self._directory)
        except FileNotFoundError:
            make_folder(self._directory, self._folder.split("/")[0])
            make_folder(self._directory, self._folder)
            return os.open(name, _LOCK_FILE, 0o600, dir_fd=self._directory)

    def _is_current(self, stripe: int, name: str, descriptor: int) -> bool:
        """Whether the locked file is still the one at its path; with a deleted one, two could hold the lock.

        A file opened just now is, unless it has lost its name since.
        """
        known = self._inodes.get(stripe)
        if known is None:
            found = os.fstat(descriptor)
            self._inodes[stripe] = found.st_ino
            return found.st_nlink > 0
        try:
            return os.stat(name, dir_fd=self._directory).st_ino == known
        except FileNotFoundError:
            return False


class HeldLocks:
    """The locks of some records, held while in the context. A class, as every change comes through here.

    If an interrupt comes when the context is about to end, before ``__exit__`` does anything, they stay held. So
    whoever goes on after interrupts calls ``release`` as well, or uses ``while_held``.
    """

    __slots__ = ("_begun", "_check", "_locks", "_wanted")

    def __init__(self, locks: ThreadLocks, wanted: Mapping[int, str], check: Callable[[], None]) -> None:
        self._locks, self._wanted, self._check = locks, wanted, check
        self._begun: list[int] = []

    def __enter__(self) -> None:
        try:
            self._locks._take_all(self._wanted, self._begun)
            self._check()
        except BaseException:
            self.release()
            raise

    def release(self, *_: object) -> None:
        """Release what is held, if anything; only in the thread that took it."""
        try:
            self._locks._release_all(self._begun)
        except BaseException:  # an interrupt, which comes but once
            self._locks._release_all(self._begun)
            raise

    __exit__ = release


def is_at(directory: int, path: str) -> bool:
    """Whether an open directory is the one at ``path``; also True where that is unknown."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(directory))
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)


def _close_all(descriptors: dict[int, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _holder_of(descriptor: int) -> str:
    """The process that holds the lock of this file, if the system tells (Linux: /proc/locks)."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        rows = []
    for row in rows:
        if "->" not in row and len(row) > 5 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode:
            return _describe(row[4])
    return "another process"


def _describe(pid: str) -> str:
    """The process id and program name, without its arguments: they may hold what a model must not see."""
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return f"process {pid}"
