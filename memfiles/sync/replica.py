"""The replica: the records of this directory, as the sync reads and changes them.

The rule this file guards: an entry of one run is private and never leaves the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.entry import EntryRecord
from memfiles.records.entry_codec import is_of_one_run
from memfiles.records.keys import entry_place, uid_of
from memfiles.records.record import Record, decode, digest
from memfiles.storage import entry_folders as folders
from memfiles.storage import quarantine
from memfiles.storage.atomic import Signature, storage_failure
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.locks import RecordLocks
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Store
from memfiles.sync.merge.record_types import SyncedRecord, confirm, decode_entry_copy, encode_copy

TURNS = ".state/mirror-turns"
Outcome = Literal["equal", "pushed", "pulled", "merged", "conflict"]


OUTCOMES: tuple[Outcome, ...] = ("equal", "pushed", "pulled", "merged", "conflict")  # the later tells more


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of a record: ``record`` is written (None: it stays), and ``loser`` is kept in ``conflicts/``.

    ``is_ours``: the record holds changes that only this directory has made so far. ``settled`` is the digest of a
    record that needs no push. Nothing of the record from before the revision ``buries`` may be kept; ``is_outlived``:
    nor the mirror's copy. ``note`` is for the log.
    """

    record: SyncedRecord | None
    outcome: Outcome
    is_ours: bool = True
    loser: SyncedRecord | None = None
    why: str = ""
    note: str | None = None
    settled: str | None = None
    buries: int | None = None
    is_outlived: bool = False


class Replica:
    """The live memory files of one open store and, once given, its entries."""

    def __init__(
        self, directory: Path, *, files: RecordRepository[Record], store: Store, now: Callable[[], str]
    ) -> None:
        """``now`` gives the time for changes and kept copies."""
        self.directory = directory
        self._store = store
        self._now = now
        self._files = FilesSide(files, store)
        self.entries = EntriesSide(None, store)
        self._release_forgotten: Callable[[Sequence[str]], None] = lambda paths: store.scrub()
        self._turns = RecordLocks(store.descriptor, timeout=0.0, folder=TURNS)
        renew_in_child(self, Replica._leave_to_parent)

    def with_entries(
        self, repository: RecordRepository[EntryRecord], *, release_forgotten: Callable[[Sequence[str]], None]
    ) -> Replica:
        """Add the entries.

        ``release_forgotten`` removes earlier versions of records from everything that holds them; ``Entries`` has it.
        """
        self.entries = EntriesSide(repository, self._store)
        self._release_forgotten = release_forgotten
        return self

    def turn(self, path: str) -> AbstractContextManager[None]:
        """Lock the reconciliation of this record, among all threads and processes.

        ``LockTimeout`` at once if it is locked. Readers and writers of the record are not delayed.
        """
        return self._turns.hold([path])

    def _leave_to_parent(self) -> None:
        self._turns.leave_to_parent()
        self._turns = RecordLocks(self._store.descriptor, timeout=0.0, folder=TURNS)

    def file_paths(self) -> list[str]:
        """The paths of the live memory files, sorted."""
        return self._files.paths()

    def paths(self) -> list[str]:
        """The paths of all records: memory files, then entries."""
        return [*self.file_paths(), *self.entries.paths()]

    def signature(self, path: str) -> Signature | None:
        """The signature of a record's file, None if there is none."""
        return self._store.signature(path)

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, after a hand edit was made a revision; None while it cannot be read."""
        return self._side(path).read(path)

    def is_private(self, path: str) -> bool:
        """Whether the record at ``path`` belongs to one run, so that no mirror may have it."""
        return entry_place(path) is not None and self.entries.is_private(path)

    def current(self, path: str) -> SyncedRecord:
        """The newest version of the record at ``path``."""
        return self._side(path).current(path)

    def change(self, path: str, decide: Callable[[SyncedRecord], Resolution | None]) -> Resolution | None:
        """Apply the resolution for the newest version, under the record's lock; None changes nothing.

        Returns the resolution; None also if the record is gone. The loser of a conflict is kept first, so that a kill
        in between loses nothing.
        """
        resolution: Resolution | None = None

        def run(current: SyncedRecord) -> tuple[Any | None, bool]:
            nonlocal resolution
            resolution = decide(current)
            if resolution is None:
                return None, True
            if resolution.loser is not None:
                body = encode_copy(resolution.loser)
                self._keep(path, body, why=resolution.why, folder=quarantine.CONFLICTS)
            return resolution.record, resolution.is_ours

        self._side(path).change(path, run)
        return resolution

    def adopt(self, records: Mapping[str, EntryRecord]) -> list[EntryRecord]:
        """Write entries that do not exist here, in one commit; returns those written."""
        return self.entries.adopt(records)

    def confirm(self, path: str) -> None:
        """Make a provisional seed an ordinary record: the mirror answered, and has no copy."""
        self._side(path).change(path, lambda current: (confirm(current, at=self._now()), True))

    def keep_unusable(self, path: str, body: bytes, *, why: str) -> None:
        """Keep the mirror's unusable copy of ``path`` in quarantine."""
        self._keep(path, body, why=why, folder=quarantine.FOLDER)

    def conflicts(self) -> list[tuple[str, str]]:
        """The path and the reason of every kept losing copy."""
        with storage_failure("the kept conflicts cannot be listed"):
            return quarantine.listing(self._store.descriptor, folder=quarantine.CONFLICTS)

    def remove_copies(self, paths: Iterable[str]) -> None:
        """Remove copies of forgotten records from quarantine and conflicts; ``release_forgotten`` does the rest."""
        for path in paths:
            quarantine.remove_copies(self._store.descriptor, path)

    def release_forgotten(self) -> None:
        """Remove earlier versions of what was forgotten elsewhere from journals and index."""
        self._release_forgotten([])

    def _side(self, path: str) -> FilesSide | EntriesSide:
        return self.entries if entry_place(path) is not None else self._files

    def _keep(self, path: str, body: bytes, *, why: str, folder: str) -> None:
        with storage_failure(f"a copy of {path} cannot be kept in {folder}"):
            quarantine.keep_copy(self._store.descriptor, path, body, reason=why, at=self._now(), folder=folder)


Verdict = tuple[Any | None, bool]  # the record to write, if any, and whether it holds a change made here


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A record on disk: its bytes, the decoded record, and the file's signature.

    ``is_provisional``: a stand-in until the mirror answers. ``is_private``: no mirror may have it.
    """

    body: bytes
    record: SyncedRecord
    signature: Signature
    is_provisional: bool = False
    is_private: bool = False

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes."""
        return digest(self.body)


class FilesSide:
    """The declared memory files."""

    def __init__(self, files: RecordRepository[Record], store: Store) -> None:
        self._files = files
        self._store = store

    def paths(self) -> list[str]:
        """The paths of the live records, sorted."""
        return self._files.paths()

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, after a hand edit was made a revision; None while it cannot be read."""
        try:
            self._files.notice(path)
            found = self._store.find(path)
            record = decode(found[0], uid=_uid(path)) if found else None
        except RecordCorrupt:
            return None
        if found is None or record is None or not record.is_intact:
            return None
        return LocalCopy(found[0], record, found[1], is_provisional=record.provisional)

    def current(self, path: str) -> Record:
        """The newest version of the record at ``path``."""
        return self._files.current(path)

    def change(self, path: str, decide: Callable[[Any], Verdict]) -> None:
        """Write the decision over the newest version, under the record's lock."""
        self._files.merge(path, decide)


class EntriesSide:
    """The entries; ``repository`` is None if none are used."""

    def __init__(self, repository: RecordRepository[EntryRecord] | None, store: Store) -> None:
        self._repository = repository
        self._store = store

    @property
    def is_kept(self) -> bool:
        """Whether entries can be written."""
        return self._repository is not None

    def folders(self) -> dict[str, int]:
        """The folders of entries, and when a record was last put in place or removed there (ns)."""
        with _listing():
            return folders.folder_times(self._store.descriptor) if self.is_kept else {}

    def paths(self) -> list[str]:
        """The paths of entries, private ones included."""
        return [path for folder in self.folders() for path in self.signatures(folder)]

    def signatures(self, folder: str) -> dict[str, Signature]:
        """By path, the signatures of the entries in a folder.

        Temp files of dead writers are removed, as they may hold forgotten text.
        """
        left_over: list[str] = []
        with _listing():
            listed = folders.files(self._store.descriptor, folder, left_over)
            found = {path: Signature(*seen) for path, seen in listed if entry_place(path) is not None}
        if left_over:
            self._store.recover()
        return found

    def is_private(self, path: str) -> bool:
        """Whether no mirror may have the record at ``path``."""
        try:
            found = self._store.find(path)
        except RecordCorrupt:
            return False
        return found is not None and is_of_one_run(found[0], path=path)

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, after a hand edit was made a revision; None if none can be read."""
        if self._repository is None:
            return None
        looked = self._repository.look(path)
        if looked.by_hand:
            self._repository.notice(path)
            looked = self._repository.look(path)
        try:
            found = self._store.find(path)
            if found is None:
                return None
            is_known = looked.signature == found[1] and looked.problem is None and not looked.by_hand
            record = looked.record if is_known and looked.record else decode_entry_copy(found[0], path=path)
        except RecordCorrupt:
            return None
        return LocalCopy(found[0], record, found[1], is_private=bool(record.run))

    def current(self, path: str) -> EntryRecord:
        """The newest version of the record at ``path``; ``FileNotDeclared`` if it is gone."""
        return self._kept().current(path)

    def change(self, path: str, decide: Callable[[Any], Verdict]) -> None:
        """Write the decision over the newest version, under the record's lock; nothing if it is gone."""
        self._kept().merge(path, decide)

    def adopt(self, records: Mapping[str, EntryRecord]) -> list[EntryRecord]:
        """Write these records where none exist, byte for byte and in one commit; returns those written."""
        return self._kept().adopt(records)

    def _kept(self) -> RecordRepository[EntryRecord]:
        if self._repository is None:
            raise InvalidArgument("this memory keeps no entries")
        return self._repository


def _listing() -> AbstractContextManager[None]:
    return storage_failure("the entries cannot be listed")


def _uid(path: str) -> str:
    uid = uid_of(path)
    if uid is None:
        raise InvalidArgument(f"{path[:80]!r} is not the path of a memory file's record")
    return uid
