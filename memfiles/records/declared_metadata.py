"""Declared metadata of a memory file: the first revision made from it, and the effect of a redeploy (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from memfiles.records.record import Change, Record, digest, extend


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
