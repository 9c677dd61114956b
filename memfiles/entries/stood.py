"""How an entry stands, told from its record or from its row in the index."""

from __future__ import annotations

from typing import cast

from memfiles.entries.standing import Standing
from memfiles.entry import Entry, Kind
from memfiles.index.rows import Row
from memfiles.keys import entry_place


def standing_in(entry: Entry) -> Standing:
    """How a record stands; nothing is known of when it was read."""
    return Standing(
        uid=entry.uid,
        key=entry.key,
        level=entry.level,
        category=entry.category,
        kind=entry.kind,
        size_bytes=entry.size_bytes,
        updated_at=entry.updated_at,
        created_at=entry.created_at,
        expires_at=entry.expires_at,
        pinned=entry.pinned,
        importance=entry.importance,
        confidence=entry.confidence,
        successes=entry.successes,
        failures=entry.failures,
        state=entry.retired.state if entry.retired else "live",
        ordinal=entry.provenance.ordinal,
    )


def standing_of(row: Row) -> Standing:
    """How a row stands."""
    place = entry_place(row.path)
    return Standing(
        uid=place[1] if place else "",
        key=row.key,
        level=row.level,
        category=row.category,
        kind=cast(Kind, row.kind),
        size_bytes=row.size,
        updated_at=row.updated_at,
        created_at=row.created_at,
        expires_at=row.expires_at,
        pinned=row.pinned,
        importance=row.importance,
        confidence=row.confidence,
        successes=row.successes,
        failures=row.failures,
        state=row.state,
        ordinal=row.provenance.ordinal,
    )
