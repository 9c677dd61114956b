"""Files replaced atomically, relative to one directory's descriptor.

The rules this file guards: a reader finds the old file or the new one, whole; nothing is followed out of
the directory; and, with ``journal``, this is the only place that renames or flushes.

A new version is *staged* into a temp file beside the old one and *published* by exchanging the two names
(``renameat2`` with ``RENAME_EXCHANGE``), after which the temp name holds the old version until it is
dropped. An exchange can be taken back, and on ext4 it costs a third of a rename over a file: that one
starts writing the data at once (``auto_da_alloc``), which the journal makes needless.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from memfiles.errors import RecordCorrupt
from memfiles.records.keys import SPARE_SUFFIX, TEMP_SUFFIX, temp_path

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MANY_FILES = 32

_libc = ctypes.CDLL(None, use_errno=True)


def stage(directory: int, path: str, data: bytes, *, flush: bool) -> Signature:
    """Write ``data`` into the temp file of ``path``; ``FileExistsError`` if that exists already.

    A failure leaves no temp file. With ``flush`` the data is on the disk when this returns.
    """
    temp = temp_path(path)
    descriptor = os.open(temp, _NEW_FILE, 0o600, dir_fd=directory)
    try:
        try:
            _write_all(descriptor, data)
            now = time.time_ns()
            os.utime(descriptor, ns=(now, now))
            if flush:
                os.fsync(descriptor)
            inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
    except BaseException:
        os.unlink(temp, dir_fd=directory)
        raise
    return Signature(inode, len(data), now)


def publish(directory: int, path: str, *, is_first: bool = False) -> bool:
    """Make the staged version the one at ``path``; whether the temp name may hold an earlier version then.

    ``is_first``: nothing was at ``path`` when it was last looked at. What someone put there since is not lost.
    """
    temp = temp_path(path)
    if is_first and _is_moved_to_nothing(directory, temp, path):
        return False
    try:
        _exchange(directory, temp, path)
    except FileNotFoundError:
        os.rename(temp, path, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        _publish_in_steps(directory, path)
    return True


def write_new(path: Path, data: bytes) -> None:
    """Have ``data`` in a file at ``path``, whole and flushed, or leave nothing; ``FileExistsError`` if one is there."""
    directory = open_directory(path.parent)
    temp = temp_path(path.name)
    try:
        remove(directory, temp)  # of one that was killed
        descriptor = os.open(temp, _NEW_FILE, 0o666, dir_fd=directory)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(temp, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        sync_folder(directory)
    finally:
        remove(directory, temp)
        os.close(directory)


def take_back(directory: int, path: str) -> None:
    """Undo a ``publish``; the temp name holds the new version again, or nothing where names cannot be exchanged."""
    temp = temp_path(path)
    try:
        _exchange(directory, temp, path)
    except FileNotFoundError:
        os.rename(path, temp, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        source, target = (temp, path) if signature(directory, temp) else (path, temp)
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)


def drop(directory: int, path: str) -> None:
    """Remove the temp file of ``path``, whatever it is, if there is one."""
    remove(directory, temp_path(path))


def move(directory: int, path: str, *, to: str) -> None:
    """Rename whatever lies at ``path``, without following or reading it."""
    os.rename(path, to, src_dir_fd=directory, dst_dir_fd=directory)


def sync_file(directory: int, path: str) -> None:
    """Flush the file at ``path``; nothing to do if it is gone."""
    try:
        descriptor = os.open(path, OPEN_EXISTING, dir_fd=directory)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(directory: int, folder: str = "") -> None:
    """Flush the names in ``folder`` of the directory (the directory itself by default)."""
    if not folder:
        _sync_names(directory)
        return
    descriptor = os.open(folder, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        _sync_names(descriptor)
    finally:
        os.close(descriptor)


def sync_published(directory: int, paths: Iterable[str]) -> None:
    """Flush published files and the folders they are in; many of them by one flush of the file system."""
    published = list(paths)
    if len(published) > _MANY_FILES and _sync_file_system(directory):
        return
    for path in published:
        sync_file(directory, path)
    for folder in sorted({path.rpartition("/")[0] for path in published}):
        sync_folder(directory, folder)


def _sync_names(folder: int) -> None:
    """Flush an open folder, and ask for it once more.

    XFS that shut itself down (its log could not be written) says of a folder's flush that it is done, with nothing
    done: there is nothing left to wait for. Only a look at the folder then fails.
    """
    os.fsync(folder)
    os.fstat(folder)


def _publish_in_steps(directory: int, path: str) -> None:
    """Publish where two names cannot be exchanged: keep the earlier version under a third name meanwhile."""
    temp = temp_path(path)
    spare = _spare_path(temp)
    remove(directory, spare)
    try:
        os.link(path, spare, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(temp, path, src_dir_fd=directory, dst_dir_fd=directory)
        return
    os.rename(temp, path, src_dir_fd=directory, dst_dir_fd=directory)
    os.rename(spare, temp, src_dir_fd=directory, dst_dir_fd=directory)


def _spare_path(temp: str) -> str:
    return temp.removesuffix(TEMP_SUFFIX) + SPARE_SUFFIX


def _exchange(directory: int, one: str, other: str) -> None:
    """Exchange two names at once; ``OSError`` ENOSYS where the system has no such call."""
    _rename(directory, one, other, how=_RENAME_EXCHANGE)


def _is_moved_to_nothing(directory: int, source: str, target: str) -> bool:
    """Rename a file unless something has the new name; False if so, or if the system cannot make sure at once."""
    try:
        _rename(directory, source, target, how=_RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EEXIST, *_NOT_SUPPORTED):
            raise
        return False
    return True


def _rename(directory: int, source: str, target: str, *, how: int) -> None:
    try:
        call = _libc.renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, "renameat2 is not available") from None
    if call(directory, source.encode(), directory, target.encode(), how) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _sync_file_system(directory: int) -> bool:
    """One ``syncfs``; False where there is none. Since Linux 5.8 it reports write errors."""
    try:
        call = _libc.syncfs
    except AttributeError:
        return False
    if call(directory) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.fstat(directory)  # as in _sync_names
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


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
