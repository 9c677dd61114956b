"""Entry reads: by key, by page and by search, always from the newest record on disk.

The rules this file guards: every read goes visibility, shadowing, filter, rank, limit, in this order; and no result
comes from the index alone. Each is read from its record, so a late index never shows what is gone; a hit only if its
file is not the very one that the index read. Reading twenty records took as long as finding them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import islice
from math import inf
from time import monotonic
from typing import TypeGuard, TypeVar, cast

from msgspec import Struct

from memfiles.entries import decisions
from memfiles.entries.callers import Caller, Partition, View, check_remembered, is_read_counted, view_of
from memfiles.entries.drafts import EntryRules
from memfiles.entries.questions import Answers, Listing, as_text, found_by, listing
from memfiles.entries.results import Found, Page, Results, found_in
from memfiles.errors import EntryNotFound, StorageFailed
from memfiles.index import queries
from memfiles.index.index import Index
from memfiles.index.queries import Filters, PagePlace
from memfiles.index.rows import Row, row_of
from memfiles.index.search import search
from memfiles.index.search.association import RunOrders
from memfiles.index.search.embedder import Embedder, ModelUnavailable, QueryEmbedder
from memfiles.index.search.scope import SearchScope, WordCounts
from memfiles.index.search.search import Hit
from memfiles.index.search.vectors import Meaning
from memfiles.index.text import fts
from memfiles.records import late_logger as _log
from memfiles.records.entry import DEFAULT_RESULTS, MAX_PAGE, MAX_RESULTS, Entry
from memfiles.records.keys import check_key, check_switch, check_whole, id_path
from memfiles.records.marks import EntryRecord, Mark, forgets, is_tombstone, source_paths
from memfiles.storage.atomic import is_of_one_file, is_settled
from memfiles.storage.record_kinds import Observed
from memfiles.storage.record_store import Records, RecordStore, RemoteStore
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import sweep, with_files

NO_FILTERS = Filters()
T = TypeVar("T")
_TOGETHER_MAX, _FILES_AT_ONCE = 1000, 16  # records that are asked for at once, so that they fit in memory
_AGAIN_SECONDS = 300.0  # between two tries to finish or follow a forget, which may wait 30 s for a lock
_ROUNDS = 4  # searches that are repeated because a record changed under them
EntryRepository = RecordRepository[EntryRecord]
EntryAt = Callable[[EntryRepository, str], Entry | None]


class EntryDatabase(Struct):
    """The records and the index of one open memory, with its rules and its clock; all operations share it.

    ``begin`` has forgets finished and followed, and returns whether that succeeded. It is called before the first
    answer and whenever a record was added to those ``unfollowed``; for those ``tried`` in vain, from ``again_at`` on
    (monotonic). ``erase`` erases those of the entries at some paths whose time is over.
    """

    store: RecordStore
    repository: EntryRepository
    index: Index
    rules: EntryRules
    now: Callable[[], str]
    begin: Callable[[], bool]
    erase: Callable[[Sequence[str]], None]
    again_at: float = 0.0
    tried: frozenset[str] = frozenset()

    def refresh(self, view: Sequence[Partition] | None = None) -> None:
        """Bring the index up to date with every change that anyone made.

        And, once, with every file in the folders of ``view``, or on disk, where one may have been edited while nothing
        ran, and killed writers may have left temp files, which are removed.
        """
        if self.index.verify(None if view is None else {partition.folder for partition in view}, once=True):
            sweep(with_files(self.store))
        self.index.catch_up()
        for path in self.repository.unread.keys() - self.index.unread:  # the index tried the others
            shown_at(self.repository, path)  # which notes whether it can be read now
        if self._must_follow():  # also if another thread does so now: nobody finds meanwhile what is to go
            self.again_at = 0.0  # also if an interrupt comes meanwhile
            is_done = self.begin()
            self.tried = frozenset() if is_done else frozenset(self.index.unfollowed)
            self.again_at = inf if is_done else monotonic() + _AGAIN_SECONDS

    def _must_follow(self) -> bool:
        """Whether forgets must be followed before anything is shown."""
        return not self.index.unfollowed <= self.tried or monotonic() >= self.again_at

    def change(
        self,
        paths: Sequence[str],
        decide: Callable[[Mapping[str, EntryRecord | None]], tuple[T, Sequence[EntryRecord]]],
        *,
        caller: Caller,
    ) -> T:
        """Change records as ``RecordRepository.change``; entries that count as erased are erased first, for good.

        ``InvalidArgument`` if the user of the caller was forgotten since.
        """

        def attempt(records: Mapping[str, EntryRecord | None]) -> tuple[T | list[str], Sequence[EntryRecord]]:
            check_remembered(caller, records)
            over = [path for path, it in records.items() if isinstance(it, Entry) and self.erased_at(it) is not None]
            outlived[:] = over
            return (over, ()) if over else decide(records)

        outlived: list[str] = []
        graves = [id_path(epoch)] if (epoch := caller.provenance.epoch) else []
        while True:
            result = self.repository.change([*paths, *graves], attempt)
            if not outlived:
                return cast("T", result)
            self.erase(outlived)

    def entries(self, paths: Iterable[str], *, at: EntryAt | None = None) -> list[Entry]:
        """The entries at these paths, hidden or not, as of ``entry_at``, or ``at`` may be ``shown_at``."""
        found, remaining = list[Entry](), iter(paths)
        while some := list(islice(remaining, _TOGETHER_MAX if isinstance(self.store, RemoteStore) else _FILES_AT_ONCE)):
            with self.repository.together(some):
                found += [entry for path in some if (entry := (at or entry_at)(self.repository, path)) is not None]
        return found

    def visible(self, view: View, key: str) -> Entry | None:
        """The live entry of that key that shadows the others in the view, read without the index.

        Forgets are followed first where one says that the entry is to go, as while that could not be read.
        """
        paths = [partition.path(key) for partition in view]
        for _ in range(2):
            if not self.index.unfollowed.isdisjoint(paths):
                self.refresh(view)
            with self.repository.together(paths):
                found = (entry_at(self.repository, path) for path in paths)
                seen = next((entry for entry in found if entry is not None and self.is_live(entry)), None)
            if seen is None or not (marks := self._tombstones_of(seen)):
                return seen
            self.index.doubt([seen.path, *marks])
            self.index.unfollowed.add(seen.path)
        return None

    def _tombstones_of(self, entry: Entry) -> list[str]:
        """The paths of the tombstones that say that an entry is to go, or cannot be read and may say so of a source.

        A store without files holds none such. One of the entry itself that cannot be read is unknown, as to a search.
        """
        sources, found = source_paths(entry), list[str]()
        for path in (*map(id_path, entry.mortal_ids), *sources) if with_files(self.store) is not None else ():
            try:
                record = self.repository.look(path).record
                is_one = isinstance(record, Mark) and forgets(record, entry)
            except StorageFailed as error:
                if not is_of_one_file(error):
                    raise
                is_one = path in sources
            found += [path] if is_one else []
        return found

    def not_there(self, caller: Caller, key: str) -> EntryNotFound:
        """The error for a key without an entry that the caller may change; it names the level of one that it sees."""
        seen = self.visible(view_of(caller, self.rules.levels), key)
        return decisions.not_there(key, seen_at=seen.level if seen and seen.level != caller.level else None)

    def is_live(self, entry: Entry) -> bool:
        """Whether a read may return it: neither retired nor expired, nor may a forget have to be followed in it."""
        if entry.retired is not None or entry.path in self.index.unfollowed:
            return False
        return entry.expires_at is None or not entry.is_expired(self.now())

    def erased_at(self, record: EntryRecord | None) -> str | None:
        """When the content of a record was erased for its age, or must be by now; None: it may still be used.

        Entries that nobody sees are erased in portions, by whoever comes along. So that no session can tell when that
        was, a content whose time is over counts as erased.
        """
        if not isinstance(record, Entry):
            return record.at if record is not None and record.cleared else None
        at = self.rules.retention.erasure(record)
        return at if at is not None and at <= self.now() else None

    def mark(self, path: str) -> Mark | None:
        """The mark at a path, if there is one."""
        record = observed(self.repository, path).record
        return record if isinstance(record, Mark) else None

    def is_forgotten(self, id: str) -> bool:
        """Whether the entry with this id was forgotten, as far as is known here."""
        return is_tombstone(self.mark(id_path(id)))

    def is_left_by_forget(self, record: EntryRecord | None) -> TypeGuard[Mark]:
        """Whether it is what a forget left at the path of a key or an id."""
        return isinstance(record, Mark) and (record.type == "tombstone" or any(map(self.is_forgotten, record.left)))

    def id_paths(self, paths: Iterable[str]) -> list[str]:
        """The paths of the id records of the entries at these paths."""
        return [id_path(id) for entry in self.entries(paths) for id in entry.ids]

    def rows(self, view: Sequence[Partition], *, wanted: Filters | None = None) -> list[Row]:
        """The rows of the view's records that match, hidden or not."""
        return self.index.ask(lambda it: queries.matching(it, queries.parts(it, view), wanted or NO_FILTERS))


class _Search(Struct, frozen=True):
    """A checked search request."""

    view: View
    query: str
    max_results: int
    filters: Filters
    associate: bool
    grouped: bool


class EntryReader:
    """The reads of one open memory. Threads may share it."""

    def __init__(self, db: EntryDatabase, *, embedder: Embedder | None) -> None:
        """Without ``embedder`` a search uses words alone."""
        self._db = db
        self.meaning = Meaning(db.index, embedder, now=db.now)
        self._orders, self._counts = RunOrders(), WordCounts()
        db.index.when_forgotten += (self._counts.forget, self.meaning.shrink)

    def get(self, caller: Caller, key: str) -> Found | None:
        """The entry that the caller sees under ``key``, None if there is none, hidden or not."""
        entry = self._db.visible(view_of(caller, self._db.rules.levels), check_key(key))
        if entry is not None:
            self.count_reads(caller, [(entry.path, entry.level)])
        return None if entry is None else found_in(entry)

    def count_reads(self, caller: Caller, entries: Iterable[tuple[str, str]]) -> None:
        """Count a read of the entries at these paths and levels, all at one time: none is read later than another."""
        now = self._db.now()
        for path, level in entries:
            if is_read_counted(caller, path, level=level):
                self._db.index.touch(path, at=now)

    def search(
        self, caller: Caller, query: str, *, max_results: int | None, filters: Filters, associate: bool
    ) -> Results:
        """The visible entries that answer ``query``, best first; errors as of ``Entries.search``."""
        most, use = DEFAULT_RESULTS if max_results is None else max_results, Answers.found
        answers, found = self.answered(caller, query, use, max_results=most, filters=filters, associate=associate)
        self.count_reads(caller, [(hit.path, entry.level) for entry, hit in found])
        return answers.results(found)

    def answered(
        self,
        caller: Caller,
        query: str,
        use: Callable[[Answers], T],
        *,
        max_results: int,
        filters: Filters = NO_FILTERS,
        associate: bool = True,
        grouped: bool = False,
    ) -> tuple[Answers, T]:
        """The answers of a ``search``, and what is made of them; reads are not counted.

        ``use`` is called again if a record changed under the search. For ``grouped`` see ``search.arranged``.
        """
        query = as_text(query, "the query")
        check_whole(max_results, what="max_results", least=1, most=MAX_RESULTS)
        check_switch(associate, what="associate")
        view = view_of(caller, self._db.rules.levels)
        asked = _Search(view, query, max_results, filters, associate, grouped)
        for _ in range(_ROUNDS):
            self._db.refresh(asked.view)
            hits, question, why = self._found(asked)
            read = partial(self._of_hit, self._db.store.view([hit.path for hit in hits]))
            answers = Answers(query, hits, meaning=question is not None, why_no_meaning=why, read=read)
            made = use(answers)
            if not (answers.are_late or self._db._must_follow()):
                break
        return answers, made

    def page(self, caller: Caller, *, limit: int, **given: object) -> Page:
        """The visible entries of a list, ``limit`` at a time; ``given`` are the arguments of ``listing``."""
        check_whole(limit, what="limit", least=1, most=MAX_PAGE)
        asked = listing(now=self._db.now(), **given)
        view, now = view_of(caller, self._db.rules.levels), self._db.now()
        after, found = asked.after, list[Found]()
        while len(found) <= limit:
            self._db.refresh(view)
            rows = self._rows(view, asked, now=now, after=after, limit=limit + 1 - len(found))
            if not rows:
                break
            after = queries.place_of(rows[-1])
            with self._db.repository.together([row.path for row in rows]):
                found += (found_in(entry) for row in rows if (entry := self._read(row.path, row.revision)) is not None)
        return Page(tuple(found[:limit]), asked.cursor_after(found[limit - 1]) if len(found) > limit else None)

    def _expire(self, view: View) -> None:
        """Take the expired entries of the view out of the search index."""
        index, now = self._db.index, self._db.now()
        if index.ask(lambda opened: fts.has_expired_texts(opened, queries.parts(opened, view), now=now)):
            index.change(lambda it: fts.remove_expired_texts(it, queries.parts(it, view), now=now), durable=False)

    def _found(self, asked: _Search) -> tuple[list[Hit], QueryEmbedder | None, str | None]:
        """The hits, the question for the semantic leg, and why there is none, if there should be one."""
        if not self.meaning.is_wanted:
            return self._hits(asked, None), None, None if self.meaning.is_settled else self.meaning.noted(None)
        self._expire(asked.view)
        try:
            question = self.meaning.question(asked.view, asked.query)
            hits = self._hits(asked, question)  # fails if an entry arrived in between that cannot be embedded
        except ModelUnavailable as error:
            return self._hits(asked, None), None, self.meaning.noted(error)
        return hits, question, self.meaning.noted(None)

    def _hits(self, asked: _Search, question: QueryEmbedder | None) -> list[Hit]:
        hits = self._db.index.ask(partial(self._hits_unless_due, asked, question))
        if hits is None:
            self._expire(asked.view)
            hits = self._db.index.ask(partial(self._hits_unless_due, asked, question, may_be_due=False))
        return [hit for hit in hits or () if hit.path not in self._db.tried & self._db.index.unfollowed]

    def _hits_unless_due(
        self, asked: _Search, question: QueryEmbedder | None, connection: sqlite3.Connection, *, may_be_due: bool = True
    ) -> list[Hit] | None:
        """The hits; None if an expired entry would still count in the scores."""
        parts, now = queries.parts(connection, asked.view), self._db.now()
        if may_be_due and fts.has_expired_texts(connection, parts, now=now):
            return None
        keep = partial(queries.visible_ids, connection, parts, now=now, filters=asked.filters)
        scope = SearchScope(
            connection,
            parts,
            keep=None if queries.is_all_visible(connection, parts, filters=asked.filters) else keep,
            shadowed=queries.shadowed(connection, parts, now=now),
            counts=self._counts,
        )
        return search.search(
            scope,
            asked.query,
            limit=asked.max_results,
            associate=asked.associate,
            embedder=question,
            grouped=asked.grouped,
            today=date.fromisoformat(now[:10]),
            matrices=self.meaning.matrices,
            orders=self._orders,
        )

    def _rows(self, view: View, asked: Listing, *, now: str, after: PagePlace | None, limit: int) -> Sequence[Row]:
        rows = queries.page if asked.order == "key" else queries.latest
        return self._db.index.ask(
            lambda connection: rows(
                connection, queries.parts(connection, view), now=now, filters=asked.filters, after=after, limit=limit
            )
        )

    def _of_hit(self, records: Records, hit: Hit) -> Found | None:
        """The entry of a hit: as the index holds it, if its file is the one that the index read, or else as of it."""
        row, is_doubted = hit.row, hit.row.path in self._db.index.unfollowed
        is_expired = row.expires_at is not None and row.expires_at <= self._db.now()
        if row.signature is not None and not (is_doubted or is_expired):
            with suppress(StorageFailed):
                if records.signature(row.path) == row.signature and is_settled(row.signature):
                    return found_by(hit)
        entry = self._read(row.path, row.revision, records)
        return found_in(entry) if entry is not None else None

    def _read(self, path: str, revision: int, among: Records | None = None) -> Entry | None:
        """The entry at ``path`` if the index is right about it; else the index checks it before the next question."""
        entry = shown_at(self._db.repository, path, among)
        if entry is not None and self._db.is_live(entry) and entry.revision == revision:
            return entry
        self._db.index.doubt([path])
        return None


def row_at(repository: EntryRepository, path: str, among: Records | None = None) -> Row | None:
    """The row of the record at ``path``; without a signature, so that a hand edit is looked at again."""
    seen = observed(repository, path, among)
    if seen.record is None or seen.problem is not None:
        return None
    return row_of(seen.record, None if seen.by_hand else seen.signature)


def entry_at(repository: EntryRepository, path: str, among: Records | None = None) -> Entry | None:
    """The entry at ``path``, hidden or not; None for a mark or no record."""
    record = repository.look(path, among).record
    return record if isinstance(record, Entry) else None


def shown_at(repository: EntryRepository, path: str, among: Records | None = None) -> Entry | None:
    """The entry as of ``entry_at``, to show among others: None also if this one cannot be read at the moment."""
    try:
        record = observed(repository, path, among).record
    except StorageFailed as error:
        if not is_of_one_file(error):
            raise
        return None
    return record if isinstance(record, Entry) else None


def observed(repository: EntryRepository, path: str, among: Records | None = None) -> Observed[EntryRecord]:
    """Look at a record; a failure to read this one is noted, and logged the first time, before it is raised.

    Once it can be read again, it is among those ``unfollowed``.
    """
    try:
        seen = repository.look(path, among)
    except StorageFailed as error:
        if is_of_one_file(error):
            if path not in repository.unread:
                _log.warning("an entry is left out until it can be read: %s", error)
            repository.unread[path] = str(error)
        raise
    if repository.unread.pop(path, None) is not None:
        repository.unfollowed.add(path)
    return seen
