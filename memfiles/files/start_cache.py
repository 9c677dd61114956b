"""The start cache: signatures of intact records, so that a start need not read the files that did not change.

Derived, and never trusted over the disk: a row counts only while the file's signature is the same, and a missing or
damaged cache costs time, nothing else. A row stays a plain list of JSON values all the way, because a start compares
ten thousand of them in the time it takes to stat as many files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.json import decode as from_json

from memfiles.errors import RecordCorrupt
from memfiles.records import to_json
from memfiles.records.declared_metadata import Metadata
from memfiles.records.keys import RECORD_SUFFIX
from memfiles.records.record import Record
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature
from memfiles.storage.home import MemoryHome, put_derived

if TYPE_CHECKING:
    from memfiles.storage.repository import RecordRepository

PATH = ".state/unchanged.json"
_FORMAT = "memfiles-unchanged/1"
_LIMIT = 256 * 1024 * 1024
_WORTH_CACHING = 16  # fewer files are read as quickly as the cache itself
CacheRow = list[str | int]  # inode, size, mtime_ns, name, description, max_size_bytes, level, size of the content


def rows(home: MemoryHome) -> dict[str, CacheRow]:
    """The rows of a memory directory; empty if it has no usable cache, and for a store, which has none."""
    try:
        return load(Descriptor.of_directory(home.directory)) if home.directory is not None else {}
    except OSError:
        return {}


def load(directory: int) -> dict[str, CacheRow]:
    """The rows by uid; empty if there is no usable cache."""
    try:
        found = atomic.read(directory, PATH, limit=_LIMIT)
        rows = from_json(found[0])[_FORMAT] if found else {}
    except (OSError, RecordCorrupt, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return rows if isinstance(rows, dict) else {}


def save(directory: int, rows: dict[str, CacheRow]) -> None:
    """Replace the cache. It is derived, so it is not flushed."""
    put_derived(directory, PATH, to_json({_FORMAT: rows}))


def update(home: MemoryHome, rows: dict[str, CacheRow], live: RecordRepository[Record]) -> dict[str, CacheRow]:
    """The rows of a directory, updated with the live files; saved if they changed and are many."""
    if home.directory is None:
        return rows
    fresh = {
        seen.record.uid: row(seen.record, seen.signature)
        for seen in live.known().values()
        if seen.record is not None and seen.signature is not None and seen.is_plain and seen.settled
    }
    is_news = any(rows.get(uid) != row for uid, row in fresh.items())
    if not is_news or len(rows) + len(fresh) < _WORTH_CACHING:
        return rows
    declared = set(live.paths())
    updated = {uid: row for uid, row in (rows | fresh).items() if uid + RECORD_SUFFIX in declared}
    with suppress(OSError):
        save(Descriptor.of_directory(home.directory), updated)
    return updated


def row(record: Record, signature: Signature) -> CacheRow:
    """The row of a record that was read or written with this signature."""
    return [*signature, record.name, record.description, record.max_size_bytes, record.level, record.size_bytes]


def size_if_same(row: CacheRow, signature: Signature, metadata: Metadata) -> int | None:
    """The size of the content in bytes if the file is the cached one with this metadata, else None."""
    is_same = isinstance(row, list) and len(row) == 8 and row[:7] == [*signature, *metadata]
    return row[7] if is_same and isinstance(row[7], int) else None
