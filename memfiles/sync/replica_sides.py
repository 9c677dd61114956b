"""The two sides of a memory directory, as they are kept equal with a mirror: memory files, and entries.

The rule this file guards: what belongs to one run alone is seen as private and never leaves the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.entry import EntryRecord
from memfiles.records.entry_codec import is_of_one_run
from memfiles.records.keys import entry_place, uid_of
from memfiles.records.record import Record, decode, digest
from memfiles.storage import entry_folders as folders
from memfiles.storage.atomic import Signature
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Store, storage_failure
from memfiles.sync.merge.record_types import copies_of

Verdict = tuple[Any | None, bool]  # the record to write, if any, and whether it holds a change made here


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A record as it lies on the disk: its bytes, what they mean, and the file's signature.

    ``is_provisional``: it stands in for what a mirror may have. ``is_private``: no mirror may have it.
    """

    body: bytes
    record: Any
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
        """Where the live records lie, sorted."""
        return self._files.paths()

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, a hand edit made a revision first; None while it cannot be read."""
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
        """Write what is decided over the newest version, under the record's lock."""
        self._files.merge(path, decide)


class EntriesSide:
    """The entries; None for ``shelf`` where nobody keeps any."""

    def __init__(self, shelf: RecordRepository[EntryRecord] | None, store: Store) -> None:
        self._shelf = shelf
        self._store = store

    @property
    def is_kept(self) -> bool:
        """Whether entries can be written."""
        return self._shelf is not None

    def folders(self) -> dict[str, int]:
        """The folders that entries lie in, and when a record was last put in place or removed there (ns)."""
        with _listing():
            return folders.folder_times(self._store.descriptor) if self.is_kept else {}

    def paths(self) -> list[str]:
        """Where entries lie, private ones included."""
        return [path for folder in self.folders() for path in self.signatures(folder)]

    def signatures(self, folder: str) -> dict[str, Signature]:
        """What tells the present versions of the entries in a folder from every other.

        A temp file that lies there may hold what was forgotten: what dead writers left is removed.
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
        """The record at ``path``, a hand edit made a revision first; None if there is none that can be read."""
        if self._shelf is None:
            return None
        looked = self._shelf.look(path)
        if looked.by_hand:
            self._shelf.notice(path)
            looked = self._shelf.look(path)
        try:
            found = self._store.find(path)
            if found is None:
                return None
            is_known = looked.signature == found[1] and looked.problem is None and not looked.by_hand
            record = looked.record if is_known and looked.record else copies_of(path).decode(found[0], path=path)
        except RecordCorrupt:
            return None
        return LocalCopy(found[0], record, found[1], is_private=bool(record.run))

    def current(self, path: str) -> EntryRecord:
        """The newest version of the record at ``path``; ``FileNotDeclared`` if it is gone."""
        return self._kept().current(path)

    def change(self, path: str, decide: Callable[[Any], Verdict]) -> None:
        """Write what is decided over the newest version, under the record's lock; nothing if it is gone."""
        self._kept().merge(path, decide)

    def adopt(self, records: Mapping[str, EntryRecord]) -> list[EntryRecord]:
        """Write these records where there are none, as they are and in one commit; those that were written."""
        return self._kept().adopt(records)

    def _kept(self) -> RecordRepository[EntryRecord]:
        if self._shelf is None:
            raise InvalidArgument("this memory keeps no entries")
        return self._shelf


def _listing() -> AbstractContextManager[None]:
    return storage_failure("the entries cannot be listed")


def _uid(path: str) -> str:
    uid = uid_of(path)
    if uid is None:
        raise InvalidArgument(f"{path[:80]!r} is not where a memory file's record lies")
    return uid
