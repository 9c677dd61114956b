"""A record as it may be committed: encoded, and read back as the next start will read it.

The rule this file guards: nothing is committed that a start would set aside as unreadable. Whatever slipped past the
checks of its caller is refused here, before a byte is written.

What was read back once is not read again: the changes of a record, and the content that a later version only adds to,
are carried from version to version as they are, and reading all of them for every appended line would take longer than
writing it. Its head is read back each time, with what is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import Any

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.entry import Entry, EntryRecord
from memfiles.records.entry_codec import encode_entry, read_entry
from memfiles.records.keys import record_path
from memfiles.records.record import READ_BACK, Change, Record, check_order, encode, read_record, successor
from memfiles.storage.descriptors import Signature
from memfiles.storage.transaction import NewVersion

_CONTENT = b'\n"content":'  # a field each, for no text in a record holds a line break
_HISTORY = b'\n"history":[\n'  # the last one


@dataclass(frozen=True, slots=True)
class _Readable:
    """What of a record was read back: its content, also as it is encoded, and its changes, in their order."""

    content: str
    content_start: bytes
    history: tuple[Change, ...]


_NOTHING = _Readable("", b'"', ())


def version_of(record: Record, *, replaces: Signature | None) -> NewVersion:
    """The next version of a memory file's record; ``InvalidArgument`` if it could not be read back."""
    try:
        unread = _unread(record)
        data = encode(unread)
        found = read_record(data, of=record.uid)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _check_same(found, unread, of=record.uid)
    _note_read(record, unread)
    return NewVersion(record_path(record.uid), record.revision, _whole(data, record, unread), replaces)


def version_of_entry(record: EntryRecord, *, replaces: Signature | None) -> NewVersion:
    """The next version of an entry or a tombstone; ``InvalidArgument`` if it could not be read back."""
    try:
        unread = record.amended(text=_unread(record.text)) if isinstance(record, Entry) else record
        data = encode_entry(unread)
        found = read_entry(data, of=record.path)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    _check_same(found, unread, of=record.path)
    if isinstance(record, Entry) and isinstance(unread, Entry):
        _note_read(record.text, unread.text)
        data = _whole(data, record.text, unread.text)
    return NewVersion(record.path, record.revision, data, replaces)


def _unread(record: Record) -> Record:
    """The record with only what was not read back yet of its content and changes, which must be in order."""
    known: _Readable = vars(record).get(READ_BACK, _NOTHING)
    carried = _carried(record.history, known.history)
    check_order(record, of=record.uid, since=max(0, carried - 1))
    fresh = tuple([change for change in record.history[carried:] if READ_BACK not in change.__dict__])
    return successor(
        record,
        declared_json=record.declared_json,  # derived here, so that later versions have it
        history=fresh,
        history_json=b",\n".join([change.encoded for change in fresh]),
        **_added(record, known),
    )


def _carried(history: tuple[Change, ...], known: tuple[Change, ...]) -> int:
    """How many of these changes were read back together, if only the last one was not; else 0.

    The very same: equal ones may differ in how they are written, as 1 and 1.0 do.
    """
    count = len(history) - 1
    if not 0 < count <= len(known) or not all(map(is_, history, known[-count:])):
        return 0
    return count


def _added(record: Record, known: _Readable) -> dict[str, Any]:
    """The content with its encoded form, as far as it was not read back: all of it unless it was only added to."""
    content, start = record.content, record.content_start
    if not (start.startswith(known.content_start) and content.startswith(known.content)):
        return {}
    return {"content": content[len(known.content) :], "content_start": b'"' + start[len(known.content_start) :]}


def _whole(data: bytes, record: Record, unread: Record) -> bytes:
    """The bytes of the record, of which ``data`` are those with the content and the changes of ``unread`` alone.

    Encoding it a second time took as long as all that a save does to the index.
    """
    content = data.index(_CONTENT) + len(_CONTENT)
    rest, history = content + len(unread.content_start), data.rindex(_HISTORY) + len(_HISTORY)
    return b"".join((data[:content], record.content_start, data[rest:history], record.history_json, b"]}\n"))


def _check_same(found: EntryRecord | Record, written: EntryRecord | Record, *, of: str) -> None:
    if found != written:
        raise _unreadable(f"record {of}: what is read is not what was written")


def _note_read(record: Record, unread: Record) -> None:
    """Have it known of a record, and of all that will be made of it, what was read back."""
    for change in unread.history:
        vars(change)[READ_BACK] = True
    vars(record)[READ_BACK] = _Readable(record.content, record.content_start, record.history)


def _unreadable(why: object) -> InvalidArgument:
    return InvalidArgument(f"nothing was changed, because what it would make could not be read back: {why}")
