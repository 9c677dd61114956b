"""Declared metadata of a memory file: the first revision made from it, and the effect of a redeploy (pure).

A record of the older manager, a JSON object with ``id``, ``label``, ``type``, ``description`` and ``content``, is read
as a first revision of which only the content is known: it has no level and no time until a redeploy declares the rest.
"""

from __future__ import annotations

import json

from msgspec.structs import replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records import NamedTuple
from memfiles.records.keys import NAME_MAX
from memfiles.records.record import MAX_RECORD_BYTES, Change, Record, check_text, decode, digest, extend, refuse_foreign

_OLDER_TYPE = "MemoryFile"
_UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"  # not now: the same bytes always give the same record


class Metadata(NamedTuple):
    """The declared part of a record: what a redeploy may change."""

    name: str
    description: str
    max_size_bytes: int
    level: str


def redeclared(record: Record, metadata: Metadata, *, at: str) -> Record:
    """The record with the declared metadata; the very same record if it has them already."""
    if metadata_in(record) == metadata:
        return record
    if is_older(record):
        record = replace(record, created_at=at)
    changed = replace(record, **metadata._asdict())
    return extend(changed, Change(revision=record.revision + 1, at=at, op="declare"))


def metadata_in(record: Record) -> Metadata:
    """The metadata of a record."""
    return Metadata(record.name, record.description, record.max_size_bytes, record.level)


def seed(uid: str, metadata: Metadata, *, content: str, at: str, provisional: bool = False) -> Record:
    """The first revision of a file, with its declared content."""
    data = content.encode()
    name, description, cap, level = metadata
    first = Change(revision=1, at=at, op="seed", bytes=len(data), offset=0)
    return Record(
        uid, name, description, cap, level, content, digest(data), 1, at, at, history=(first,), provisional=provisional
    )


def decode_file(data: bytes, *, uid: str) -> Record:
    """The record of ``uid`` in ``data``, also in the older manager's format; ``RecordCorrupt`` as of ``decode``."""
    try:
        return decode(data, uid=uid)
    except RecordCorrupt:
        if (content := _older_content(data, uid=uid)) is None:
            raise
    declared, at = (uid[:NAME_MAX], "", MAX_RECORD_BYTES, ""), _UNKNOWN_TIME
    return Record(uid, *declared, content, digest(content.encode()), 1, at, at)


def is_older(record: Record) -> bool:
    """Whether ``decode_file`` read it from a record of the older manager."""
    return record.created_at == _UNKNOWN_TIME and not record.level


def _older_content(data: bytes, *, uid: str) -> str | None:
    """The content in the older manager's record of ``uid``; None if ``data`` is not a sound one."""
    try:
        found = json.loads(data)
        is_one = isinstance(found, dict) and {"format", "uid"}.isdisjoint(found)
        if not is_one or (found.get("id"), found.get("type", _OLDER_TYPE)) != (uid, _OLDER_TYPE):
            return None
        refuse_foreign(data, uid=uid)
        content = found.get("content")
        check_text(content, what="the content")
    except (ValueError, RecursionError, RecordCorrupt, InvalidArgument):
        return None
    return str(content)
