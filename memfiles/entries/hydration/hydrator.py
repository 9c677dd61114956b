"""Hydration of an open memory: the block of entries at the start of a run, and why an entry is in it or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain

from memfiles.entries.budgets import EntrySummary
from memfiles.entries.callers import Caller, View, view_of
from memfiles.entries.hydration import window
from memfiles.entries.hydration.window import Explanation, Hydration, TextLookup, Window
from memfiles.entries.reader import EntryDatabase, shown_at, summary_of
from memfiles.index import queries
from memfiles.index.rows import row_of
from memfiles.records.entry import Entry
from memfiles.records.keys import check_key, check_whole


def hydrate(db: EntryDatabase, caller: Caller, *, budget_bytes: int | None) -> Hydration:
    """The block of the caller's entries; the same state and budget give the same bytes."""
    budget, now, view = _prepared(db, caller, budget_bytes)
    return db.index.ask(lambda connection: Window(budget, now=now).fill(*_visible(db, connection, view, now=now)))


def explain(db: EntryDatabase, caller: Caller, key: str, *, budget_bytes: int | None) -> Explanation:
    """Why the entry of ``key`` is in that block or not, in numbers; a hidden key counts as unknown."""
    check_key(key)
    budget, now, view = _prepared(db, caller, budget_bytes)
    found = [each for each in db.entries(partition.path(key) for partition in view) if db.erased_at(each) is None]
    under_key = [summary_of(row_of(entry, None)) for entry in found]

    def explained(connection: sqlite3.Connection) -> Explanation:
        entries, lookup = _visible(db, connection, view, now=now, known=found)
        return window.explain(key, Window(budget, now=now), under_key=under_key, entries=entries, lookup=lookup)

    return db.index.ask(explained)


def _prepared(db: EntryDatabase, caller: Caller, budget_bytes: int | None) -> tuple[int, str, View]:
    """The checked budget, the present moment and the caller's view, of records that are up to date."""
    budget = db.rules.hydrate_bytes if budget_bytes is None else budget_bytes
    check_whole(budget, what="budget_bytes", least=0)
    now, view = db.now(), view_of(caller, db.rules.levels)
    db.refresh(view)
    return budget, now, view


def _visible(
    db: EntryDatabase, connection: sqlite3.Connection, view: View, *, now: str, known: Iterable[Entry] = ()
) -> tuple[Iterator[EntrySummary], TextLookup]:
    """The pinned entries of a view and then the others, each newest first and read in batches; and their texts.

    The texts of ``known`` entries can be looked up before the walk reaches them.
    """
    paths = {entry.uid: entry.path for entry in known}
    parts = queries.parts(connection, view)
    rows = chain.from_iterable(queries.recent(connection, parts, now=now, pinned=held) for held in (True, False))

    def summaries() -> Iterator[EntrySummary]:
        for row in rows:
            summary = summary_of(row)
            paths[summary.uid] = row.path
            yield summary

    def text(uid: str) -> Entry | None:
        entry = shown_at(db.repository, paths[uid]) if uid in paths else None
        return entry if entry is not None and entry.retired is None else None

    return summaries(), text
