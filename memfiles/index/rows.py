"""The row: what the index knows of one entry's record, or of the tombstone in its place.

Pure data, a plain tuple because a save makes one; ``content`` is passed on to the text index and not kept in the row,
and ``sources`` are only asked for, and not read back from it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

from memfiles.records.entry import Entry, EntryRecord, Provenance
from memfiles.storage.atomic import Signature
from memfiles.storage.entry_folders import MASK

RowState = Literal["live", "deleted", "evicted", "forgotten"]
CORE = "core"
_SHORT_DIGEST = 32


class Row(NamedTuple):
    """One record. ``scope`` is its folder; ``size`` the bytes of its content; ``digest`` tells equal contents.

    Of a tombstone only the place, the level, the revision and the signature are known.
    """

    path: str
    scope: str
    level: str
    run: str
    key: str
    tags: tuple[str, ...]
    links: tuple[str, ...]
    category: str
    kind: str
    pinned: bool
    importance: float
    confidence: float
    size: int
    successes: int
    failures: int
    created_at: str
    updated_at: str
    expires_at: str | None
    provenance: Provenance
    state: RowState
    retired_at: str
    cause: str
    revision: int
    digest: str
    signature: Signature | None = None
    content: str = ""
    sources: tuple[str, ...] = ()


_TOMBSTONE = Row(
    *("", "", "", "", "", (), (), "", "", False, 0.0, 0.0, 0, 0, 0),
    *("", "", None, Provenance(), "forgotten", "", "", 1, ""),
)


def row_of(record: EntryRecord, signature: Signature | None) -> Row:
    """The row of a record whose file has this signature (None: not known, so that the file is looked at)."""
    if not isinstance(record, Entry):
        return _TOMBSTONE._replace(
            path=record.path,
            scope=record.folder,
            level=record.level,
            revision=record.revision,
            retired_at=record.at,
            signature=signature,
            sources=record.moved,
        )
    text, retired = record.text, record.retired
    return Row(
        record.path,
        record.folder,
        text.level,
        record.run,
        record.key,
        record.tags,
        record.links,
        record.category,
        record.kind,
        record.pinned,
        record.importance,
        record.confidence,
        text.size_bytes,
        record.successes,
        record.failures,
        text.created_at,
        text.updated_at,
        record.expires_at,
        record.provenance,
        retired.state if retired else "live",
        retired.at if retired else "",
        retired.cause if retired else "",
        text.revision,
        text.sha256[:_SHORT_DIGEST],
        signature,
        text.content,
        record.sources,
    )


COLUMNS = (
    "path key tags links category kind pinned kept importance confidence size successes failures created_at updated_at "
    "expires_at source_run thread ordinal provenance state retired_at cause revision digest inode file_size mtime_ns "
    "sources"
).split()
_SELECTED = (
    "e.path p.scope p.level p.run e.key e.tags e.links e.category e.kind e.pinned e.importance e.confidence e.size "
    "e.successes e.failures e.created_at e.updated_at e.expires_at e.provenance e.state e.retired_at e.cause "
    "e.revision e.digest e.inode e.file_size e.mtime_ns"
).split()
SELECTED = ", ".join(_SELECTED)
_TAGS_AT, _LINKS_AT, _PINNED_AT, _PROVENANCE_AT, _SIGNATURE_AT = (
    _SELECTED.index(f"e.{name}") for name in "tags links pinned provenance inode".split()
)


def values_of(row: Row) -> tuple[Any, ...]:
    """What stands in the row's ``COLUMNS``; ``kept`` is what is evicted last and hydrated first."""
    provenance = row.provenance
    return (
        row.path,
        row.key,
        to_json(row.tags).decode() if row.tags else "[]",
        to_json(row.links).decode() if row.links else "[]",
        row.category,
        row.kind,
        row.pinned,
        row.pinned or row.category == CORE,
        row.importance,
        row.confidence,
        row.size,
        row.successes,
        row.failures,
        row.created_at,
        row.updated_at,
        row.expires_at,
        provenance.run or "",
        provenance.thread or "",
        provenance.ordinal & MASK,
        to_json(provenance.to_dict()).decode(),
        row.state,
        row.retired_at,
        row.cause,
        row.revision,
        row.digest,
        *(stored(row.signature) or (None, None, None)),
        to_json(row.sources).decode() if row.sources else "[]",
    )


def row_from(found: tuple[Any, ...]) -> Row:
    """The row in the ``SELECTED`` columns of the table, without its content."""
    values = list(found[:_SIGNATURE_AT])
    values[_TAGS_AT], values[_LINKS_AT] = _texts(values[_TAGS_AT]), _texts(values[_LINKS_AT])
    values[_PINNED_AT] = bool(values[_PINNED_AT])
    values[_PROVENANCE_AT] = Provenance(**from_json(values[_PROVENANCE_AT]))
    signature = None if found[_SIGNATURE_AT] is None else Signature(*found[_SIGNATURE_AT:])
    return Row._make((*values, signature, "", ()))


def stored(signature: Signature | None) -> Signature | None:
    """The signature as the table can hold it."""
    if signature is None:
        return None
    return Signature(signature.inode & MASK, signature.size & MASK, signature.mtime_ns & MASK)


def _texts(found: str) -> tuple[str, ...]:
    return () if found == "[]" else tuple(from_json(found))
