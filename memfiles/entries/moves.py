"""Entry moves: where entries went when they got other keys or owners, where they came from, and a batch of new keys.

The rules this file guards: a move is recorded in the cause of the hidden entry at the old place, so it can be followed
both ways, also over several moves; each old place leads to the present one, as a key in between may be used again. New
keys are given all or none, not to entries that changed meanwhile, and an entry keeps its times and all its fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memfiles.entries import decisions
from memfiles.entries.callers import Caller, Partition, View, own_level
from memfiles.entries.decisions import EntryLocation, RecordsByPath, is_live, location_of
from memfiles.entries.drafts import Draft, draft_of_entry
from memfiles.entries.reader import EntryDatabase, entry_at
from memfiles.errors import InvalidArgument, RevisionConflict
from memfiles.index import queries
from memfiles.index.rows import Row
from memfiles.records.entry import MOVED, Entry, EntryRecord, moved_to
from memfiles.records.keys import check_key, entry_place
from memfiles.records.record import Stamp


class Moves:
    """The moves of the entries of one open memory, whichever agent or run the entries belong to."""

    def __init__(self, db: EntryDatabase) -> None:
        self._db = db

    def before(self, paths: Iterable[str]) -> list[Entry]:
        """The hidden entries at the earlier places of the entries at these paths."""
        left: dict[str, list[str]] = {}
        for row in self._hidden_by_moves():
            left.setdefault(row.cause, []).append(row.path)
        known = list(paths)
        ends = set(known)
        for path in known:  # which grows: an entry may have moved more than once
            known += left.pop(moved_to(path), ())
        return self._db.entries(path for path in dict.fromkeys(known) if path not in ends)

    def sources(self, paths: Collection[str]) -> list[str]:
        """The paths from which entries moved to these paths, by one move."""
        if not paths:
            return []
        self._db.index.catch_up()
        causes = {moved_to(path) for path in paths}
        return [row.path for row in self._hidden_by_moves() if row.cause in causes]

    def after(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries at the later places of these entries, by one move or several."""
        known, found = {entry.path for entry in entries}, list(entries)
        for entry in found:  # which grows: an entry may have moved on
            target = entry.retired.target if entry.retired is not None else ""
            if target not in known and entry_place(target) is not None:
                known.add(target)
                found += self._db.entries([target])
        return found[len(entries) :]

    def targets(self) -> list[str]:
        """The paths to which entries moved, sorted."""
        return sorted({row.cause.removeprefix(MOVED) for row in self._hidden_by_moves()})

    def _hidden_by_moves(self) -> list[Row]:
        return self._db.index.ask(
            lambda connection: queries.retired_by(connection, queries.all_parts(connection), prefix=MOVED)
        )


@dataclass(frozen=True, slots=True)
class _Move:
    """An entry as it was found, its partition, and the draft under its new key."""

    entry: Entry
    partition: Partition
    draft: Draft

    @property
    def target(self) -> str:
        """The new path."""
        return self.partition.path(self.draft.key)


class Relocator:
    """Gives new keys to entries at the level of a session."""

    def __init__(self, db: EntryDatabase, moves: Moves) -> None:
        self._db = db
        self._moves = moves

    def relocate(self, caller: Caller, keys: Mapping[str, str]) -> None:
        """Give the entry of each key its new key; all or nothing, one commit.

        ``EntryNotFound``, ``RevisionConflict`` (a key is taken, or an entry was changed meanwhile), and the refusals of
        a save: nothing changed.
        """
        if not isinstance(keys, Mapping):
            raise InvalidArgument(f"moves must map keys to new keys, not be {type(keys).__name__}")
        stamp, own = Stamp(self._db.now(), caller.actor(None)), own_level(caller)
        planned = [self._planned(own, key, new, now=stamp.at) for key, new in keys.items()]
        sources = self._moves.sources([move.entry.path for move in planned])
        places = [path for move in planned for path in (move.entry.path, move.target)]

        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            after = dict(records)
            for move in planned:
                path, expected = move.entry.path, replace(stamp, expected_revision=move.entry.revision)
                cause = moved_to(move.target)
                after[path] = decisions.delete(after[path], expected, key=move.entry.key, cause=cause).entry
            for move in planned:
                place = location_of(caller.provenance.agent, *move.partition, id="")
                after[move.target] = self._moved(after[move.target], move, stamp, place=place)
            causes = {moved_to(move.entry.path): moved_to(move.target) for move in planned}
            after |= {path: decisions.redirect(after[path], stamp, causes) for path in sources if path not in places}
            return None, [each for path, each in after.items() if each is not None and each is not records[path]]

        self._db.repository.change([*places, *sources], decide)

    def _planned(self, own: View, key: str, new: str, *, now: str) -> _Move:
        found = self._live(own, check_key(key), now)
        if found is None:
            raise decisions.not_there(key)
        entry, partition = found
        draft = self._db.rules.check(draft_of_entry(entry, key=new), before=entry).draft
        if self._live(own, new, now) is not None:
            raise _taken(new)
        return _Move(entry, partition, draft)

    def _moved(self, before: EntryRecord | None, move: _Move, stamp: Stamp, *, place: EntryLocation) -> Entry:
        """The entry at its new place, where no live entry may be."""
        if is_live(before, stamp.at):
            raise _taken(move.draft.key)
        return decisions.move(move.entry, before, move.draft, stamp, place=place, expiry=self._db.rules.expiry).entry

    def _live(self, own: View, key: str, now: str) -> tuple[Entry, Partition] | None:
        for partition in own:
            entry = entry_at(self._db.repository, partition.path(key))
            if is_live(entry, now):
                return entry, partition
        return None


def _taken(key: str) -> RevisionConflict:
    return RevisionConflict(f"there is an entry {ascii(key[:80])} already: choose another key, or delete it first")
