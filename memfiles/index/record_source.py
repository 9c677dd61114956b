"""Record source: the records on disk, as the index compares its rows with them.

The rule this file guards: a row is written only with the signature of the file that it was read from, so a file that
changes meanwhile is found to differ again.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

from memfiles.errors import StorageFailed
from memfiles.index.rows import Row, RowWriter, stored
from memfiles.index.text.fts import as_json
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature, is_forbidden
from memfiles.storage.entry_folders import FolderSum, StoredSignature, files, folder_sum, folder_times, stamp
from memfiles.storage.record_store import Records, RecordStore

Folders = Collection[str] | None
"""Folders of entries, as in their paths; None for all."""

_FOLDER_AT = len(ENTRIES) + 1
_ALL = "SELECT path, inode, file_size, mtime_ns FROM entry"
_OF_FOLDERS = """
    SELECT path, inode, file_size, mtime_ns FROM part CROSS JOIN entry ON entry.part = part.id
    WHERE scope IN (SELECT value FROM json_each(?))
"""
_SUMS = "SELECT folder, count, hashes FROM held WHERE folder IN (SELECT value FROM json_each(?))"
LARGE = 2048  # files: a look at so many takes 10 ms
_AT_ONCE = 256  # records of a store that are read with one question
_log = logging.getLogger("memfiles")


class Look(NamedTuple):
    """What the files of some folders add up to, with the times of all folders just before, and the moment before that.

    Nobody waits for a look, as it takes no lock: what changes meanwhile makes a sum that no rows have.
    """

    at_ns: int
    times: dict[str, int]
    sums: dict[str, FolderSum]


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The records on disk: ``read`` returns the row of the record at a path, None if it is gone or unreadable."""

    directory: int
    read: Callable[[str], Row | None]
    forbidden: set[str] = field(default_factory=set)  # records that exist and may not be read at the moment

    def signature(self, path: str) -> Signature | None:
        """The signature that the row of this file must have; None if there cannot be a file."""
        try:
            return stored(atomic.signature(self.directory, path))
        except OSError:
            return None

    def refresh(self, connection: sqlite3.Connection, paths: Iterable[str], *, known: Iterable[Row] = ()) -> None:
        """Make the rows of these records equal to the files, in the caller's transaction; ``known`` rows are so."""
        writer = RowWriter(connection)
        for given in known:
            writer.put(given)
        for path in paths:
            found = self.signature(path)
            if found is not None and found == writer.signature(path):
                continue
            row = self._row(path) if found is not None else None
            if row is None:
                writer.remove(path)
            else:
                writer.put(row)
        writer.finish()

    def times(self) -> dict[str, int]:
        """When each folder of entries last changed; see ``folder_times``."""
        return folder_times(self.directory)

    def stamp(self, folder: str) -> int:
        """Set the time of a folder to now; see ``entry_folders.stamp``."""
        return stamp(self.directory, folder)

    def close(self) -> None:
        """The index stays where it is."""

    def news(self) -> list[str]:
        """Records that others changed: they are found by the log and by the times of folders."""
        return []

    def _row(self, path: str) -> Row | None:
        try:
            row = self.read(path)
        except StorageFailed as error:
            if not is_forbidden(error):
                raise
            if path not in self.forbidden:
                self.forbidden.add(path)
                _log.warning("searches leave an entry out until it may be read: %s", error)
            return None
        self.forbidden.discard(path)
        return row

    def folders(self, connection: sqlite3.Connection) -> list[str]:
        """All folders of entries, on the disk and in the rows."""
        known = {name for (name,) in connection.execute("SELECT folder FROM held")}
        return sorted(known | folder_times(self.directory).keys())

    def look(self, folders: Iterable[str], *, timed: bool = True) -> Look:
        """A look at every file in these folders; without the times of all folders if it is not ``timed``."""
        at_ns, times = time.time_ns(), folder_times(self.directory) if timed else {}
        return Look(at_ns, times, {each: folder_sum(self.directory, each) for each in folders})

    def differing(
        self,
        connection: sqlite3.Connection,
        left_over: list[str],
        *,
        folders: Folders = None,
        looked: Mapping[str, FolderSum] = MappingProxyType({}),
    ) -> Iterator[str]:
        """The records in these folders whose files and rows differ, or all (None).

        Temp files of dead writers are added to ``left_over``. A folder whose files add up to what its rows do needs no
        second look, nor a first one if it was ``looked`` at. The rows of the others are read at once: in the order of
        their paths it would take twice as long.
        """
        wanted = set(self.folders(connection) if folders is None else folders)
        noted_sums = connection.execute(_SUMS, (as_json(wanted),)).fetchall()
        sums = {name: FolderSum(count, hashes) for name, count, hashes in noted_sums}
        doubted = {
            each
            for each in wanted
            if (looked.get(each) or folder_sum(self.directory, each)) != sums.get(each, FolderSum())
        }
        if not doubted:
            return
        is_all = folders is None and doubted == wanted
        asked = connection.execute(_ALL) if is_all else connection.execute(_OF_FOLDERS, (as_json(doubted),))
        known: dict[str, StoredSignature] = {row[0]: row[1:] for row in asked.fetchall()}
        for folder in sorted(doubted):
            for path, found in files(self.directory, folder, left_over):
                noted = known.pop(path, None)
                if noted != found and (noted is not None or entry_place(path) is not None):
                    yield path
        yield from known


def large_folders(connection: sqlite3.Connection, folders: Collection[str]) -> set[str]:
    """Those of these folders with so many files that a look at each of them would be felt."""
    statement = f"SELECT folder FROM held WHERE folder IN (SELECT value FROM json_each(?)) AND count > {LARGE}"
    return {name for (name,) in connection.execute(statement, (as_json(folders),))}


class StoreSource:
    """The records of a store without files, of which its feed tells what changed; see ``RecordSource``.

    The rows are of this process alone. They are compared with all records once, and with what the feed tells since,
    before every answer: so an answer includes every commit that was acknowledged before it was asked for.
    """

    def __init__(self, store: RecordStore, read: Callable[[str, Records], Row | None]) -> None:
        """``read`` returns the row of the record at a path, among the records given."""
        self._store, self._read = store, read
        self._temporary = TemporaryDirectory(prefix="memfiles-")  # for this user alone
        self.folder = Path(self._temporary.name)
        self.descriptor = Descriptor.of_directory(self.folder)
        self._point: str | None = None
        self.forbidden: set[str] = set()

    def signature(self, path: str) -> Signature | None:
        """See ``RecordSource``."""
        return stored(self._store.signature(path))

    def refresh(self, connection: sqlite3.Connection, paths: Iterable[str], *, known: Iterable[Row] = ()) -> None:
        """See ``RecordSource``: some hundred records are asked for at once."""
        writer = RowWriter(connection)
        for given in known:
            writer.put(given)
        wanted = list(paths)
        for some in (wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE)):
            view = self._store.view(some)
            for path in some:
                found = stored(view.signature(path))
                if found is not None and found == writer.signature(path):
                    continue
                row = self._read(path, view) if found is not None else None
                if row is None:
                    writer.remove(path)
                else:
                    writer.put(row)
        writer.finish()

    def close(self) -> None:
        """Remove the folder for the index; it is of no use to anyone else."""
        self._temporary.cleanup()

    def times(self) -> dict[str, int]:
        """There are no folders."""
        return {}

    def stamp(self, folder: str) -> int:
        """There are no folders."""
        return 0

    def folders(self, connection: sqlite3.Connection) -> list[str]:
        """There are no folders."""
        return []

    def look(self, folders: Iterable[str], *, timed: bool = True) -> Look:
        """There are no folders."""
        return Look(time.time_ns(), {}, {})

    def news(self) -> list[str]:
        """The entries that were changed since the last call, by this process or others."""
        if self._point is None:  # everything is compared first
            return []
        told = self._store.changes(self._point)
        self._point = told.until
        return [path for path in told.records if entry_place(path) is not None]

    def differing(
        self,
        connection: sqlite3.Connection,
        left_over: list[str],
        *,
        folders: Folders = None,
        looked: Mapping[str, FolderSum] = MappingProxyType({}),
    ) -> Iterator[str]:
        """The records that differ from their rows; those in some folders are known by the feed."""
        if folders is not None and self._point is not None:
            return
        told = self._store.changes()
        known: dict[str, StoredSignature] = {row[0]: row[1:] for row in connection.execute(_ALL).fetchall()}
        for path, found in told.records.items():
            if entry_place(path) is not None and known.pop(path, None) != stored(found):
                yield path
        yield from known
        self._point = told.until


Source = RecordSource | StoreSource


def folder_of(path: str) -> str:
    """The folder of the record at ``path``."""
    return path[_FOLDER_AT : path.rindex("/")]
