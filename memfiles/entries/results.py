"""What the operations on entries come back with; ``to_dict`` is the JSON object that tools and the CLI show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memfiles.records.entry import Entry, Kind
from memfiles.records.graphemes import first_bytes


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not read: the place, as ``file``, ``file:line`` or ``file:line:column``, and the reason."""

    where: str
    why: str


SHOWN_BYTES = 2000
"""How much of a content a search result shows, in UTF-8 bytes; ``get`` returns all of it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """An accepted save, update or restore. ``evicted`` are the keys that went to keep a budget.

    ``replayed``: nothing was written, because this very call had been accepted before.
    """

    key: str
    level: str
    revision: int
    size_bytes: int
    evicted: tuple[str, ...] = ()
    replayed: bool = False
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; what does not apply is left out."""
        shown: dict[str, Any] = {
            "saved": True,
            "key": self.key,
            "level": self.level,
            "revision": self.revision,
            "evicted": list(self.evicted),
        }
        if self.replayed:
            shown["replayed"] = True
        if self.warnings:
            shown["warnings"] = list(self.warnings)
        return shown


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as the session sees it; times are UTC, sizes UTF-8 bytes."""

    key: str
    content: str
    level: str
    tags: tuple[str, ...]
    category: str
    kind: Kind
    confidence: float
    importance: float
    pinned: bool
    links: tuple[str, ...]
    created_at: str
    updated_at: str
    expires_at: str | None
    revision: int
    successes: int
    failures: int
    size_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The whole entry as a JSON object."""
        return {
            "found": True,
            "key": self.key,
            "content": self.content,
            "level": self.level,
            "tags": list(self.tags),
            "category": self.category,
            "kind": self.kind,
            "confidence": self.confidence,
            "importance": self.importance,
            "pinned": self.pinned,
            "links": list(self.links),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "revision": self.revision,
            "successes": self.successes,
            "failures": self.failures,
            "size_bytes": self.size_bytes,
        }

    def to_line(self) -> dict[str, Any]:
        """What a list says of it: everything but the content and what is rarely asked for."""
        return {
            "key": self.key,
            "level": self.level,
            "tags": list(self.tags),
            "category": self.category,
            "kind": self.kind,
            "size_bytes": self.size_bytes,
            "updated_at": self.updated_at,
            "pinned": self.pinned,
        }


def not_found(key: str) -> dict[str, Any]:
    """The JSON object for a key under which the session sees nothing, hidden or not."""
    return {"found": False, "key": key}


@dataclass(frozen=True, slots=True)
class Match:
    """One search result: ``score`` is higher for a better one, ``legs`` say what found it."""

    found: Found
    score: float
    legs: tuple[str, ...]
    snippet: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON object, the content bounded."""
        content = shortened(self.found.content)
        shown = {
            "key": self.found.key,
            "content": content,
            "level": self.found.level,
            "tags": list(self.found.tags),
            "score": round(self.score, 6),
            "legs": list(self.legs),
            "snippet": self.snippet,
            "category": self.found.category,
            "kind": self.found.kind,
            "updated_at": self.found.updated_at,
        }
        return shown if content == self.found.content else shown | {"truncated": True}


@dataclass(frozen=True, slots=True)
class Results:
    """What a search found, best first. ``meaning``: whether the semantic leg took part."""

    query: str
    matches: tuple[Match, ...]
    meaning: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {"results": [match.to_dict() for match in self.matches], "query": self.query, "meaning": self.meaning}


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, by key; ``next`` is the cursor of the following part, None at the end."""

    memories: tuple[Found, ...]
    next: str | None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object without contents."""
        return {"memories": [found.to_line() for found in self.memories], "next": self.next}


@dataclass(frozen=True, slots=True)
class Deleted:
    """An entry that is hidden now, and can be restored."""

    key: str
    level: str
    revision: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {"deleted": True, "key": self.key, "level": self.level, "revision": self.revision}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a forget took, or would take (``dry_run``); the keys are told once, here, and kept nowhere.

    ``held_by`` are the keys of entries that stay and say the same: what a forgotten note was made of, and what others
    gave way to when they said the same.
    """

    count: int
    keys: tuple[str, ...]
    dry_run: bool = False
    held_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        shown = {"forgotten": self.count, "keys": list(self.keys), "dry_run": self.dry_run}
        return shown | ({"held_by": list(self.held_by)} if self.held_by else {})


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; ``stale`` are files of an earlier one whose entries are gone."""

    count: int
    target: str
    stale: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {"exported": self.count, "target": self.target, "stale": list(self.stale)}


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do (``dry_run``), and what it left out and why."""

    added: int
    updated: int
    unchanged: int
    skipped: tuple[Skipped, ...]
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "added": self.added,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "skipped": [{"where": each.where, "why": each.why} for each in self.skipped],
            "dry_run": self.dry_run,
        }


def found_in(entry: Entry) -> Found:
    """What a session that may see the entry is told of it; made once for each version, and kept with it."""
    known: Found | None = vars(entry).get("found")
    if known is None:
        known = vars(entry)["found"] = _found_in(entry)
    return known


def _found_in(entry: Entry) -> Found:
    return Found(
        key=entry.key,
        content=entry.content,
        level=entry.level,
        tags=entry.tags,
        category=entry.category,
        kind=entry.kind,
        confidence=entry.confidence,
        importance=entry.importance,
        pinned=entry.pinned,
        links=entry.links,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
        expires_at=entry.expires_at,
        revision=entry.revision,
        successes=entry.successes,
        failures=entry.failures,
        size_bytes=entry.size_bytes,
    )


def shortened(text: str, *, limit: int = SHOWN_BYTES) -> str:
    """``text``, or its first ``limit`` UTF-8 bytes at most, cut between whole characters."""
    return first_bytes(text, limit)
