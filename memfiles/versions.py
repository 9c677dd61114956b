"""A record as it may be committed: encoded, and read back as the next start will read it.

The rule this file guards: nothing is committed that a start would set aside as unreadable. Whatever slipped past the
checks of its caller is refused here, before a byte is written.

The kept changes of a record are read back once, when they are new: they are carried from version to version as they
are, and reading all of them for every appended line would take longer than writing it.
"""

from __future__ import annotations

from dataclasses import replace

from memfiles.atomic import Signature
from memfiles.entry import Entry, EntryRecord
from memfiles.entry_format import encode_entry, read_entry
from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.keys import record_path
from memfiles.record import READ_BACK, Change, Record, check_order, encode, read_record, successor
from memfiles.transaction import NewVersion


def version_of(record: Record, *, replaces: Signature | None) -> NewVersion:
    """The next version of a memory file's record; ``InvalidArgument`` if it could not be read back."""
    shortened = _with_fresh_changes(record)
    try:
        check_order(record, of=record.uid)
        found = read_record(encode(shortened), of=record.uid)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _settle(found == shortened, shortened.history, of=record.uid)
    return NewVersion(record_path(record.uid), record.revision, encode(record), replaces=replaces)


def version_of_entry(record: EntryRecord, *, replaces: Signature | None) -> NewVersion:
    """The next version of an entry or a tombstone; ``InvalidArgument`` if it could not be read back."""
    shortened = record
    if isinstance(record, Entry):
        shortened = replace(record, text=_with_fresh_changes(record.text))
    try:
        if isinstance(record, Entry):
            check_order(record.text, of=record.path)
        found = read_entry(encode_entry(shortened), of=record.path)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _settle(found == shortened, shortened.text.history if isinstance(shortened, Entry) else (), of=record.path)
    return NewVersion(record.path, record.revision, encode_entry(record), replaces=replaces)


def _with_fresh_changes(record: Record) -> Record:
    """The record with those of its changes alone that were not read back yet."""
    fresh = tuple([change for change in record.history if READ_BACK not in change.__dict__])
    return successor(record, history=fresh, history_json=b",\n".join([change.encoded for change in fresh]))


def _settle(is_same: bool, fresh: tuple[Change, ...], *, of: str) -> None:
    if not is_same:
        raise _unreadable(f"record {of}: what is read is not what was written")
    for change in fresh:
        vars(change)[READ_BACK] = True


def _unreadable(why: object) -> InvalidArgument:
    return InvalidArgument(f"nothing was changed, because what it would make could not be read back: {why}")
