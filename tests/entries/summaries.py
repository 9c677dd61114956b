"""Entries as they stand, for the tests of what is decided about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.entries.budgets import EntrySummary
from memfiles.entries.hydration.window import Offered
from memfiles.records.entry import Entry, block_bytes
from tests.support.records import SEEDED_AT
from tests.support.saved import saved

NOW = "2026-11-25T12:00:00.000Z"
PASSED, COMING = "2026-11-25T11:59:59.999Z", "2026-11-25T12:00:00.001Z"


class Shelf:
    """Entries and what they say; counts how many were read."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self.read: list[str] = []

    def __call__(self, offered: Offered) -> Entry | None:
        self.read.append(offered.uid)
        return self.entries.get(offered.uid)


def standing(key: str = "color", **known: Any) -> EntrySummary:
    """An entry of that key; its uid is the key unless one is given."""
    return EntrySummary(**{"uid": key, "key": key, "level": "INTERNAL", "updated_at": SEEDED_AT, **known})


def told(content: str = "x", tags: tuple[str, ...] = (), *, of: EntrySummary) -> tuple[EntrySummary, Entry]:
    """The summary of an entry that says this, with its sizes right, and the entry."""
    entry = saved(of.key, content, level=of.level, at=of.updated_at, tags=tags)
    return replace(of, size_bytes=entry.text.size_bytes, block_bytes=block_bytes(entry)), entry


def in_turn(standings: Iterable[EntrySummary]) -> list[EntrySummary]:
    """In the order in which they are shown."""
    return sorted(standings, key=lambda each: each.display_order, reverse=True)


MOMENTS = st.integers(0, 5).map(lambda day: f"2026-11-2{day}T09:00:00.000Z")
CONTENTS = st.text(max_size=60) | st.text("ab<|#\n\r\t \u202e\x1b\x85\u2028é漢", max_size=60)
STANDINGS = st.builds(
    EntrySummary,
    uid=st.just(""),
    key=st.just(""),
    level=st.sampled_from(["L", "INTERNAL"]),
    category=st.sampled_from(["general", "core", "daily"]),
    kind=st.sampled_from(["note", "procedure"]),
    size_bytes=st.integers(0, 30),
    updated_at=MOMENTS,
    expires_at=st.none() | st.sampled_from([PASSED, NOW, COMING]),
    pinned=st.booleans(),
    importance=st.sampled_from([0.0, 0.5, 1.0]),
    confidence=st.sampled_from([0.0, 0.5, 1.0]),
    successes=st.integers(0, 2),
    failures=st.integers(0, 2),
    accesses=st.integers(0, 2),
    accessed_at=st.none() | MOMENTS,
    state=st.sampled_from(["live", "live", "live", "deleted", "evicted"]),
    ordinal=st.integers(0, 2),
)
