"""Entry writes: save, update, delete and restore, within the budgets, each durable on return.

The rules this file guards: a save goes to the session's level at that moment, and no argument can choose another; the
entries over a budget go in the same commit, and never one that was just saved; and a save for more readers
leaves no entry behind that would shadow it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import decisions, log
from memfiles.entries.callers import (
    Caller,
    Partition,
    Scopes,
    check_changes,
    check_writable,
    home_scope,
    is_writable,
    own_level,
    scope_for,
    sign_written,
    user_of,
    view_of,
    writable_categories,
)
from memfiles.entries.consolidation.application import Consolidated
from memfiles.entries.decisions import Decided, ImportedHistory, RecordsByPath, WorkingCopy, is_live, location_of
from memfiles.entries.drafts import Checked, Deleted, Draft, Revealed, Saved, draft_of_entry
from memfiles.entries.eviction import EvictionPolicy, Excess, Remedy
from memfiles.entries.moves import SaveTarget, move_shadows, remembered
from memfiles.entries.reader import EntryDatabase, entry_at
from memfiles.errors import EntryNotFound, InvalidArgument, RevisionConflict
from memfiles.records import file_changes
from memfiles.records.entry import Entry, Provenance, Scope
from memfiles.records.keys import check_key, id_path, listed
from memfiles.records.marks import EntryRecord
from memfiles.records.record import Stamp, successor

_ROUNDS = 8  # of choosing victims, of which the last commits even over a budget; and of an edit that others overtake


class ImportedDraft(Struct, frozen=True):
    """A document that may be saved: its draft, its place, its past, and whether the entry is there already."""

    checked: Checked
    place: Partition
    past: ImportedHistory
    is_there: bool


class _Outcome(Struct, frozen=True):
    """The decisions of a write in the order of its drafts, and what it hid; with an excess nothing was written."""

    decisions: list[Decided]
    hidden: Consolidated = Consolidated()
    excesses: Sequence[Excess] = ()


class EntryWriter:
    """The writes of one open memory. Threads may share it."""

    def __init__(self, db: EntryDatabase) -> None:
        self._db = db
        self._eviction = EvictionPolicy(db)
        self._ordinal = 0
        self._numbering = threading.Lock()

    def save(
        self,
        caller: Caller,
        drafts: Sequence[Draft],
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> list[Saved]:
        """Save the drafts under their keys, all or nothing, with one flush; errors as of ``Entries.save``."""
        if None in [draft.content for draft in drafts]:
            raise InvalidArgument("there is nothing to save: pass the content")
        checked = self._db.rules.check_all(drafts)
        stamp, own = Stamp(self._db.now(), caller.actor(call_id), expected_revision), own_level(caller)
        is_seen = partial(self._is_seen, now=stamp.at, empty=self._eviction.empty(own, keys=len(checked)))
        asked = (place.path(each.draft.key) for each in checked for place in own.values())
        with self._db.repository.together(asked) if len(checked) > 1 else nullcontext():
            targets = [self._target(caller, own, each.draft, is_seen) for each in checked]
        return self._save_all(caller, checked, targets, stamp)

    def import_(self, caller: Caller, drafts: Sequence[ImportedDraft]) -> list[Saved]:
        """Save drafts from elsewhere, all or nothing, with the times they had there; errors as of ``save``."""
        agent, user = caller.provenance.agent, user_of(caller)
        places = [(each, location_of(agent, user, *each.place, id=os.urandom(16).hex())) for each in drafts]
        targets = [SaveTarget(it.place.path(it.checked.draft.key), place, past=it.past) for it, place in places]
        stamp = Stamp(self._db.now(), caller.actor(None))
        return self._save_all(caller, [each.checked for each in drafts], targets, stamp)

    def _save_all(
        self, caller: Caller, checked: Sequence[Checked], targets: Sequence[SaveTarget], stamp: Stamp
    ) -> list[Saved]:
        sources = [self._provenance(caller, stamp, each.draft) for each in checked]
        shadows = [path for target in targets for path in target.shadows]
        expiry = self._db.rules.expiry

        def decide(records: WorkingCopy) -> list[Decided]:
            decided = []
            for target, each, source in zip(targets, checked, sources, strict=True):
                draft, place, past = each.draft, target.place, target.past
                saving = move_shadows(records, target, draft.key, stamp) if target.shadows else stamp
                if (before := records[target.path]) is not None:
                    before = remembered(self._db, before, stamp)
                if past is None:
                    made = decisions.save(before, draft, saving, place=place, by=source, expiry=expiry)
                elif self._db.is_left_by_forget(before) or any(map(self._db.is_forgotten, past.ids)):
                    raise EntryNotFound(f"{draft.key[:80]!r} was forgotten meanwhile: import again")
                else:
                    made = decisions.import_(before, draft, stamp, place=place, by=source, expiry=expiry, past=past)
                decided.append(made)
                records[target.path] = made.entry
            return decided

        paths = [*(target.path for target in targets), *shadows]
        paths += self._db.id_paths(paths) if shadows else ()
        paths += (id_path(id) for target in targets if target.past is not None for id in target.past.ids)
        return _receipts(self._write(caller, paths, decide, stamp=stamp), checked)

    def update(
        self, caller: Caller, draft: Draft, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Saved:
        """Update an entry at the caller's level with the draft; ``EntryNotFound``, else errors as of ``save``."""
        stamp, own = Stamp(self._db.now(), caller.actor(call_id), expected_revision), own_level(caller)
        path = self._path_seen(caller, check_key(draft.key), now=stamp.at)
        checked = self._db.rules.check(draft, before=entry_at(self._db.repository, path))
        source, expiry = self._provenance(caller, stamp, draft), self._db.rules.expiry

        def updated(before: EntryRecord | None) -> Decided:
            return decisions.update(before, checked.draft, stamp, by=source, expiry=expiry)

        scope = None if draft.category is None else scope_for(own, self._db.rules.category(draft.category))
        if scope is None or own[scope].path(draft.key) == path:
            outcome = self._write_one(caller, path, updated, stamp=stamp)
        else:
            target = self._target(caller, own, checked.draft, partial(self._is_seen, now=stamp.at))
            moving = replace(stamp, expected_revision=None)
            outcome = self._move(caller, target, path, updated, moving, by=source)
        return _receipts(outcome, [checked])[0]

    def edit(
        self,
        caller: Caller,
        key: str,
        old: str,
        new: str,
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Replace the first occurrence of ``old`` in an entry at the caller's level; errors as of ``Entries.edit``."""
        for round_ in count(1):
            stamp = Stamp(self._db.now(), caller.actor(call_id), expected_revision)
            entry = entry_at(self._db.repository, self._path_seen(caller, check_key(key), now=stamp.at))
            entry = decisions.require_live(entry, key=key, now=stamp.at)
            if (made := decisions.made_by_call(entry, stamp)) is not None:
                return self.update(caller, Draft(key, made), call_id=call_id)
            named = successor(entry.text, name=ascii(key[:80]))  # in errors
            changed = file_changes.edit(named, stamp, old=old, new=new)
            content = entry.content if changed.record is None else changed.record.content
            edited = Draft(key, content, said_at=entry.said_at or None)
            try:
                saved = self.update(caller, edited, expected_revision=entry.revision, call_id=call_id)
                return replace(saved, matches=changed.receipt.matches, line=changed.receipt.line)
            except RevisionConflict:
                if expected_revision is not None or round_ == _ROUNDS:
                    raise
        raise AssertionError("unreachable")

    def undo(
        self, caller: Caller, key: str, to_revision: int | None, *, expected_revision: int | None, call_id: str | None
    ) -> Saved:
        """Take back the last change of an entry's content at the caller's level; errors as of ``Entries.undo``."""
        stamp = Stamp(self._db.now(), caller.actor(call_id), expected_revision)
        places = log.places_of(caller, self._db.rules.levels)
        try:
            path = self._path_seen(caller, check_key(key), now=stamp.at)
        except EntryNotFound as error:
            raise log.erased_among(self._db, own_level(caller).values(), key) or error from None
        by, expiry = self._provenance(caller, stamp, Draft(key)), self._db.rules.expiry
        decide = partial(log.undo, stamp=stamp, key=key, to_revision=to_revision, places=places, by=by, expiry=expiry)
        outcome = self._write_one(caller, path, decide, stamp=stamp)
        warnings = self._db.rules.warnings_about(outcome.decisions[0].entry.content)
        return _receipts(outcome, [Checked(Draft(key), warnings)])[0]

    def delete(
        self, caller: Caller, key: str, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Deleted:
        """Hide the entry of that key at the caller's level; it can be restored. ``EntryNotFound``."""
        stamp = Stamp(self._db.now(), caller.actor(call_id), expected_revision)
        path = self._path_seen(caller, check_key(key), now=stamp.at, call_id=stamp.by.call)
        outcome = self._write_one(caller, path, lambda before: decisions.delete(before, stamp, key=key), stamp=stamp)
        return self._deleted(caller, [outcome.decisions[0].entry])[0]

    def delete_many(self, caller: Caller, keys: Iterable[str]) -> list[Deleted]:
        """Hide the entries of these keys at the caller's level in one commit; returns the existing ones, by key."""
        stamp, own, rules = Stamp(self._db.now(), caller.actor(None)), own_level(caller), self._db.rules
        paths = self._deletable(own, sorted({check_key(key) for key in listed(keys, "keys")}), now=stamp.at)

        def decide(records: RecordsByPath) -> tuple[list[Entry], list[Entry]]:
            live = [it for it in records.values() if is_live(it, stamp.at) and is_writable(own, it, rules=rules)]
            hidden = [decisions.delete(entry, stamp, key=entry.key).entry for entry in live]
            return hidden, hidden

        hidden = self._db.change(paths, decide, caller=caller) if paths else []
        return sorted(self._deleted(caller, hidden), key=lambda each: each.key)

    def restore(self, caller: Caller, key: str, *, call_id: str | None = None) -> Saved:
        """Bring back the entry of that key that was deleted, evicted or expired last at the caller's level."""
        stamp, own = Stamp(self._db.now(), caller.actor(call_id)), own_level(caller)
        found = self._db.entries(each.path(check_key(key)) for each in own.values())
        retired = [each for each in found if not each.is_live(stamp.at) and self._db.erased_at(each) is None]
        retired = retired or [each for each in found if decisions.called_before(each, stamp) is not None]
        if not retired:
            absent = decisions.not_hidden(key) if found else self._db.not_there(caller, key)
            raise log.erased_among(self._db, own.values(), key) or absent
        retired = [each for each in retired if is_writable(own, each, rules=self._db.rules)] or retired
        last = max(retired, key=lambda entry: entry.retired.at if entry.retired is not None else entry.expires_at or "")
        check_writable(own, last, rules=self._db.rules)
        decide = partial(decisions.restore, stamp=stamp, key=key, expiry=self._db.rules.expiry)
        return _receipts(self._write_one(caller, last.path, decide, stamp=stamp), [Checked(Draft(key))])[0]

    def _move(
        self,
        caller: Caller,
        target: SaveTarget,
        path: str,
        updated: Callable[[EntryRecord | None], Decided],
        stamp: Stamp,
        *,
        by: Provenance,
    ) -> _Outcome:
        """Update an entry that gets another owner: save it there and leave a mark here, in one commit.

        Between a user and all users it becomes a new entry, and its history stays behind.
        """
        target = replace(target, shadows=(*(shadow for shadow in target.shadows if shadow != path), path))
        paths = [target.path, *target.shadows]

        def decide(records: WorkingCopy) -> list[Decided]:
            made = updated(records[path])
            entry, is_new = made.entry, target.is_for_others(made.entry)
            if not is_new:
                records[path] = entry
            move_shadows(records, target, entry.key, stamp)
            if is_new:
                draft, before = draft_of_entry(entry, key=entry.key), remembered(self._db, records[target.path], stamp)
                known: dict[str, Any] = {"place": target.place, "by": by, "expiry": lambda *_: entry.expires_at}
                records[target.path] = decisions.save(before, draft, stamp, **known).entry
            moved = records[target.path]
            return [Decided(moved if isinstance(moved, Entry) else entry, replaced=made.replaced)]

        return self._write(caller, [*paths, *self._db.id_paths(paths)], decide, stamp=stamp)

    def _write_one(
        self, caller: Caller, path: str, change: Callable[[EntryRecord | None], Decided], *, stamp: Stamp
    ) -> _Outcome:
        def decide(records: WorkingCopy) -> list[Decided]:
            decided = change(records[path])
            records[path] = decided.entry
            return [decided]

        return self._write(caller, [path], decide, stamp=stamp)

    def _write(
        self, caller: Caller, paths: Sequence[str], decide: Callable[[WorkingCopy], list[Decided]], *, stamp: Stamp
    ) -> _Outcome:
        """Commit the decision made under the records' locks, with the evictions that keep it within the budgets.

        Victims are chosen without their locks. The next round holds those too, and looks at each entry again.
        """
        remedies, plan_id = dict[Partition, Remedy](), f"plan-{os.urandom(6).hex()}"
        for round_ in count(1):
            is_last = round_ == _ROUNDS
            attempt = partial(self._attempt, caller, decide, stamp, remedies.values(), is_last=is_last)
            more = [path for remedy in remedies.values() for path in remedy.paths]
            outcome: _Outcome = self._db.change(list(dict.fromkeys([*paths, *more])), attempt, caller=caller)
            if not outcome.excesses:
                return outcome
            for each in outcome.excesses:
                may = writable_categories(own_level(caller), each.partition.folder, rules=self._db.rules)
                remedy = self._eviction.remedy(each, plan_id=plan_id, held=paths, now=stamp.at, writable=may)
                remedies[each.partition] = remedy
        raise AssertionError("unreachable")

    def _attempt(
        self,
        caller: Caller,
        decide: Callable[[WorkingCopy], list[Decided]],
        stamp: Stamp,
        remedies: Collection[Remedy],
        before: RecordsByPath,
        *,
        is_last: bool,
    ) -> tuple[_Outcome, list[EntryRecord]]:
        """The outcome of the decision and the remedies, and the changed records: none if they exceed a budget."""
        records = dict(before)
        decided = decide(records)
        check_changes(own_level(caller), before, records, rules=self._db.rules)
        written = sign_written(caller, before, records)
        as_decided = dict(records)
        hidden = self._eviction.carry_out(remedies, records, stamp)
        look = partial(self._eviction.excesses, before, written=written)
        if not is_last and (left := look(records, is_first=not remedies)):
            whole = look(as_decided) if remedies else left  # victims are chosen for the whole excess
            return _Outcome(decided, excesses=[whole.get(of, excess) for of, excess in left.items()]), []
        changed = [record for path, record in records.items() if record is not None and record is not before[path]]
        return _Outcome(decided, hidden), changed

    def _target(self, caller: Caller, own: Scopes, draft: Draft, is_seen: Callable[..., bool]) -> SaveTarget:
        """The place that the draft's category asks for, or else where its key is seen, or the session's ``own``."""
        category, origin = draft.category, caller.provenance
        if category is None:
            scope, nearer = self._scope_seen(own, draft.key, is_seen), list[Partition]()
        else:
            scope = scope_for(own, self._db.rules.category(category))
            nearer = [own[each] for each in takewhile(lambda each: each != scope, own)]
        shadows = tuple(each.path(draft.key) for each in nearer if is_seen(each, draft.key))
        place = location_of(origin.agent, user_of(caller), *own[scope], id=os.urandom(16).hex())
        return SaveTarget(own[scope].path(draft.key), place, shadows)

    def _scope_seen(self, own: Scopes, key: str, is_seen: Callable[..., bool]) -> Scope:
        """The nearest scope in which the caller sees the key, else the one that it saves to.

        For a user's session never a scope that others see: another user may have saved the key there.
        """
        if "run" in own and is_seen(own["run"], key):
            return "run"
        home = home_scope(own)
        if home == "agent" and is_seen(own["workspace"], key):
            return "agent" if is_seen(own["agent"], key) else "workspace"
        return home

    def _deletable(self, own: Scopes, keys: Sequence[str], *, now: str) -> list[str]:
        """The paths of the caller's entries of these keys; ``ReadOnly`` if it may change none of those of a key."""
        asked = self._db.entries(each.path(key) for key in keys for each in own.values())
        found = [(it, is_writable(own, it, rules=self._db.rules)) for it in asked if it.is_live(now)]
        allowed = {entry.key for entry, may in found if may}
        for entry in (entry for entry, _ in found if entry.key not in allowed):
            check_writable(own, entry, rules=self._db.rules)
        return [entry.path for entry, may in found if may]

    def _is_seen(self, place: Partition, key: str, *, now: str, empty: Collection[Partition] = ()) -> bool:
        return place not in empty and is_live(self._db.repository.look(place.path(key)).record, now)

    def _path_seen(self, caller: Caller, key: str, *, now: str, call_id: str | None = None) -> str:
        """The path of the entry that the caller sees at its own level, or that this very call deleted before."""
        own = own_level(caller)
        entries = [(path, entry_at(self._db.repository, path)) for path in (each.path(key) for each in own.values())]
        for path, entry in entries:
            if is_live(entry, now):
                check_writable(own, entry, rules=self._db.rules)
                return path
        for path, entry in entries:
            if entry is not None and call_id and any(change.by.call == call_id for change in entry.text.history):
                return path
        raise self._db.not_there(caller, key)

    def _deleted(self, caller: Caller, entries: Sequence[Entry]) -> list[Deleted]:
        """The receipts of a delete, each with the entry that was shadowed: all are asked for at once."""
        view = view_of(caller, self._db.rules.levels)
        found = self._db.entries(place.path(entry.key) for entry in entries for place in reversed(view))
        seen = {it.key: Revealed(it.level, it.id) for it in found if self._db.is_live(it)}  # the nearest comes last
        return [Deleted(it.key, it.level, it.revision, it.id, seen.get(it.key)) for it in entries]

    def _provenance(self, caller: Caller, stamp: Stamp, draft: Draft) -> Provenance:
        origin, by = caller.provenance, stamp.by
        with self._numbering:  # higher for every save of this process, also within one tick of the clock
            self._ordinal = ordinal = max(self._ordinal + 1, time.time_ns())
        return Provenance(
            *(origin.agent, origin.user, by.session, origin.run, origin.channel, origin.thread),
            *(by.call, draft.source, ordinal),
        )


def _receipts(outcome: _Outcome, checked: Sequence[Checked]) -> list[Saved]:
    return [_receipt(it, each, outcome.hidden) for it, each in zip(outcome.decisions, checked, strict=True)]


def _receipt(made: Decided, checked: Checked, hidden: Consolidated) -> Saved:
    """The receipt of one draft; of content that was replaced, it says what became of its tags and its confidence."""
    entry, before, draft = made.entry, made.replaced, checked.draft
    is_reset = before is not None and draft.confidence is None and before.confidence != entry.confidence
    return Saved(
        *(entry.key, entry.level, made.replayed or entry.revision, entry.size_bytes),
        *(hidden.evicted, made.replayed is not None, checked.warnings),
        id=entry.id,
        kept_tags=before.tags if before is not None and draft.tags is None else (),
        confidence_was=before.confidence if before is not None and is_reset else None,
        merged=hidden.merged,
        folded=hidden.folded,
        plan=hidden.plan,
    )
