"""Files read and atomically replaced, by paths relative to one directory's descriptor.

The rules this file guards: a reader finds the old file or the new one, whole; no link is followed out of the
directory; only what is known not to be a record is ``RecordCorrupt``, since a file that may not or cannot be opened at
the moment may hold everything ever acknowledged; and only this module and ``journal`` rename or flush.

A new version is *staged* into a temp file next to the old one and *published* by exchanging the two names
(``renameat2`` with ``RENAME_EXCHANGE``); the temp name then holds the old version until it is dropped. An exchange can
be taken back, and on ext4 it costs a third of a rename over a file, which starts writing the data at once
(``auto_da_alloc``); the journal makes that needless.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

from memfiles.errors import MemfilesError, RecordCorrupt, StorageFailed
from memfiles.records import NamedTuple
from memfiles.records.keys import SPARE_SUFFIX, TEMP_SUFFIX, is_record_path, temp_path, uid_of

_OPEN_EXISTING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_LINKS = (errno.ELOOP, errno.EMLINK)
_SPECIAL = (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)  # a socket or a device
_TICK_NS = 100_000_000  # longer than the clock tick of any kernel
_MANY_FILES = 32


@cache
def _libc() -> Any:
    import ctypes  # late: a reader does without

    return ctypes.CDLL(None, use_errno=True)


class Signature(NamedTuple):
    """Tells two versions of a file apart without reading them.

    Every version that memfiles stages has its own inode and a modification time set to the nanosecond, so
    that two versions within one tick of the kernel's clock differ as well.
    """

    inode: int
    size: int
    mtime_ns: int


def file_hash(name: str, found: tuple[int, int, int] | None) -> int:
    """A number for a name and a signature, to be added up; without a signature, that of no file."""
    hashed = hash((crc32(name.encode()), *(found or (0, 0, 0))))
    return hashed * hashed  # the sum of hashes alone often stays the same if files swap their times


def is_settled(seen: Signature, *, for_ns: int = _TICK_NS) -> bool:
    """Whether a file was last changed more than ``for_ns`` ago: by default, the kernel's clock has ticked since.

    Any later change then gives the file another signature. So it does after a modification time in the future.
    """
    return not 0 <= time.time_ns() - seen.mtime_ns <= for_ns


class Descriptor(int):
    """The descriptor of an open file or directory, which is closed when nothing refers to it any more.

    Whoever uses it keeps this object: after a close, the bare number could be that of another memory's directory.
    """

    __slots__ = ()

    @classmethod
    def of_directory(cls, path: str | os.PathLike[str]) -> Descriptor:
        """Open the directory at ``path``, which may be a link to one."""
        return cls(os.open(path, _OPEN_DIRECTORY))

    @classmethod
    def of_folder(cls, directory: int, folder: str) -> Descriptor:
        """Open a folder of the directory; a link in its place is an ``OSError``."""
        return cls(os.open(folder, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory))

    def __del__(self) -> None:
        os.close(self)


def make_folder(directory: int, folder: str) -> None:
    """Ensure a folder in ``directory``, made private (mode 0700); a link in its place is an ``OSError``."""
    try:
        os.mkdir(folder, 0o700, dir_fd=directory)
    except FileExistsError:
        Descriptor.of_folder(directory, folder)


def make_folders(directory: int, folder: str, *, flush: bool) -> None:
    """Ensure a folder and those above it; with ``flush`` their names are on the disk when this returns."""
    for end in [at for at, character in enumerate(f"{folder}/") if character == "/" and at > 0]:
        make_folder(directory, folder[:end])
        if flush:
            sync_folder(directory, folder[:end].rpartition("/")[0])


def names(directory: int, folder: str = ".") -> list[str]:
    """The names in the directory, or in a folder of it."""
    # opened each time: the position in the list belongs to the open folder, which threads and forks share
    return os.listdir(Descriptor.of_folder(directory, folder))


def record_paths_in(directory: int, folder: str = "") -> list[str]:
    """The paths of the files in a folder that can be records, sorted; none if there is no such folder."""
    if not folder:
        return sorted(name for name in names(directory) if uid_of(name) is not None)
    try:
        return sorted(path for name in names(directory, folder) if is_record_path(path := f"{folder}/{name}"))
    except FileNotFoundError:
        return []


def signature(directory: int, path: str) -> Signature | None:
    """The signature of the file at ``path``, None if there is none; ``OSError`` for a file in place of ``entries``."""
    try:
        found = os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        os.stat(f"{path.partition('/')[0]}/", dir_fd=directory)  # raises it again if the first folder is none
        return None
    return Signature._make((found.st_ino, found.st_size, found.st_mtime_ns))


def read(directory: int, path: str, *, limit: int) -> tuple[bytes, Signature] | None:
    """The bytes and signature of a regular file of at most ``limit`` bytes, None if there is none.

    Anything else (a link, a FIFO, a folder, a device, a larger file) is ``RecordCorrupt`` and is not read. ``OSError``
    if the system does not tell: too many open files, a failing disk, a file that may not be read.
    """
    try:
        descriptor = os.open(path, _OPEN_EXISTING, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse_unopened(error, directory, path)
    try:
        return _read_open(descriptor, path, limit=limit)
    finally:  # no ``Descriptor``, which would close itself: Python drops an interrupt that comes in its ``__del__``
        os.close(descriptor)


def _read_open(descriptor: int, path: str, *, limit: int) -> tuple[bytes, Signature]:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
        raise RecordCorrupt(f"{path} is {kinds.get(stat.S_IFMT(found.st_mode), 'a device')}, not a regular file")
    if found.st_size > limit:
        raise RecordCorrupt(f"{path} has {found.st_size} bytes, more than the {limit} a record may have")
    chunks = [os.read(descriptor, found.st_size + 1)]
    while chunks[-1] and sum(map(len, chunks)) <= limit:
        chunks.append(os.read(descriptor, limit + 1))
    data = b"".join(chunks)
    if len(data) > limit:
        raise RecordCorrupt(f"{path} grew beyond the {limit} bytes a record may have")
    return data, Signature(found.st_ino, found.st_size, found.st_mtime_ns)


def remove(directory: int | None, path: str) -> None:
    """Remove the file, link or empty folder at ``path``, if any; without a directory, the path is absolute."""
    try:
        os.unlink(path, dir_fd=directory)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        os.rmdir(path, dir_fd=directory)


def remove_all(directory: int, path: str) -> None:
    """Remove whatever is at ``path``, if anything: a folder with its content, a link but not its target."""
    try:
        remove(directory, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        import shutil  # late: few processes need it

        shutil.rmtree(path, dir_fd=directory)


def stage(directory: int, path: str, data: bytes, *, flush: bool) -> Signature:
    """Write ``data`` into the temp file of ``path``; as ``create``."""
    return create(directory, temp_path(path), data, flush=flush)


def create(directory: int | None, path: str, data: bytes, *, mode: int = 0o600, flush: bool = True) -> Signature:
    """Create a file with ``data``, or leave nothing; ``FileExistsError`` if it exists.

    With ``flush`` the data is on the disk when this returns. Without a directory, the path is absolute.
    """
    descriptor = os.open(path, _NEW_FILE, mode, dir_fd=directory)
    try:
        try:
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, data[written:])
            os.utime(descriptor, ns=(now := time.time_ns(), now))
            if flush:
                os.fsync(descriptor)
            staged = os.fstat(descriptor)  # the file system may have rounded the time
        finally:
            os.close(descriptor)
    except BaseException:
        os.unlink(path, dir_fd=directory)
        raise
    return Signature(staged.st_ino, len(data), staged.st_mtime_ns)


def publish(directory: int, path: str, *, is_new: bool = False) -> bool:
    """Put the staged version at ``path``; returns whether the temp name may hold an earlier version then.

    ``is_new``: nothing was at ``path`` when it was last looked at. A file put there since is not lost.
    """
    temp = temp_path(path)
    if is_new and _rename(directory, temp, path, how=_RENAME_NOREPLACE):
        return False
    try:
        if not _rename(directory, temp, path, how=_RENAME_EXCHANGE):
            _publish_in_steps(directory, path)
    except FileNotFoundError:
        move(directory, temp, to=path)
    return True


def write_new(path: Path, data: bytes) -> None:
    """Create a file at ``path`` with ``data``, flushed, or leave nothing; ``FileExistsError`` if it exists."""
    directory, temp = Descriptor.of_directory(path.parent), temp_path(path.name)
    try:
        remove(directory, temp)  # left by a process that was killed
        create(directory, temp, data, mode=0o666)
        if not (_link(directory, temp, to=path.name) or _rename(directory, temp, path.name, how=_RENAME_NOREPLACE)):
            create(directory, path.name, data, mode=0o666)
        sync_folder(directory)
    finally:
        remove(directory, temp)


def undo_publish(directory: int, path: str) -> None:
    """Undo ``publish``; the temp name holds the new version again, or nothing where names cannot be exchanged."""
    temp = temp_path(path)
    try:
        if not _rename(directory, temp, path, how=_RENAME_EXCHANGE):
            source, target = (temp, path) if signature(directory, temp) else (path, temp)
            move(directory, source, to=target)
    except FileNotFoundError:
        move(directory, path, to=temp)


def drop_temp(directory: int, path: str) -> None:
    """Remove the temp file of ``path``, whatever it is, if there is one."""
    remove(directory, temp_path(path))


def move(directory: int, path: str, *, to: str) -> None:
    """Rename whatever is at ``path``, without following or reading it."""
    os.rename(path, to, src_dir_fd=directory, dst_dir_fd=directory)


def sync_file(directory: int, path: str) -> None:
    """Flush the file at ``path``, if there is one."""
    _with_file(directory, path, os.fsync)


def _with_file(directory: int, path: str, do: Callable[[int], None]) -> None:
    try:
        descriptor = os.open(path, _OPEN_EXISTING, dir_fd=directory)
    except (FileNotFoundError, PermissionError) as error:
        if isinstance(error, PermissionError) and not _sync_file_system(directory):  # this user may not open it now
            raise
        return
    try:
        do(descriptor)
    finally:
        os.close(descriptor)


def _begin_flush(descriptor: int) -> None:
    """Start writing the file to the disk without waiting for it, where the system can (Linux)."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(directory: int, folder: str = "") -> None:
    """Flush the names in ``folder`` of the directory (by default, those in the directory itself).

    XFS that shut itself down, as its log could not be written, reports success for the flush of a folder without doing
    anything. Only another look at the folder fails then.
    """
    descriptor = Descriptor.of_folder(directory, folder) if folder else directory
    os.fsync(descriptor)
    os.fstat(descriptor)


def sync_published(directory: int, paths: Iterable[str]) -> None:
    """Flush published files and their folders; many of them by a single flush of the file system.

    A few are all begun first, so that a file system with a journal writes their places on the disk down once for all.
    """
    published = list(paths)
    if len(published) > _MANY_FILES and _sync_file_system(directory):
        return
    for path in published if len(published) > 1 else ():
        _with_file(directory, path, _begin_flush)
    for path in published:
        sync_file(directory, path)
    for folder in sorted({path.rpartition("/")[0] for path in published}):
        with suppress(FileNotFoundError):  # removed by hand, with all that was published there
            sync_folder(directory, folder)


def _refuse_unopened(error: OSError, directory: int, path: str) -> NoReturn:
    """Raise ``RecordCorrupt`` if what could not be opened is not a file, else an ``OSError``."""
    if error.errno in _LINKS:
        raise RecordCorrupt(f"{path} is a symbolic link, not a file") from None
    if error.errno in _SPECIAL:
        raise RecordCorrupt(f"{path} is not a regular file: {error.strerror}") from error
    if isinstance(error, PermissionError):
        owner, reader = os.stat(path, dir_fd=directory, follow_symlinks=False).st_uid, os.geteuid()
        remedy = "check its mode, access control list and security label"
        if owner != reader:  # one command run as root leaves such a record
            remedy = "change its owner with chown"
        what = f"{path} belongs to user {owner} and user {reader} may not read it"
        raise PermissionError(error.errno, f"{what}: {remedy}")
    raise error


def _publish_in_steps(directory: int, path: str) -> None:
    """Publish where two names cannot be exchanged, keeping the earlier version under a third name meanwhile."""
    spare = (temp := temp_path(path)).removesuffix(TEMP_SUFFIX) + SPARE_SUFFIX
    remove(directory, spare)
    if not _link(directory, path, to=spare):
        with open(os.open(path, _OPEN_EXISTING, dir_fd=directory), "rb") as file:
            create(directory, spare, file.read(), flush=False)
            os.utime(spare, ns=(0, os.fstat(file.fileno()).st_mtime_ns), dir_fd=directory)
    move(directory, temp, to=path)
    move(directory, spare, to=temp)


def _link(directory: int, path: str, *, to: str) -> bool:
    """Give a file a second name; False where the file system lets a file have only one, as FAT and exFAT do."""
    try:
        os.link(path, to, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, *_NOT_SUPPORTED):
            raise
        return False
    return True


def _rename(directory: int, source: str, target: str, *, how: int) -> bool:
    """Call ``renameat2``; False if the new name is taken, or if the system cannot do ``how`` at once."""
    try:
        _call("renameat2", directory, source.encode(), directory, target.encode(), how)
    except OSError as error:
        if error.errno not in (errno.EEXIST, *_NOT_SUPPORTED):
            raise
        return False
    return True


def _sync_file_system(directory: int) -> bool:
    """Call ``syncfs``; False where there is none. Since Linux 5.8 it reports write errors."""
    try:
        _call("syncfs", directory)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return False
    os.fstat(directory)  # as in ``sync_folder``
    return True


def _call(name: str, *arguments: int | bytes) -> None:
    """Call a function of the C library; ``OSError`` ENOSYS where it has no such function."""
    try:
        function = getattr(_libc(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"{name} is not available") from None
    if function(*arguments) != 0:
        import ctypes  # late, as above

        raise OSError(number := ctypes.get_errno(), os.strerror(number))


def reason(error: OSError) -> str:
    """The system's message, with the symbolic name of the error to search for."""
    return f"{error.strerror} ({name})" if (name := errno.errorcode.get(error.errno or 0)) else str(error)


def is_of_one_file(error: OSError | StorageFailed) -> bool:
    """Whether it failed because a file may not be read, or is on a damaged part of a disk: others can be read."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return getattr(cause, "errno", None) in (errno.EACCES, errno.EPERM, errno.EIO, errno.EUCLEAN)


@contextmanager
def storage_failure(what: str, failure: type[MemfilesError] = StorageFailed) -> Iterator[None]:
    """Map ``OSError`` to ``failure``, with ``what`` failed and why."""
    try:
        yield
    except OSError as error:
        raise failure(f"{what}: {reason(error)}") from error
