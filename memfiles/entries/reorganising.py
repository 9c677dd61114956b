"""Consolidation of an open memory: a plan is made, shown, applied as one change, and taken back.

The rules this file guards: what changed since a plan was made is left alone and reported; nothing that a plan hides is
destroyed; and what it hid carries its id, so that it can be taken back as long as it is kept.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from memfiles.changes import Stamp, check_text
from memfiles.entries import saving
from memfiles.entries.consolidating import Heading, Member, plan_consolidation
from memfiles.entries.drafts import Draft
from memfiles.entries.finding import Finder
from memfiles.entries.folding import Summariser
from memfiles.entries.plans import Plan, Skipped, Step, check_plan
from memfiles.entries.rules import Rules
from memfiles.entries.saving import Place
from memfiles.entries.shelf import Records, Shelf
from memfiles.entries.standing import standing_of
from memfiles.entries.views import Caller, Partition, own_level
from memfiles.entry import Entry, EntryRecord, Provenance
from memfiles.errors import InvalidArgument
from memfiles.index import reading
from memfiles.index.indexing import Index
from memfiles.index.rows import Row
from memfiles.keys import entry_path

DEFAULT_SHARE = 0.8
"""Of the budget: what a plan comes down to, so that the next saves need not evict."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a plan did, or taking it back: the keys that are hidden now and those that are seen again."""

    plan: str
    hidden: tuple[str, ...]
    shown: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "plan": self.plan,
            "hidden": list(self.hidden),
            "shown": list(self.shown),
            "skipped": [each.sentence for each in self.skipped],
        }


class Reorganising:
    """Consolidates the entries of an agent at its session's level."""

    def __init__(
        self,
        shelf: Shelf,
        index: Index,
        finder: Finder,
        *,
        rules: Rules,
        now: Callable[[], str],
        summariser: Summariser | None = None,
    ) -> None:
        """``summariser`` writes the notes that episodes are folded into; the usual one needs no model."""
        self._shelf = shelf
        self._index = index
        self._finder = finder
        self._rules = rules
        self._now = now
        self._summariser = summariser

    def plan(self, caller: Caller, *, share: float = DEFAULT_SHARE) -> Plan:
        """What would bring the agent's entries at the caller's level down to this share of their budget."""
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise InvalidArgument("share must be a number above 0 and at most 1")
        place = _home(caller)
        entries = [entry for entry in self._entries(place) if self._finder.is_there(entry)]
        heading = Heading(f"plan-{uuid.uuid4().hex[:12]}", self._now(), place.scope, place.level)
        return plan_consolidation(
            [Member(standing_of(entry), entry) for entry in entries],
            self._rules.budget.times(share),
            heading=heading,
            summariser=self._summariser,
        )

    def apply(self, caller: Caller, plan: Plan) -> Applied:
        """Do what the plan says, as one change; steps about entries that changed since are skipped and reported."""
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"what is applied is a plan, as plan makes it, not {type(plan).__name__}")
        place = _home(caller)
        if (plan.folder, plan.level) != (place.scope, place.level):
            raise InvalidArgument("this plan was made for another agent or level: make one in this session")
        stamp = Stamp(self._now(), caller.actor(None))
        by = Provenance(agent=caller.provenance.agent, session=stamp.by.session, source=plan.id)
        paths = {uid: entry_path(plan.folder, uid) for uid in plan.uids}

        def decide(records: Records) -> tuple[dict[str, EntryRecord | None], Applied]:
            after = dict(records)

            def revision_of(uid: str) -> int | None:
                found = records.get(paths[uid])
                is_live = isinstance(found, Entry) and found.retired is None
                return found.revision if is_live and found is not None else None

            valid = check_plan(plan, revision_of=revision_of)
            hidden = [key for step in valid.steps for key in self._take(after, plan, step, stamp=stamp, by=by)]
            shown = [step.note.key for step in valid.steps if step.note is not None]
            changed = {path: record for path, record in after.items() if record is not records[path]}
            return changed, Applied(plan.id, tuple(hidden), tuple(shown), valid.skipped)

        _, applied = self._shelf.change(paths.values(), decide, record_of=lambda decided: _records(decided[0]))
        return applied

    def undo(self, caller: Caller, plan_id: str) -> Applied:
        """Show again what a plan hid, as far as it is still kept, and hide the notes it saved.

        ``InvalidArgument`` if nothing of it is left.
        """
        check_text(plan_id, what="the id of a plan")
        place = _home(caller)
        stamp = Stamp(self._now(), caller.actor(None))
        entries = self._entries(place, reading.Selector(cause=plan_id))
        notes = self._entries(place, reading.Selector(provenance={"source": plan_id}))
        paths = [entry.path for entry in (*entries, *notes)]
        if not paths or not plan_id:
            raise InvalidArgument(f"nothing is left that plan {str(plan_id)[:40]!r} hid at this session's level")

        def decide(records: Records) -> tuple[dict[str, EntryRecord | None], Applied]:
            changed: dict[str, EntryRecord | None] = {}
            hidden, shown = [], []
            for path, record in records.items():
                if not isinstance(record, Entry):
                    continue
                if record.retired is not None and record.retired.cause == plan_id:
                    restored = saving.restore(record, stamp, key=record.key, expiry=self._rules.expiry)
                    changed[path] = restored.entry
                    shown.append(record.key)
                elif record.retired is None and record.provenance.source == plan_id:
                    changed[path] = saving.delete(record, stamp, key=record.key, cause=f"undo of {plan_id}").entry
                    hidden.append(record.key)
            return changed, Applied(plan_id, tuple(hidden), tuple(shown))

        _, applied = self._shelf.change(paths, decide, record_of=lambda decided: _records(decided[0]))
        return applied

    def _take(
        self, after: dict[str, EntryRecord | None], plan: Plan, step: Step, *, stamp: Stamp, by: Provenance
    ) -> list[str]:
        """Do one step over the records; the keys that it hides."""
        hidden = []
        for named in step.retired:
            path = entry_path(plan.folder, named.uid)
            record = after[path]
            if isinstance(record, Entry) and record.retired is None:
                after[path] = saving.consolidate(record, stamp, state=step.state, cause=plan.id)
                hidden.append(record.key)
        if step.survivor is not None:
            path = entry_path(plan.folder, step.survivor.uid)
            record = after[path]
            if isinstance(record, Entry):
                after[path] = saving.relabel(record, stamp, tags=step.tags, links=step.links)
        if step.note is not None:
            note = step.note
            path = entry_path(plan.folder, plan.uid_of(note))
            draft = Draft(
                note.key,
                note.content,
                note.tags,
                note.category,
                "note",
                note.confidence,
                note.importance,
                links=note.links,
            )
            place = Place(self._agent_of(after, step, plan), plan.level, note.run)
            saved = saving.save(after[path], draft, stamp, place=place, by=by, expiry=self._rules.expiry).entry
            after[path] = replace(saved, expires_at=note.expires_at)
        return hidden

    def _agent_of(self, after: dict[str, EntryRecord | None], step: Step, plan: Plan) -> str:
        """Whose entries a step is about, as its records say it: a folder may be a hash."""
        folded = after[entry_path(plan.folder, step.retired[0].uid)]
        return folded.agent if folded is not None else ""

    def _entries(self, place: Partition, selector: reading.Selector | None = None) -> list[Entry]:
        self._finder.refresh()
        wanted = selector or reading.Selector()

        def ask(connection: sqlite3.Connection) -> list[Row]:
            return reading.matching(connection, reading.parts(connection, [place]), wanted)

        found = (self._shelf.entry(row.path) for row in self._index.ask(ask))
        return [entry for entry in found if entry is not None]


def _home(caller: Caller) -> Partition:
    """The agent's own entries at the caller's level, those of no run alone."""
    return own_level(caller)[-2]


def _records(changed: dict[str, EntryRecord | None]) -> list[EntryRecord]:
    return [record for record in changed.values() if record is not None]
