"""Entries as what is watched: changed by a person or another program, or put there, while the process runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from memfiles.entries.repository import EntryRepository
from memfiles.index.index import Index
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.storage.store import Store


class EntryFiles:
    """The files of all entries of one open memory; see ``watch.Watched``.

    What is changed by hand becomes a revision, what is broken goes to quarantine and the last good version is put
    back. An entry whose file is removed is gone, and not forgotten: where there is a mirror, its copy comes back.
    """

    is_deep = True
    what = "entry"

    def __init__(self, store: Store, shelf: EntryRepository, index: Index) -> None:
        self._store = store
        self._shelf = shelf
        self._index = index

    def folder(self) -> Path:
        """Where the entries' folders lie, made if it is not there."""
        self._store.make_folders([f"{ENTRIES}/"])
        return self._store.directory / ENTRIES

    def record_at(self, path: str) -> str | None:
        """The path of the record that the file at ``path``, relative to the folder, is; None if it is none."""
        found = f"{ENTRIES}/{path}"
        return found if entry_place(found) is not None else None

    def look(self, record: str) -> bool:
        """Take in what happened to a record; False: it may not be over yet."""
        return self._shelf.notice(record)

    def suspects(self) -> Iterable[str]:
        """Compare every file with the index, remove what dead writers left, and name what is to be looked at."""
        if self._index.verify():
            self._shelf.sweep()
        return self._shelf.untold()
