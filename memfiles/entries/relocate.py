"""Several entries get other keys as one change.

The rules this file guards: all of it is done or nothing; what changed since it was looked at is not touched; an entry
that gets another key keeps its times, and whatever is said of it; and what it was before leads to where it is now, as
the key in between may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memfiles.entries import decisions as saving
from memfiles.entries.decisions import EntryLocation, Past
from memfiles.entries.drafts import Draft, check_draft
from memfiles.entries.moves import Moves, lead_on
from memfiles.entries.partitions import Caller, Partition, View, own_level
from memfiles.entries.policy import EntryRules
from memfiles.entries.repository import EntryRepository, RecordsByPath, entry_at
from memfiles.errors import InvalidArgument, RevisionConflict
from memfiles.records.entry import Entry, EntryRecord, moved_to
from memfiles.records.keys import WORKSPACE, check_key
from memfiles.records.record import Stamp


@dataclass(frozen=True, slots=True)
class _Move:
    """An entry as it was found, where it lies, and what it becomes."""

    entry: Entry
    partition: Partition
    draft: Draft

    @property
    def target(self) -> str:
        """Where it will lie."""
        return self.partition.path(self.draft.key)


class Relocator:
    """Moves entries at the level of a session."""

    def __init__(self, shelf: EntryRepository, moves: Moves, *, rules: EntryRules, now: Callable[[], str]) -> None:
        """``now`` gives the time of the change."""
        self._shelf = shelf
        self._moves = moves
        self._rules = rules
        self._now = now

    def relocate(self, caller: Caller, moves: Mapping[str, str]) -> None:
        """Give the entry of each key the other one; all or nothing, one commit.

        ``EntryNotFound``, ``RevisionConflict`` (a key is taken, or an entry was changed meanwhile), and what a save
        refuses: nothing changed.
        """
        if not isinstance(moves, Mapping):
            raise InvalidArgument(f"moves maps keys to the new ones; this is {type(moves).__name__}")
        stamp, own = Stamp(self._now(), caller.actor(None)), own_level(caller)
        planned = [self._planned(own, key, new, now=stamp.at) for key, new in moves.items()]
        agent = caller.provenance.agent
        places = [path for move in planned for path in (move.entry.path, move.target)]
        before = self._moves.sources([move.entry.path for move in planned])

        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            after = dict(records)
            for move in planned:
                expected = replace(stamp, expected_revision=move.entry.revision)
                after[move.entry.path] = saving.delete(
                    after[move.entry.path], expected, key=move.entry.key, cause=moved_to(move.target)
                ).entry
            for move in planned:
                after[move.target] = self._moved(after[move.target], move, stamp, agent=agent)
            targets = {moved_to(move.entry.path): moved_to(move.target) for move in planned}
            after |= {path: lead_on(after[path], stamp, targets) for path in before if path not in places}
            changed = [record for path, record in after.items() if record is not None and record is not records[path]]
            return None, changed

        self._shelf.change([*places, *before], decide)

    def _planned(self, own: View, key: str, new: str, *, now: str) -> _Move:
        found = self._live(own, check_key(key), now)
        if found is None:
            raise saving.not_there(key)
        entry, partition = found
        facets = ("tags", "category", "kind", "confidence", "importance", "pinned", "links")
        said = Draft(new, entry.content, **{facet: getattr(entry, facet) for facet in facets})
        rules = self._rules
        draft = check_draft(said, secrets=rules.secrets, allow=rules.allow, scan=rules.scan).draft
        if self._live(own, new, now) is not None:
            raise _taken(new)
        return _Move(entry, partition, draft)

    def _moved(self, before: EntryRecord | None, move: _Move, stamp: Stamp, *, agent: str) -> Entry:
        """What lies at the new place then; what was there may only be what is gone."""
        entry, draft, place = move.entry, move.draft, move.partition
        if isinstance(before, Entry) and before.is_live(stamp.at):
            raise _taken(draft.key)
        past = Past(entry.created_at, entry.updated_at, entry.expires_at)
        where = EntryLocation(WORKSPACE if place.scope == WORKSPACE else agent, place.level, place.run)
        expiry = self._rules.expiry
        taken = saving.take_in(before, draft, stamp, place=where, by=entry.provenance, expiry=expiry, past=past).entry
        kept = ("successes", "failures", "made_of", "merged")
        return replace(taken, **{name: getattr(entry, name) for name in kept})

    def _live(self, own: View, key: str, now: str) -> tuple[Entry, Partition] | None:
        for partition in own:
            entry = entry_at(self._shelf, partition.path(key))
            if entry is not None and entry.is_live(now):
                return entry, partition
        return None


def _taken(key: str) -> RevisionConflict:
    return RevisionConflict(f"there is an entry {ascii(key[:80])} already: choose another key, or delete it first")
