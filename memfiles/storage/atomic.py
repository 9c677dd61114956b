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
import time
from collections.abc import Iterable
from pathlib import Path

from memfiles.records.keys import SPARE_SUFFIX, TEMP_SUFFIX, temp_path
from memfiles.storage.descriptors import (
    OPEN_DIRECTORY,
    OPEN_EXISTING,
    Signature,
    open_directory,
    remove,
    signature,
)

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
