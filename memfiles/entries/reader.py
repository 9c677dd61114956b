"""Reading entries: by key, by page, by search; always what is on disk now, and only what the session may see.

The rule this file guards: visibility, shadowing, filter, rank, limit, in this order; and nothing is returned out of the
index alone, but read from its record, so that what an index says too late is never shown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from memfiles.entries.drafts import check_category, check_switch, checked_tags, listed
from memfiles.entries.partitions import Caller, View, view_of
from memfiles.entries.repository import EntryRepository, entry_at
from memfiles.entries.results import Found, Match, Page, Results, found_in
from memfiles.errors import InvalidArgument
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.index.queries import Filters
from memfiles.index.rows import Row
from memfiles.index.search import search as ranking
from memfiles.index.search.embedder import Embedder, EmbedderUnavailable, GuardedEmbedder, QueryEmbedder
from memfiles.index.search.vectors import fill_index
from memfiles.records.entry import KINDS, Entry
from memfiles.records.keys import check_key, check_whole
from memfiles.records.levels import Levels

MAX_RESULTS = 50
MAX_PAGE = 100
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class _Search:
    """What is asked for, and of what."""

    view: View
    query: str
    max_results: int
    filters: Filters
    associate: bool


class EntryReader:
    """The reads of one open memory. Threads may share it."""

    def __init__(
        self,
        shelf: EntryRepository,
        index: Index,
        *,
        levels: Levels,
        now: Callable[[], str],
        embedder: Embedder | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """``now`` says which entries have expired; without ``embedder`` a search goes by words alone.

        ``begin`` is called once, when the index is up to date for the first time.
        """
        self._shelf = shelf
        self._index = index
        self._levels = levels
        self._now = now
        self._embedder = GuardedEmbedder(embedder) if embedder is not None else None
        self._begin = begin
        self._has_begun = False

    def get(self, caller: Caller, key: str) -> Found | None:
        """The entry that the caller sees under ``key``, None if there is none, hidden or not."""
        entry = self.visible(view_of(caller, self._levels), check_key(key))
        if entry is None:
            return None
        self._index.touch(entry.path, at=self._now())
        return found_in(entry)

    def visible(self, view: View, key: str) -> Entry | None:
        """The entry of that key which shadows the others of the view."""
        for partition in view:
            entry = entry_at(self._shelf, partition.path(key))
            if entry is not None and self.is_there(entry):
                return entry
        return None

    def search(
        self, caller: Caller, query: str, *, max_results: int = 10, filters: Filters, associate: bool = True
    ) -> Results:
        """What the caller sees that answers ``query`` best; no text of a query raises.

        ``InvalidArgument`` if ``max_results`` is not 1 to 50, or a filter cannot be one.
        """
        query = checked_query(query)
        check_whole(max_results, what="max_results", least=1, most=MAX_RESULTS)
        check_switch(associate, what="associate")
        asked = _Search(view_of(caller, self._levels), query, max_results, filters, associate)
        for _ in range(_ROUNDS):
            self.refresh()
            question = self._question(asked)
            try:
                hits = self._hits(asked, question)
            except EmbedderUnavailable:  # something came meanwhile that cannot be embedded
                question = None
                hits = self._hits(asked, question)
            matches = [self._match(hit) for hit in hits]
            if all(matches):
                break
        now = self._now()
        for match, hit in zip(matches, hits, strict=True):
            if match is not None:
                self._index.touch(hit.path, at=now)
        found = tuple(match for match in matches if match is not None)
        return Results(query, found, meaning=question is not None)

    def page(self, caller: Caller, *, filters: Filters, limit: int = 50, cursor: str | None = None) -> Page:
        """What the caller sees, by key, ``limit`` at a time; ``cursor`` is the ``next`` of the page before."""
        check_whole(limit, what="limit", least=1, most=MAX_PAGE)
        after = check_key(cursor) if cursor else ""
        view, now = view_of(caller, self._levels), self._now()
        found: list[Found] = []
        while len(found) <= limit:
            self.refresh()
            rows = self._rows(view, filters=filters, now=now, after=after, limit=limit + 1 - len(found))
            if not rows:
                break
            after = rows[-1].key
            found += (found_in(entry) for row in rows if (entry := self._read(row.path, row.revision)) is not None)
        is_more = len(found) > limit
        return Page(tuple(found[:limit]), found[limit - 1].key if is_more else None)

    def refresh(self) -> None:
        """Have the index up to date: with every change that anyone made, and once with every file there is.

        What killed writers left beside their records is found then, and removed.
        """
        if self._index.verify(once=True):
            self._shelf.sweep()
        self._index.catch_up()
        if not self._has_begun:
            self._has_begun = True
            self._begin()

    def begin_again(self) -> None:
        """Call ``begin`` once more before the next read."""
        self._has_begun = False

    def _let_expire(self, view: View) -> None:
        """Have what has expired in the view count in no search."""
        now = self._now()
        if self._index.ask(
            lambda connection: reading.has_expired_texts(connection, reading.parts(connection, view), now=now)
        ):
            self._index.change(
                lambda connection: reading.remove_expired_texts(connection, reading.parts(connection, view), now=now),
                durable=False,
            )

    def _question(self, asked: _Search) -> QueryEmbedder | None:
        """The question for the leg of meaning, with vectors of all that the view holds; None without that leg."""
        if self._embedder is None:
            return None
        self._let_expire(asked.view)
        try:
            fill_index(self._index, asked.view, self._embedder)
            return QueryEmbedder(self._embedder, asked.query)
        except EmbedderUnavailable:
            return None

    def _hits(self, asked: _Search, question: QueryEmbedder | None) -> list[ranking.Hit]:
        hits = self._index.ask(partial(self._hits_or_none, asked, question))
        if hits is None:
            self._let_expire(asked.view)
            hits = self._index.ask(partial(self._hits_or_none, asked, question, may_be_due=False))
        return hits or []

    def _hits_or_none(
        self, asked: _Search, question: QueryEmbedder | None, connection: sqlite3.Connection, *, may_be_due: bool = True
    ) -> list[ranking.Hit] | None:
        """What is found; None if something expired that would count in it."""
        parts, now = reading.parts(connection, asked.view), self._now()
        if may_be_due and reading.has_expired_texts(connection, parts, now=now):
            return None

        def keep(ids: Sequence[int]) -> Collection[int]:
            return reading.visible(connection, parts, ids, now=now, filters=asked.filters)

        return ranking.search(
            connection,
            parts,
            asked.query,
            keep=None if reading.is_all_visible(connection, parts, filters=asked.filters) else keep,
            limit=asked.max_results,
            associate=asked.associate,
            embedder=question,
            shadowed=reading.shadowed(connection, parts, now=now),
        )

    def _rows(self, view: View, *, filters: Filters, now: str, after: str, limit: int) -> Sequence[Row]:
        return self._index.ask(
            lambda connection: reading.page(
                connection, reading.parts(connection, view), now=now, filters=filters, after=after, limit=limit
            )
        )

    def _match(self, hit: ranking.Hit) -> Match | None:
        entry = self._read(hit.path, hit.revision)
        return Match(found_in(entry), hit.score, hit.legs, hit.snippet) if entry is not None else None

    def _read(self, path: str, revision: int) -> Entry | None:
        """The entry there, if it is still as the index says; else the index looks at it before the next question."""
        entry = entry_at(self._shelf, path)
        if entry is not None and self.is_there(entry) and entry.revision == revision:
            return entry
        self._shelf.suspect(path)
        return None

    def is_there(self, entry: Entry) -> bool:
        """Whether it may be returned: neither retired nor expired."""
        return entry.retired is None and (entry.expires_at is None or not entry.is_expired(self._now()))


def checked_query(query: object) -> str:
    """The query as text; anything but text is an ``InvalidArgument``."""
    if not isinstance(query, str):
        raise InvalidArgument(f"the query must be text, not {type(query).__name__}")
    return query.encode(errors="replace").decode()


def checked_filters(
    *, tags: object, category: object, kind: object, prefix: object = None, among: object = None
) -> Filters:
    """What was asked for as filters; ``InvalidArgument`` for what no entry could ever have."""
    if kind is not None and kind not in KINDS:
        raise InvalidArgument(f"kind {str(kind)[:40]!r} is not known: use one of {', '.join(KINDS)}")
    said = None if kind is None else str(kind)
    named = None if category is None else check_category(category)
    keys = None if among is None else tuple(check_key(key) for key in listed(among, "among"))
    return Filters(checked_tags(tags), named, said, _text(prefix, "prefix") or "", keys)


def _text(said: object, what: str) -> str | None:
    if said is None:
        return None
    if not isinstance(said, str):
        raise InvalidArgument(f"{what} must be text")
    return said.encode(errors="replace").decode()
