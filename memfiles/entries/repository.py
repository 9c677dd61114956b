"""The repository of entry records, the index that hears of every change, and the files as a watcher sees them.

The rule this file guards: a file changed by hand becomes a revision; a broken one goes to quarantine, and the last good
version is put back. An entry whose file is removed is gone, not forgotten: a mirror brings it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from memfiles.entries.budgets import EntrySummary, Scope, Tally
from memfiles.index.index import Index
from memfiles.index.rows import Row, Totals
from memfiles.records.entry import Entry, EntryRecord, Kind
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Store

EntryRepository = RecordRepository[EntryRecord]
RecordsByPath = Mapping[str, EntryRecord | None]


class EntryFiles:
    """The files of all entries of one open memory; see ``storage.watcher.Watched``."""

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
        return self._repository.untold()


def entry_at(repository: EntryRepository, path: str) -> Entry | None:
    """The entry at ``path``, hidden or not; None for a tombstone or no record."""
    record = repository.look(path).record
    return record if isinstance(record, Entry) else None


def summary_of(row: Row, *, reads: tuple[int, str | None] = (0, None)) -> EntrySummary:
    """The summary of an entry's row; ``reads`` is how often it was read, and when last."""
    place = entry_place(row.path)
    return EntrySummary(
        uid=place[1] if place else "",
        key=row.key,
        level=row.level,
        category=row.category,
        kind=cast(Kind, row.kind),
        size_bytes=row.size,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
        pinned=row.pinned,
        importance=row.importance,
        confidence=row.confidence,
        successes=row.successes,
        failures=row.failures,
        accesses=reads[0],
        accessed_at=reads[1],
        state=row.state,
        ordinal=row.provenance.ordinal,
    )


def tally_within(totals: Totals, scope: Scope) -> Tally:
    """The part of an index's totals that a limit counts."""
    if scope.kind is not None:
        return Tally(*totals.by_kind.get(scope.kind, (0, 0)))
    if scope.category is not None:
        return Tally(*totals.by_category.get(scope.category, (0, 0)))
    return Tally(totals.count, totals.size)
