"""Writing entries: save, update, delete and restore, within the budgets, each durable on return.

The rules this file guards: a save goes to the level at which the session is at that moment, and nothing it says can
choose another; what is over a budget goes in the same commit, and never what was just saved; and a save that puts a
key where more see it leaves nothing behind that would shadow it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memfiles.entries import decisions as saving
from memfiles.entries.decisions import Decided, EntryLocation, Past
from memfiles.entries.drafts import Checked, Draft, check_draft
from memfiles.entries.eviction import OverBudget, Room
from memfiles.entries.moves import Moves, clear
from memfiles.entries.partitions import Caller, Partition, View, own_level
from memfiles.entries.policy import EntryRules
from memfiles.entries.repository import EntryRepository, RecordsByPath, entry_at
from memfiles.entries.results import Deleted, Saved
from memfiles.errors import EntryNotFound, InvalidArgument
from memfiles.records.entry import Entry, EntryRecord, Provenance, Tombstone
from memfiles.records.keys import WORKSPACE, check_key
from memfiles.records.record import Stamp

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ImportedDraft:
    """A draft from elsewhere that may be saved: where it goes, what is known of its past, whether it is there."""

    checked: Checked
    place: Partition
    past: Past
    is_there: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a draft goes, and the records of the same key that would shadow it there."""

    path: str
    place: EntryLocation
    shadows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a write comes to: the decisions in the order of the drafts, all records to commit, the keys that went."""

    decisions: list[Decided]
    records: list[EntryRecord]
    evicted: tuple[str, ...] = ()


class EntryWriter:
    """The writes of one open memory. Threads may share it."""

    def __init__(
        self, shelf: EntryRepository, moves: Moves, room: Room, *, rules: EntryRules, now: Callable[[], str]
    ) -> None:
        """``now`` gives the time of changes."""
        self._shelf = shelf
        self._moves = moves
        self._room = room
        self._rules = rules
        self._now = now
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
        """Save what the drafts say under their keys, all or nothing, with one flush; the receipts in their order.

        ``SizeExceeded``, ``BudgetExceeded``, ``SecretRefused``, ``RevisionConflict``, ``ReadOnly`` (an episode),
        ``LockTimeout``, ``StorageFailed``: nothing changed.
        """
        if any(draft.content is None for draft in drafts):
            raise InvalidArgument("there is nothing to save: pass the content")
        checked = [self._checked(draft) for draft in drafts]
        stamp = Stamp(self._now(), caller.actor(call_id), expected_revision)
        own = own_level(caller)
        targets = [self._target(caller, own, each.draft, now=stamp.at) for each in checked]
        sources = [self._provenance(caller, stamp, each.draft) for each in checked]

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decisions = []
            for target, each, source in zip(targets, checked, sources, strict=True):
                decided = saving.save(
                    records[target.path],
                    each.draft,
                    stamp,
                    place=target.place,
                    by=source,
                    expiry=self._rules.expiry,
                )
                records[target.path] = decided.entry
                clear(records, target.shadows, stamp, for_=target.path)
                decisions.append(decided)
            return decisions

        shadows = [path for target in targets for path in target.shadows]
        paths = [*(target.path for target in targets), *shadows, *self._moves.sources(shadows)]
        outcome = self._write(paths, decide, stamp=stamp)
        return _receipts(outcome, checked)

    def take_in(self, caller: Caller, taken: Sequence[ImportedDraft]) -> list[Saved]:
        """Save what comes from elsewhere, all or nothing, with the times it had there; errors as of ``save``."""
        stamp = Stamp(self._now(), caller.actor(None))
        sources = [self._provenance(caller, stamp, each.checked.draft) for each in taken]
        paths = [each.place.path(each.checked.draft.key) for each in taken]

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decisions = []
            for path, each, source in zip(paths, taken, sources, strict=True):
                if isinstance(records[path], Tombstone):
                    raise EntryNotFound(f"{each.checked.draft.key[:80]!r} was forgotten meanwhile: import again")
                agent = WORKSPACE if each.place.scope == WORKSPACE else caller.provenance.agent
                decided = saving.take_in(
                    records[path],
                    each.checked.draft,
                    stamp,
                    place=EntryLocation(agent, each.place.level, each.place.run),
                    by=source,
                    expiry=self._rules.expiry,
                    past=each.past,
                )
                records[path] = decided.entry
                decisions.append(decided)
            return decisions

        return _receipts(self._write(paths, decide, stamp=stamp), [each.checked for each in taken])

    def update(
        self, caller: Caller, draft: Draft, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Saved:
        """Change what the draft says of an entry at the caller's level; ``EntryNotFound``, else errors as ``save``."""
        each = self._checked(draft)
        stamp = Stamp(self._now(), caller.actor(call_id), expected_revision)
        source = self._provenance(caller, stamp, draft)
        own = own_level(caller)
        path = self._present(own, draft.key, now=stamp.at)
        if draft.category is not None and self._scope(own, draft.category) != self._scope_of(own, path, draft.key):
            return self._move(caller, path, each, stamp, source)

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decided = saving.update(records[path], each.draft, stamp, by=source, expiry=self._rules.expiry)
            records[path] = decided.entry
            return [decided]

        return _receipts(self._write([path], decide, stamp=stamp), [each])[0]

    def delete(
        self, caller: Caller, key: str, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Deleted:
        """Hide the entry of that key at the caller's level; it can be restored. ``EntryNotFound``."""
        stamp = Stamp(self._now(), caller.actor(call_id), expected_revision)
        path = self._present(own_level(caller), check_key(key), now=stamp.at, call_id=stamp.by.call)

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decided = saving.delete(records[path], stamp, key=key)
            records[path] = decided.entry
            return [decided]

        entry = self._write([path], decide, stamp=stamp).decisions[0].entry
        return Deleted(key, entry.level, entry.revision)

    def restore(self, caller: Caller, key: str, *, call_id: str | None = None) -> Saved:
        """Bring back the entry of that key that was deleted or evicted last at the caller's level.

        What was moved away is not gone: it has another key or place, from which it would be brought back.
        """
        stamp = Stamp(self._now(), caller.actor(call_id))
        candidates = [entry_at(self._shelf, partition.path(check_key(key))) for partition in own_level(caller)]
        retired = [entry for entry in candidates if entry is not None and self._is_gone(entry, stamp.at)]
        if not retired:
            raise saving.not_there(key)
        path = max(retired, key=_retired_at).path

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decided = saving.restore(records[path], stamp, key=key, expiry=self._rules.expiry)
            records[path] = decided.entry
            return [decided]

        return _receipts(self._write([path], decide, stamp=stamp), [Checked(Draft(key))])[0]

    def _write(
        self, paths: Sequence[str], decide: Callable[[dict[str, EntryRecord | None]], list[Decided]], *, stamp: Stamp
    ) -> _Outcome:
        """Decide over the records under their locks, and have what is then over a budget go in the same commit.

        Which entries are to go is found without their locks: they are taken in the next round, and looked at again.
        """
        victims: list[str] = []
        for is_last in (*([False] * (_ROUNDS - 1)), True):

            def attempt(before: RecordsByPath) -> tuple[_Outcome, list[EntryRecord]]:
                records = dict(before)
                decisions = decide(records)
                went = _evict(records, [path for path in victims if path not in paths], stamp)  # noqa: B023
                if not is_last:  # noqa: B023
                    self._room.check(before, records)
                changed = [record for path, record in records.items() if record is not before[path]]
                outcome = _Outcome(decisions, [record for record in changed if record is not None], tuple(went))
                return outcome, outcome.records

            try:
                return self._shelf.change([*paths, *victims], attempt)
            except OverBudget as outgrown:
                victims = [path for path in self._room.victims(outgrown, now=stamp.at) if path not in paths]
        raise AssertionError("the last round never asks for more room")

    def _move(self, caller: Caller, path: str, each: Checked, stamp: Stamp, source: Provenance) -> Saved:
        """An update that changes whom an entry belongs to: it is saved there and gone here, in one commit."""
        target = self._target(caller, own_level(caller), each.draft, now=stamp.at)
        left = [path, *target.shadows]
        paths = list(dict.fromkeys((target.path, *left, *self._moves.sources(left))))

        def decide(records: dict[str, EntryRecord | None]) -> list[Decided]:
            decided = saving.update(records[path], each.draft, stamp, by=source, expiry=self._rules.expiry)
            moved = saving.move(
                decided.entry, records[target.path], stamp, place=target.place, expiry=self._rules.expiry
            )
            records[target.path] = moved.entry
            clear(records, left, stamp, for_=target.path)
            return [moved]

        return _receipts(self._write(paths, decide, stamp=stamp), [each])[0]

    def _checked(self, draft: Draft) -> Checked:
        return check_draft(draft, secrets=self._rules.secrets, allow=self._rules.allow, scan=self._rules.scan)

    def _target(self, caller: Caller, own: View, draft: Draft, *, now: str) -> _Target:
        """Where a draft goes: where its category says, or else where its key is seen now, or to the agent's own."""
        at = self._scope(own, draft.category) if draft.category is not None else self._where_seen(own, draft.key, now)
        partition = own[at]
        agent = WORKSPACE if partition.scope == WORKSPACE else caller.provenance.agent
        before = own[:at] if draft.category is not None else ()  # nothing shadows a key where it is seen
        paths = [other.path(draft.key) for other in before]
        there = tuple(path for path in paths if self._is_seen(path, now))
        return _Target(partition.path(draft.key), EntryLocation(agent, partition.level, partition.run), there)

    def _scope(self, own: View, category: str) -> int:
        """Which of the caller's own partitions entries of the category lie in."""
        rule = self._rules.category(category)
        if rule.is_of_one_run and len(own) < 3:
            raise InvalidArgument(
                f"category {category} belongs to a run, and this session has none: use another category, or none "
                f"(a program names the run when it asks for the session)"
            )
        return len(own) - 1 if rule.is_shared else len(own) - 3 if rule.is_of_one_run else len(own) - 2

    def _scope_of(self, own: View, path: str, key: str) -> int:
        return next(index for index, partition in enumerate(own) if partition.path(key) == path)

    def _where_seen(self, own: View, key: str, now: str) -> int:
        """The first of the caller's own partitions where the key is there; the agent's if it is in none of them."""
        if len(own) > 2 and self._is_seen(own[0].path(key), now):
            return 0
        agents, shared = len(own) - 2, len(own) - 1
        # the agent's is looked at only if the key is there for all: else it is the one in any case
        is_shared = self._is_seen(own[shared].path(key), now) and not self._is_seen(own[agents].path(key), now)
        return shared if is_shared else agents

    def _is_seen(self, path: str, now: str) -> bool:
        entry = entry_at(self._shelf, path)
        return entry is not None and self._is_there(entry, now)

    def _present(self, own: View, key: str, *, now: str, call_id: str | None = None) -> str:
        """Where the entry of that key lies that the caller sees at its own level; or which this call deleted before."""
        paths = [partition.path(key) for partition in own]
        entries = [(path, entry_at(self._shelf, path)) for path in paths]
        for path, entry in entries:
            if entry is not None and self._is_there(entry, now):
                return path
        for path, entry in entries:
            if entry is not None and call_id and any(change.by.call == call_id for change in entry.text.history):
                return path
        raise saving.not_there(key)

    def _is_there(self, entry: Entry, now: str) -> bool:
        return entry.is_live(now)

    def _is_gone(self, entry: Entry, now: str) -> bool:
        is_moved = entry.retired is not None and entry.retired.is_move
        return not is_moved and not self._is_there(entry, now)

    def _provenance(self, caller: Caller, stamp: Stamp, draft: Draft) -> Provenance:
        origin = caller.provenance
        return Provenance(
            agent=origin.agent,
            session=stamp.by.session,
            run=origin.run,
            channel=origin.channel,
            thread=origin.thread,
            call=stamp.by.call,
            source=draft.source,
            ordinal=self._next_ordinal(),
        )

    def _next_ordinal(self) -> int:
        with self._numbering:
            self._ordinal = max(self._ordinal + 1, time.time_ns())
            return self._ordinal


def _evict(records: dict[str, EntryRecord | None], victims: Sequence[str], stamp: Stamp) -> list[str]:
    """Evict those of the victims that are still there; their keys, but not those of what had expired anyway."""
    went = []
    cause = f"evict-{uuid.uuid4().hex[:12]}" if victims else ""
    for path in victims:
        found = records[path]
        if isinstance(found, Entry) and found.retired is None:
            records[path] = saving.evict(found, replace(stamp, expected_revision=None), cause=cause)
            if not found.is_expired(stamp.at):
                went.append(found.key)
    return went


def _receipts(outcome: _Outcome, checked: Sequence[Checked]) -> list[Saved]:
    return [
        Saved(
            decided.entry.key,
            decided.entry.level,
            decided.replayed or decided.entry.revision,
            decided.entry.size_bytes,
            outcome.evicted,
            decided.replayed is not None,
            each.warnings,
        )
        for decided, each in zip(outcome.decisions, checked, strict=True)
    ]


def _retired_at(entry: Entry) -> str:
    return entry.retired.at if entry.retired is not None else entry.expires_at or ""
