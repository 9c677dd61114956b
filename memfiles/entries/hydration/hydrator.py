"""Hydration of an open memory: the block of entries at the start of a run, and why an entry is in it or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain

from memfiles.entries.budgets import EntrySummary
from memfiles.entries.callers import Caller, View, view_of
from memfiles.entries.hydration import window
from memfiles.entries.hydration.window import Explanation, Hydration, Window
from memfiles.entries.reader import EntryDatabase, EntryReader, EntryRepository, entry_at, summary_of
from memfiles.index import queries
from memfiles.index.rows import row_of
from memfiles.records.entry import Entry
from memfiles.records.keys import check_key, check_whole


class Hydrator:
    """Fills the system-prompt block from one open memory."""

    def __init__(self, db: EntryDatabase, reader: EntryReader) -> None:
        self._db = db
        self._reader = reader

    def hydrate(self, caller: Caller, *, budget_bytes: int | None = None) -> Hydration:
        """The block of the caller's entries; the same state and budget give the same bytes."""
        budget, now = self._checked_budget(budget_bytes), self._db.now()
        view = view_of(caller, self._db.rules.levels)
        self._reader.refresh()

        def fill(connection: sqlite3.Connection) -> Hydration:
            visible = _VisibleEntries(connection, view, self._db.repository, now=now)
            return Window(budget, now=now).fill(visible.summaries(), visible.text)

        return self._db.index.ask(fill)

    def explain(self, caller: Caller, key: str, *, budget_bytes: int | None = None) -> Explanation:
        """Why the entry of ``key`` is in that block or not, in numbers; a hidden key counts as unknown."""
        check_key(key)
        budget, now = self._checked_budget(budget_bytes), self._db.now()
        view = view_of(caller, self._db.rules.levels)
        self._reader.refresh()
        entries = self._db.entries(partition.path(key) for partition in view)
        under_key = [summary_of(row_of(entry, None)) for entry in entries]

        def explain(connection: sqlite3.Connection) -> Explanation:
            visible = _VisibleEntries(connection, view, self._db.repository, now=now)
            visible.add(entries)
            summaries = visible.summaries()
            return window.explain(
                key, Window(budget, now=now), under_key=under_key, entries=summaries, lookup=visible.text
            )

        return self._db.index.ask(explain)

    def _checked_budget(self, budget_bytes: int | None) -> int:
        if budget_bytes is None:
            return self._db.rules.hydrate_bytes
        return check_whole(budget_bytes, what="budget_bytes", least=0)


class _VisibleEntries:
    """The entries that a view shows in display order, and their texts; for one walk."""

    def __init__(self, connection: sqlite3.Connection, view: View, repository: EntryRepository, *, now: str) -> None:
        self._connection = connection
        self._parts = queries.parts(connection, view)
        self._repository = repository
        self._now = now
        self._paths: dict[str, str] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Make the texts of these entries known, also if the walk ends before it reaches them."""
        self._paths.update((entry.uid, entry.path) for entry in entries)

    def summaries(self) -> Iterator[EntrySummary]:
        """The pinned entries and then the others, each newest first; read from the index in batches."""
        pinned = queries.recent(self._connection, self._parts, now=self._now, pinned=True)
        rest = queries.recent(self._connection, self._parts, now=self._now, pinned=False)
        for row in chain(pinned, rest):
            summary = summary_of(row)
            self._paths[summary.uid] = row.path
            yield summary

    def text(self, uid: str) -> Entry | None:
        """The entry with its present text; None if it is hidden or gone meanwhile."""
        path = self._paths.get(uid)
        entry = entry_at(self._repository, path) if path is not None else None
        return entry if entry is not None and entry.retired is None else None
