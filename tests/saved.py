"""Entries for the tests to start from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from records import SEEDED_AT

from memfiles.entry import Entry, Provenance, Tombstone, new_text
from memfiles.history import extend
from memfiles.record import Actor, Change, with_content


def saved(
    key: str = "color", content: str = "blue", *, agent: str = "support", at: str = SEEDED_AT, **said: Any
) -> Entry:
    """An entry as its first save leaves it; ``level``, ``run`` and the facets by their names."""
    level, run = said.pop("level", "INTERNAL"), said.pop("run", "")
    text = new_text(agent, key, level=level, run=run, content=content, at=at)
    change = Change(revision=1, at=at, op="save", by=Actor(agent=agent), bytes=text.size_bytes, offset=0)
    return Entry(extend(text, change), agent, key, run=run, **{"provenance": Provenance(agent=agent), **said})


def resaved(entry: Entry, content: str, *, at: str) -> Entry:
    """The entry with another content, as a later save leaves it."""
    before = entry.text
    change = Change(
        revision=before.revision + 1, at=at, op="save", bytes=len(content.encode()), offset=0, old=before.content
    )
    return replace(entry, text=extend(with_content(before, content), change))


def buried(entry: Entry, *, id: str = "0123456789ab", at: str = SEEDED_AT, why: str = "asked to") -> Tombstone:
    """What remains of the entry when it was forgotten."""
    return Tombstone(
        entry.uid,
        entry.agent,
        entry.level,
        id,
        entry.revision + 1,
        at,
        Actor(agent=entry.agent),
        why,
        entry.run,
        entry.forgotten,
    )
