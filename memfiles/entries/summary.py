"""How an entry stands: all that decisions about it need, without its content.

Pure data, made from one row of the index, so that a hundred thousand of them cost no record to be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memfiles.entries.categories import CORE
from memfiles.records.entry import GENERAL, Entry, Kind

EntryState = Literal["live", "deleted", "evicted", "forgotten"]
Turn = tuple[bool, str, int, str]


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """One entry as it stands in the index. ``size_bytes`` is that of its content, in UTF-8.

    ``accesses`` and ``accessed_at`` (None: never) are hints; no record holds them.
    """

    uid: str
    key: str
    level: str
    category: str = GENERAL
    kind: Kind = "note"
    size_bytes: int = 0
    updated_at: str = ""
    created_at: str = ""
    expires_at: str | None = None
    pinned: bool = False
    importance: float = 0.5
    confidence: float = 1.0
    successes: int = 0
    failures: int = 0
    accesses: int = 0
    accessed_at: str | None = None
    state: EntryState = "live"
    ordinal: int = 0

    @property
    def is_held(self) -> bool:
        """Whether it is shown first and evicted last: it is pinned, by itself or by its category."""
        return self.pinned or self.category == CORE

    def is_expired(self, now: str) -> bool:
        """Whether it may not be returned any more, swept or not."""
        return self.expires_at is not None and self.expires_at <= now

    def is_usable(self, now: str) -> bool:
        """Whether it is live and has not expired."""
        return self.state == "live" and not self.is_expired(now)

    @property
    def turn(self) -> Turn:
        """Its place in the order in which entries are shown; the highest comes first, and no two keys share one.

        In SQL: ``ORDER BY (pinned OR category = 'core') DESC, updated_at DESC, ordinal DESC, key DESC``.
        """
        return self.is_held, self.updated_at, self.ordinal, self.key


def standing_of(entry: Entry, *, accesses: int = 0, accessed_at: str | None = None) -> EntrySummary:
    """How an entry stands whose record is at hand."""
    return EntrySummary(
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
        accesses=accesses,
        accessed_at=accessed_at,
        state=entry.retired.state if entry.retired else "live",
        ordinal=entry.provenance.ordinal,
    )
