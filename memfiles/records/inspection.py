"""What can be told of a record's bytes, of whatever type, without knowing which record they should be."""

from __future__ import annotations

from dataclasses import dataclass

from memfiles.errors import RecordCorrupt
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import is_entry, read_entry
from memfiles.records.record import read_record


@dataclass(frozen=True, slots=True)
class Inspection:
    """The revision of a record, and whether its digest is its content's."""

    revision: int
    is_intact: bool


def inspect(data: bytes) -> Inspection | None:
    """The revision of whatever record ``data`` holds, and whether its digest fits; None if it holds none."""
    try:
        if not is_entry(data):
            record = read_record(data)
            return Inspection(record.revision, record.is_intact)
        found = read_entry(data)
    except RecordCorrupt:
        return None
    return Inspection(found.revision, found.text.is_intact if isinstance(found, Entry) else True)
