"""Eviction: what a commit is over, which entries go for it, and how they are hidden.

The rules this file guards: the cost depends on what is saved and evicted, not on how many entries there are; and only
entries of the same partition count and go, so that entries that a session cannot see change nothing that it observes.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from memfiles.entries import budgets, decisions
from memfiles.entries.budgets import Budget, Budgeted, EntrySummary, Limit, Tally
from memfiles.entries.callers import Partition
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.reader import summary_of
from memfiles.index import queries
from memfiles.index.index import Index
from memfiles.index.rows import Row, Totals
from memfiles.records.entry import Entry, Retired
from memfiles.records.keys import entry_path
from memfiles.records.marks import EntryRecord
from memfiles.records.record import Stamp

_SOME = 8  # victims read at once, since a save is over by one entry as a rule
_MANY = 1000
WorkingCopy = dict[str, EntryRecord | None]


@dataclass(frozen=True, slots=True)
class Excess:
    """By how much a commit is over the budget of a partition; the uids it saves may not be evicted for it."""

    partition: Partition
    over: Mapping[Budgeted, Tally]
    saved: frozenset[str]


class EvictionPolicy:
    """The budgets of one open memory: what a commit is over, and which entries are evicted for it."""

    def __init__(self, index: Index, *, budget: Budget) -> None:
        self._index = index
        self._limits = {scope: limit for scope, limit in budget.limits.items() if limit != Limit()}

    def excess(self, before: RecordsByPath, after: RecordsByPath) -> Excess | None:
        """The excess of the first partition that the commit leaves over a budget and adds to; None if there is none.

        ``BudgetExceeded`` if one entry alone is larger than a whole budget.
        """
        growths: dict[Partition, list[tuple[Entry, int]]] = {}
        for path, record in after.items() if self._limits else ():
            for entry, sign in ((record, 1), (before[path], -1)) if record is not before[path] else ():
                if isinstance(entry, Entry) and entry.retired is None:
                    growths.setdefault(Partition(entry.folder, entry.level, entry.run), []).append((entry, sign))
        for partition, growth in growths.items():
            saved = [entry for entry, sign in growth if sign > 0]
            for entry in saved:
                budgets.check_fits(self._limits, entry)
            totals = self._index.totals(partition)
            over = budgets.added_excess(self._limits, partial(_tally_within, totals), growth)
            if over:
                return Excess(partition, over, frozenset(entry.uid for entry in saved))
        return None

    def victims(self, excess: Excess, *, now: str) -> list[str]:
        """The paths of the entries to evict: expired ones, then those worth least.

        ``BudgetExceeded`` if the saved entries alone are over a budget.
        """
        self._index.catch_up(reads=True)
        partition = excess.partition

        def choose(connection: sqlite3.Connection) -> list[str]:
            def order(scope: Budgeted) -> Iterator[EntrySummary]:
                return map(summary_of, _least_worthy(connection, partition, scope, now=now))

            chosen = budgets.victims(order, excess.over, saved=excess.saved)
            return [entry_path(partition.folder, entry.uid) for entry in chosen]

        return self._index.ask(choose)


def _tally_within(totals: Totals, scope: Budgeted) -> Tally:
    if scope.kind is not None:
        return Tally(*totals.by_kind.get(scope.kind, (0, 0)))
    if scope.category is not None:
        return Tally(*totals.by_category.get(scope.category, (0, 0)))
    return Tally(totals.count, totals.size)


def _least_worthy(connection: sqlite3.Connection, partition: Partition, scope: Budgeted, *, now: str) -> Iterator[Row]:
    """The live entries of a partition in the order of eviction, read some at a time."""
    limit, seen = _SOME, set[str]()
    for row in queries.expired(connection, partition, now=now, limit=_MANY):
        if scope.kind in (None, row.kind) and scope.category in (None, row.category):
            seen.add(row.path)
            yield row
    while True:
        rows = queries.least_worthy(connection, partition, limit=limit, category=scope.category, kind=scope.kind)
        for row in rows:
            if row.path not in seen:
                seen.add(row.path)
                yield row
        if len(rows) < limit:
            return
        limit *= 4


def evict(records: WorkingCopy, victims: Sequence[str], stamp: Stamp) -> list[str]:
    """Evict the victims that are still there; returns their keys, except those of expired entries."""
    evicted = []
    cause = f"evict-{uuid.uuid4().hex[:12]}" if victims else ""
    for path in victims:
        found = records[path]
        if isinstance(found, Entry) and found.retired is None:
            records[path] = decisions.retire(found, stamp, Retired("evicted", stamp.at, cause), op="evict")
            if not found.is_expired(stamp.at):
                evicted.append(found.key)
    return evicted
