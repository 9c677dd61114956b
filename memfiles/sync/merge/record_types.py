"""The record types that are synced, memory files and entries: how each is encoded, decoded and merged.

The rule this file guards: nobody else in the sync asks of which type a record is. A record and its copy are reconciled
in the same way for both types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.declared_metadata import decode_file
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.keys import entry_place, uid_of
from memfiles.records.lineage import base_revision, relation
from memfiles.records.marks import AnyRecord, EntryRecord, Mark
from memfiles.records.record import Change, Record, encode, extend
from memfiles.records.redactions import Piece, lacking
from memfiles.sync.merge.merge_entries import MarksById, fate, includes, is_same, merge_entries
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, merge
from memfiles.sync.merge.rebase import relation_by_history

R = TypeVar("R", Record, EntryRecord)


@dataclass(frozen=True, slots=True)
class MergeContext:
    """The circumstances of a merge of two copies: ``known`` are copies that the mirror had, the newest last.

    ``is_settled``: the mirror had all of the local record, as far as it was ever to be sent. ``marks`` tell
    of the entries of both copies.
    """

    known: Sequence[AnyRecord]
    is_settled: bool
    on_conflict: ConflictPolicy
    at: str
    marks: MarksById = field(default_factory=dict)


def decode_copy(body: bytes, *, path: str) -> AnyRecord:
    """The sound record that belongs at ``path``; ``RecordCorrupt`` if the bytes are not a record, or another one."""
    if entry_place(path) is not None:
        return decode_entry_copy(body, path=path)
    record = decode_file(body, uid=uid_of(path) or "")
    if not record.is_intact:
        raise RecordCorrupt(f"record {record.uid}: its digest is wrong")
    return record


def decode_entry_copy(body: bytes, *, path: str) -> EntryRecord:
    """As ``decode_copy``, for the path of an entry. An entry of one run is refused: no mirror may have it."""
    record = decode_entry(body, path=path)
    if isinstance(record, Entry) and not record.text.is_intact:
        raise RecordCorrupt(f"record {path}: its digest is wrong")
    if record.run:
        raise RecordCorrupt(f"record {path}: it belongs to one run, and no mirror may have it")
    return record


def encode_copy(record: AnyRecord) -> bytes:
    """The canonical bytes of a record."""
    return encode(record) if isinstance(record, Record) else encode_entry(record)


def merge_copies(local: AnyRecord, remote: AnyRecord, *, context: MergeContext) -> MergeResult[AnyRecord]:
    """Merge two copies of a record. The result is above both revisions, or is one of the two copies.

    A local record with changes that were never sent cannot be behind. If its version vector says so, its directory
    was copied or restored from a backup, and the vector is not believed.
    """
    merged = _merge(local, remote, context)
    if context.is_settled or _keeps(merged.record, local) or not _is_behind(local, remote):
        return merged
    return _merge(local.with_origins({}), remote, context)


def confirm(record: AnyRecord, *, at: str) -> AnyRecord | None:
    """A provisional memory file as an ordinary one; None if the record is not provisional. No entry is."""
    if not isinstance(record, Record) or not record.provisional:
        return None
    return extend(replace(record, provisional=False), Change(revision=record.revision + 1, at=at, op="declare"))


def has_same_content_only(remote: AnyRecord, local: AnyRecord) -> bool:
    """Whether the mirror keeps only the content of memory files, and it is that of the local record."""
    if isinstance(remote, Record) and isinstance(local, Record):
        return remote.content == local.content and not remote.history
    return False


def pieces_in(record: AnyRecord) -> tuple[Piece, ...]:
    """The pieces of the texts that were redacted in the record."""
    text = record.text if isinstance(record, Entry) else record
    return text.redactions if isinstance(text, Record) else ()


def is_overtaken(local: AnyRecord, by: AnyRecord) -> bool:
    """Whether the local record is an old copy, put back from a backup: it lacks changes that this one is known to have.

    Redactions are compared as well: after enough changes to an old copy, the version vector tells nothing any more.
    """
    if isinstance(local, Mark):  # whoever wrote the other one had this mark, or a later one
        return local.revision < by.revision
    if isinstance(local, Entry) and isinstance(by, Mark):
        return fate(local, by, {}) != "here"
    if isinstance(local, Entry) and isinstance(by, Entry) and is_same(local, by):
        one, other = local.text, by.text
    elif isinstance(local, Record) and isinstance(by, Record):
        one, other = local, by
    else:
        return False
    return bool(lacking(one.redactions, other.redactions)) or relation_by_history(one, other) in ("behind", "diverged")


def _merge(local: AnyRecord, remote: AnyRecord, context: MergeContext) -> MergeResult[AnyRecord]:
    policy, at = context.on_conflict, context.at
    if isinstance(local, Record) and isinstance(remote, Record):
        files = [copy for copy in context.known if isinstance(copy, Record)]
        return merge(local, remote, base=_base(files, base_revision(local, remote)), on_conflict=policy, at=at)
    if isinstance(local, Record) or isinstance(remote, Record):
        raise InvalidArgument("a memory file and an entry cannot be merged")
    entries = [copy for copy in context.known if not isinstance(copy, Record)]
    parted = base_revision(local.text, remote.text) if isinstance(local, Entry) and isinstance(remote, Entry) else 0
    return merge_entries(local, remote, base=_base(entries, parted), on_conflict=policy, at=at, known=context.marks)


def _base(known: Sequence[R], revision: int) -> R | None:
    """The known copy at the revision at which the two diverged, else the newest known one."""
    exact = next((copy for copy in known if copy.revision == revision), None)
    return exact or (known[-1] if known else None)


def _keeps(merged: AnyRecord, local: AnyRecord) -> bool:
    """Whether the merge left the local record, or the content of a memory file, as it was."""
    if isinstance(merged, Record) and isinstance(local, Record):
        return merged.content == local.content
    return merged == local


def _is_behind(local: AnyRecord, remote: AnyRecord) -> bool:
    """Whether the version vectors say that the remote copy has all changes of the local record, and more."""
    if isinstance(local, Record) and isinstance(remote, Record):
        return not local.provisional and relation(local, remote) == "behind"
    if isinstance(local, Entry) and isinstance(remote, Entry) and is_same(local, remote):
        return relation(local.text, remote.text) == "behind"
    if isinstance(local, Entry) and isinstance(remote, (Entry, Mark)):
        return includes(remote, local)
    return False
