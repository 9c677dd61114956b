"""Record source: the records on disk, as the index compares its rows with them.

The rule this file guards: a row is written only with the signature of the file that it was read from, so a file that
changes meanwhile is found to differ again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import Struct, field

from memfiles.errors import StorageFailed
from memfiles.index.database import LARGE, IndexUnusable
from memfiles.index.rows import Row, RowWriter, storable
from memfiles.index.text.fts import as_json
from memfiles.index.text.languages import made_with
from memfiles.records import late_logger as _log
from memfiles.records.keys import entry_place
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature, is_of_one_file
from memfiles.storage.entry_folders import (
    Folders,
    FolderSum,
    Pause,
    StoredSignature,
    UnlistedFolders,
    files,
    folder_times,
    in_parts,
    no_pause,
    stamp,
)
from memfiles.storage.record_store import Records, RecordStore, RemoteStore

_ALL = "SELECT path, inode, file_size, mtime_ns FROM entry"
_SOME = """
    SELECT path, inode, file_size, mtime_ns FROM entry
    WHERE id > ? AND id <= ? AND +part IN (SELECT id FROM part WHERE scope IN (SELECT value FROM json_each(?)))
"""
_OF_FOLDERS = """
    SELECT path, inode, file_size, mtime_ns FROM part CROSS JOIN entry ON entry.part = part.id
    WHERE scope IN (SELECT value FROM json_each(?))
"""
_SUMS = "SELECT folder, count, hashes FROM held WHERE folder IN (SELECT value FROM json_each(?))"
_AT_ONCE = 256  # records of a store that are read with one question
_NO_FILE = (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)  # there can be no record at such a path
_FOLDERS_MAX = 64  # processes of one machine that keep an index of one store
_STORE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Ask = Callable[[Callable[[sqlite3.Connection], list[Any]]], list[Any]]
"""Answers a question from the tables."""


class Comparison(Struct, frozen=True):
    """The records in some folders whose files and rows differ, with the times of all folders just before the look.

    Nobody waits for a look, as it holds no lock. A change that is made meanwhile may be missed by it, and is found as
    every change is: by the log, by an event, or by the time of its folder.
    """

    at_ns: int  # the moment before the times
    times: Mapping[str, int] = MappingProxyType({})
    folders: frozenset[str] = frozenset()
    differing: Sequence[str] = ()
    left_over: Sequence[str] = ()  # temp files of dead writers


class RecordSource(Struct, frozen=True):
    """The records on disk: ``read`` returns the row of the record at a path, None if it is gone or unreadable."""

    directory: int
    read: Callable[[str], Row | None]
    unlisted: UnlistedFolders
    has_feed: ClassVar[bool] = False
    is_kept: ClassVar[bool] = False
    has_erased: ClassVar[bool] = False
    heard: ClassVar[str | None] = None
    unread: set[str] = field(default_factory=set)  # records that exist and cannot be read at the moment

    @property
    def are_unread(self) -> bool:
        """Whether the records and folders that could not be read still cannot be."""
        return all(map(self._is_unread, set(self.unread))) and not self.unlisted.listed_again()

    def _is_unread(self, path: str) -> bool:
        try:
            self.read(path)
        except StorageFailed as error:
            return is_of_one_file(error)
        return False

    def signature(self, path: str) -> Signature | None:
        """The signature that the row of this file must have; None if there can be no row. ``IndexUnusable``."""
        try:
            found = atomic.signature(self.directory, path)
        except OSError as error:
            if is_of_one_file(error):
                self.unread.add(path)
            elif error.errno not in _NO_FILE:
                raise IndexUnusable(f"{path} cannot be examined: {atomic.reason(error)}") from error
            return None
        if found is None:
            self.unread.discard(path)
        return storable(found)

    def refresh(self, connection: sqlite3.Connection, paths: Iterable[str], *, known: Iterable[Row] = ()) -> None:
        """Make the rows of these records equal to the files, in the caller's transaction; ``known`` rows are so."""
        writer = RowWriter(connection)
        for given in known:
            writer.put(given)
        for path in paths:
            found = self.signature(path)
            if found is not None and found == writer.signature(path):
                self.unread.discard(path)
                continue
            row = self._row(path) if found is not None or path not in self.unread else None  # of one gone, notes that
            writer.remove(path) if row is None else writer.put(row)
        writer.finish()

    def times(self) -> dict[str, int]:
        """When each folder of entries last changed; see ``folder_times``."""
        times = folder_times(self.directory, unlisted=self.unlisted)
        return {name: at for name, at in times.items() if name not in self.unlisted}

    def stamp(self, folder: str) -> int:
        """Set the time of a folder to now; see ``entry_folders.stamp``."""
        return stamp(self.directory, folder)

    def close(self) -> None:
        """The index stays where it is."""

    def news(self) -> list[str] | None:
        """Records that others changed: they are found by the log and by the times of folders."""
        return []

    def take(self) -> None:
        """There is no feed."""

    def resume(self, point: str | None) -> bool:
        """The files themselves show whether the rows are theirs."""
        return True

    def _row(self, path: str) -> Row | None:
        try:
            row = self.read(path)
        except StorageFailed as error:
            if is_of_one_file(error):
                self.unread.add(path)
            elif getattr(error.__cause__, "errno", None) not in _NO_FILE:
                raise
            return None
        self.unread.discard(path)
        return row

    def folders(self, connection: sqlite3.Connection) -> list[str]:
        """All folders of entries, on the disk and in the rows."""
        known = {name for (name,) in connection.execute("SELECT folder FROM held")}
        return sorted(known | folder_times(self.directory, unlisted=self.unlisted).keys())

    def look(self, ask: Ask, folders: Collection[str], *, timed: bool = True, pause: Pause = no_pause) -> Comparison:
        """A look at every file in these folders; without the times of all folders if it is not ``timed``."""
        at_ns, times = time.time_ns(), folder_times(self.directory, unlisted=self.unlisted) if timed else {}
        left_over: list[str] = []
        differing = list(self.differing(ask, left_over, folders=folders, pause=pause))
        return Comparison(at_ns, times, frozenset(folders), differing, left_over)

    def differing(
        self,
        ask: Ask,
        left_over: list[str],
        *,
        folders: Folders = None,
        but: Collection[str] = (),
        pause: Pause = no_pause,
    ) -> Iterator[str]:
        """The records whose files and rows differ, in these folders or in all (None), without those in ``but``.

        Temp files of dead writers are added to ``left_over``. A folder whose files add up to what its rows do needs no
        second look.
        """
        wanted = set(ask(self.folders) if folders is None else folders).difference(but)
        found = {each: self.unlisted.sum(each, pause) for each in wanted}
        noted = ask(partial(_rows, _SUMS, (as_json(wanted),))) if wanted else []
        sums = dict.fromkeys(wanted, FolderSum()) | {name: FolderSum(*noted_sum) for name, *noted_sum in noted}
        doubted = sorted(each for each in wanted if found[each] != sums[each])
        known = _signatures(ask, doubted, pause, is_large=sum(sums[each].number for each in doubted) > LARGE)
        for folder in doubted:
            listed = files(self.directory, folder, left_over) if folder not in self.unlisted else ()
            for path, signature in in_parts(listed, pause):
                of_row = known.pop(path, None)
                if of_row != signature and (of_row is not None or entry_place(path) is not None):
                    yield path
        yield from known


def _signatures(ask: Ask, folders: Sequence[str], pause: Pause, *, is_large: bool) -> dict[str, StoredSignature]:
    """The signatures in the rows of these folders; some thousand rows are read at once, so that nobody waits long."""
    names, rows = as_json(folders), list[Any]()
    if is_large:
        ((last,),) = ask(lambda connection: connection.execute("SELECT coalesce(max(id), 0) FROM entry").fetchall())
        for start in range(0, last, LARGE):
            rows += ask(partial(_rows, _SOME, (start, start + LARGE, names)))
            pause()
    elif folders:
        rows = ask(partial(_rows, _OF_FOLDERS, (names,)))
    return {path: tuple(signature) for path, *signature in rows}


def _rows(statement: str, values: tuple[Any, ...], connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(statement, values).fetchall()


class StoreSource:
    """The records of a store without files, whose feed says what changed; see ``RecordSource``.

    The rows are of this process alone. They are compared with all records once, and with what the feed tells since,
    before every answer: so an answer includes every commit that was acknowledged before it was asked for.
    """

    has_feed = True

    def __init__(self, store: RecordStore, read: Callable[[str, Records], Row | None]) -> None:
        """``read`` returns the row of the record at a path, among the records given."""
        self._store, self._read = store, read
        self._place = IndexFolder(store.cache, store.id) if isinstance(store, RemoteStore) else IndexFolder(None, "")
        self.images = store.images if isinstance(store, RemoteStore) else None
        self.folder, self.is_kept = self._place.path, self._place.is_kept
        self.descriptor = Descriptor.of_directory(self.folder)
        self._point: str | None = None
        self.heard: str | None = None  # the point in the feed up to which the rows have, or will have, its changes
        self.has_erased = False  # whether a row of what was forgotten or redacted since may have left words in the file
        self.unread, self.are_unread = set[str](), True
        self.unlisted = UnlistedFolders(self.descriptor)  # there are none

    def signature(self, path: str) -> Signature | None:
        """See ``RecordSource``."""
        return storable(self._store.signature(path))

    def refresh(self, connection: sqlite3.Connection, paths: Iterable[str], *, known: Iterable[Row] = ()) -> None:
        """See ``RecordSource``: some hundred records are asked for at once."""
        writer = RowWriter(connection)
        for given in known:
            writer.put(given)
        wanted = list(paths)
        for some in (wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE)):
            view = self._store.view(some)
            for path in some:
                found, held = storable(view.signature(path)), writer.signature(path)
                if found is not None and found == held:
                    continue
                row = self._read(path, view) if found is not None else None
                if held is not None and self.is_kept:
                    lineage, redactions = writer.life(path)
                    is_same = row is not None and row.state != "forgotten" and row.lineage == lineage
                    self.has_erased |= not is_same or (row is not None and row.redactions > redactions)
                writer.remove(path) if row is None else writer.put(row)
        writer.finish()

    def close(self) -> None:
        """Give the folder for the index up, which is kept in a cache only."""
        self._place.close()

    def times(self) -> dict[str, int]:
        """There are no folders."""
        return {}

    def stamp(self, folder: str) -> int:
        """There are no folders."""
        return 0

    def folders(self, connection: sqlite3.Connection) -> list[str]:
        """There are no folders."""
        return []

    def look(self, ask: Ask, folders: Collection[str], *, timed: bool = True, pause: Pause = no_pause) -> Comparison:
        """There are no folders."""
        return Comparison(time.time_ns())

    def news(self) -> list[str] | None:
        """The entries that were changed since the last call, by anyone; None if all have to be compared."""
        if self._point is None:  # everything is compared first
            return []
        told = self._store.changes(self._point)
        self._point = None if told.complete else told.until
        return None if told.complete else [path for path in told.records if entry_place(path) is not None]

    def take(self) -> None:
        """The rows have, or will have, the changes of the feed so far."""
        self.heard = self._point

    def resume(self, point: str | None) -> bool:
        """Go on from where the rows in the folder were left; False if that is unknown."""
        self._point = self.heard = point
        return point is not None

    def differing(
        self,
        ask: Ask,
        left_over: list[str],
        *,
        folders: Folders = None,
        but: Collection[str] = (),
        pause: Pause = no_pause,
    ) -> Iterator[str]:
        """The records that differ from their rows; those in some folders are known by the feed."""
        if folders is not None and self._point is not None:
            return
        told = self._store.changes()
        rows = ask(partial(_rows, _ALL, ()))
        known: dict[str, StoredSignature] = {path: tuple(signature) for path, *signature in rows}
        for path, found in told.records.items():
            if entry_place(path) is not None and known.pop(path, None) != storable(found):
                yield path
        yield from known
        self._point = told.until


class IndexFolder:
    """The folder that one process keeps its index of a store in: in a cache, or a temporary one, for this user alone.

    In a cache, each store has folders with numbers, of which a process locks one for as long as it runs. The folders of
    other stores, and of processes whose words are made by other versions, are removed unless a process uses them: they
    hold what this store may have forgotten.
    """

    def __init__(self, cache: Path | None, id: str) -> None:
        self._lock: Descriptor | None = None
        self._process = os.getpid()
        self.is_kept = False
        if cache is not None:
            try:
                self.path, self._lock = _locked_folder(cache, id)
                self.is_kept = True
                return
            except OSError as error:
                _log.warning("the index is kept in a temporary folder, as %s cannot be used: %s", cache, error)
        from tempfile import mkdtemp  # late: only a store without files needs it

        self.path = Path(mkdtemp(prefix="memfiles-"))
        self._end = weakref.finalize(self, _remove_own, self.path, self._process)

    def close(self) -> None:
        """Give the folder up; a forked child leaves it to its parent."""
        self._lock = None
        if not self.is_kept:
            self._end()


def _remove_own(path: Path, process: int) -> None:
    if os.getpid() == process:
        _remove(path)


def _remove(folder: Path) -> None:
    from shutil import rmtree  # late, as above

    rmtree(folder, ignore_errors=True)


def _locked_folder(cache: Path, id: str) -> tuple[Path, Descriptor]:
    """The first folder of a store that no process uses, and its lock."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    versions = f"{made_with():08x}-"
    for other in cache.iterdir():
        if _STORE_ID.fullmatch(other.name):
            for each in other.iterdir():
                if not (other.name == id and each.name.startswith(versions)) and _lock_of(each) is not None:
                    _remove(each)
            with suppress(OSError):
                other.rmdir()
    for number in range(_FOLDERS_MAX):
        path = cache / id / f"{versions}{number}"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (lock := _lock_of(path)) is not None:
            return path, lock
    raise OSError(f"{_FOLDERS_MAX} processes use it")


def _lock_of(folder: Path) -> Descriptor | None:
    """The lock of a folder, None if a process has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = Descriptor(os.open(folder / "lock", flags, 0o600))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError, NotADirectoryError):
        return None
    return lock


Source = RecordSource | StoreSource
