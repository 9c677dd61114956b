"""Why a file cannot be read, and whether that says anything about the file.

The rule this file guards: only what is wrong with the file itself makes it a broken record, which is set aside. What
another user owns, or the system cannot open just now, may hold all that was ever acknowledged.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from typing import NamedTuple, NoReturn

from memfiles.errors import RecordCorrupt

OPEN_EXISTING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_TICK_NS = 100_000_000  # longer than any kernel's


class Signature(NamedTuple):
    """Tells two versions of a file apart without reading them.

    Every version that memfiles stages has its own inode and a modification time set to the nanosecond, so
    that two versions within one tick of the kernel's clock differ as well.
    """

    inode: int
    size: int
    mtime_ns: int


def is_settled(seen: Signature, *, for_ns: int = _TICK_NS) -> bool:
    """Whether a file was last changed longer ago than ``for_ns``.

    By default, whether it can no longer change without its signature changing: the tick of its change is over. A
    time of change that is still to come was set by someone, and any further change will set another.
    """
    return not 0 <= time.time_ns() - seen.mtime_ns <= for_ns


def open_directory(path: str | os.PathLike[str]) -> int:
    """A descriptor of the directory at ``path``; the caller closes it."""
    return os.open(path, OPEN_DIRECTORY)


def make_folder(directory: int, folder: str) -> None:
    """Make a private folder in ``directory`` (mode 0700) unless it is there; never follow a link."""
    try:
        os.mkdir(folder, 0o700, dir_fd=directory)
    except FileExistsError:
        os.close(os.open(folder, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory))


def names(directory: int, folder: str = ".") -> list[str]:
    """The names in the directory, or in a folder of it.

    Opened anew each time: the position in the list belongs to the open folder, which threads and forks share.
    """
    descriptor = os.open(folder, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def signature(directory: int, path: str) -> Signature | None:
    """The signature of what lies at ``path``, None if nothing does."""
    try:
        found = os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Signature(found.st_ino, found.st_size, found.st_mtime_ns)


def read(directory: int, path: str, *, limit: int) -> tuple[bytes, Signature] | None:
    """The bytes and signature of a regular file of at most ``limit`` bytes, None if nothing lies there.

    Anything else (a link, a FIFO, a folder, a device, a larger file) is ``RecordCorrupt`` and is not read.
    ``OSError`` when the system cannot say: too many open files, no memory, a failing disk, someone else's file.
    """
    try:
        descriptor = os.open(path, OPEN_EXISTING, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_unopened(error, directory, path)
    try:
        return _read_all(descriptor, path=path, limit=limit)
    finally:
        os.close(descriptor)


def remove(directory: int | None, path: str) -> None:
    """Remove the file, link or empty folder at ``path``, if there is one; without a directory, the path is absolute."""
    try:
        os.unlink(path, dir_fd=directory)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        os.rmdir(path, dir_fd=directory)


def remove_all(directory: int, path: str) -> None:
    """Remove whatever lies at ``path``, if anything does: a folder with all that is in it, a link itself."""
    try:
        remove(directory, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(path, dir_fd=directory)


def _read_all(descriptor: int, *, path: str, limit: int) -> tuple[bytes, Signature]:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise RecordCorrupt(f"{path} is {kind_of(found.st_mode)}, not a regular file")
    if found.st_size > limit:
        raise RecordCorrupt(f"{path} has {found.st_size} bytes, more than the {limit} a record may have")
    chunks = [os.read(descriptor, found.st_size + 1)]
    while chunks[-1] and sum(map(len, chunks)) <= limit:
        chunks.append(os.read(descriptor, limit + 1))
    data = b"".join(chunks)
    if len(data) > limit:
        raise RecordCorrupt(f"{path} grew beyond the {limit} bytes a record may have")
    return data, Signature(found.st_ino, found.st_size, found.st_mtime_ns)


_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.ESTALE)


def refuse_unopened(error: OSError, directory: int, path: str) -> NoReturn:
    """Raise what it means that the file at ``path`` of ``directory`` could not be opened, no link being followed.

    ``RecordCorrupt`` if that is the file's fault, else an ``OSError``.
    """
    if error.errno in _NOT_THE_FILES_FAULT:
        raise error
    if error.errno in (errno.ELOOP, errno.EMLINK):
        raise RecordCorrupt(f"{path} is a symbolic link, not a file") from None
    if error.errno == errno.EACCES:
        _refuse_foreign(directory, path)
    raise RecordCorrupt(f"{path} cannot be opened: {error.strerror}") from error


def _refuse_foreign(directory: int, path: str) -> None:
    """Raise ``PermissionError`` for a file of another user: one command that was run as root leaves such a record."""
    owner, reader = os.stat(path, dir_fd=directory, follow_symlinks=False).st_uid, os.geteuid()
    if owner != reader:
        what = f"{path} belongs to user {owner} and may not be read by user {reader}: give it to that one (chown)"
        raise PermissionError(errno.EACCES, what)


def kind_of(mode: int) -> str:
    """What a file that is no regular one is, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")
