"""Bringing the rows in line with the records: after changes by anyone, and by looking at every file.

The rule this file guards: a row is written only while its record is known to be the one on disk, looked at inside
the very transaction; so a row that is late never covers a newer one, nor does one of a forgotten entry come back.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from memfiles.index.pending_writes import PendingWrites
from memfiles.index.row_writer import RowWriter
from memfiles.index.rows import Row, stored
from memfiles.index.text_index import TextIndex
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature
from memfiles.storage.entry_folders import StoredSignature, files, folder_times

_FOLDER_AT = len(ENTRIES) + 1
_READ = "UPDATE entry SET reads = reads + ?, read_at = max(read_at, ?) WHERE path = ?"


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The records on disk: ``read`` gives the row of the one at a path, None if it is gone or unreadable."""

    directory: int
    read: Callable[[str], Row | None]

    def signature(self, path: str) -> Signature | None:
        """What the row of the file at ``path`` must have to be right; None if nothing can be there."""
        try:
            return stored(atomic.signature(self.directory, path))
        except OSError:
            return None


class CatchingUp:
    """What changes the rows, one transaction at a time."""

    def __init__(self, records: RecordSource, texts: TextIndex, backlog: PendingWrites) -> None:
        self._records = records
        self._texts = texts
        self._backlog = backlog

    def apply(
        self, connection: sqlite3.Connection, *, also: Iterable[str] = (), is_alone: bool = False
    ) -> dict[str, Signature | None]:
        """Write what is new, and look at the records that anyone changed and at those in ``also``.

        Returns the records that another process may be changing, as they are now; ``is_alone``: none can be.
        """
        log = self._backlog.open()
        offset = _offset(connection, log.id)
        taken = self._backlog.take(log, offset or 0)
        intents = _intents(connection, but=self._backlog.name) if offset is not None else {}
        over = taken.doubtful.union(also)
        for line in taken.lines:
            if line.is_intent:
                intents[line.token] = line.paths
            else:
                over.update(intents.pop(line.token, ()))
        watched = {path for paths in intents.values() for path in paths}
        signatures = {path: self._records.signature(path) for path in watched}
        writer = RowWriter(connection, self._texts)
        self._write(writer, taken.rows.values())
        for path in (over | watched) - taken.rows.keys():
            self._look(writer, path)
        writer.finish()
        connection.executemany(_READ, [(*found, path) for path, found in taken.reads.items()])
        _note_intents(connection, taken.intents if is_alone else {**intents, **taken.intents})
        _note_offset(connection, log.id, taken.end, is_whole=offset is not None and taken.is_whole)
        return {} if is_alone else signatures

    def look(self, connection: sqlite3.Connection, paths: Iterable[str]) -> None:
        """Bring the rows of these records in line."""
        writer = RowWriter(connection, self._texts)
        for path in paths:
            self._look(writer, path)
        writer.finish()

    def _write(self, writer: RowWriter, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.signature is not None and self._records.signature(row.path) == stored(row.signature):
                writer.put(row)
            else:
                self._look(writer, row.path)

    def _look(self, writer: RowWriter, path: str) -> None:
        found = self._records.signature(path)
        if found is not None and found == writer.signature(path):
            return
        row = self._records.read(path) if found is not None else None
        if row is None:
            writer.remove(path)
        else:
            writer.put(row)


def differing(connection: sqlite3.Connection, directory: int, left_over: list[str]) -> Iterator[str]:
    """The records whose files and rows differ; temp files that lie about are added to ``left_over``.

    The rows are read in one go: in the order of their paths it takes twice as long.
    """
    known: dict[str, dict[str, StoredSignature]] = defaultdict(dict)
    for path, *signature in connection.execute("SELECT path, inode, file_size, mtime_ns FROM entry"):
        known[path[_FOLDER_AT : path.index("/", _FOLDER_AT)]][path] = tuple(signature)
    for folder in sorted(known.keys() | folder_times(directory).keys()):
        rows = known.pop(folder, {})
        for path, found in files(directory, folder, left_over):
            noted = rows.pop(path, None)
            if noted != found and (noted is not None or entry_place(path) is not None):
                yield path
        yield from rows


def _offset(connection: sqlite3.Connection, log: str) -> int | None:
    """Up to where this log is in the rows; None if that is not known."""
    meta = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('log', 'offset')").fetchall())
    return int(meta["offset"]) if meta.get("log") == log else None


def _intents(connection: sqlite3.Connection, *, but: str) -> dict[str, tuple[str, ...]]:
    """The changes that other processes announced and did not call over."""
    found: dict[str, tuple[str, ...]] = {}
    for token, path in connection.execute("SELECT token, path FROM intent").fetchall():
        if not token.startswith(but):
            found[token] = (*found.get(token, ()), path)
    return found


def _note_intents(connection: sqlite3.Connection, intents: dict[str, tuple[str, ...]]) -> None:
    connection.execute("DELETE FROM intent")
    pairs = [(token, path) for token, paths in intents.items() for path in paths]
    connection.executemany("INSERT OR IGNORE INTO intent VALUES (?, ?)", pairs)


def _note_offset(connection: sqlite3.Connection, log: str, end: int, *, is_whole: bool) -> None:
    """Have in the database up to where the log is in it; if lines may be missing, that not every record is."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("log", log), ("offset", end)])
    if not is_whole:
        connection.execute("DELETE FROM meta WHERE key = 'complete'")
