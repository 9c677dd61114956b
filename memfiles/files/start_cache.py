"""Which records were sound when last seen, so that a start need not read what did not change.

Derived and never trusted over the disk: a note counts only while the file's signature is the same, and a
missing or damaged note costs time, nothing else. A note stays a plain row of JSON values all the way,
because a start compares ten thousand of them in the time it takes to stat as many files.
"""

from __future__ import annotations

from pydantic_core import from_json, to_json

from memfiles.errors import RecordCorrupt
from memfiles.records.declared_metadata import Metadata
from memfiles.records.record import Record
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature

PATH = ".state/unchanged.json"
_FORMAT = "memfiles-unchanged/1"
_LIMIT = 256 * 1024 * 1024

CacheRow = list[str | int]  # inode, size, mtime_ns, name, description, max_size_bytes, level, size of the content


def load(directory: int) -> dict[str, CacheRow]:
    """What was noted by uid; empty if there is no usable note."""
    try:
        found = atomic.read(directory, PATH, limit=_LIMIT)
        rows = from_json(found[0])[_FORMAT] if found else {}
    except (OSError, RecordCorrupt, ValueError, KeyError, TypeError):
        return {}
    return rows if isinstance(rows, dict) else {}


def save(directory: int, notes: dict[str, CacheRow]) -> None:
    """Put these notes in place of the earlier ones. Derived, so not flushed."""
    atomic.drop(directory, PATH)
    atomic.stage(directory, PATH, to_json({_FORMAT: notes}), flush=False)
    atomic.publish(directory, PATH)
    atomic.drop(directory, PATH)


def note(record: Record, signature: Signature) -> CacheRow:
    """What to note of a record that was read or written with this signature."""
    return [*signature, record.name, record.description, record.max_size_bytes, record.level, record.size_bytes]


def size_if_same(noted: CacheRow, signature: Signature, metadata: Metadata) -> int | None:
    """The size of the content in bytes if the record is the noted one with this metadata, else None."""
    is_same = isinstance(noted, list) and len(noted) == 8 and noted[:7] == [*signature, *metadata]
    return noted[7] if is_same and isinstance(noted[7], int) else None
