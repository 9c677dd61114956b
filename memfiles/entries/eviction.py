"""Room for what is saved: what is over a budget, and which entries go for it.

The rule this file guards: what it costs depends on what is saved and what goes, not on how many entries there are; and
only entries of the same partition count and go, so that nothing a session cannot see changes what it observes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence

from memfiles.entries.budgets import NO_LIMIT, Budget, Scope, Tally, check_fits, victims
from memfiles.entries.partitions import Partition
from memfiles.entries.repository import RecordsByPath
from memfiles.entries.stood import standing_in
from memfiles.entries.summary import EntrySummary
from memfiles.index.index import Index
from memfiles.index.queries import expired, least_worthy
from memfiles.index.rows import Row, Totals
from memfiles.records.entry import Entry, EntryRecord

_SPARE_RETIRED = 64
_SOME = 8  # a save is over by one entry as a rule
_MANY = 1000


class OverBudget(Exception):
    """What is about to be committed is more than is kept: so much must go, and what was saved may not."""

    def __init__(self, partition: Partition, over: Mapping[Scope, Tally], saved: Collection[str]) -> None:
        super().__init__(f"{partition.scope} is over its budget")
        self.partition = partition
        self.over = over
        self.saved = saved


class Room:
    """The budgets of one open memory."""

    def __init__(self, index: Index, *, budget: Budget) -> None:
        self._index = index
        self._budget = budget
        self._limits = {scope: limit for scope, limit in budget.limits.items() if limit != NO_LIMIT}

    def check(self, before: RecordsByPath, after: Mapping[str, EntryRecord | None]) -> None:
        """Raise ``Outgrown`` if a commit that makes ``after`` of ``before`` ends over a budget and adds to it.

        ``BudgetExceeded`` if one entry alone is larger than a whole budget.
        """
        if not self._limits:
            return
        growths: dict[Partition, list[tuple[Entry, int]]] = {}
        for path, record in after.items():
            if record is before[path]:
                continue
            for entry, sign in ((record, 1), (before[path], -1)):
                if isinstance(entry, Entry) and entry.retired is None:
                    place = Partition(entry.folder, entry.level, entry.run)
                    growths.setdefault(place, []).append((entry, sign))
        for place, growth in growths.items():
            self._check_one(place, growth, saved={entry.uid for entry, sign in growth if sign > 0})

    def victims(self, outgrown: OverBudget, *, now: str) -> list[str]:
        """The paths of the entries that are to go: those whose time is over, then the least worthy.

        ``BudgetExceeded`` if what is saved together is more than a budget allows.
        """
        self._index.catch_up(reads=True)

        def choose(connection: sqlite3.Connection) -> list[str]:
            paths: dict[str, str] = {}

            def order(scope: Scope) -> Iterator[EntrySummary]:
                for row in _least_worthy(connection, outgrown.partition, scope, now=now):
                    standing = standing_in(row)
                    paths[standing.uid] = row.path
                    yield standing

            return [paths[gone.uid] for gone in victims(order, outgrown.over, saved=outgrown.saved)]

        return self._index.ask(choose)

    def surplus(self, place: Partition) -> int:
        """How many retired entries there are beyond what is kept of them."""
        most = self._budget.max_entries
        if most is None:
            return 0
        found = self._index.totals(place).retired[0]
        return found - most if found > most + _SPARE_RETIRED else 0

    def _check_one(self, place: Partition, growth: Sequence[tuple[Entry, int]], *, saved: Collection[str]) -> None:
        for entry, sign in growth:
            if sign > 0:
                check_fits(self._limits, entry)
        totals = self._index.totals(place)
        over = {}
        for scope, limit in self._limits.items():
            added = _grown(scope, growth)
            excess = limit.excess(_within(totals, scope).plus(added))
            if not excess.is_met and (added.entries > 0 or added.size_bytes > 0):
                over[scope] = excess
        if over:
            raise OverBudget(place, over, saved)


def _within(totals: Totals, scope: Scope) -> Tally:
    """What of the totals a limit is about."""
    if scope.kind is not None:
        return Tally(*totals.by_kind.get(scope.kind, (0, 0)))
    if scope.category is not None:
        return Tally(*totals.by_category.get(scope.category, (0, 0)))
    return Tally(totals.count, totals.size)


def _grown(scope: Scope, changes: Sequence[tuple[Entry, int]]) -> Tally:
    """What of the changes a limit is about."""
    counted = [(entry.size_bytes, sign) for entry, sign in changes if scope.holds(entry)]
    return Tally(sum(sign for _, sign in counted), sum(sign * size for size, sign in counted))


def _least_worthy(connection: sqlite3.Connection, place: Partition, scope: Scope, *, now: str) -> Iterator[Row]:
    """The live entries of a partition in the order in which they go, read some at a time."""
    limit, seen = _SOME, set[str]()
    narrowed = {"category": scope.category, "kind": scope.kind}
    over = expired(connection, place, now=now, limit=_MANY)
    for row in over:
        if scope.kind in (None, row.kind) and scope.category in (None, row.category):
            seen.add(row.path)
            yield row
    while True:
        rows = least_worthy(connection, place, limit=limit, **narrowed)
        for row in rows:
            if row.path not in seen:
                seen.add(row.path)
                yield row
        if len(rows) < limit:
            return
        limit *= 4
