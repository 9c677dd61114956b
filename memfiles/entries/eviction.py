"""Eviction: the budgets that a commit exceeds, and the remedy in the same commit, least destructive first.

The rules this file guards: expired entries go first; then exact duplicates are merged and episodes folded into notes;
then those worth least are evicted. Nothing that was just saved goes. The cost depends on what is saved and goes, not on
how many entries there are. Only entries of the same partition count and go, so that entries that a session cannot see
change nothing that it observes. A user's save never evicts what others see and that user may not change: it is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from sys import maxsize
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import budgets
from memfiles.entries.budgets import Budgeted, EntrySummary, FolderTotals, Limit, Tally
from memfiles.entries.callers import Partition, Scopes
from memfiles.entries.consolidation.application import Application, Consolidated, with_plan_id
from memfiles.entries.consolidation.plan import MOST_EPISODES, FirstSentences, Plan, Step, SummaryNote, checked_note
from memfiles.entries.consolidation.planner import Member, PlannedState
from memfiles.entries.decisions import RecordsByPath, WorkingCopy
from memfiles.entries.questions import summary_of
from memfiles.entries.reader import EntryDatabase
from memfiles.errors import BudgetExceeded, MemfilesError
from memfiles.index import groups
from memfiles.index.groups import AlikeGroup
from memfiles.index.rows import Row, Totals, alike, row_of
from memfiles.records.entry import EPISODE, Entry, Provenance
from memfiles.records.keys import entry_path
from memfiles.records.record import Stamp

_SOME = 8  # victims or groups read at once, since a save is over by one entry as a rule
_MANY = _MANY_KEYS = 1000
_FRUITLESS = 16  # groups in a row that free nothing; then evictions do the rest
_NEAR = 0.75  # of a budget: from there on, changes by other processes are looked at before a save
_NAMES = 8  # keys that are tried for a note


class Excess(Struct, frozen=True):
    """By how much a commit is over the budget of a partition with these totals; ``saved`` is what it saves, by uid.

    ``growth`` are the entries that come (1) and go (-1). ``is_behind``: other processes have changed something since.
    """

    partition: Partition
    over: Mapping[Budgeted, Tally]
    totals: FolderTotals
    saved: Mapping[str, Entry]
    growth: Sequence[tuple[Entry, int]]
    is_behind: bool


class Remedy(Struct, frozen=True):
    """The way out of an excess, in the same commit: the steps of a plan, and the paths of entries to evict.

    Only entries of the ``writable`` categories are changed; None: all.
    """

    plan: Plan
    victims: tuple[str, ...]
    saved: frozenset[str]
    writable: frozenset[str] | None = None

    @property
    def paths(self) -> list[str]:
        """The paths to lock."""
        return [*(entry_path(self.plan.folder, uid) for uid in self.plan.uids), *self.victims]


class EvictionPolicy:
    """The budgets of one open memory: which of them a commit exceeds, and the remedy."""

    def __init__(self, db: EntryDatabase) -> None:
        self._db = db
        self._limits = {scope: limit for scope, limit in db.rules.budget.limits.items() if limit != Limit()}
        self._near = {scope: limit.times(_NEAR) for scope, limit in self._limits.items()}
        near = self._near.values()
        self._room = Tally(
            min([it.max_entries for it in near if it.max_entries is not None], default=maxsize),
            min([it.max_bytes for it in near if it.max_bytes is not None], default=maxsize),
        )
        numbers = [limit.max_entries for limit in self._limits.values() if limit.max_entries is not None]
        self._few = min(numbers, default=_MANY)
        self._unseen = 0  # saves since the changes of other processes were looked at

    def empty(self, own: Scopes, *, keys: int) -> Collection[Partition]:
        """The partitions among these without a visible entry; not worth asking for few ``keys``."""
        if keys < _MANY_KEYS:
            return ()
        self._db.refresh(tuple(own.values()))
        totals = {each: self._db.index.totals(each) for each in own.values()}
        return {each for each, found in totals.items() if not found.count and not found.is_behind}

    def excesses(
        self, before: RecordsByPath, after: RecordsByPath, *, written: Collection[str], is_first: bool = False
    ) -> dict[Partition, Excess]:
        """The excess of each partition that the commit leaves over a budget and adds to.

        ``written`` are the paths that it saves, whatever else it changes. The totals are those of the last catch-up;
        at the ``is_first`` look, a partition near its budget is counted again if other processes changed something.
        ``BudgetExceeded`` if one of the saved entries alone is larger than a whole budget.
        """
        growths: dict[Partition, list[tuple[Entry, int]]] = {}
        for path, record in after.items() if self._limits else ():
            for entry, sign in ((record, 1), (before[path], -1)) if record is not before[path] else ():
                if isinstance(entry, Entry) and entry.retired is None:
                    growths.setdefault(Partition(entry.folder, entry.level, entry.run), []).append((entry, sign))
        found: dict[Partition, Excess] = {}
        for partition, growth in growths.items():
            saved = {entry.uid: entry for entry, sign in growth if sign > 0 and entry.path in written}
            for entry in saved.values():
                budgets.check_fits(self._limits, entry)
            counted = self._db.index.totals(partition)
            self._unseen += is_first
            may_be_near = self._unseen * _SOME >= self._few or not self._has_room(counted, growth)
            excess = self._measured(partition, counted, growth, saved) if may_be_near else None
            if excess is not None and (excess.over or (is_first and self._is_near(excess.totals) and excess.is_behind)):
                found[partition] = excess
        return found

    def _has_room(self, counted: Totals, growth: Sequence[tuple[Entry, int]]) -> bool:
        """Whether all entries of a partition together are far below every budget, also with the added ones."""
        sizes = [entry.size_bytes for entry, sign in growth if sign > 0]
        entries, size = counted.count + len(sizes), counted.size + sum(sizes)
        return entries <= self._room.entries and size <= self._room.size_bytes

    def _measured(
        self, partition: Partition, counted: Totals, growth: Sequence[tuple[Entry, int]], saved: Mapping[str, Entry]
    ) -> Excess:
        totals = FolderTotals({sort: Tally(*sum_) for sort, sum_ in counted.by_sort.items()})
        over = budgets.added_excess(self._limits, totals.within, growth)
        return Excess(partition, over, totals.after(growth), saved, growth, counted.is_behind)

    def _is_near(self, totals: FolderTotals) -> bool:
        """Whether little is left of a budget, or may be left once the saves of others are counted."""
        return self._unseen * _SOME >= self._few or bool(budgets.excess(self._near, totals))

    def remedy(
        self, excess: Excess, *, plan_id: str, held: Collection[str], now: str, writable: frozenset[str] | None
    ) -> Remedy:
        """The entries to merge, fold or evict to end the excess; ``held`` are the paths that the commit changes anyway.

        Chosen without locks, among the ``writable`` categories (None: all). ``BudgetExceeded`` if that is not enough.
        """
        while True:
            current = self._anew(excess)
            fixed: dict[str, Any] = {"plan_id": plan_id, "held": held, "now": now, "writable": writable}
            try:
                return _RemedyPlanner(self._db, current, self._limits, **fixed).remedy()
            except BudgetExceeded:
                if self._anew(excess).over == current.over:  # else other processes hid some meanwhile
                    raise

    def _anew(self, excess: Excess) -> Excess:
        """The excess, counted again with the changes of other processes."""
        self._unseen = 0
        self._db.index.catch_up(reads=True)
        counted = self._db.index.totals(excess.partition, recount=True)
        return self._measured(excess.partition, counted, excess.growth, excess.saved)

    def carry_out(self, remedies: Collection[Remedy], records: WorkingCopy, stamp: Stamp) -> Consolidated:
        """Carry out the remedies of one commit on its records, as far as they still fit: one plan, which can be undone.

        Expired entries that go are no news for anyone, so the result does not name them.
        """
        done = Consolidated()
        if not remedies:
            return done
        before = dict(records)
        for remedy in remedies:
            by = Provenance(agent=stamp.by.agent, session=stamp.by.session, source=remedy.plan.id)
            now, expiry = replace(stamp, expected_revision=None), self._db.rules.expiry
            application = Application(remedy.plan, now, by, expiry, saved=remedy.saved, writable=remedy.writable)
            done = done.plus(application.carry_out(records, remedy.victims))
        changed = with_plan_id(before, records, plan_id=done.plan) if done.plan else []
        records.update({entry.path: entry for entry in changed})
        return done


class _RemedyPlanner:
    """Plans one remedy: the steps so far, the entries they hide, and what is still over."""

    def __init__(
        self, db: EntryDatabase, excess: Excess, limits: Mapping[Budgeted, Limit], *, plan_id: str,
        held: Collection[str], now: str, writable: frozenset[str] | None,
    ) -> None:  # fmt: skip
        place = excess.partition
        self._plan = Plan(plan_id, now, place.folder, place.level, Tally(), Tally())
        self._db, self._excess, self._limits, self._held, self._now = db, excess, limits, held, now
        self._totals, self._over = excess.totals, dict(excess.over)
        self._gone: set[str] = set()
        self._writable = writable

    def remedy(self, *, folds: bool = True) -> Remedy:
        """The remedy; ``BudgetExceeded`` if all that may go is not enough."""
        expired, steps = self._expired(), tuple(self._steps(folds=folds))
        try:
            hidden = (*expired, *self._worthless())
        except BudgetExceeded:  # what is saved leaves no room for the notes: evict their episodes
            if not any(step.note for step in steps):
                raise
            self._totals, self._over, self._gone = self._excess.totals, dict(self._excess.over), set()
            return self.remedy(folds=False)
        paths = (entry_path(self._plan.folder, each.uid) for each in hidden)
        victims = tuple(path for path in paths if path not in self._held)
        return Remedy(replace(self._plan, steps=steps), victims, frozenset(self._excess.saved), self._writable)

    def _expired(self) -> Sequence[EntrySummary]:
        """Expired entries that count, as many as it takes."""
        place, now = self._excess.partition, self._now

        def choose(connection: sqlite3.Connection) -> tuple[tuple[EntrySummary, ...], dict[Budgeted, Tally]]:
            rows = groups.expired(connection, place, now=now, among=self._writable, limit=_MANY)
            found = list(map(summary_of, rows))
            return budgets.select(lambda scope: filter(scope.holds, found), self._over, spared=self._excess.saved)

        chosen, left = self._db.index.ask(choose)
        self._totals = self._totals.after((each, -1) for each in chosen)
        self._over = {scope: tally for scope, tally in left.items() if not tally.is_met}
        self._gone |= {each.uid for each in chosen}
        return chosen

    def _steps(self, *, folds: bool) -> Iterator[Step]:
        """Merges of exact duplicates, then ``folds`` if asked, until nothing is over."""
        episodes = self._groups(EPISODE) if folds else iter(())
        for found, most in ((self._of_saved(), _MANY), (self._groups(None), _FRUITLESS), (episodes, _FRUITLESS)):
            fruitless = 0
            while self._over and fruitless < most and (group := next(found, None)) is not None:
                made = self._planned(group)
                fruitless = 0 if made else fruitless + 1
                yield from made

    def _worthless(self) -> Sequence[EntrySummary]:
        """The entries worth least, until nothing is over; ``BudgetExceeded``."""
        place, gone = self._excess.partition, self._gone

        def choose(connection: sqlite3.Connection) -> Sequence[EntrySummary]:
            def order(scope: Budgeted) -> Iterator[EntrySummary]:
                rows = _least_worthy(connection, place, scope, among=self._writable)
                return (it for it in map(summary_of, rows) if it.uid not in gone)

            return budgets.victims(order, self._over, saved=self._excess.saved, among=self._writable)

        return self._db.index.ask(choose) if self._over else ()

    def _planned(self, group: AlikeGroup) -> list[Step]:
        """The steps that make one of a group."""
        watched = self._excess.over.keys()
        planning = PlannedState(
            self._members(group), self._limits, totals=self._totals, watched=watched, saved=self._excess.saved
        )
        folds = group.kind == EPISODE
        made = list(planning.folds(FirstSentences(), self._admitted) if folds else planning.merges_of_same(str))
        self._totals, self._over = planning.totals, planning.over
        self._gone |= {each.uid for step in made for each in step.retired}
        return made

    def _of_saved(self) -> Iterator[AlikeGroup]:
        """The groups in the index that the saved entries belong to."""
        saved = {_group(entry): None for entry in self._excess.saved.values() if entry.kind != EPISODE}
        names = {group.name for group in saved}
        there = self._db.index.ask(partial(groups.groups_known, place=self._excess.partition, names=names))
        yield from (group for group in saved if group in there)

    def _groups(self, kind: str | None) -> Iterator[AlikeGroup]:
        """The groups in the index that count for an exceeded limit, read some at a time."""
        place, seen, limit = self._excess.partition, set[AlikeGroup](), _SOME
        scopes = [it for it in self._over if (it.kind == EPISODE) is (kind == EPISODE) or it.kind is None]
        for scope in scopes:
            while True:
                find = partial(groups.groups, place=place, category=scope.category, kind=kind or scope.kind)
                found = self._db.index.ask(partial(find, among=self._writable, limit=limit))
                yield from (group for group in found if group not in seen)
                seen |= {*found}
                if len(found) < limit:
                    break
                limit *= 4

    def _members(self, group: AlikeGroup) -> list[Member]:
        """The entries of a group: from the index where it is up to date, and the ones that are being saved."""
        find = partial(groups.members, place=self._excess.partition, group=group)
        found = self._db.index.ask(partial(find, limit=MOST_EPISODES if group.kind == EPISODE else _SOME))
        if group.kind != EPISODE and len(found) == _SOME and (most := self._most_over(found[0][0].size)) > _SOME:
            found = self._db.index.ask(partial(find, limit=most))
        reads = {row.path: times for row, times in found if row.path not in self._held}
        there = [each for each in self._db.entries(reads) if each.is_live(self._now) and _group(each) == group]
        saved = [each for each in self._excess.saved.values() if _group(each) == group]
        rows = ((each, row_of(each, None), reads.get(each.path, (0, None))) for each in chain(there, saved))
        return [Member(summary_of(row, reads=read), each) for each, row, read in rows]

    def _may_change(self, category: str) -> bool:
        return self._writable is None or category in self._writable

    def _most_over(self, size: int) -> int:
        """How many entries of this size may have to go, and one that stays."""
        return 1 + max(max(over.entries, -(-over.size_bytes // max(1, size))) for over in self._over.values())

    def _admitted(self, note: SummaryNote) -> SummaryNote | None:
        """The note as it may be saved, under a key that is free; None if its text is refused."""
        try:
            checked = checked_note(note, self._db.rules)
        except MemfilesError:
            return None
        for number in range(1, _NAMES):
            named = replace(checked, key=note.key if number == 1 else f"{note.key} {number}")
            there = self._db.entries([entry_path(self._plan.folder, self._plan.uid_of(named))])
            if not any(entry.is_live(self._now) or not self._may_change(entry.category) for entry in there):
                return named
        return None


def _group(entry: Entry) -> AlikeGroup:
    return AlikeGroup(entry.category, entry.kind, alike(row_of(entry, None)))


def _least_worthy(
    connection: sqlite3.Connection, partition: Partition, scope: Budgeted, *, among: Collection[str] | None
) -> Iterator[Row]:
    """The live entries of a partition, or of these categories in it, in the order of eviction, read some at a time."""
    limit, seen = _SOME, set[str]()
    find = partial(groups.least_worthy, connection, partition, category=scope.category, kind=scope.kind, among=among)
    while True:
        rows = find(limit=limit)
        for row in rows:
            if row.path not in seen:
                seen.add(row.path)
                yield row
        if len(rows) < limit:
            return
        limit *= 4
