"""The files of entries, as the watcher and whoever looks for changes made by hand see them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from memfiles.entries.reader import EntryRepository
from memfiles.index.index import Index
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.storage.store import Store


class EntryFiles:
    """The files of all entries of one open memory; see ``storage.watcher.Watched``.

    A file changed by hand becomes a revision; a broken one goes to quarantine, and the last good version is put back.
    An entry whose file is removed is gone, not forgotten: a mirror brings it back.
    """

    is_deep = True
    what = "entry"

    def __init__(self, store: Store, repository: EntryRepository, index: Index) -> None:
        self._store = store
        self._repository = repository
        self._index = index

    def folder(self) -> Path:
        """The folder of all entries, made if it is not there."""
        self._store.make_folders([f"{ENTRIES}/"])
        return self._store.directory / ENTRIES

    def record_at(self, path: str) -> str | None:
        """The path of the record in the file at ``path``, relative to the folder; None if it is not an entry's."""
        found = f"{ENTRIES}/{path}"
        return found if entry_place(found) is not None else None

    def look(self, record: str) -> bool:
        """Take in a change of a record's file; False: it may still be being saved."""
        return self._repository.notice(record)

    def suspects(self) -> Iterable[str]:
        """Compare every file with the index, remove temp files of dead writers, and name the records to look at."""
        if self._index.verify():
            self._repository.sweep()
        return self._repository.unhandled()
