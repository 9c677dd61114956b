"""Renames and renewals of entries in one batch, and the moves of shadowing entries that a save causes.

The rules this file guards: new keys are given all or none, not to entries that changed meanwhile, and an entry keeps
its id, its times and all its fields. ``decisions.relocated`` says what a move leaves behind. And what a read renews,
nobody sees but the reader's own level of its user, or of its agent if it has no user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import decisions
from memfiles.entries.callers import (
    Caller,
    Partition,
    check_caller,
    check_changes,
    check_writable,
    home_scope,
    own_level,
    sign_written,
    user_of,
)
from memfiles.entries.decisions import EntryLocation, ImportedHistory, RecordsByPath, WorkingCopy, is_live, location_of
from memfiles.entries.drafts import LAST_MOMENT, Draft, draft_of_entry, later
from memfiles.entries.reader import EntryDatabase
from memfiles.entries.results import Found
from memfiles.errors import InvalidArgument, RevisionConflict
from memfiles.records.entry import Entry
from memfiles.records.keys import check_key
from memfiles.records.marks import EntryRecord, vacated
from memfiles.records.record import Stamp


class _Move(Struct, frozen=True):
    """An entry as it was found, its partition, and the draft under its new key."""

    entry: Entry
    partition: Partition
    draft: Draft

    @property
    def target(self) -> str:
        """The new path."""
        return self.partition.path(self.draft.key)


class SaveTarget(Struct, frozen=True):
    """The place of a draft, the records of its key that would shadow it there, and its past elsewhere, if any."""

    path: str
    place: EntryLocation
    shadows: tuple[str, ...] = ()
    past: ImportedHistory | None = None

    def is_for_others(self, entry: Entry) -> bool:
        """Whether an entry would go from a user to all, or from all to a user: then its history stays behind."""
        return bool(entry.user) != bool(self.place.user)


def relocate(db: EntryDatabase, caller: Caller, keys: Mapping[str, str]) -> None:
    """Give the entry of each key its new key, in one commit; ``EntryNotFound``, else errors as of ``Entries.save``."""
    if not isinstance(keys, Mapping):
        raise InvalidArgument(f"moves must map keys to new keys, not be {type(keys).__name__}")
    stamp = Stamp(db.now(), caller.actor(None))
    planned = [_planned(db, caller, key, new, among=keys) for key, new in keys.items()]
    places = [path for move in planned for path in (move.entry.path, move.target)]

    def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
        after = dict(records)
        for move in planned:
            path, expected = move.entry.path, replace(stamp, expected_revision=move.entry.revision)
            entry = decisions.require_live(after[path], key=move.entry.key, now=stamp.at)
            decisions.check_expected_revision(entry, expected, key=move.entry.key)
            after[path] = vacated(entry, stamp.at, by=stamp.by, target=move.target)
        for move in planned:
            place = location_of(caller.provenance.agent, user_of(caller), *move.partition)
            if is_live(after[move.target], stamp.at):
                raise _taken(move.draft.key)
            after |= decisions.relocated(after, move.entry, move.draft, stamp, place=place)
        check_changes(own_level(caller), records, after, rules=db.rules)
        written = sign_written(caller, records, after)
        return None, [each for path in written if (each := after[path]) is not None]

    db.change([*places, *db.id_paths(places)], decide, caller=caller)


def remembered(db: EntryDatabase, record: EntryRecord | None, stamp: Stamp) -> EntryRecord | None:
    """The record to save over; one from before its user was forgotten and came back counts as none."""
    if isinstance(record, Entry) and record.epoch and db.is_forgotten(record.epoch):
        return vacated(record, stamp.at, by=stamp.by)
    return record


def renew(db: EntryDatabase, caller: Caller, read: Sequence[tuple[Found, float]]) -> None:
    """Set the expiry of entries that the caller read to the seconds given with each from now, in one commit.

    Left as they are: entries that changed since or belong to another session, and those with less than a hundredth of
    their time over, as each renewal is a change of the record.
    """
    check_caller(caller)
    own, stamp = own_level(caller), Stamp(db.now(), caller.actor(None))
    mine = [own[scope] for scope in ("run", home_scope(own)) if scope in own]
    until = {found.id: later(stamp.at, seconds) for found, seconds in read}
    worn = [
        found for found, seconds in read if later(found.expires_at or LAST_MOMENT, seconds / 100) <= until[found.id]
    ]
    due = {each.path(found.key): found for found in worn for each in mine}

    def decide(records: RecordsByPath) -> tuple[None, list[Entry]]:
        live = [(entry, due[path]) for path, entry in records.items() if is_live(entry, stamp.at)]
        same = [entry for entry, found in live if (entry.id, entry.revision) == (found.id, found.revision)]
        amended = (entry.amended(expires_at=until[entry.id]) for entry in same)
        return None, [decisions.amend(entry, stamp, op="update") for entry in amended]

    if due and caller.provenance.agent not in db.rules.readers:
        db.change(list(due), decide, caller=caller)


def _planned(db: EntryDatabase, caller: Caller, key: str, new: str, *, among: Mapping[str, str]) -> _Move:
    own = own_level(caller)
    view = tuple(own.values())
    entry = db.visible(view, check_key(key))
    if entry is None:
        raise db.not_there(caller, key)
    check_writable(own, entry, rules=db.rules)
    draft = db.rules.check(draft_of_entry(entry, key=new), before=entry).draft
    if new not in among and db.visible(view, new) is not None:
        raise _taken(new)
    return _Move(entry, Partition(entry.folder, entry.level, entry.run), draft)


def _taken(key: str) -> RevisionConflict:
    return RevisionConflict(f"there is an entry {ascii(key[:80])} already: choose another key, or delete it first")


def move_shadows(records: WorkingCopy, target: SaveTarget, key: str, stamp: Stamp) -> Stamp:
    """Move the entries that would shadow a save to its target, the last one on top; returns the stamp for the save.

    It expects a revision only if nothing was moved: the caller saw what shadowed the target. An entry whose history
    others must not see is deleted and not moved.
    """
    for path in target.shadows:
        if is_live(entry := records[path], stamp.at):
            decisions.check_expected_revision(entry, stamp, key=key)
            stamp, draft = replace(stamp, expected_revision=None), draft_of_entry(entry, key=key)
            if target.is_for_others(entry):
                records[path] = decisions.delete(entry, stamp, key=key).entry
            else:
                records.update(decisions.relocated(records, entry, draft, stamp, place=target.place))
    return stamp
