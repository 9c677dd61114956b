"""A mirror in a directory: a second disk, a mounted share, or a folder that another program copies away.

The rules this file guards: a reader sees the old object or the new one, whole, and a body is on the disk when ``put``
returns; a condition is checked and acted on under a lock that the file system shares between machines (NFS and SMB do;
most FUSE mounts keep locks to one machine); a listing removes what a killed writer left, as its text may be redacted by
then; and no symbolic link is followed out of the directory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager, suppress
from pathlib import Path

from memfiles.errors import (
    CopyRefused,
    InvalidArgument,
    LockTimeout,
    MirrorRefused,
    MirrorUnavailable,
    RecordCorrupt,
    StorageFailed,
)
from memfiles.records.keys import TEMP_PREFIX, TEMP_SUFFIX, temp_path
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature
from memfiles.storage.locks import FOLDER, RecordLocks
from memfiles.sync.mirror import ANY, BODY_MAX_BYTES, Condition, Stored, check_body, check_key, check_prefix, is_key
from mirrors.urls import MirrorUrl, parse_url

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REFUSALS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ),
    *(errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY),
}
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP}  # SMB, some FUSE: nothing to flush there
_STAGED = (".json", ".part")  # a temp file of any other name may be somebody else's
_SETTLED_NS = 2_000_000_000  # the coarsest time stamp of a file system (FAT)


def open_url(url: str) -> DirectoryMirror:
    """The mirror at ``file:///absolute/path``, percent-encoded where needed."""
    return DirectoryMirror(_path_of(parse_url(url)))


class DirectoryMirror:
    """One file per object, at the same relative path: a directory that memfiles could open; see ``Mirror``.

    The directory must exist, as a bucket must: a share that is not mounted looks like a missing directory and must not
    be filled. A version is the SHA-256 of the bytes. Files and folders are private (0600, 0700).
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_timeout: float = 30.0) -> None:
        """``lock_timeout``: how many seconds to wait for another writer of the same object."""
        self._path = Path(path)
        self._lock_timeout = lock_timeout
        self._opening = threading.Lock()
        self._opened: _Root | None = None
        self._versions: dict[str, tuple[Signature, str]] = {}

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``. A file unchanged since the last listing is not read again."""
        check_prefix(prefix)
        left_over: list[str] = []
        with _failures(self._path):
            root = self._root()
            found = dict(self._walk(root, prefix=prefix, left_over=left_over))
        for key in left_over:
            root.drop_left_over(key)
        if not prefix:
            self._versions = {key: known for key, known in self._versions.copy().items() if key in found}
        return iter(sorted(found.items(), key=lambda pair: pair[0].encode()))

    def get(self, key: str) -> Stored | None:
        check_key(key)
        with _failures(self._path / key):
            root = self._root()
            try:
                with _folder_of(root.descriptor, key, make=False) as (folder, name):
                    try:
                        return _read(folder, name)
                    except RecordCorrupt as error:
                        version = self._version_at(folder, name, key=key)
                        raise CopyRefused(f"{self._path / key} cannot be used: {error}", version=version) from error
            except FileNotFoundError:
                return None

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        check_body(check_key(key), body)
        with _failures(self._path / key), self._changing(key, make=True) as (folder, name):
            old = _read(folder, name)
            if old is not None and old.body == body:
                atomic.sync_file(folder, name)  # whoever wrote it may have died before its flush
                _flush(folder)
            else:
                when.check(key, old.version if old else None)
                _replace(folder, name, body)
        return _version(body)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        check_key(key)
        with (
            _failures(self._path / key),
            suppress(FileNotFoundError),
            self._changing(key, make=False) as (folder, name),
        ):
            if old := _read(folder, name):
                when.check(key, old.version)
                atomic.remove(folder, name)
            _flush(folder)

    @contextmanager
    def _changing(self, key: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """The object's folder and name, with the object locked."""
        root = self._root()
        with root.locks.hold([key]), _folder_of(root.descriptor, key, make=make) as place:
            yield place

    def _root(self) -> _Root:
        """The directory, opened again if it was unmounted or replaced."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            raise MirrorUnavailable(f"{self._path} does not exist: create the directory or mount the share") from None
        with self._opening:
            if self._opened is None or self._opened.identity != (found.st_dev, found.st_ino):
                self._opened = _Root(self._path, lock_timeout=self._lock_timeout)
            return self._opened

    def _walk(self, root: _Root, *, prefix: str, left_over: MutableSequence[str]) -> Iterator[tuple[str, str]]:
        """The objects; ``left_over`` takes the keys with temp files of writers, dead or alive."""
        waiting = [""]
        while waiting:
            above = waiting.pop()
            with suppress(FileNotFoundError), _folder_of(root.descriptor, above + "_", make=False) as (folder, _):
                for name, is_folder in _entries(folder):
                    key = above + name
                    if is_folder and (key + "/").startswith(prefix[: len(key) + 1]) and is_key(key + "/_"):
                        waiting.append(key + "/")
                    elif not is_folder and key.startswith(prefix) and is_key(key):
                        version = self._version_at(folder, name, key=key)
                        yield from [(key, version)] if version else []
                    elif not is_folder and (staged := above + _staged_name(name)).startswith(prefix) and is_key(staged):
                        left_over.append(staged)

    def _version_at(self, folder: int, name: str, *, key: str) -> str | None:
        """The version of a file; for a file that ``get`` would refuse, made of its size and time."""
        signature = atomic.signature(folder, name)
        known = self._versions.get(key)
        if known is not None and known[0] == signature:
            return known[1]
        try:
            read = atomic.read(folder, name, limit=BODY_MAX_BYTES)
        except RecordCorrupt:
            return f"unreadable-{signature.size}-{signature.mtime_ns}" if signature else None
        if read is None:
            return None
        version = _version(read[0])
        if atomic.is_settled(read[1], for_ns=_SETTLED_NS):
            self._versions[key] = (read[1], version)
        return version


class _Root:
    """The open directory and its locks; closed when no longer referenced."""

    def __init__(self, path: Path, *, lock_timeout: float) -> None:
        self.descriptor = atomic.Descriptor.of_directory(path)
        found = os.fstat(self.descriptor)
        self.identity = (found.st_dev, found.st_ino)
        self.locks = RecordLocks(self.descriptor, timeout=lock_timeout)
        self._free_locks = RecordLocks(self.descriptor, timeout=0.0)
        self._check_lock_folder()

    def drop_left_over(self, key: str) -> None:
        """Remove the temp file of the object at ``key``, unless its writer is alive and has the lock."""
        with (
            suppress(OSError, LockTimeout, StorageFailed),
            self._free_locks.hold([key]),
            _folder_of(self.descriptor, key, make=False) as (folder, name),
        ):
            atomic.drop_temp(folder, name)

    def _check_lock_folder(self) -> None:
        """Raise if a folder of the lock path is a symbolic link; missing folders are fine."""
        with suppress(FileNotFoundError), _folder_of(self.descriptor, f"{FOLDER}/_", make=False):
            pass


def _path_of(url: MirrorUrl) -> str:
    if url.host not in {"", "localhost"}:
        raise InvalidArgument(f"file://{url.host}/... names a machine; write file:///absolute/path")
    if url.path in {"", "/"}:
        raise InvalidArgument("a file:// mirror needs the path of a directory: file:///absolute/path")
    return url.path


@contextmanager
def _folder_of(root: int, key: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """The folder of ``key``, opened without following links, and the key's last segment."""
    *folders, name = key.split("/")
    descriptor = os.open(".", _FOLDER, dir_fd=root)  # a duplicate would share its place in the list of names
    try:
        for folder in folders:
            inner = _enter(descriptor, folder, make=make)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _enter(parent: int, folder: str, *, make: bool) -> int:
    try:
        return os.open(folder, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    atomic.make_folder(parent, folder)
    _flush(parent)
    return os.open(folder, _FOLDER, dir_fd=parent)


def _entries(folder: int) -> list[tuple[str, bool]]:
    """The names in a folder and whether each is a folder, without links."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()]


def _read(folder: int, name: str) -> Stored | None:
    read = atomic.read(folder, name, limit=BODY_MAX_BYTES)
    return Stored(read[0], _version(read[0])) if read else None


def _replace(folder: int, name: str, body: bytes) -> None:
    """Replace the object's bytes. The caller holds its lock, so an existing temp file belongs to a dead writer."""
    atomic.drop_temp(folder, name)
    atomic.stage(folder, name, body, flush=True)  # 1 a failure up to here changes nothing
    try:
        atomic.move(folder, temp_path(name), to=name)  # 2 visible, whole
    except BaseException:
        atomic.drop_temp(folder, name)
        raise
    _flush(folder)  # 3 durable


def _flush(folder: int) -> None:
    try:
        atomic.sync_folder(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise


def _staged_name(temp: str) -> str:
    """The name of the object that a temp file was to replace; "" if the file is not one of ours."""
    name = temp.removeprefix(TEMP_PREFIX).removesuffix(TEMP_SUFFIX)
    return name if name.endswith(_STAGED) and temp_path(name) == temp else ""


def _version(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    """Map errors of the file system to those of a mirror."""
    try:
        yield
    except RecordCorrupt as error:
        raise CopyRefused(f"{path} cannot be used: {error}") from error
    except (LockTimeout, StorageFailed) as error:
        raise MirrorUnavailable(f"{path}: {error}") from error
    except OSError as error:
        kind = MirrorRefused if error.errno in _REFUSALS else MirrorUnavailable
        where = f"{path} ({error.filename})" if error.filename else str(path)
        raise kind(f"{where}: {error.strerror or error}") from error
