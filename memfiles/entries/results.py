"""Results of reads: entries as a session gets them, and their JSON objects for tools and programs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from memfiles.index.text.tokenizer import MAX_QUERY
from memfiles.records.entry import Entry, Kind, Provenance
from memfiles.records.graphemes import first_bytes

SHOWN_BYTES = 2000
"""The most content that a search result shows, in UTF-8 bytes; ``get`` returns all of it."""


class Found(Struct, frozen=True):
    """An entry as the session sees it; times are UTC, sizes UTF-8 bytes; ``id`` stays when it gets another key.

    ``provenance`` says where its content comes from, and ``said_at`` when it was said, if not when it was saved.
    """

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
    id: str
    provenance: Provenance
    said_at: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The whole entry as a JSON object."""
        return {"found": True, **_shown(self, _FOUND_FIELDS)}

    def to_line(self) -> dict[str, Any]:
        """The JSON object in a list: without the content and the rarer fields."""
        return _shown(self, _LINE_FIELDS)


_FOUND_FIELDS = Found.__struct_fields__
_MATCH_FIELDS = ("key", "content", "level", "tags", "id", "provenance")
_LINE_FIELDS = ("key", "level", "tags", "category", "kind", "size_bytes", "updated_at", "pinned", "id", "provenance")
_found_values = attrgetter(*(f"visible_{name}" if name == "provenance" else name for name in _FOUND_FIELDS))


class Match(Struct, frozen=True):
    """One search result: ``score`` is higher for a better one, ``legs`` say what found it.

    ``shown`` is the part of the content that a budget left room for; None in a search without a budget.
    """

    found: Found
    score: float
    legs: tuple[str, ...]
    snippet: str
    shown: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, with the content cut to ``SHOWN_BYTES``; under a budget without the snippet."""
        content = self.found.content if self.shown is None else self.shown
        if self.shown is None and self.found.size_bytes > SHOWN_BYTES:
            content = first_bytes(content, SHOWN_BYTES)
        found: dict[str, Any] = {"score": round(self.score, 6), "legs": list(self.legs)}
        found |= {"snippet": self.snippet} if self.shown is None else {}
        shown = _shown(self.found, _MATCH_FIELDS) | {"content": content} | found
        shown |= _shown(self.found, ("category", "kind", "updated_at"))
        return shown if content == self.found.content else shown | {"truncated": True}


class Results(Struct, frozen=True):
    """The results of a search, best first. ``meaning``: whether the semantic leg took part.

    ``why_no_meaning``: why it did not, if it should have; ``note`` says so.
    With ``budget_bytes`` they are the ones that fit, each followed by its neighbours.
    """

    query: str
    matches: tuple[Match, ...]
    meaning: bool = False
    budget_bytes: int | None = None
    why_no_meaning: str | None = None

    @property
    def note(self) -> str | None:
        """A note on what the search left out; None if it left out nothing."""
        notes = []
        if len(self.query) > MAX_QUERY:
            ends = f"only its first and last {MAX_QUERY // 2} were searched for: ask a shorter question"
            notes.append(f"the query has {len(self.query)} characters; {ends}")
        if self.why_no_meaning is not None:
            notes.append(f"only words were searched for, not their meaning: {self.why_no_meaning}")
        return "; ".join(notes) or None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; a query of which not all was searched for is cut, and under a budget any long one."""
        results = [match.to_dict() for match in self.matches]
        query = self.query if self.budget_bytes is None else first_bytes(self.query, self.budget_bytes // 16)
        if len(self.query) > MAX_QUERY:
            query = first_bytes(query, SHOWN_BYTES)
        shown = {"results": results, "query": query, "meaning": self.meaning}
        return shown if (note := self.note) is None else shown | {"note": note}


class Page(Struct, frozen=True):
    """A part of a list; ``next`` is the cursor of the following part, None at the end."""

    memories: tuple[Found, ...]
    next: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without contents."""
        return {"memories": [found.to_line() for found in self.memories], "next": self.next}


class Forgotten(Struct, frozen=True):
    """The entries that a forget took, or would take (``dry_run``); the keys are reported here alone, and kept nowhere.

    ``held_by`` are the keys of entries that stay and hold the same content: the sources of a forgotten note, and
    entries that took the place of a forgotten duplicate.
    """

    count: int
    keys: tuple[str, ...]
    dry_run: bool = False
    held_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        shown = {"forgotten": self.count, "keys": list(self.keys), "dry_run": self.dry_run}
        return shown | ({"held_by": list(self.held_by)} if self.held_by else {})


def found_in(entry: Entry) -> Found:
    """The entry as a session that may see it gets it; made once for each version, and kept with it."""
    known: Found | None = vars(entry).get("found")
    if known is None:
        known = vars(entry)["found"] = Found(*_found_values(entry))
    return known


def _shown(found: Found, names: Sequence[str]) -> dict[str, Any]:
    shown = {name: list(value) if isinstance(value := getattr(found, name), tuple) else value for name in names}
    if not shown.get("said_at", True):
        del shown["said_at"]
    if "provenance" in shown:
        shown["provenance"] = found.provenance.shown
    return shown
