"""The application of a plan: the records as its steps leave them, and as its undo does. Pure functions.

The rules this file guards: nothing that a plan hides is destroyed; each changed entry carries the plan's id, by which
it is undone; and an undo restores everything as it was before, or changes nothing if something changed since.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import decisions
from memfiles.entries.consolidation.plan import (
    Plan,
    Step,
    SummaryNote,
    changed_since,
    draft_of_note,
    give_back,
    take_over,
    united_labels,
)
from memfiles.entries.decisions import EntryLocation, Expiry, RecordsByPath, WorkingCopy, is_live
from memfiles.errors import RevisionConflict
from memfiles.records.entry import MAX_SOURCES, Entry, Provenance, Reorganised, Retired, united_authors
from memfiles.records.graphemes import first_few
from memfiles.records.keys import entry_path
from memfiles.records.marks import EntryRecord
from memfiles.records.record import Stamp


class Applied(Struct, frozen=True):
    """The result of applying or undoing a plan: the keys that are hidden now, and the keys that are visible again."""

    plan: str
    hidden: tuple[str, ...]
    shown: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"plan": self.plan, "hidden": list(self.hidden), "shown": list(self.shown)}


class Consolidated(Struct, frozen=True):
    """The keys that a save hid to stay within a budget, and the id of the plan by which it is undone, if any."""

    evicted: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    plan: str = ""

    def plus(self, other: Consolidated) -> Consolidated:
        """Both together."""
        hidden = (*self.evicted, *other.evicted), (*self.merged, *other.merged), (*self.folded, *other.folded)
        return Consolidated(*hidden, plan=self.plan or other.plan)


class Application(Struct, frozen=True):
    """A plan with checked texts that is applied: by whom, when, and under which rules.

    ``saved`` are the uids of entries that the same commit saves: what they take over belongs to that change. Only
    entries of the ``writable`` categories are changed; None: all.
    """

    plan: Plan
    stamp: Stamp
    by: Provenance
    expiry: Expiry
    saved: Collection[str] = ()
    writable: Collection[str] | None = None

    def decide(self, records: RecordsByPath) -> tuple[Applied, list[EntryRecord]]:
        """The result and the changed records; ``RevisionConflict`` if the plan is out of date."""
        plan, live = self.plan, {each.uid: each for each in records.values() if is_live(each, self.stamp.at)}
        if changed := changed_since(plan, revision_of=lambda uid: live[uid].revision if uid in live else None):
            raise RevisionConflict(f"changed since the plan was made: {_named(changed)}: make a new plan")
        after = dict(records)
        hidden = [key for step in plan.steps for key in self._take(after, step)]
        shown = [step.note.key for step in plan.steps if step.note is not None]
        return Applied(plan.id, tuple(hidden), tuple(shown)), list(with_plan_id(records, after, plan_id=plan.id))

    def carry_out(self, records: WorkingCopy, victims: Sequence[str]) -> Consolidated:
        """Apply the steps that still fit the records, and evict the victims that are still there."""
        hidden: dict[str, list[str]] = {}
        for step in self.plan.steps:
            if self._fits(records, step):
                hidden.setdefault(step.action, []).extend(self._take(records, step))
        for path in victims:
            found, cause = records[path], Retired("evicted", self.stamp.at, self.plan.id)
            if isinstance(found, Entry) and found.retired is None and self._may_change(found):
                records[path] = decisions.retire(found, self.stamp, cause, op="evict")
                hidden.setdefault("" if found.is_expired(self.stamp.at) else "evict", []).append(found.key)
        evicted, merged, folded = (tuple(hidden.get(action, ())) for action in ("evict", "merge", "fold"))
        return Consolidated(evicted, merged, folded, self.plan.id if hidden else "")

    def _fits(self, records: RecordsByPath, step: Step) -> bool:
        """Whether the entries of a step are as they were when it was planned, or as this commit saves them."""
        found: list[Entry] = []
        for named in step.named:
            entry = records.get(entry_path(self.plan.folder, named.uid))
            if not is_live(entry, self.stamp.at) or not self._may_change(entry):
                return False
            if named.uid not in self.saved and entry.revision != named.revision:
                return False
            found.append(entry)
        if step.note is not None:
            there = records.get(entry_path(self.plan.folder, self.plan.uid_of(step.note)))
            return not is_live(there, self.stamp.at) and self._may_change(there)
        return len({each.content for each in found}) == 1

    def _may_change(self, record: EntryRecord | None) -> bool:
        return self.writable is None or not isinstance(record, Entry) or record.category in self.writable

    def _take(self, after: WorkingCopy, step: Step) -> list[str]:
        """Apply one step to the records; returns the keys that it hides."""
        stamp = replace(self.stamp, cause=f"{step.action} {self.plan.id}")
        retired = [self._entry(after, named.uid) for named in step.retired]
        if step.survivor is not None:
            survivor = self._entry(after, step.survivor.uid)
            merged = take_over(survivor, retired, tags=step.tags, links=step.links)
            is_saved = survivor.uid in self.saved
            after[survivor.path] = merged if is_saved else decisions.amend(merged, stamp, op="consolidate")
        for entry in retired:
            cause = Retired(step.state, stamp.at, self.plan.id)
            after[entry.path] = decisions.retire(entry, stamp, cause, op="consolidate")
        if step.note is not None:
            path = entry_path(self.plan.folder, self.plan.uid_of(step.note))
            after[path] = self._noted(after[path], step.note, retired)
        return [entry.key for entry in retired]

    def _noted(self, before: EntryRecord | None, note: SummaryNote, episodes: Sequence[Entry]) -> Entry:
        draft, owner = draft_of_note(note), episodes[0]
        stamp = replace(self.stamp, cause=f"fold {self.plan.id}")
        place = EntryLocation(owner.agent, self.plan.level, note.run, owner.user, owner.epoch, uuid.uuid4().hex)
        is_shared = bool(self.stamp.by.user) and not owner.user  # then nobody learns whose session folded
        by = replace(self.by, user=owner.user or None, session=None if is_shared else self.by.session)
        saved = decisions.save(before, draft, stamp, place=place, by=by, expiry=self.expiry).entry
        made_of = united_labels([note.made_of, saved.made_of])[:MAX_SOURCES]
        authors = united_authors([saved, *episodes])
        return replace(saved, expires_at=note.expires_at, made_of=made_of, authors=authors)

    def _entry(self, after: Mapping[str, EntryRecord | None], uid: str) -> Entry:
        """An entry that the plan names, which was found to be at its revision."""
        found = after[entry_path(self.plan.folder, uid)]
        assert isinstance(found, Entry)
        return found


def with_plan_id(before: RecordsByPath, after: RecordsByPath, *, plan_id: str) -> list[Entry]:
    """The changed entries with the plan's id, and their number, by which an undo sees whether all are there."""
    made = [each for path, each in after.items() if each is not before[path] and isinstance(each, Entry)]
    return [replace(each, reorganised=Reorganised(plan_id, len(made), each.revision)) for each in made]


def undone(records: RecordsByPath, plan_id: str, stamp: Stamp) -> tuple[Applied, list[EntryRecord]]:
    """The result of undoing a plan, and the changed records; ``RevisionConflict`` if something changed since."""
    stamp = replace(stamp, cause=f"undo {plan_id}")
    before = [record for record in records.values() if isinstance(record, Entry) and was_changed_by(record, plan_id)]
    _check_untouched(before, plan_id)
    retired = [entry for entry in before if entry.retired is not None and entry.retired.cause == plan_id]
    merged = {id for entry in retired for id in entry.names}
    after = [_as_before(entry, stamp, plan_id=plan_id, merged=merged) for entry in before]
    pairs = list(zip(before, after, strict=True))
    hidden = tuple(was.key for was, now in pairs if was.retired is None and now.retired is not None)
    shown = tuple(was.key for was, now in pairs if was.retired is not None and now.retired is None)
    return Applied(plan_id, hidden, shown), list(after)


def _as_before(entry: Entry, stamp: Stamp, *, plan_id: str, merged: Collection[str]) -> Entry:
    before = replace(give_back(entry, merged), reorganised=None)
    if entry.retired is not None and entry.retired.cause == plan_id:
        return decisions.amend(replace(before, retired=None), stamp, op="restore")
    if entry.provenance.source == plan_id:
        return decisions.retire(before, stamp, Retired("deleted", stamp.at, f"undo of {plan_id}"), op="delete")
    return decisions.amend(before, stamp, op="consolidate")


def was_changed_by(entry: Entry, plan_id: str) -> bool:
    """Whether the last change of the entry was by this plan."""
    return entry.reorganised is not None and entry.reorganised.plan == plan_id


def _check_untouched(entries: Sequence[Entry], plan_id: str) -> None:
    """Refuse to undo a plan whose entries are not as it left them."""
    changed = [entry.key for entry in entries if entry.reorganised and entry.reorganised.revision != entry.revision]
    whole = max((entry.reorganised.changed for entry in entries if entry.reorganised), default=0)
    gone = whole - len(entries)
    if not changed and not gone:
        return
    reasons = [f"changed since: {_named(changed)}"] if changed else []
    reasons += [f"{gone} of the {whole} entries that it changed were forgotten or reorganised again"] if gone else []
    raise RevisionConflict(
        f"plan {plan_id[:40]!r} cannot be undone as a whole, and nothing was changed: {'; '.join(reasons)}: restore "
        f"single entries by their keys instead"
    )


def _named(keys: Sequence[str]) -> str:
    return first_few([ascii(key[:80]) for key in keys])
