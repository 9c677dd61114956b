"""Consolidation of an open memory: a plan is made, shown, applied as one change, and undone.

The rules this file guards: a plan is applied as a whole or not at all, and never to entries that changed since it was
made; nothing that it hides is destroyed; and an undo restores everything as it was before, or changes nothing if
something changed since. A summariser sees entries of one partition at a time, is called before any lock is held, and
is waited for only as long as the caller can wait: the default sums up the rest.
"""

from __future__ import annotations

import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries.budgets import FolderTotals, Tally, excess
from memfiles.entries.callers import Caller, Partition, check_caller, check_changes, home_scope, own_level
from memfiles.entries.consolidation.application import Application, Applied, undone, was_changed_by
from memfiles.entries.consolidation.plan import (
    FOLDED,
    FirstSentences,
    Plan,
    Step,
    Summariser,
    SummaryNote,
    checked_note,
    cut,
)
from memfiles.entries.consolidation.planner import Limits, Member, PlannedState, plan_consolidation
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.drafts import DEFAULT_SHARE, Draft, EntryRules
from memfiles.entries.purge import Purger
from memfiles.entries.questions import summary_of
from memfiles.entries.reader import EntryDatabase
from memfiles.errors import EntryNotFound, InvalidArgument, MemfilesError, RevisionConflict
from memfiles.index import groups, queries
from memfiles.index.database import marks_of_plan
from memfiles.index.rows import row_of
from memfiles.index.search.embedder import CircuitBreaker, ModelUnavailable
from memfiles.records import late_logger as _log
from memfiles.records.entry import EPISODE, MAX_ENTRY_BYTES, Entry, Provenance
from memfiles.records.keys import entry_path
from memfiles.records.marks import EntryRecord
from memfiles.records.record import Stamp, check_text
from memfiles.storage.events import AuditLog, Progress, event_by, reported

CALL_SECONDS = 30.0  # the longest that one summary is waited for
CLOSE_SECONDS = 20.0  # until then the end of a run begins with a level, and that of all runs of a memory with a run
CLOSE_SUMMARY_SECONDS = 10.0  # of these, how long it waits for summaries
_MOST_GROUPS, _MOST_ALIKE = 256, 2048  # groups, and entries in all of them, that the end of a run looks at
_ATTEMPTS = 3  # at the end of a run, if others change its entries meanwhile


class Consolidator:
    """Consolidates the entries of an agent at its session's level."""

    def __init__(
        self, db: EntryDatabase, purger: Purger, *, summariser: Summariser | None = None, audit: AuditLog | None = None
    ) -> None:
        """``summariser`` writes the notes that episodes are folded into; the default needs no model."""
        self._db = db
        self._purger = purger
        self._summariser = summariser
        self._breaker = CircuitBreaker("summariser", otherwise="notes are made without it", seconds=CALL_SECONDS)
        self._audit = audit
        self._undone: set[tuple[str, str]] = set()  # folders and levels of plans that were taken back here
        self._closes_by: float | None = None  # when all runs have ended, as ``time.monotonic`` tells it

    def plan(self, caller: Caller, *, share: float = DEFAULT_SHARE, progress: Progress | None = None) -> Plan:
        """A plan that brings the agent's entries at the caller's level down to this share of their budget."""
        check_caller(caller)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise InvalidArgument("share must be a number above 0 and at most 1")
        home = _home(caller)
        entries = [entry for entry in self._entries(home, progress) if self._db.is_live(entry)]
        self._db.index.catch_up(reads=True)
        reads = self._db.index.ask(lambda connection: queries.reads_of(connection, queries.parts(connection, [home])))
        return plan_consolidation(
            [_member(each, reads.get(each.path, (0, None))) for each in entries],
            self._limits(share),
            plan=self._empty_plan(home),
            summariser=self._guarded(caller, home.level, math.inf),
            admit=self._admitted,
        )

    def end_runs(self) -> None:
        """Bound the time that the ends of all runs take together, from now on, by that of one."""
        self._closes_by = time.monotonic() + CLOSE_SECONDS

    def close_run(self, caller: Caller, *, levels: Iterable[str]) -> None:
        """Merge and fold what the caller keeps at these levels, where it is over ``DEFAULT_SHARE`` of a budget.

        Nothing is evicted, and nothing is done where this process undid a plan. A failure is logged and in the audit:
        the next end of a run tries again.
        """
        until = self._closes_by or time.monotonic() + CLOSE_SECONDS
        for level in sorted(levels, key=self._db.rules.levels.rank):
            try:
                applied = self._consolidate(caller, _home(caller, level), until)
                if applied is not None:
                    self._note(caller, level, "close", count=len(applied.hidden), plan=applied.plan)
                    self._purger.thin_out(caller, level)
            except Exception as error:  # the edge of a close, which nothing may keep from ending
                code = error.code if isinstance(error, MemfilesError) else type(error).__name__
                self._note(caller, level, "close", outcome="failed", code=code)
                exc_info = None if isinstance(error, MemfilesError) else error
                agent = caller.provenance.agent
                _log.warning("entries of agent %s were not consolidated: %s", agent, error, exc_info=exc_info)

    def _consolidate(self, caller: Caller, home: Partition, until: float) -> Applied | None:
        """Consolidate one partition, as of ``close_run``; None if there was nothing to do, or no time."""
        limits = self._limits(DEFAULT_SHARE)
        if home[:2] in self._undone or not excess(limits, self._totals(home)):
            return None
        for attempt in range(_ATTEMPTS):
            if time.monotonic() > until:
                break
            planning = PlannedState(self._alike(home), limits, totals=self._totals(home, recount=True))
            given = self._guarded(caller, home.level, until - CLOSE_SECONDS + CLOSE_SUMMARY_SECONDS)
            steps = tuple(planning.lossless_steps(given or FirstSentences(), self._admitted))
            plan = replace(self._empty_plan(home), steps=steps)
            try:
                return self.apply(caller, plan, level=home.level) if plan.steps else None
            except RevisionConflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
        _log.warning("no time was left to consolidate entries of agent %s", caller.provenance.agent)
        return None

    def _totals(self, home: Partition, *, recount: bool = False) -> FolderTotals:
        sums = self._db.index.totals(home, recount=recount).by_sort
        return FolderTotals({sort: Tally(*found) for sort, found in sums.items()})

    def _alike(self, home: Partition) -> list[Member]:
        """The entries that may be merged or folded, found through the index and not by reading all."""
        self._db.refresh([home])
        self._db.index.catch_up(reads=True)

        def find(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
            listed = partial(groups.groups, connection, home, limit=_MOST_GROUPS, category=None)
            found = chain.from_iterable(listed(kind=kind) for kind in (None, EPISODE))
            rows = chain.from_iterable(groups.members(connection, home, each, limit=_MOST_ALIKE) for each in found)
            return {row.path: reads for row, reads in islice(rows, _MOST_ALIKE)}

        reads = self._db.index.ask(find)
        return [_member(each, reads[each.path]) for each in self._db.entries(reads) if self._db.is_live(each)]

    def _empty_plan(self, home: Partition) -> Plan:
        return Plan(f"plan-{uuid.uuid4().hex[:12]}", self._db.now(), home.folder, home.level, Tally(), Tally())

    def apply(self, caller: Caller, plan: Plan, *, level: str | None = None) -> Applied:
        """Apply the plan as one change; its texts pass the same checks as a save, also if others made it."""
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"apply takes a plan, as plan returns it, not {type(plan).__name__}")
        home = _home(caller, level)
        runs = {step.note.run for step in plan.steps if step.note is not None}
        if (plan.folder, plan.level) != (home.folder, home.level) or runs - {home.run}:
            raise InvalidArgument("this plan was made for another agent or level: make one in this session")
        stamp = Stamp(self._db.now(), caller.actor(None))
        origin = caller.provenance
        by = Provenance(agent=origin.agent, user=origin.user, session=stamp.by.session, source=plan.id)
        checked = replace(plan, steps=tuple(self._checked(step) for step in plan.steps))
        application = Application(checked, stamp, by, self._db.rules.expiry)
        paths = [entry_path(plan.folder, uid) for uid in plan.uids]
        return self._db.change(paths, application.decide, caller=caller)

    def undo(self, caller: Caller, plan_id: str) -> Applied:
        """Undo a plan: show the entries it hid, give their labels back, and hide the notes that it saved.

        ``EntryNotFound`` if nothing of it is left, or if some of it was erased; ``RevisionConflict`` if one of its
        entries changed since.
        """
        check_text(plan_id, what="the id of a plan")
        stamp, own = Stamp(self._db.now(), caller.actor(None)), own_level(caller)
        found = [entry for place in own.values() for entry in self._entries(place) if was_changed_by(entry, plan_id)]
        marks = map(self._db.mark, self._db.index.ask(lambda connection: marks_of_plan(connection, plan_id)))
        places = {place[:2] for place in own.values()}
        left = [mark for mark in marks if mark is not None and (mark.folder, mark.level) in places]
        changed: list[EntryRecord] = [*found, *left]
        if erased := [at for each in changed if (at := self._db.erased_at(each)) is not None]:
            raise EntryNotFound(
                f"plan {plan_id[:40]!r} cannot be taken back as a whole: the content of an entry that it changed was "
                f"erased on {max(erased)[:10]}, as it was kept long enough"
            )
        if not found:
            raise EntryNotFound(f"no change of plan {plan_id[:40]!r} is left at this session's level")
        self._undone |= {(entry.folder, entry.level) for entry in found}

        def decide(records: RecordsByPath) -> tuple[Applied, list[EntryRecord]]:
            applied, changed = undone(records, plan_id, stamp)
            check_changes(own, records, {**records, **{each.path: each for each in changed}}, rules=self._db.rules)
            return applied, changed

        return self._db.change([entry.path for entry in found], decide, caller=caller)

    def _limits(self, share: float) -> Limits:
        return {scope: limit.times(share) for scope, limit in self._db.rules.budget.limits.items()}

    def _guarded(self, caller: Caller, level: str, until: float) -> Summariser | None:
        if self._summariser is None:
            return None

        def refused(code: str) -> None:
            self._note(caller, level, "summarise", outcome="failed", code=code)

        return _GuardedSummariser(self._summariser, self._breaker, self._db.rules, until, refused)

    def _note(self, caller: Caller, level: str, op: str, **said: Any) -> None:
        """Record the outcome of a consolidation in the audit."""
        if self._audit is not None:
            self._audit.record(event_by(caller.actor(None), op, level=level, **said))

    def _admitted(self, note: SummaryNote) -> SummaryNote | None:
        """The note as it may be saved; None if its text is refused, so that its episodes stay."""
        try:
            return checked_note(note, self._db.rules)
        except MemfilesError:
            return None

    def _checked(self, step: Step) -> Step:
        """The step with the note as it may be saved; labels are checked as well."""
        if step.survivor is not None:
            self._db.rules.check(Draft(step.survivor.key, None, step.tags, links=step.links))
        return step if step.note is None else replace(step, note=checked_note(step.note, self._db.rules))

    def _entries(self, partition: Partition, progress: Progress | None = None) -> list[Entry]:
        self._db.refresh([partition])
        return self._db.entries(reported([row.path for row in self._db.rows([partition])], progress))


class _GuardedSummariser(Struct, frozen=True):
    """The program's summariser; the default takes its place if it fails, is late, or returns text that is refused."""

    inner: Summariser
    breaker: CircuitBreaker
    rules: EntryRules
    until: float
    refused: Callable[[str], object]

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        """A summary of the texts that may be saved."""
        try:
            return self._asked(tuple(texts), most_bytes)
        except ModelUnavailable as error:
            if error.args:  # it failed just now, and does not rest
                self.refused("summariser_failed")
        except MemfilesError as error:
            _log.warning("a note is made without the summariser, as its text was refused: %s", error)
            self.refused(error.code)
        return FirstSentences().summarise(texts, most_bytes=most_bytes)

    def _asked(self, texts: Sequence[str], most_bytes: int) -> str:
        if (left := self.until - time.monotonic()) <= 0:
            raise ModelUnavailable
        found = self.breaker.call(lambda: self.inner.summarise(texts, most_bytes=most_bytes), seconds=left)
        if not isinstance(found, str) or not found.strip():
            raise self.breaker.failed("returned no text")
        try:
            long = cut(found.strip(), MAX_ENTRY_BYTES)
        except UnicodeError as error:
            raise self.breaker.failed("returned text that is not Unicode") from error
        checked = self.rules.check(Draft(FOLDED, long)).draft.content or ""  # before a credential in it could be cut
        return cut(checked, most_bytes)


def _member(entry: Entry, reads: tuple[int, str | None]) -> Member:
    return Member(summary_of(row_of(entry, None), reads=reads), entry)


def _home(caller: Caller, level: str | None = None) -> Partition:
    """The caller's own entries at its level, or at another one, those of no run alone."""
    own = own_level(caller, level)
    return own[home_scope(own)]
