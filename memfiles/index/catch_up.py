"""Keeping the rows equal to the records: after changes by any process, and by comparing every file.

The rule this file guards: a row is written only while its record is known to be the one on disk, checked inside the
same transaction; so a late row never replaces a newer one, and the row of a forgotten entry never comes back.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from memfiles.errors import LockTimeout
from memfiles.index.change_log import HEADER_BYTES, ChangeLog, advance
from memfiles.index.database import failures, note_unread, noted_unread
from memfiles.index.pending_writes import PendingWrites
from memfiles.index.record_source import Comparison, Source, StoreSource
from memfiles.index.rows import Row, storable
from memfiles.index.text import fts
from memfiles.records.keys import is_entry_folder
from memfiles.storage.atomic import Signature
from memfiles.storage.derived_database import DatabaseLost, DerivedDatabase
from memfiles.storage.entry_folders import ComparedFolders, Folders

_READ = "UPDATE entry SET reads = reads + ?, read_at = max(read_at, ?) WHERE path = ? AND created_at <= ?"
_SETTLED_NS = 100_000_000  # longer than a clock tick of any kernel
_BATCH = 256  # records compared in one transaction: no other process waits longer than for these
_COMPACT_ATTEMPTS = 50
_COMPACT_PAUSE_SECONDS = 0.05


class Trust(Enum):
    """How far the rows in the database can be trusted.

    ======================  =============================================================================
    ``UNOPENED``            opened: ``CURRENT`` if no folder changed since the last close, else ``UNVERIFIED``
                            (and only the changed ones are suspect)
    ``LOST``                opened: ``UNVERIFIED``, as it is empty
    ``CURRENT``             a transaction failed, or lines of the log were lost: ``UNVERIFIED``
    ``UNVERIFIED``          every suspect file was compared with its row: ``CURRENT``; those that cannot be read are
                            tried again before each answer
    any but ``CLOSED``      the database is damaged: ``LOST``; another process replaced it: ``UNVERIFIED``;
                            in a forked child: ``UNOPENED``
    ======================  =============================================================================
    """

    UNOPENED = auto()
    LOST = auto()
    UNVERIFIED = auto()
    CURRENT = auto()
    CLOSED = auto()


class IndexReplaced(DatabaseLost):
    """Another process rebuilt the database: what this one knows is about a file that is gone."""


class Maintenance:
    """Opens, catches up, verifies, compacts and seals the database.

    The caller ensures that one thread at a time calls it, and calls ``start_over`` after a ``DatabaseLost``. Methods
    also raise ``IndexUnusable``, and ``IndexReplaced``: ``open``, and work again.
    """

    def __init__(self, database: DerivedDatabase, records: Source, pending: PendingWrites) -> None:
        self.database = database
        self._records = records
        self._pending = pending
        self.unfollowed: set[str] = set()  # see ``Index.unfollowed``
        self.reset()

    def reset(self) -> None:
        """Start as with an unopened database, which is also what a forked child has."""
        self.trust = Trust.UNOPENED
        self._suspect: Folders = None  # those to compare while the trust is ``UNVERIFIED``
        self.compared = ComparedFolders()
        self.left_over: list[str] = []  # temp files of dead writers that were found and not returned yet
        self._is_first, self._must_scrub = True, False
        self.must_compare = False  # all records, as the feed has started over
        self._opened: sqlite3.Connection | None = None  # the one that ``trust`` is about
        self._watched: dict[str, Signature | None] = {}  # records that other processes may be changing
        self._written: tuple[sqlite3.Connection, int] | None = None  # with the data version of the last batch

    @property
    def is_open(self) -> bool:
        """Whether the database was opened, and not lost since."""
        return self.trust in (Trust.CURRENT, Trust.UNVERIFIED)

    def is_fresh(self) -> bool:
        """Whether the rows are known to be equal to the records."""
        return (
            self.trust is Trust.CURRENT
            and not (self.must_compare or self._must_scrub)
            and self._pending.is_empty()
            and self.database.is_current
            and self._records.are_unread
            and all(self._records.signature(path) == found for path, found in self._watched.items())
        )

    def open(self) -> None:
        """Open the database unless it is open, and find out whether it can be trusted."""
        if self.is_open and self.database.is_current:
            return
        log = self._pending.open()
        try:
            connection = self.database.connection()
            with failures():
                is_replaced = self._opened not in (None, connection)
                if self.trust is Trust.LOST or is_replaced or not _is_complete(connection):
                    self._distrust()
                elif self.trust is Trust.UNOPENED:
                    noted, times = _noted_times(connection), self._records.times()
                    is_known = self._records.resume(_meta(connection, "point"))
                    self._distrust({name for name, _ in noted.items() ^ times.items()} if is_known else None)
                    unread, returned = noted_unread(connection)
                    self._records.unread.update(unread)
                    self.unfollowed |= returned
                    self._must_scrub = _meta(connection, "unscrubbed") is not None
                self._opened = connection
            if log.is_alone and not self._is_sealed(connection, log):
                self.apply(is_alone=True)
        finally:
            if log.is_alone:
                log.share()

    def _is_sealed(self, connection: sqlite3.Connection, log: ChangeLog) -> bool:
        """Whether all is as it was sealed, and the log, which is read, says nothing: then nothing need be written."""
        with failures():
            is_same = _meta(connection, "boot") is None and _meta(connection, "log") == log.id
            if self.trust is not Trust.CURRENT or not is_same or not _is_complete(connection):
                return False
        news = self._pending.announcements.read(log, HEADER_BYTES)
        return news.is_whole and not news.lines

    def _distrust(self, folders: Folders = None) -> None:
        """Have the rows of these folders compared before the next answer, or all."""
        self.trust = Trust.CURRENT if folders is not None and not folders else Trust.UNVERIFIED
        self._suspect = folders

    def start_over(self) -> None:
        """Remove a lost database; the next ``open`` makes an empty one."""
        self.trust, self._opened = Trust.LOST, None
        self.database.start_over()

    def _connection(self) -> sqlite3.Connection:
        """The connection that was opened; ``IndexReplaced`` if it led to a file that is gone."""
        return self._checked(self.database.connection())

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction on the database that was opened."""
        with self.database.transaction() as connection:
            yield self._checked(connection)

    def _checked(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        if connection is not self._opened:
            raise IndexReplaced("another process built the index anew")
        return connection

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """The database in one read transaction, verified first if needed."""
        if self.trust is Trust.UNVERIFIED:
            self.catch_up()
        connection = self._connection()
        with failures():
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with suppress(sqlite3.ProgrammingError):  # after an interrupt it may end once the database is closed
                    connection.execute("COMMIT")

    def catch_up(self, *, reads: bool = False) -> None:
        """Write all changes by any process into the rows, and verify them if needed; ``reads`` as of ``apply``."""
        self.apply(reads=reads)
        if self.must_compare:
            self.must_compare = False
            self._distrust()
        if self.trust is Trust.CURRENT and (again := self._records.unlisted.listed_again()):
            self._distrust(again if all(map(is_entry_folder, again)) else None)  # or what is in those of users
        if self.trust is Trust.UNVERIFIED:
            self._verify(self._suspect)
        if self._must_scrub or (self._is_first and self._records.has_erased):
            self._scrub()
        self._is_first = False

    def verify(self, folders: Folders, look: Comparison) -> list[str]:
        """Compare every file with its row, in these folders or all, and read the ones that differ.

        ``look`` is one at these folders. Returns temp files of dead writers. Suspect folders are compared in any case:
        a look may have been at rows that were lost since.
        """
        if not self.is_fresh():
            self.apply()
        suspect = self._suspect if self.trust is Trust.UNVERIFIED else ()
        if suspect is None:
            self._verify(None)
        elif folders is None:
            self._verify(None, replace(look, folders=look.folders - set(suspect)))
        else:
            if suspect:
                self._verify(suspect)
            if remaining := set(folders).difference(suspect):
                self._compare(remaining, look)
        found, self.left_over = list(dict.fromkeys(self.left_over)), []
        return found

    def forget(self, paths: list[str]) -> None:
        """Read these records, and rewrite the file without any word of earlier versions. Raises ``LockTimeout``."""
        self.apply(also=paths)
        self._scrub()

    def _scrub(self) -> None:
        self._must_scrub = False
        with failures():
            fts.scrub(self._connection())
        for _ in range(_COMPACT_ATTEMPTS):
            if self.database.compact():
                if isinstance(self._records, StoreSource):
                    self._records.has_erased = False
                    with self.transaction() as connection:
                        connection.execute("DELETE FROM meta WHERE key = 'unscrubbed'")
                return
            time.sleep(_COMPACT_PAUSE_SECONDS)
        raise LockTimeout("the entry is forgotten, but another process keeps reading the index: forget it again")

    def seal(self) -> None:
        """Leave the index so that the next process can trust it unseen, unless another process uses it."""
        log = self._pending.open()
        if self.trust is not Trust.CURRENT or not log.take_alone():
            return
        if self._watched or not self.is_fresh():
            self.apply(is_alone=True)
        if (self._records.has_erased or self._must_scrub) and self.trust is Trust.CURRENT:
            self._scrub()
        if self.trust is not Trust.CURRENT or _meta(self._connection(), "boot") is None:
            return  # or nothing was written since it was last sealed
        log.empty()
        with self.transaction() as connection:
            _note_sealed(connection, self._records, log=log.id)
        self.database.settle()

    def apply(self, *, also: Iterable[str] = (), reads: bool = False, is_alone: bool = False) -> None:
        """Write all changes, and read the records ``also``; ``is_alone``: no other process has the log open.

        ``reads``: also those that can wait. If the transaction fails, its changes are lost, and verifying finds them.
        """
        is_exact = False
        try:
            with self.transaction() as connection:
                self._watched, is_exact = self._apply(connection, also=also, reads=reads, is_alone=is_alone)
                if not _is_complete(connection):
                    self._distrust()
        except BaseException:
            self._distrust()
            is_exact = False
            raise
        finally:
            self._pending.land(is_exact=is_exact and self.trust is Trust.CURRENT)
        if self._pending.announcements.is_incomplete:
            self._distrust()
            self._pending.announcements.is_incomplete = False

    def _apply(
        self, connection: sqlite3.Connection, *, also: Iterable[str], reads: bool, is_alone: bool
    ) -> tuple[dict[str, Signature | None], bool]:
        """Write pending rows, and read records that others changed.

        Returns the records that others may be changing, and whether exactly the pending rows were written.
        """
        log, point = self._pending.open(), self._records.heard  # the changes up to there are taken below
        is_known = _meta(connection, "log") == log.id
        offset = int(_meta(connection, "offset")) if is_known else None  # up to which the log is in the rows
        intents = {} if offset is None else _intents(connection, but=self._pending.announcements.process)
        asked = None if offset is None or is_alone else intents
        batch = self._pending.take(log, offset or 0, intents=asked, reads=reads)
        changed = batch.doubtful.union(also, advance(intents, batch.news.lines))
        watched = {path for paths in intents.values() for path in paths}
        signatures = {path: self._records.signature(path) for path in watched}
        stale = (changed | watched | self._records.unread) - batch.rows.keys()
        version = connection.execute("PRAGMA data_version").fetchone()[0]  # changes with every foreign write
        is_exact = self._written == (connection, version) and not changed and not watched and batch.news.is_whole
        self._written = connection, version
        signed = {path: row for path, row in batch.rows.items() if row.signature is not None}
        known = [row for path, row in signed.items() if self._records.signature(path) == storable(row.signature)]
        stale |= batch.rows.keys() - {row.path for row in known}
        self._refresh(connection, stale, known=known)
        connection.executemany(_READ, [(times, at, path, at) for path, (times, at) in batch.reads.items()])
        _note_intents(connection, batch.intents if is_alone else {**intents, **batch.intents})
        _note(connection, log=batch.news.log, offset=batch.news.end)
        _note_feed(connection, self._records, point)
        if offset is None or not batch.news.is_whole:  # lines may be missing
            connection.execute("DELETE FROM meta WHERE key = 'complete'")
        return {} if is_alone else signatures, is_exact and not stale

    def _verify(self, folders: Folders, look: Comparison | None = None) -> None:
        """Compare these folders, which are all that are suspect."""
        look = look or Comparison(time.time_ns(), self._records.times())
        self._compare(folders, look)
        self._records.take()
        look = replace(look, times={it: at for it, at in look.times.items() if it not in self._records.unlisted})
        if folders is not None or not self._is_noted(look):
            with self.transaction() as connection:
                _note_complete(connection, look.times, folders=folders, now_ns=look.at_ns)
        self.trust = Trust.CURRENT

    def _is_noted(self, look: Comparison) -> bool:
        """Whether the tables say already that all records were compared after these times."""
        settled, connection = _settled(look.times, look.times, now_ns=look.at_ns), self._connection()
        with failures():
            return _is_complete(connection) and _noted_times(connection) == settled

    def _compare(self, folders: Folders, look: Comparison) -> None:
        connection = self._connection()
        try:
            with failures():
                self.left_over.extend(look.left_over)
                found = self._records.differing(
                    lambda work: work(connection), self.left_over, folders=folders, but=look.folders
                )
                differing = [*look.differing, *found]
                for start in range(0, len(differing), _BATCH):
                    with self.transaction() as connection:
                        self._refresh(connection, differing[start : start + _BATCH])
                if differing:
                    self._pending.land()
        except BaseException:  # what was found again in vain is looked for no longer
            self._distrust()
            raise
        self.unfollowed |= self._records.unlisted.take(folders)
        self.compared.add(folders)

    def _refresh(self, connection: sqlite3.Connection, paths: Iterable[str], *, known: Iterable[Row] = ()) -> None:
        """Make the rows of these records, and of those noted as unread, equal to the files; note those unread now.

        So every process tries them, and hears from the notes which ones another could read again.
        """
        unread, (noted, returned) = self._records.unread, noted_unread(connection)
        before = noted | unread
        self._records.refresh(connection, {*paths, *noted - unread}, known=known)
        note_unread(connection, again := before - unread, is_unread=False)
        self.unfollowed |= returned | again
        if new := unread - noted:
            note_unread(connection, new)
            self._pending.settle(self._pending.intend(list(new)))  # all others try them


def _meta(connection: sqlite3.Connection, key: str) -> Any:
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else found[0]


def _note(connection: sqlite3.Connection, **values: object) -> None:
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


def _intents(connection: sqlite3.Connection, *, but: str) -> dict[str, tuple[str, ...]]:
    """The open intents of other processes, by token."""
    found: dict[str, tuple[str, ...]] = {}
    for token, path in connection.execute("SELECT token, path FROM intent").fetchall():
        if not token.startswith(but):
            found[token] = (*found.get(token, ()), path)
    return found


def _note_intents(connection: sqlite3.Connection, intents: dict[str, tuple[str, ...]]) -> None:
    connection.execute("DELETE FROM intent")
    pairs = [(token, path) for token, paths in intents.items() for path in paths]
    connection.executemany("INSERT OR IGNORE INTO intent VALUES (?, ?)", pairs)


def _is_complete(connection: sqlite3.Connection) -> bool:
    """Whether every record was compared since the database was made."""
    return _meta(connection, "complete") is not None


def _noted_times(connection: sqlite3.Connection) -> dict[str, int]:
    """The times of the entries' folders at the last comparison; while they stay, no file came or went."""
    return dict(connection.execute("SELECT name, mtime_ns FROM folder").fetchall())


def _note_complete(connection: sqlite3.Connection, times: Mapping[str, int], *, folders: Folders, now_ns: int) -> None:
    """Note that every record in these folders was compared after these times; too recent times are not reliable."""
    compared = times.keys() if folders is None else folders
    if folders is None:
        connection.execute("DELETE FROM folder")
    connection.executemany("DELETE FROM folder WHERE name = ?", [(name,) for name in folders or ()])
    connection.executemany("INSERT INTO folder VALUES (?, ?)", _settled(times, compared, now_ns=now_ns).items())
    _note(connection, complete=1)


def _settled(times: Mapping[str, int], names: Iterable[str], *, now_ns: int) -> dict[str, int]:
    """The times of these folders that the next change of a folder cannot give it again."""
    return {name: times[name] for name in names if name in times and not 0 <= now_ns - times[name] < _SETTLED_NS}


def _note_sealed(connection: sqlite3.Connection, records: Source, *, log: str) -> None:
    """Note that the rows are current, with an empty log and unique folder times."""
    noted = _noted_times(connection)
    times = records.times()
    fresh = {name: at if noted.get(name) == at else records.stamp(name) for name, at in times.items()}
    connection.execute("DELETE FROM folder")
    connection.executemany("INSERT INTO folder VALUES (?, ?)", fresh.items())
    connection.execute("DELETE FROM intent")
    _note(connection, log=log, offset=HEADER_BYTES)
    _note_feed(connection, records, records.heard)


def _note_feed(connection: sqlite3.Connection, records: Source, point: str | None) -> None:
    """Note up to where a feed is in the rows, and that the file may have words of what was forgotten elsewhere."""
    if point is not None:
        _note(connection, point=point)
    if records.has_erased:
        _note(connection, unscrubbed=1)
