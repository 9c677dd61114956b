"""Copies: what the synchronisation must know of a type of record, decided by where it lies.

The rule this file guards: nobody else asks whether a path is a memory file's or an entry's; bringing a record and its
copy together goes the same way for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from memfiles.errors import RecordCorrupt
from memfiles.records.declared_metadata import confirmed
from memfiles.records.entry import Entry, EntryRecord, Tombstone
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.keys import entry_place, uid_of
from memfiles.records.lineage import base_revision, relation
from memfiles.records.record import Record, decode, encode
from memfiles.sync.merge.merge_entries import MergedEntry, merge_entries, which_stands, without_origins
from memfiles.sync.merge.merge_files import ConflictPolicy, merge

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MergeContext(Generic[R]):
    """What is known when two copies meet: the ``known`` ones that the mirror had, the newest last.

    ``is_settled``: the mirror had everything of the local one, as far as it was ever to be sent.
    """

    known: Sequence[R]
    is_settled: bool
    on_conflict: ConflictPolicy
    at: str


@dataclass(frozen=True, slots=True)
class MergeResult(Generic[R]):
    """The record that knows both copies, and what else is to be told; see ``merging.Merged``.

    ``is_outlived``: what the remote copy holds was forgotten, and no copy of it may be kept. ``is_buried``: so was
    what the local one held.
    """

    record: R
    loser: R | None = None
    note: str | None = None
    is_news: bool = True
    is_outlived: bool = False
    is_buried: bool = False


class RecordType(Protocol[R]):
    """One type of record. Nothing here touches a disk or a mirror."""

    def decode(self, body: bytes, *, path: str) -> R:
        """The sound record that belongs at ``path``; ``RecordCorrupt`` if it is none, another, or not as it says."""
        ...

    def encode(self, record: R) -> bytes:
        """Its canonical bytes."""
        ...

    def merge(self, local: R, remote: R, *, meeting: MergeContext[R]) -> MergeResult[R]:
        """Bring both together. The record stands above both revisions, or is one of the two."""
        ...

    def confirmed(self, record: R, *, at: str) -> R | None:
        """A provisional record as one like any other; None if it is none."""
        ...

    def says_no_more(self, remote: R, *, than: R) -> bool:
        """Whether a copy from a mirror that keeps content alone says just what the local record says."""
        ...

    def is_dead(self, record: R) -> bool:
        """Whether nothing of it may be kept anywhere but the record itself: it is what remains of something."""
        ...

    def is_overtaken(self, local: R, *, by: R) -> bool:
        """Whether the local record is an old copy of what is known to have been forgotten since."""
        ...


class FileCopies:
    """Memory files."""

    def decode(self, body: bytes, *, path: str) -> Record:
        """See ``Copies``."""
        record = decode(body, uid=uid_of(path) or "")
        if not record.is_intact:
            raise RecordCorrupt(f"record {record.uid}: its digest is wrong")
        return record

    def encode(self, record: Record) -> bytes:
        """See ``Copies``."""
        return encode(record)

    def merge(self, local: Record, remote: Record, *, meeting: MergeContext[Record]) -> MergeResult[Record]:
        """See ``Copies``.

        A record with changes that were never sent cannot be behind: its directory was copied or put back, and what
        the two say of their origins cannot be believed.
        """
        base = _base(meeting.known, base_revision(local, remote))
        merged = merge(local, remote, base=base, on_conflict=meeting.on_conflict, at=meeting.at)
        is_sure = meeting.is_settled or local.provisional
        if not is_sure and merged.record.content != local.content and relation(local, remote) == "behind":
            unsure = replace(local, origins={})
            merged = merge(unsure, remote, base=base, on_conflict=meeting.on_conflict, at=meeting.at)
        return MergeResult(merged.record, merged.loser, merged.note, merged.is_news)

    def confirmed(self, record: Record, *, at: str) -> Record | None:
        """See ``Copies``."""
        return confirmed(record, at=at)

    def says_no_more(self, remote: Record, *, than: Record) -> bool:
        """See ``Copies``."""
        return remote.content == than.content and not remote.history

    def is_dead(self, record: Record) -> bool:
        """A memory file is redacted, never forgotten."""
        return False

    def is_overtaken(self, local: Record, *, by: Record) -> bool:
        """See ``is_dead``."""
        return False


class EntryCopies:
    """Entries and their tombstones."""

    def decode(self, body: bytes, *, path: str) -> EntryRecord:
        """See ``Copies``."""
        record = decode_entry(body, path=path)
        if isinstance(record, Entry) and not record.text.is_intact:
            raise RecordCorrupt(f"record {path}: its digest is wrong")
        if record.run:
            raise RecordCorrupt(f"record {path}: it belongs to one run, and no mirror may have it")
        return record

    def encode(self, record: EntryRecord) -> bytes:
        """See ``Copies``."""
        return encode_entry(record)

    def merge(
        self, local: EntryRecord, remote: EntryRecord, *, meeting: MergeContext[EntryRecord]
    ) -> MergeResult[EntryRecord]:
        """See ``Copies`` and, for what is not sure, ``FileCopies.merge``."""
        base = _base(meeting.known, _parted(local, remote))
        merged = merge_entries(local, remote, base=base, on_conflict=meeting.on_conflict, at=meeting.at)
        if not meeting.is_settled and merged.record != local and _is_behind(local, remote):
            unsure = without_origins(local)
            merged = merge_entries(unsure, remote, base=base, on_conflict=meeting.on_conflict, at=meeting.at)
        return _met(merged)

    def confirmed(self, record: EntryRecord, *, at: str) -> EntryRecord | None:
        """No entry is provisional."""
        return None

    def says_no_more(self, remote: EntryRecord, *, than: EntryRecord) -> bool:
        """No mirror keeps the content of entries alone."""
        return False

    def is_dead(self, record: EntryRecord) -> bool:
        """See ``Copies``."""
        return isinstance(record, Tombstone)

    def is_overtaken(self, local: EntryRecord, *, by: EntryRecord) -> bool:
        """See ``Copies``."""
        return isinstance(local, Entry) and which_stands(local, by) == "remote"


_FILES = FileCopies()
_ENTRIES = EntryCopies()


def copies_of(path: str) -> RecordType[Any]:
    """What is to be known of the type of record that lies at ``path``."""
    return _ENTRIES if entry_place(path) is not None else _FILES


def _base(known: Sequence[Any], parted: int) -> Any:
    """Of the known copies the one at which the two parted, else the newest."""
    exact = next((copy for copy in known if copy.revision == parted), None)
    return exact or (known[-1] if known else None)


def _parted(local: EntryRecord, remote: EntryRecord) -> int:
    if isinstance(local, Entry) and isinstance(remote, Entry):
        return base_revision(local.text, remote.text)
    return 0


def _is_behind(local: EntryRecord, remote: EntryRecord) -> bool:
    if isinstance(local, Entry) and isinstance(remote, Entry):
        return which_stands(local, remote) == "both" and relation(local.text, remote.text) == "behind"
    return False


def _met(merged: MergedEntry) -> MergeResult[EntryRecord]:
    return MergeResult(merged.record, merged.loser, merged.note, merged.is_news, merged.is_outlived, merged.is_buried)
