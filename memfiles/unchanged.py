"""Which records were sound when last seen, so that a start need not read what did not change.

Derived and never trusted over the disk: an entry counts only while the file's signature is the same, and a
missing or damaged note costs time, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from memfiles import atomic
from memfiles.atomic import Signature
from memfiles.errors import RecordCorrupt
from memfiles.record import Record
from memfiles.restoring import Metadata, metadata_in

PATH = ".state/unchanged.json"
_FORMAT = "memfiles-unchanged/1"
_LIMIT = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sound:
    """What is known of a sound record without reading it."""

    signature: Signature
    metadata: Metadata
    size_bytes: int


def load(directory: int) -> dict[str, Sound]:
    """What was noted by uid; empty if there is no usable note."""
    try:
        found = atomic.read(directory, PATH, limit=_LIMIT)
        rows: dict[str, Any] = from_json(found[0])[_FORMAT] if found else {}
        return {uid: _sound(row) for uid, row in rows.items()}
    except (RecordCorrupt, ValueError, KeyError, TypeError, AttributeError):
        return {}


def save(directory: int, sound: dict[str, Sound]) -> None:
    """Note these records. Derived, so not flushed."""
    rows = {uid: _row(known) for uid, known in sound.items()}
    atomic.drop(directory, PATH)
    atomic.stage(directory, PATH, to_json({_FORMAT: rows}), flush=False)
    atomic.publish(directory, PATH)
    atomic.drop(directory, PATH)


def sound(record: Record, signature: Signature) -> Sound:
    """What to note of a record that was read or written with this signature."""
    return Sound(signature, metadata_in(record), record.size_bytes)


def _row(known: Sound) -> list[Any]:
    told = known.metadata
    return [*known.signature, told.name, told.description, told.max_size_bytes, told.level, known.size_bytes]


def _sound(row: list[Any]) -> Sound:
    inode, size, mtime_ns, name, description, cap, level, size_bytes = row
    return Sound(Signature(inode, size, mtime_ns), Metadata(name, description, cap, level), size_bytes)
