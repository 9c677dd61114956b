"""A record as it may be committed: encoded, and read back as the next start will read it.

The rule this file guards: nothing is committed that a start would set aside as unreadable. Whatever slipped past the
checks of its caller is refused here, before a byte is written.

The kept changes of a record are read back once, when they are new: they are carried from version to version as they
are, and reading all of them for every appended line would take longer than writing it.
"""

from __future__ import annotations

from memfiles.atomic import Signature
from memfiles.entry import Entry, EntryRecord
from memfiles.entry_format import encode_entry, read_entry
from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.keys import record_path
from memfiles.record import READ_BACK, Change, Record, check_order, encode, read_record, successor
from memfiles.transaction import NewVersion

_HISTORY = b'"history":[\n'  # the last field, and in its place only: no text in a record holds a line break


def version_of(record: Record, *, replaces: Signature | None) -> NewVersion:
    """The next version of a memory file's record; ``InvalidArgument`` if it could not be read back."""
    shortened = _with_fresh_changes(record)
    data = encode(shortened)
    try:
        check_order(record, of=record.uid)
        found = read_record(data, of=record.uid)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _settle(found == shortened, shortened.history, of=record.uid)
    return NewVersion(record_path(record.uid), record.revision, _whole(data, record, shortened), replaces)


def version_of_entry(record: EntryRecord, *, replaces: Signature | None) -> NewVersion:
    """The next version of an entry or a tombstone; ``InvalidArgument`` if it could not be read back."""
    text = record.text if isinstance(record, Entry) else None
    fresh = _with_fresh_changes(text) if text is not None else None
    shortened = record.amended(text=fresh) if isinstance(record, Entry) else record
    data = encode_entry(shortened)
    try:
        if text is not None:
            check_order(text, of=record.path)
        found = read_entry(data, of=record.path)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _settle(found == shortened, fresh.history if fresh is not None else (), of=record.path)
    if text is not None and fresh is not None:
        data = _whole(data, text, fresh)
    return NewVersion(record.path, record.revision, data, replaces)


def _with_fresh_changes(record: Record) -> Record:
    """The record with those of its changes alone that were not read back yet."""
    fresh = tuple([change for change in record.history if READ_BACK not in change.__dict__])
    if len(fresh) == len(record.history):
        return record
    return successor(record, history=fresh, history_json=b",\n".join([change.encoded for change in fresh]))


def _whole(data: bytes, record: Record, shortened: Record) -> bytes:
    """The bytes of the record, of which ``data`` are those with the changes of ``shortened`` alone.

    Encoding it a second time took as long as all that a save does to the index.
    """
    if shortened is record:
        return data
    return data[: data.rindex(_HISTORY) + len(_HISTORY)] + record.history_json + b"]}\n"


def _settle(is_same: bool, fresh: tuple[Change, ...], *, of: str) -> None:
    if not is_same:
        raise _unreadable(f"record {of}: what is read is not what was written")
    for change in fresh:
        vars(change)[READ_BACK] = True


def _unreadable(why: object) -> InvalidArgument:
    return InvalidArgument(f"nothing was changed, because what it would make could not be read back: {why}")
