"""Earlier versions' files, written over for later versions instead of making and removing a file each time.

On ext4 making and removing a file costs more than all else in a change but the flush, since inodes freed
within the last minutes are looked at and passed over. So what lies under a record's temp name after a publish
is kept, its modification time set to ``_RETIRED_NS``: a *spare*. The rules this file guards, under the
record's lock:

- With any other time it is no spare but a version that someone staged and did not publish, or made by hand.
- It is written over only if nobody else has it open or can open it until it is whole (a write lease), it has
  no other name and is private. Where the system gives no lease, every version gets a new file.
- It was retired by a frame that names its time as ``replaced``. The disk may name it as the record until that
  frame's journal is checkpointed; so recovery knows that such a file is outdated, whatever is in it. That holds
  where names and times get to the disk in the order of their changes, as with every journaling file system.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path

from memfiles import atomic
from memfiles.atomic import Signature
from memfiles.errors import MemfilesError
from memfiles.frames import Version
from memfiles.keys import temp_path
from memfiles.locks import RecordLocks

if sys.platform == "linux":
    import fcntl

_RETIRED_NS = 0
_MOST = 2048
_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXT4, _XFS, _BTRFS, _TMPFS, _OVERLAY = 0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630
_WHERE_LEASES_SEE_ALL = (_EXT4, _XFS, _BTRFS, _TMPFS, _OVERLAY)  # elsewhere another machine may read as well


class Spares:
    """The spares that this process made and may write over."""

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor."""
        self._directory = directory
        self._published: dict[str, Signature] = {}  # by this process, last
        self._kept: dict[str, None] = {}  # the paths of the records that have a spare
        self._are_possible = sys.platform == "linux" and _file_system(directory) in _WHERE_LEASES_SEE_ALL

    def stage(self, path: str, data: bytes, *, after: Signature | None) -> Signature:
        """As ``atomic.stage``, unflushed, over the record's spare if there is one."""
        if self._are_possible:
            staged = self._write_over(path, data, after=after)
            if staged is not None:
                return staged
        return atomic.stage(self._directory, path, data, flush=False, after=after)

    def retire(self, version: Version) -> bool:
        """Make what publishing this version left under the temp name a spare; False if it cannot be one.

        It must be what this process published before, untouched: of a file that was changed by hand nobody knows
        what of that is on the disk.
        """
        before = self._published.get(version.path)
        self.note(version)
        if not self._are_possible or before is None or before != version.replaced or len(self._kept) >= _MOST:
            return False
        temp = temp_path(version.path)
        found = os.stat(temp, dir_fd=self._directory, follow_symlinks=False)
        if atomic.signature_of(found) != before or not _is_private(found):
            return False
        self._kept[version.path] = None
        os.utime(temp, ns=(before.mtime_ns, _RETIRED_NS), dir_fd=self._directory, follow_symlinks=False)
        return True

    def note(self, version: Version) -> None:
        """This process published this version."""
        self._published[version.path] = version.staged

    def drop(self, path: str) -> None:
        """Remove the spare of a record, whoever made it; the record's lock is held."""
        found = atomic.signature(self._directory, temp_path(path))
        if found is not None and found.mtime_ns == _RETIRED_NS:
            atomic.drop(self._directory, path)

    def drop_all(self) -> None:
        """Remove the spares of this process, but for those of records that are being changed just now."""
        locks = RecordLocks(self._directory, timeout=0.0)
        for path in list(self._kept):
            with suppress(OSError, MemfilesError), locks.hold([path]):
                self._kept.pop(path, None)
                self.drop(path)

    def _write_over(self, path: str, data: bytes, *, after: Signature | None) -> Signature | None:
        """None if there is no spare that may be written over; one that may not is removed."""
        try:
            descriptor = os.open(temp_path(path), _OPEN, dir_fd=self._directory)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            if found.st_mtime_ns != _RETIRED_NS:
                return None
            if _is_private(found) and _is_leased(descriptor):
                return self._written(path, data, descriptor, found=found, after=after)
            atomic.drop(self._directory, path)
            return None
        finally:
            _let_go(descriptor)

    def _written(
        self, path: str, data: bytes, descriptor: int, *, found: os.stat_result, after: Signature | None
    ) -> Signature:
        try:
            atomic.write_all(descriptor, data)
            if len(data) < found.st_size:
                os.ftruncate(descriptor, len(data))
            moment = atomic.moment_after(found.st_atime_ns, after)
            os.utime(descriptor, ns=(moment, moment))
        except BaseException:
            atomic.drop(self._directory, path)
            raise
        return Signature(found.st_ino, len(data), moment)


def is_spare(path: Path) -> bool:
    """Whether a living process keeps the file at this temp path, or it is gone by now."""
    try:
        return path.lstat().st_mtime_ns == _RETIRED_NS
    except FileNotFoundError:
        return True


def _is_private(found: os.stat_result) -> bool:
    is_plain = found.st_mode == stat.S_IFREG | 0o600 and found.st_nlink == 1
    return is_plain and found.st_uid == os.geteuid()


def _is_leased(descriptor: int) -> bool:
    """Whether nobody else has the file open. Who opens it now waits, or is told to try again, until it is let go.

    The system tells the holder of the lease: by a signal that nobody minds, not by SIGIO, which ends a process.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True


def _let_go(descriptor: int) -> None:
    """Give the lease up, then close: a fork may have copied the descriptor, and then closing does not."""
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(descriptor)


def _file_system(directory: int) -> int:
    """The number of the kind of file system, as ``statfs`` gives it first; 0 if it cannot be told."""
    found = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).fstatfs(directory, found) != 0:
        return 0
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF
