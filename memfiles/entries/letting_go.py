"""Letting go: nothing under the directory holds what records held that are tombstones by now, or that lost a label.

The rule this file guards: the notes on a mirror come last, so that whoever pushes a tombstone knows of what a kill may
have left undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from memfiles.entries.repository import EntryRepository
from memfiles.index.index import Index
from memfiles.records.entry import EntryRecord, Tombstone
from memfiles.records.keys import entry_place
from memfiles.storage.store import Store
from memfiles.sync import ledger as bookkeeping


class ForgottenContent:
    """What of one open memory is beside the records: the index, the journals, kept copies and the notes."""

    def __init__(self, store: Store, shelf: EntryRepository, index: Index) -> None:
        self._store = store
        self._shelf = shelf
        self._index = index

    def let_go(self, paths: Sequence[str]) -> None:
        """Have nothing but the notes on a mirror hold what these records once held.

        What tombstones leave in the index, in the journals and among the kept copies goes as well, whatever the paths:
        they may have come from a mirror, or their forgetting was killed.
        """
        try:
            self._index.forget(paths)
            kept = [path for path in self._store.kept_of() if entry_place(path) is not None]
            for path in {*paths, *(path for path in kept if isinstance(self._shelf.find(path), Tombstone))}:
                self._store.remove_copies(path)
        finally:
            self._store.scrub()

    def scrub(self, records: Sequence[EntryRecord]) -> None:
        """Have nothing under the directory that an earlier version of these records held, the notes included."""
        self.let_go([record.path for record in records])
        bookkeeping.scrub_all(self._store.directory, {record.path: record.revision for record in records})
