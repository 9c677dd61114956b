"""How an entry stands, told from its row in the index alone."""

from __future__ import annotations

from typing import cast

from memfiles.entries.summary import EntrySummary
from memfiles.index.rows import Row
from memfiles.records.entry import Kind
from memfiles.records.keys import entry_place


def standing_in(row: Row) -> EntrySummary:
    """How a row stands."""
    place = entry_place(row.path)
    return EntrySummary(
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
