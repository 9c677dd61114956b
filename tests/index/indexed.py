"""A memory directory with an index, for tests: entries are written as the store would, without its flushes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path, PurePath

from memfiles.errors import RecordCorrupt
from memfiles.index.index import Index
from memfiles.index.record_source import RecordSource
from memfiles.index.rows import Row, row_of
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.marks import EntryRecord
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature
from memfiles.storage.entry_folders import UnlistedFolders
from tests.support.saved import saved

LATER = "2026-11-22T09:00:00.000Z"
INDEX = ".state/index.sqlite"
LOG = ".state/entries.log"

LIMIT = 1 << 20
SUPPORT = ("support", "INTERNAL", "")


class Memory:
    """A directory of entries, and its index as one process has it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.descriptor = atomic.Descriptor.of_directory(directory)
        self.reads = 0
        self.index = Index(
            directory, self.descriptor, RecordSource(self.descriptor, self.read, UnlistedFolders(self.descriptor))
        )

    def read(self, path: str) -> Row | None:
        """The row of the record at ``path``."""
        self.reads += 1
        try:
            found = atomic.read(self.descriptor, path, limit=LIMIT)
            return row_of(decode_entry(found[0], path=path), found[1]) if found else None
        except RecordCorrupt:
            return None

    def write(self, record: EntryRecord) -> Signature:
        """Have the record on disk, unannounced: as a person would, or a process that was killed at once."""
        return write(self.descriptor, record)

    def save(self, *records: EntryRecord) -> None:
        """Change records as the entries' code does."""
        found = [(atomic.read(self.descriptor, record.path, limit=LIMIT), record.path) for record in records]
        before = [decode_entry(read[0], path=path) for read, path in found if read is not None]
        token = self.index.intend([record.path for record in records])
        self.index.put([(record, self.write(record)) for record in records], token, before=before)

    def texts(self) -> list[str]:
        """All texts, sorted."""
        self.index.catch_up()
        return sorted(self.index.ask(_texts))

    def keys(self) -> list[str]:
        """The keys of all live entries, after a catch-up."""
        self.index.catch_up()
        return live_keys(self.index)

    def close(self) -> None:
        """Close the index, then the directory."""
        self.index.close()


def _texts(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT key, content, tags FROM text")
    return ["\n".join((key, content, *([tags] if tags else []))) for key, content, tags in rows]


def live_keys(index: Index) -> list[str]:
    """The keys that the rows have as live, sorted."""
    statement = "SELECT key FROM entry WHERE state = 'live' ORDER BY key"
    return [row[0] for row in index.ask(lambda connection: connection.execute(statement).fetchall())]


def write(descriptor: int, record: EntryRecord) -> Signature:
    """Put the record's file in place, in whatever folder it belongs."""
    for folder in reversed(PurePath(record.path).parents[:-1]):
        atomic.make_folder(descriptor, str(folder))
    signature = atomic.stage(descriptor, record.path, encode_entry(record), flush=False)
    atomic.publish(descriptor, record.path)
    atomic.drop_temp(descriptor, record.path)
    return signature


def many(count: int, *, start: int = 0) -> Iterable[EntryRecord]:
    """Entries with different keys and contents."""
    return (saved(f"key-{n:06}", f"content number {n}") for n in range(start, start + count))


def reopened(memory: Memory) -> Memory:
    """The same directory as the next process has it."""
    memory.index.close()
    return Memory(memory.directory)


def expected_texts(memory: Memory) -> list[str]:
    """The texts that a look at every file gives: the model."""
    paths = sorted(path.relative_to(memory.directory).as_posix() for path in memory.directory.glob("entries/*/*.json"))
    rows = [row for path in paths if (row := memory.read(path)) is not None and row.state == "live"]
    return sorted("\n".join((row.key, row.content, *row.tags)) for row in rows)
