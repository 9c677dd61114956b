"""Consolidation of an open memory: a plan is made, shown, applied as one change, and taken back.

The rules this file guards: a plan is applied as a whole or not at all, and not to what changed since it was made;
nothing that it hides is destroyed; and it is taken back as a whole, so that everything is as it was before, or not at
all where something changed since.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memfiles.entries import decisions as saving
from memfiles.entries.consolidation.folding import Summariser, united
from memfiles.entries.consolidation.merged_labels import give_back, take_over
from memfiles.entries.consolidation.plan import Plan, Step, SummaryNote, changed_since
from memfiles.entries.consolidation.planner import Heading, Member, plan_consolidation
from memfiles.entries.decisions import EntryLocation
from memfiles.entries.drafts import Draft, check_draft
from memfiles.entries.partitions import Caller, Partition, own_level
from memfiles.entries.policy import EntryRules
from memfiles.entries.reader import EntryReader
from memfiles.entries.repository import EntryRepository, RecordsByPath, entry_at
from memfiles.entries.summary import EntrySummary, standing_of
from memfiles.errors import InvalidArgument, RevisionConflict
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.index.rows import Row
from memfiles.records.entry import MAX_SOURCES, Entry, EntryRecord, Provenance, Reorganised, Retired
from memfiles.records.keys import entry_path
from memfiles.records.record import Stamp, check_text

_NAMED = 5  # keys in an error
DEFAULT_SHARE = 0.8
"""Of the budget: what a plan comes down to, so that the next saves need not evict."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a plan did, or taking it back: the keys that are hidden now and those that are seen again."""

    plan: str
    hidden: tuple[str, ...]
    shown: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {"plan": self.plan, "hidden": list(self.hidden), "shown": list(self.shown)}


class Consolidator:
    """Consolidates the entries of an agent at its session's level."""

    def __init__(
        self,
        shelf: EntryRepository,
        index: Index,
        finder: EntryReader,
        *,
        rules: EntryRules,
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
        reads = self._reads(place)
        return plan_consolidation(
            [Member(_standing(entry, reads), entry) for entry in entries],
            self._rules.budget.times(share),
            heading=heading,
            summariser=self._summariser,
        )

    def apply(self, caller: Caller, plan: Plan) -> Applied:
        """Do what the plan says, as one change; ``RevisionConflict`` if an entry that it is about changed since.

        What it writes passes the same checks as a save, whoever made the plan; errors as of that.
        """
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"what is applied is a plan, as plan makes it, not {type(plan).__name__}")
        place = _home(caller)
        runs = {step.note.run for step in plan.steps if step.note is not None}
        if (plan.folder, plan.level) != (place.scope, place.level) or runs - {place.run}:
            raise InvalidArgument("this plan was made for another agent or level: make one in this session")
        stamp = Stamp(self._now(), caller.actor(None))
        by = Provenance(agent=caller.provenance.agent, session=stamp.by.session, source=plan.id)
        checked = [self._checked(step) for step in plan.steps]
        paths = {uid: entry_path(plan.folder, uid) for uid in plan.uids}

        def decide(records: RecordsByPath) -> tuple[Applied, list[EntryRecord]]:
            def revision_of(uid: str) -> int | None:
                found = records.get(paths[uid])
                is_seen = isinstance(found, Entry) and found.is_live(stamp.at)
                return found.revision if is_seen and found is not None else None

            if changed := changed_since(plan, revision_of=revision_of):
                raise RevisionConflict(f"changed since the plan was made: {_named(changed)}: make a new plan")
            after = dict(records)
            hidden = [key for step in checked for key in self._take(after, plan, step, stamp=stamp, by=by)]
            shown = [step.note.key for step in plan.steps if step.note is not None]
            made = [record for path, record in after.items() if record is not records[path]]
            return Applied(plan.id, tuple(hidden), tuple(shown)), _signed(made, plan.id)

        return self._shelf.change(paths.values(), decide)

    def undo(self, caller: Caller, plan_id: str) -> Applied:
        """Have everything as it was before a plan: show what it hid, give labels back, hide the notes that it saved.

        ``InvalidArgument`` if nothing of it is left; ``RevisionConflict`` if something of it changed since.
        """
        check_text(plan_id, what="the id of a plan")
        stamp = Stamp(self._now(), caller.actor(None))
        paths = [entry.path for entry in self._entries(_home(caller)) if _is_of(entry, plan_id)]
        if not paths:
            raise InvalidArgument(f"nothing is left that plan {plan_id[:40]!r} did at this session's level")

        def decide(records: RecordsByPath) -> tuple[Applied, list[EntryRecord]]:
            before = [record for record in records.values() if isinstance(record, Entry) and _is_of(record, plan_id)]
            _check_untouched(before, plan_id)
            gave_way = {entry.uid for entry in before if entry.retired is not None and entry.retired.cause == plan_id}
            after = [_taken_back(entry, stamp, plan_id=plan_id, gave_way=gave_way) for entry in before]
            pairs = list(zip(before, after, strict=True))
            hidden = tuple(was.key for was, now in pairs if was.retired is None and now.retired is not None)
            shown = tuple(was.key for was, now in pairs if was.retired is not None and now.retired is None)
            return Applied(plan_id, hidden, shown), list(after)

        return self._shelf.change(paths, decide)

    def _checked(self, step: Step) -> Step:
        """The step as it may be done: what it says of entries, and the note that it saves."""
        rules = self._rules
        if step.survivor is not None:
            said = Draft(step.survivor.key, None, step.tags, links=step.links)
            check_draft(said, secrets=rules.secrets, allow=rules.allow, scan=rules.scan)
        if step.note is None:
            return step
        draft = check_draft(_draft_of(step.note), secrets=rules.secrets, allow=rules.allow, scan=rules.scan).draft
        return replace(step, note=replace(step.note, content=draft.content or ""))

    def _take(
        self, after: dict[str, EntryRecord | None], plan: Plan, step: Step, *, stamp: Stamp, by: Provenance
    ) -> list[str]:
        """Do one step over the records; the keys that it hides."""
        retired = [self._there(after, plan, named.uid) for named in step.retired]
        if step.survivor is not None:
            survivor = self._there(after, plan, step.survivor.uid)
            merged = take_over(survivor, retired, tags=step.tags, links=step.links)
            after[survivor.path] = saving.resaid(merged, stamp, op="consolidate")
        for entry in retired:
            after[entry.path] = saving.consolidate(entry, stamp, state=step.state, cause=plan.id)
        if step.note is not None:
            path = entry_path(plan.folder, plan.uid_of(step.note))
            place = EntryLocation(retired[0].agent, plan.level, step.note.run)
            draft = _draft_of(step.note)
            saved = saving.save(after[path], draft, stamp, place=place, by=by, expiry=self._rules.expiry).entry
            made_of = united([step.note.made_of, saved.made_of])[:MAX_SOURCES]
            after[path] = replace(saved, expires_at=step.note.expires_at, made_of=made_of)
        return [entry.key for entry in retired]

    def _there(self, after: Mapping[str, EntryRecord | None], plan: Plan, uid: str) -> Entry:
        """An entry that the plan names, which was found to be as it says."""
        found = after[entry_path(plan.folder, uid)]
        assert isinstance(found, Entry)
        return found

    def _reads(self, place: Partition) -> dict[str, tuple[int, str]]:
        self._index.catch_up(reads=True)
        return self._index.ask(lambda connection: reading.reads(connection, reading.parts(connection, [place])))

    def _entries(self, place: Partition) -> list[Entry]:
        self._finder.refresh()

        def ask(connection: sqlite3.Connection) -> list[Row]:
            return reading.matching(connection, reading.parts(connection, [place]), reading.RowFilter())

        found = (entry_at(self._shelf, row.path) for row in self._index.ask(ask))
        return [entry for entry in found if entry is not None]


def _standing(entry: Entry, reads: Mapping[str, tuple[int, str]]) -> EntrySummary:
    """How an entry stands, and how often it was read, as far as that is known."""
    accesses, accessed_at = reads.get(entry.path, (0, None))
    return standing_of(entry, accesses=accesses, accessed_at=accessed_at)


def _home(caller: Caller) -> Partition:
    """The agent's own entries at the caller's level, those of no run alone."""
    return own_level(caller)[-2]


def _draft_of(note: SummaryNote) -> Draft:
    return Draft(
        note.key,
        note.content,
        note.tags,
        note.category,
        "note",
        note.confidence,
        note.importance,
        links=note.links,
    )


def _signed(made: Sequence[EntryRecord | None], plan_id: str) -> list[EntryRecord]:
    """What a plan made, each with the plan's id and with what tells whether all of it is still there."""
    entries = [record for record in made if isinstance(record, Entry)]
    return [replace(entry, reorganised=Reorganised(plan_id, len(entries), entry.revision)) for entry in entries]


def _is_of(entry: Entry, plan_id: str) -> bool:
    return entry.reorganised is not None and entry.reorganised.plan == plan_id


def _check_untouched(entries: Sequence[Entry], plan_id: str) -> None:
    """Refuse to take back what is not as the plan left it."""
    changed = [entry.key for entry in entries if entry.reorganised and entry.reorganised.revision != entry.revision]
    whole = max((entry.reorganised.changed for entry in entries if entry.reorganised), default=0)
    gone = whole - len(entries)
    if not changed and not gone:
        return
    said = [f"changed since: {_named(changed)}"] if changed else []
    said += [f"{gone} of the {whole} entries that it changed were forgotten or reorganised again"] if gone else []
    raise RevisionConflict(
        f"plan {plan_id[:40]!r} cannot be taken back as a whole, and nothing was: {'; '.join(said)}: restore by its "
        f"key what you want to see again"
    )


def _taken_back(entry: Entry, stamp: Stamp, *, plan_id: str, gave_way: Collection[str]) -> Entry:
    """The entry as it was before the plan."""
    before = replace(give_back(entry, gave_way), reorganised=None)
    if entry.uid in gave_way:
        return saving.resaid(replace(before, retired=None), stamp, op="restore")
    if entry.provenance.source == plan_id:
        return saving.resaid(
            replace(before, retired=Retired("deleted", stamp.at, f"undo of {plan_id}")), stamp, op="delete"
        )
    return saving.resaid(before, stamp, op="consolidate")


def _named(keys: Sequence[str]) -> str:
    """The keys, or the first of them."""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(ascii(key[:80]) for key in keys[:_NAMED]) + more
