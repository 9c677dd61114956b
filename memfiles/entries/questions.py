"""Questions: the filters of a read or a forget, the lists that a cursor continues, and the answers of a search.

The rule this file guards: a cursor says which list it continues, and where. One of another order, of other filters or
of no list is refused, as it would leave entries out silently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from memfiles.entries.budgets import EntrySummary
from memfiles.entries.callers import View, is_seen
from memfiles.entries.drafts import check_category, check_kind, checked_tags
from memfiles.entries.results import Found, Match, Results
from memfiles.errors import InvalidArgument
from memfiles.index.queries import Filters, PagePlace
from memfiles.index.rows import Row
from memfiles.index.search.search import Hit
from memfiles.records import to_json
from memfiles.records.entry import Entry, Provenance
from memfiles.records.keys import ENTRY_ID_PATTERN, ENTRY_UID_PATTERN, USERS, check_key, entry_place, listed
from memfiles.records.record import TIMESTAMP_PATTERN, check_text
from memfiles.workflow.fields import moment_in

ORDERS: Final = ("key", "updated")
_DIGEST_LENGTH = 8
_PROVENANCE_FIELDS = tuple(name for name in Provenance.__struct_fields__ if name != "ordinal")
_MOMENT = TIMESTAMP_PATTERN[1:-1]
_CURSOR = re.compile(
    rf"(?P<order>key|updated),(?P<digest>[0-9a-f]{{{_DIGEST_LENGTH}}}),(?P<since>{_MOMENT})?,"
    rf"((?P<at>{_MOMENT}),(?P<ordinal>[0-9]{{1,18}}|[0-8][0-9]{{18}}),)?(?P<key>.+)",
    re.ASCII,
)
_OF_ROW = tuple(it for it in Found.__struct_fields__ if it in Row._fields and it not in ("content", "provenance"))
_summarised = attrgetter(  # in the order of an ``EntrySummary``
    *("key", "level", "category", "kind", "size", "updated_at", "expires_at", "pinned"),
    *("importance", "confidence", "successes", "failures"),
)
_chosen = attrgetter("tags", "tags_any", "kinds", "category", "kind", "prefix")


class Answers(Struct):
    """The answers of a search: its ``hits``, best first; the record of each is read on demand.

    ``meaning``: whether the semantic leg took part; ``why_no_meaning``: why it did not, if it should have.
    ``are_late``: a record had changed before it was read.
    """

    query: str
    hits: Sequence[Hit]
    meaning: bool
    why_no_meaning: str | None
    read: Callable[[Hit], Found | None]
    are_late: bool = False

    def entry(self, hit: Hit) -> Found | None:
        """The entry of a hit; None if it has changed since the search."""
        entry = self.read(hit)
        self.are_late |= entry is None
        return entry

    def found(self) -> list[tuple[Found, Hit]]:
        """The entries of all hits, best first."""
        return [(entry, hit) for hit in self.hits if (entry := self.entry(hit)) is not None]

    def results(self, found: Sequence[tuple[Found, Hit]]) -> Results:
        """The results as a session gets them."""
        matches = (Match(entry, hit.score, hit.legs, hit.snippet) for entry, hit in found)
        return Results(self.query, tuple(matches), meaning=self.meaning, why_no_meaning=self.why_no_meaning)


class Selector(Struct, frozen=True):
    """The entries to forget: they match every field that is given."""

    key: str | None = None
    uid: str | None = None
    id: str | None = None
    tag: str | None = None
    kind: str | None = None
    category: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse an empty selector, and values that no entry can have."""
        if not any(getattr(self, name) for name in self.__struct_fields__):
            raise InvalidArgument("select what to forget: give a key, id, uid, tag, kind, category or provenance")
        if self.key is not None:
            check_key(self.key)
        if self.uid is not None and not (isinstance(self.uid, str) and re.fullmatch(ENTRY_UID_PATTERN[1:-1], self.uid)):
            raise InvalidArgument("uid must be that of an entry: 40 hexadecimal digits")
        if self.id is not None and not (isinstance(self.id, str) and re.fullmatch(ENTRY_ID_PATTERN[1:-1], self.id)):
            raise InvalidArgument("id must be that of an entry: 32 hexadecimal digits, 40 in earlier records")
        if self.tag is not None:
            checked_tags([self.tag])
        if self.kind is not None:
            check_kind(self.kind)
        if self.category is not None:
            check_category(self.category)
        if not isinstance(self.provenance, Mapping):
            raise InvalidArgument("provenance must be an object such as {'run': 'evt-1'}")
        for name, value in self.provenance.items():
            if name not in _PROVENANCE_FIELDS:
                known = ", ".join(_PROVENANCE_FIELDS)
                raise InvalidArgument(f"provenance has no {str(name)[:40]!r}: use one of {known}")
            if not isinstance(value, str) or not value:
                raise InvalidArgument(f"provenance {name} must be text that is not empty")
            check_text(value)

    @property
    def filters(self) -> Filters:
        """The filters for the index, which knows most fields: all that match are found, and perhaps others."""
        keys, tags = (None if self.key is None else (self.key,)), (() if self.tag is None else (self.tag,))
        return Filters(tags, kind=self.kind, keys=keys, provenance=dict(self.provenance), id=self.id)

    def matches(self, entry: Entry) -> bool:
        """Whether the entry matches."""
        wanted = ((name, getattr(self, name)) for name in ("key", "uid", "kind", "category"))
        known = entry.visible_provenance.to_dict()
        return (
            all(value is None or value == getattr(entry, name) for name, value in wanted)
            and (self.id is None or self.id in entry.ids)
            and (self.tag is None or self.tag in entry.tags)
            and all(known.get(name) == value for name, value in self.provenance.items())
        )


class Targets(Struct, frozen=True):
    """The entries to bury: those selected in the view, wherever their ids are, and the notes made of them.

    ``ids`` and ``episodes`` (keys) are the sources by which notes are known. Ids also select what a caller cannot see.
    """

    ids: frozenset[str]
    episodes: tuple[str, ...] = ()
    selector: Selector | None = None
    view: View = ()

    def include(self, entry: Entry) -> bool:
        """Whether the entry is one of them; asked again under its lock, as it may have changed."""
        from memfiles.entries.consolidation.plan import is_made_of  # late: only a forget needs it

        is_there = is_seen(self.view, entry)
        is_selected = is_there and self.selector is not None and self.selector.matches(entry)
        is_known = not self.ids.isdisjoint(entry.mortal_ids)
        return is_selected or is_known or is_made_of(entry, ids=self.ids, keys=self.episodes if is_there else ())


def targets_of(selector: Selector, entries: Sequence[Entry], *, view: View) -> Targets:
    """The entries to bury: these, and those that the selector matches or that were made of them."""
    ids = frozenset(id for entry in entries for id in entry.names)
    return Targets(ids, tuple(entry.key for entry in entries if entry.kind == "episode"), selector, view)


class Listing(Struct, frozen=True):
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
    filters = checked_filters(**given, since=since, now=now)
    shown = [sorted(each) if isinstance(each, tuple) else each for each in _chosen(filters)]
    digest = hashlib.sha256(to_json([*shown, None if since is None else ascii(since)])).hexdigest()[:_DIGEST_LENGTH]
    asked = Listing(filters, str(order), digest)
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
    since: object = None,
    now: str = "",
) -> Filters:
    """The filters of a read; ``InvalidArgument`` for values that no entry can have."""
    wanted = None if kind is None else check_kind(kind)
    named = None if category is None else check_category(category)
    keys = None if among is None else tuple(check_key(key) for key in listed(among, "among"))
    all_of, any_of = (() if each == () else checked_tags(each) for each in (tags, tags_any))
    one_of = tuple(check_kind(each) for each in listed(kinds, "kinds"))
    start = "" if prefix is None else as_text(prefix, "prefix")
    moment = "" if since is None else moment_in(since, what="since", now=now)
    return Filters(all_of, named, wanted, start, keys, tags_any=any_of, kinds=one_of, since=moment)


def as_text(value: object, what: str) -> str:
    """The text, halves of surrogate pairs replaced; ``InvalidArgument`` for anything else."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be text")
    return value.encode(errors="replace").decode()


def found_by(hit: Hit) -> Found:
    """The entry of a hit, from its row and its text."""
    row = hit.row
    found = {name: getattr(row, name) for name in _OF_ROW}
    provenance = row.provenance if f"/{USERS}/" in row.scope else row.provenance.told_to_others
    found |= {"size_bytes": row.size, "content": hit.content, "id": hit.source.entry_id, "provenance": provenance}
    return Found(**found, said_at="" if hit.source.said == row.updated_at else hit.source.said)


def summary_of(row: Row, *, reads: tuple[int, str | None] = (0, None)) -> EntrySummary:
    """The summary of an entry's row; ``reads`` is how often it was read, and when last."""
    place = entry_place(row.path)
    values = [place[1] if place else "", *_summarised(row), *reads, row.state, row.provenance.ordinal, row.block]
    return EntrySummary(*values)
