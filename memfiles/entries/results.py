"""Questions and results of reads: filters, lists that a cursor continues, and entries as a session gets them.

The rule this file guards: a cursor says which list it continues, and where. One of another order, of other filters or
of no list is refused, as it would leave entries out silently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

from pydantic_core import to_json

from memfiles.entries.drafts import check_category, check_kind, checked_tags
from memfiles.errors import InvalidArgument
from memfiles.index.queries import Filters, PagePlace
from memfiles.index.text.tokenizer import MAX_QUERY
from memfiles.records.entry import Entry, Kind, Provenance
from memfiles.records.graphemes import first_bytes
from memfiles.records.keys import check_key, listed
from memfiles.records.record import TIMESTAMP_PATTERN
from memfiles.workflow.fields import moment_in

SHOWN_BYTES = 2000
"""The most content that a search result shows, in UTF-8 bytes; ``get`` returns all of it."""

ORDERS: Final = ("key", "updated")
_DIGEST_LENGTH = 8
_MOMENT = TIMESTAMP_PATTERN[1:-1]
_CURSOR = re.compile(
    rf"(?P<order>key|updated),(?P<digest>[0-9a-f]{{{_DIGEST_LENGTH}}}),(?P<since>{_MOMENT})?,"
    rf"((?P<at>{_MOMENT}),(?P<ordinal>[0-9]{{1,18}}|[0-8][0-9]{{18}}),)?(?P<key>.+)",
    re.ASCII,
)
_chosen = attrgetter("tags", "tags_any", "kinds", "category", "kind", "prefix")


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as the session sees it; times are UTC, sizes UTF-8 bytes; ``id`` stays when it gets another key.

    ``provenance`` says where its content comes from.
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

    def to_dict(self) -> dict[str, Any]:
        """The whole entry as a JSON object."""
        return {"found": True, **_shown(self, _FOUND_FIELDS)}

    def to_line(self) -> dict[str, Any]:
        """The JSON object in a list: without the content and the rarer fields."""
        return _shown(self, _LINE_FIELDS)


_FOUND_FIELDS = tuple(each.name for each in fields(Found))
_MATCH_FIELDS = ("key", "content", "level", "tags", "id", "provenance")
_LINE_FIELDS = ("key", "level", "tags", "category", "kind", "size_bytes", "updated_at", "pinned", "id", "provenance")
_found_values = attrgetter(*(f"visible_{name}" if name == "provenance" else name for name in _FOUND_FIELDS))


@dataclass(frozen=True, slots=True)
class Match:
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


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a search, best first. ``meaning``: whether the semantic leg took part.

    With ``budget_bytes`` they are those that fit, each followed by its neighbours.
    """

    query: str
    matches: tuple[Match, ...]
    meaning: bool = False
    budget_bytes: int | None = None

    @property
    def note(self) -> str | None:
        """What was not searched for; None if all of the query was."""
        if len(self.query) <= MAX_QUERY:
            return None
        return (
            f"the query has {len(self.query)} characters; only its first and last {MAX_QUERY // 2} were searched for: "
            f"ask a shorter question"
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; a query of which not all was searched for is cut, and under a budget any long one."""
        results = [match.to_dict() for match in self.matches]
        query = self.query if self.budget_bytes is None else first_bytes(self.query, self.budget_bytes // 16)
        shown = {"results": results, "query": query, "meaning": self.meaning}
        if (note := self.note) is not None:
            shown |= {"query": first_bytes(query, SHOWN_BYTES), "note": note}
        return shown


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; ``next`` is the cursor of the following part, None at the end."""

    memories: tuple[Found, ...]
    next: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without contents."""
        return {"memories": [found.to_line() for found in self.memories], "next": self.next}


def found_in(entry: Entry) -> Found:
    """The entry as a session that may see it gets it; made once for each version, and kept with it."""
    known: Found | None = vars(entry).get("found")
    if known is None:
        known = vars(entry)["found"] = Found(*_found_values(entry))
    return known


def _shown(found: Found, names: Sequence[str]) -> dict[str, Any]:
    shown = {name: list(value) if isinstance(value := getattr(found, name), tuple) else value for name in names}
    if "provenance" in shown:
        shown["provenance"] = found.provenance.shown
    return shown


@dataclass(frozen=True, slots=True)
class Listing:
    """A question for a list: its filters and order, and the place after which it goes on; see ``listing``.

    ``digest`` stands for the filters as they were given.
    """

    filters: Filters
    order: str
    digest: str
    after: PagePlace | None = None

    def cursor_after(self, found: Found) -> str:
        """The cursor that continues this list after an entry; it carries the moment of ``since``."""
        place = [found.key] if self.order == "key" else [found.updated_at, str(found.provenance.ordinal), found.key]
        return ",".join((self.order, self.digest, self.filters.since, *place))

    def continued(self, cursor: object) -> Listing:
        """This list after the place of a cursor; ``InvalidArgument`` if it is of another list, or of none."""
        found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
        if found is None or (found["order"] == "key") != (found["at"] is None):
            raise InvalidArgument("this is not a cursor of a list: pass the next of the last page as it is, or none")
        if found["order"] != self.order:
            raise InvalidArgument(f"this cursor is of a list by {found['order']}: pass the same order, or no cursor")
        if found["digest"] != self.digest or (found["since"] is None) != (not self.filters.since):
            raise InvalidArgument("this cursor is of a list with other filters: pass the same filters, or no cursor")
        after = PagePlace(check_key(found["key"]), found["at"] or "", int(found["ordinal"] or 0))
        return replace(self, filters=replace(self.filters, since=found["since"] or ""), after=after)


def listing(*, order: object, since: object, cursor: object, now: str, **given: object) -> Listing:
    """The question of a list; ``InvalidArgument`` for a wrong filter, order or cursor.

    A span such as ``24h`` counts from the first page: the cursor carries its moment to the others.
    """
    if order not in ORDERS:
        raise InvalidArgument(f"order must be one of {', '.join(ORDERS)}, not {ascii(order)[:40]}")
    filters = checked_filters(**given)
    shown = [sorted(each) if isinstance(each, tuple) else each for each in _chosen(filters)]
    digest = hashlib.sha256(to_json([*shown, None if since is None else ascii(since)])).hexdigest()[:_DIGEST_LENGTH]
    moment = "" if since is None else moment_in(since, what="since", now=now)
    asked = Listing(replace(filters, since=moment), str(order), digest)
    return asked if cursor in (None, "") else asked.continued(cursor)


def checked_filters(
    *,
    tags: object = (),
    category: object = None,
    kind: object = None,
    prefix: object = None,
    among: object = None,
    tags_any: object = (),
    kinds: object = (),
) -> Filters:
    """The filters of a read; ``InvalidArgument`` for values that no entry can have."""
    wanted = None if kind is None else check_kind(kind)
    named = None if category is None else check_category(category)
    keys = None if among is None else tuple(check_key(key) for key in listed(among, "among"))
    all_of, any_of = (() if each == () else checked_tags(each) for each in (tags, tags_any))
    one_of = tuple(check_kind(each) for each in listed(kinds, "kinds"))
    start = "" if prefix is None else as_text(prefix, "prefix")
    return Filters(all_of, named, wanted, start, keys, tags_any=any_of, kinds=one_of)


def as_text(value: object, what: str) -> str:
    """The text, halves of surrogate pairs replaced; ``InvalidArgument`` for anything else."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be text")
    return value.encode(errors="replace").decode()
