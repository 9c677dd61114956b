"""The repository of entry records, whose search index hears of every change, before it and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memfiles.index.index import Index
from memfiles.index.rows import row_of
from memfiles.records.entry import Entry, EntryRecord
from memfiles.storage.atomic import Signature
from memfiles.storage.repository import RecordRepository

EntryRepository = RecordRepository[EntryRecord]
RecordsByPath = Mapping[str, EntryRecord | None]


class IndexUpdates:
    """Tells the search index of committed entries, as rows; see ``ChangeListener``."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.intend, self.settle, self.doubt = index.intend, index.settle, index.doubt

    def put(
        self, written: Sequence[tuple[EntryRecord, Signature]], token: str, *, before: Sequence[EntryRecord]
    ) -> None:
        """Give the index the rows of the committed records, and those of the records they replaced."""
        rows = [row_of(record, signature) for record, signature in written]
        self._index.put(rows, token, before=[row_of(record, None) for record in before])


def entry_at(repository: EntryRepository, path: str) -> Entry | None:
    """The entry at ``path``, hidden or not; None if there is none, or a tombstone."""
    record = repository.look(path).record
    return record if isinstance(record, Entry) else None
