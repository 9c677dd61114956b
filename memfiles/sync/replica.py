"""The replica: the records of this directory, as the sync reads and changes them.

The rule this file guards: an entry of one run is private and never leaves the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.declared_metadata import decode_file
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import is_of_one_run
from memfiles.records.keys import entry_place, id_path, is_id_path, uid_of
from memfiles.records.marks import AnyRecord, EntryRecord, Mark, vacated
from memfiles.records.record import Record, digest
from memfiles.records.redactions import Piece
from memfiles.storage import quarantine
from memfiles.storage.atomic import Signature
from memfiles.storage.entry_folders import FeedListing, RecordListing
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.home import MemoryHome
from memfiles.storage.quarantine import MergeSide
from memfiles.storage.record_store import RecordStore
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import with_files
from memfiles.sync.merge.merge_entries import MarksById, includes, is_same, merged_at_place, place_of
from memfiles.sync.merge.merge_files import ConflictPolicy
from memfiles.sync.merge.record_types import decode_entry_copy, encode_copy

TURNS = ".state/mirror-turns"
TURNS_OF_IDS = ".state/mirror-turns-of-ids"
Outcome = Literal["equal", "pushed", "pulled", "merged", "conflict"]
_MOVED = "the entry has another key or owner, and both copies had changed the same lines"
OUTCOMES: tuple[Outcome, ...] = ("equal", "pushed", "pulled", "merged", "conflict")  # the later one has more
CopyInMirror = Callable[[str], EntryRecord | None]
"""Gets the mirror's copy of the entry at a path."""


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A record on disk: its bytes, the decoded record, and the file's signature.

    ``is_provisional``: a stand-in until the mirror answers. ``is_private``: no mirror may have it.
    """

    body: bytes
    record: AnyRecord
    signature: Signature
    is_provisional: bool = False
    is_private: bool = False

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes."""
        return digest(self.body)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome for a record: ``record`` is written (None: it stays), and ``loser`` is kept in ``conflicts/``.

    ``lost`` is the side of the loser. ``is_ours``: the record holds changes that only this directory has made so far.
    ``settled`` is the digest of a record that needs no push. ``buries``: nothing may keep its content from before this
    revision. ``drops_copy``: the ledger does not keep the mirror's copy, which holds removed text. ``redacts`` are the
    pieces of texts that were redacted elsewhere. ``note`` is for the log.
    """

    record: AnyRecord | None
    outcome: Outcome
    is_ours: bool = True
    loser: AnyRecord | None = None
    lost: MergeSide | None = None
    why: str = ""
    note: str | None = None
    settled: str | None = None
    buries: int | None = None
    drops_copy: bool = False
    redacts: tuple[Piece, ...] = ()


class Replica:
    """The live memory files of one open store and, once given, its entries."""

    def __init__(
        self, files: RecordRepository[Record], store: RecordStore, home: MemoryHome, *, now: Callable[[], str]
    ) -> None:
        """``now`` gives the time of kept copies."""
        self._store = store
        self.home = home
        self._now = now
        self._files = files
        self._entries: RecordRepository[EntryRecord] | None = None
        directory = with_files(store)
        self.listing = (
            RecordListing(files.paths, store, directory.descriptor, recover=directory.recover)
            if directory is not None
            else FeedListing(files.paths, store)
        )
        self.release_forgotten: Callable[[], None] = store.scrub
        """Removes earlier versions of what was forgotten or redacted elsewhere from journals and index."""
        # of records, and of those known by an id: these are taken within the turn of an entry
        self._turns = [self.home.mirrored.turns(folder) for folder in (TURNS, TURNS_OF_IDS)]
        renew_in_child(self, Replica._leave_to_parent)

    def with_entries(
        self, repository: RecordRepository[EntryRecord], *, release_forgotten: Callable[[], None]
    ) -> Replica:
        """Add the entries; ``release_forgotten`` removes earlier versions of records from everything that has them."""
        self._entries = repository
        self.release_forgotten = release_forgotten
        self.listing.has_entries = True
        return self

    def turn(self, path: str) -> AbstractContextManager[object]:
        """Lock the reconciliation of this record, among all threads and processes.

        ``LockTimeout`` at once if it is locked. Readers and writers of the record are not delayed.
        """
        return self._turns[is_id_path(path)].hold([path])

    def _leave_to_parent(self) -> None:
        for turns in self._turns:
            turns.leave_to_parent()

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, after a hand edit was made a revision; None while it cannot be read."""
        try:
            return self._read_file(path) if entry_place(path) is None else self._read_entry(path)
        except RecordCorrupt:
            return None

    def is_private(self, path: str) -> bool:
        """Whether the record at ``path`` belongs to one run, so that no mirror may have it."""
        try:
            found = self._store.find(path) if entry_place(path) is not None else None
        except RecordCorrupt:
            return False
        return found is not None and is_of_one_run(found[0], path=path)

    def current(self, path: str) -> AnyRecord:
        """The newest version of the record at ``path``; ``FileNotDeclared`` if an entry is gone."""
        record: AnyRecord = self._repository(path).current(path)
        return record

    def change(self, path: str, decide: Callable[[AnyRecord], Resolution | None]) -> Resolution | None:
        """Apply the resolution for the newest version, under the record's lock; None changes nothing.

        Returns the resolution; None also if the record is gone. The loser of a conflict is kept first, so that a kill
        in between loses nothing.
        """
        resolution: Resolution | None = None

        def run(current: AnyRecord) -> tuple[Any | None, bool]:
            nonlocal resolution
            resolution = decide(current)
            if resolution is None:
                return None, True
            if resolution.loser is not None:
                body = encode_copy(resolution.loser)
                self.keep(path, body, why=resolution.why, folder=quarantine.CONFLICTS, lost=resolution.lost)
            return resolution.record, resolution.is_ours

        self._repository(path).merge(path, run)
        return resolution

    def adopt(self, records: Mapping[str, EntryRecord]) -> list[EntryRecord]:
        """Write entries that do not exist here, byte for byte and in one commit; returns those written."""

        def decide(present: Mapping[str, EntryRecord | None]) -> tuple[list[EntryRecord], list[EntryRecord]]:
            missing = [record for path, record in records.items() if present[path] is None]
            return missing, missing

        return self._opened_entries().change(records, decide, origin="mirror")

    def marks_of(self, ids: Iterable[str]) -> MarksById:
        """The tombstones and locations of the entries with these ids, by id."""
        found = {id: self._opened_entries().look(id_path(id)).record for id in ids}
        return {id: mark for id, mark in found.items() if isinstance(mark, Mark)}

    def place(
        self, copy: Entry, *, is_local: bool, on_conflict: ConflictPolicy, mirrored: CopyInMirror
    ) -> Sequence[str]:
        """Merge a copy of an entry into the record at the place where the entry is now, in one commit.

        A local copy leaves a mark. An entry that is in the way, and belongs elsewhere itself, moves on in the same way;
        one that was replaced there in the mirror, as ``mirrored`` tells, gives way to that copy. A copy that is in
        its place takes in the ones that were joined with it. Returns the paths that may have changed.
        """
        if place_of(copy, self.marks_of(copy.ids)) is None:
            return self._claim(copy, on_conflict=on_conflict, mirrored=mirrored)
        entries, paths = self._opened_entries(), {copy.path}
        arrived: dict[str, EntryRecord | None] = {}
        origin = entries.origin or ""  # a mirrored directory has one

        def decide(records: Mapping[str, EntryRecord | None]) -> tuple[str | None, list[EntryRecord]]:
            there = records[copy.path]
            if is_local and (there is None or not is_same(there, copy)):
                return None, []
            moves = _Moves(records, arrived, self.marks_of, on_conflict=on_conflict, at=self._now(), origin=origin)
            missing = moves.settle(there if is_local and isinstance(there, Entry) else copy, leaves=is_local)
            if missing is not None:
                return missing, []
            for path, loser in moves.losers:
                self.keep(path, encode_copy(loser), why=_MOVED, folder=quarantine.CONFLICTS)
            return None, [record for path, record in moves.after.items() if record != records[path]]

        while (missing := entries.change(paths, decide, origin="mirror")) is not None:
            if missing in paths:
                arrived[missing] = mirrored(missing)
            paths.add(missing)
        return sorted(paths)

    def keep(self, path: str, body: bytes, *, why: str, folder: str, lost: MergeSide | None = None) -> None:
        """Keep a copy of the record at ``path`` in quarantine or conflicts."""
        self.home.kept.keep(path, body, reason=why, at=self._now(), folder=folder, lost=lost)

    def _claim(self, entry: Entry, *, on_conflict: ConflictPolicy, mirrored: CopyInMirror) -> Sequence[str]:
        """Make all ids of an entry that was joined with others lead to it, and ``place`` those others."""
        entries = self._opened_entries()
        marks = [mark for mark in self.marks_of(entry.ids).values() if mark.leads]
        here = [mark for mark in marks if mark.target == entry.path]
        astray = {mark.path: mark.target for mark in marks if here and mark.target != entry.path}

        def decide(records: Mapping[str, EntryRecord | None]) -> tuple[None, list[EntryRecord]]:
            found = [mark for mark in records.values() if isinstance(mark, Mark) and mark.leads]
            found = [mark for mark in found if mark.target != entry.path]
            claimed = (replace(here[0], uid=it.uid, revision=it.revision + 1, origins=it.origins) for it in found)
            return None, [mark.stamped(entries.origin or "") for mark in claimed]

        changed = [*astray]
        if astray:
            entries.change(astray, decide, origin="mirror")
        for other in map(self.read, astray.values()):
            if other is not None and isinstance(other.record, Entry) and is_same(other.record, entry):
                changed += self.place(other.record, is_local=True, on_conflict=on_conflict, mirrored=mirrored)
        return changed

    def _repository(self, path: str) -> RecordRepository[Any]:
        return self._files if entry_place(path) is None else self._opened_entries()

    def _opened_entries(self) -> RecordRepository[EntryRecord]:
        if self._entries is None:
            raise InvalidArgument("this memory keeps no entries")
        return self._entries

    def _read_file(self, path: str) -> LocalCopy | None:
        self._files.notice(path)
        if (found := self._store.find(path)) is None:
            return None
        record = decode_file(found[0], uid=uid_of(path) or "")
        return LocalCopy(found[0], record, found[1], is_provisional=record.provisional) if record.is_intact else None

    def _read_entry(self, path: str) -> LocalCopy | None:
        if self._entries is None:
            return None
        looked = self._entries.look(path)
        if looked.by_hand:
            self._entries.notice(path)
            looked = self._entries.look(path)
        if (found := self._store.find(path)) is None:
            return None
        is_known = looked.signature == found[1] and looked.problem is None and not looked.by_hand
        record = looked.record if is_known and looked.record else decode_entry_copy(found[0], path=path)
        return LocalCopy(found[0], record, found[1], is_private=bool(record.run))


@dataclass(frozen=True, slots=True)
class _Moves:
    """The moves of one commit: an entry to the place where it is now, and any entry in its way to its own place.

    ``records`` are at the locked paths, and ``arrived`` are the mirror's copies of some of them. ``after`` has the new
    records by path, ``losers`` the records that lost in a merge.
    """

    records: Mapping[str, EntryRecord | None]
    arrived: Mapping[str, EntryRecord | None]
    marks_of: Callable[[Iterable[str]], MarksById]
    on_conflict: ConflictPolicy
    at: str
    origin: str
    after: dict[str, EntryRecord] = field(default_factory=dict)
    losers: list[tuple[str, AnyRecord]] = field(default_factory=list)

    def settle(self, entry: Entry, *, leaves: bool) -> str | None:
        """Move the entry, which ``leaves`` a mark; returns a path that must be locked or fetched first, if any."""
        place = place_of(entry, self.marks_of(entry.ids))
        if leaves and place is not None:
            self.after[entry.path] = vacated(entry, self.at)
        while place is not None:
            if (target := place.target) not in self.records:
                return target
            there, next_entry, next_place = self.after.get(target, self.records[target]), entry, None
            if isinstance(there, Entry) and target not in self.after and not is_same(there, entry):
                if (next_place := place_of(there, self.marks_of(there.ids))) is not None:
                    next_entry, there = there, vacated(there, self.at)
                elif target not in self.arrived:
                    return target
                elif (other := self.arrived[target]) is not None and includes(other, there):
                    there = other
            if (missing := self._merge(entry, there, place)) is not None:
                return missing
            entry, place = next_entry, next_place
        return None

    def _merge(self, entry: Entry, there: EntryRecord | None, place: Mark) -> str | None:
        """Merge the entry into the record at its place, and make the marks of its ids lead there."""
        known = self.marks_of({*entry.ids, *(there.ids if there is not None else ())})
        merged = merged_at_place(entry, there, place, on_conflict=self.on_conflict, at=self.at, known=known)
        if merged.loser is not None:
            self.losers.append((place.target, merged.loser))
        is_new = merged.record.revision != entry.revision and merged.record != there
        marks = _redirected(merged.record, place, known=known)
        self.after[place.target] = merged.record.stamped(self.origin) if is_new else merged.record
        self.after.update((path, mark.stamped(self.origin)) for path, mark in marks.items())
        return next((path for path in marks if path not in self.records), None)


def _redirected(record: AnyRecord, place: Mark, *, known: MarksById) -> dict[str, Mark]:
    """By path, the marks of ids that were joined with a record elsewhere, made to lead to its place."""
    ids = record.ids if isinstance(record, Entry) else ()
    astray = {id: mark for id in ids if (mark := known.get(id)) is not None and mark.leads}
    return {
        mark.path: replace(place, uid=id, revision=mark.revision + 1, origins=mark.origins)
        for id, mark in astray.items()
        if mark.target != place.target
    }
