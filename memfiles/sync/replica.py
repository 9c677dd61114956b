"""The records of this directory as the mirror's other side: read whole, and changed to what was decided over both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfiles.records.entry import EntryRecord
from memfiles.records.keys import entry_place
from memfiles.records.record import Record
from memfiles.storage import quarantine
from memfiles.storage.atomic import Signature
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.locks import RecordLocks
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Store, storage_failure
from memfiles.sync.merge.record_types import copies_of
from memfiles.sync.replica_sides import EntriesSide, FilesSide, LocalCopy

TURNS = ".state/mirror-turns"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of a record: ``record`` (None: it stays as it is), and which copy is kept in ``conflicts/``.

    ``is_ours``: the record holds changes that only this directory has made so far.
    """

    record: Any | None
    is_ours: bool = True
    loser: Any | None = None
    why: str = ""


class Replica:
    """The live memory files of one open store and, once they are given to it, the entries."""

    def __init__(
        self, directory: Path, *, files: RecordRepository[Record], store: Store, now: Callable[[], str]
    ) -> None:
        """``now`` gives the time for changes and notes."""
        self.directory = directory
        self._store = store
        self._now = now
        self._files = FilesSide(files, store)
        self.entries = EntriesSide(None, store)
        self._let_go: Callable[[Sequence[str]], None] = lambda paths: store.scrub()
        self._turns = RecordLocks(store.descriptor, timeout=0.0, folder=TURNS)
        renew_in_child(self, Replica._leave_to_parent)

    def with_entries(self, shelf: RecordRepository[EntryRecord], *, let_go: Callable[[Sequence[str]], None]) -> Replica:
        """The same with these entries as well.

        ``let_go`` has everything that holds earlier versions of records let go of them, as ``Entries.let_go`` does.
        """
        self.entries = EntriesSide(shelf, self._store)
        self._let_go = let_go
        return self

    def turn(self, path: str) -> AbstractContextManager[None]:
        """Be the only one, among all threads and processes, who brings this record and its copy together.

        ``LockTimeout`` at once if someone else does. Nobody who reads or writes the record is kept waiting by it.
        """
        return self._turns.hold([path])

    def _leave_to_parent(self) -> None:
        self._turns.leave_to_parent()
        self._turns = RecordLocks(self._store.descriptor, timeout=0.0, folder=TURNS)

    def file_paths(self) -> list[str]:
        """Where the live memory files lie, sorted."""
        return self._files.paths()

    def paths(self) -> list[str]:
        """Where all records lie: memory files, then entries."""
        return [*self.file_paths(), *self.entries.paths()]

    def signature(self, path: str) -> Signature | None:
        """What tells the present version of a record from every other, None if there is none."""
        return self._store.signature(path)

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, a hand edit made a revision first; None while it cannot be read."""
        return self._side(path).read(path)

    def is_private(self, path: str) -> bool:
        """Whether no mirror may have the record at ``path``, because it belongs to one run."""
        return entry_place(path) is not None and self.entries.is_private(path)

    def current(self, path: str) -> Any:
        """The newest version of the record at ``path``."""
        return self._side(path).current(path)

    def change(self, path: str, decide: Callable[[Any], Resolution]) -> None:
        """Apply what ``decide`` makes of the newest version, under the record's lock.

        The loser of a conflict is kept first, so that a kill in between loses nothing.
        """

        def run(current: Any) -> tuple[Any | None, bool]:
            resolution = decide(current)
            if resolution.loser is not None:
                body = copies_of(path).encode(resolution.loser)
                self._keep(path, body, why=resolution.why, folder=quarantine.CONFLICTS)
            return resolution.record, resolution.is_ours

        self._side(path).change(path, run)

    def adopt(self, records: Mapping[str, EntryRecord]) -> list[EntryRecord]:
        """Write entries where there are none, in one commit; those that were written."""
        return self.entries.adopt(records)

    def confirm(self, path: str) -> None:
        """Make a provisional seed one like any other: the mirror answers, and holds no copy."""
        copies = copies_of(path)
        self._side(path).change(path, lambda current: (copies.confirmed(current, at=self._now()), True))

    def keep_unusable(self, path: str, body: bytes, *, why: str) -> None:
        """Have in quarantine what the mirror held at ``path`` and cannot be used."""
        self._keep(path, body, why=why, folder=quarantine.FOLDER)

    def conflicts(self) -> list[tuple[str, str]]:
        """The path and the reason of every losing copy that was kept."""
        with storage_failure("the kept conflicts cannot be listed"):
            return quarantine.listing(self._store.descriptor, folder=quarantine.CONFLICTS)

    def remove_copies(self, paths: Iterable[str]) -> None:
        """Have no copy of forgotten records in quarantine or among the conflicts; ``let_go`` does the rest."""
        for path in paths:
            self._store.remove_copies(path)

    def let_go(self) -> None:
        """Have no journal and no index hold an earlier version of what was forgotten elsewhere."""
        self._let_go([])

    def _side(self, path: str) -> FilesSide | EntriesSide:
        return self.entries if entry_place(path) is not None else self._files

    def _keep(self, path: str, body: bytes, *, why: str, folder: str) -> None:
        with storage_failure(f"a copy of {path} cannot be kept in {folder}"):
            quarantine.keep_copy(self._store.descriptor, path, body, reason=why, at=self._now(), folder=folder)
