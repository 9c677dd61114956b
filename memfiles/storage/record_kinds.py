"""Observed records: the state of a record's file, judged by the rules of its kind (memory file, or entry).

The rules this file guards: a hand edit is distinguished from a version written by memfiles, and becomes a revision over
the version known before; a change is announced once, whoever made it; and nothing is committed that the next start
could not read back: each version is decoded again before it is written. Pure functions; ``repository`` does the I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.declared_metadata import decode_file
from memfiles.records.entry import MAX_ENTRY_BYTES, Entry
from memfiles.records.entry_codec import decode_entry, encode_entry, read_entry
from memfiles.records.file_changes import absorb
from memfiles.records.keys import FILES, RECORD_SUFFIX, record_path
from memfiles.records.marks import AnyRecord, EntryRecord, Mark
from memfiles.records.record import (
    EXTENDED,
    NOBODY,
    READ_BACK,
    Change,
    Record,
    check_order,
    encode,
    read_record,
    successor,
)
from memfiles.storage.atomic import Signature, is_settled
from memfiles.storage.events import Origin, RecordChanged
from memfiles.storage.record_store import NewVersion, Sections

REMOVED = "remove"  # the ``op`` of the event for a removed entry file: nothing is forgotten, a mirror may bring it back
_SAVED_NS = 500_000_000  # a file untouched for this long is no longer being saved
_UNKNOWN_NS = 5_000_000_000  # gives another process, which may know the last good version, time to restore it
_CONTENT = b'\n"content":'  # each field has its own line, as no text in a record holds a line break
_HISTORY = b'\n"history":[\n'  # the last field
R = TypeVar("R")


class Observed(Struct, Generic[R], frozen=True):
    """A record as last seen, and how it relates to the file on disk.

    ``by_hand``: someone edited the file; the record is the revision this makes, not yet written. ``problem``: why the
    file cannot be used; the record is then the last good version, if one is known. ``settled``: no later change can
    have the same signature, because the kernel's clock has ticked since. ``stored``: the last version known to have
    been on disk, if that is not the record. ``news``: where a change came from that subscribers have not heard of.
    ``is_ours``: this process wrote the file, and announced it. ``is_first_read``: this process had read none before, so
    it is unknown whether it is a change; if an event points at the file, it is one. ``erased``: as of the event.
    """

    record: R | None
    signature: Signature | None
    by_hand: bool = False
    problem: str | None = None
    settled: bool = True
    stored: R | None = None
    news: Origin | None = None
    is_ours: bool = False
    is_first_read: bool = False
    erased: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the file holds exactly this record."""
        return self.signature is not None and not self.by_hand and self.problem is None

    @property
    def is_absent(self) -> bool:
        """Whether there is no file, and no file is required."""
        return self.signature is None and self.problem is None

    @property
    def is_handled(self) -> bool:
        """Whether nothing is left to do about it."""
        return not self.by_hand and self.problem is None and self.news is None

    @property
    def last_stored(self) -> R | None:
        """The version to compare the next one with."""
        return self.record if self.is_plain else self.stored

    @property
    def is_saved(self) -> bool:
        """Whether a broken file has been left alone long enough: nobody is still saving or restoring it."""
        patience = _SAVED_NS if self.record is not None else _UNKNOWN_NS
        return self.signature is None or is_settled(self.signature, for_ns=patience)


class RecordKind(Protocol[R]):
    """One type of record, as pure functions. See ``record_kinds`` for memory files and entries."""

    @property
    def is_declared(self) -> bool:
        """Whether only declared records exist: a missing file is then damage, otherwise it is an answer."""

    def path(self, record: R) -> str:
        """The record's path, relative to the memory directory."""

    def decode(self, data: bytes, *, path: str) -> R:
        """The record that belongs at ``path``; ``RecordCorrupt`` with the reason."""

    def is_written(self, found: R, *, known: R | None) -> bool:
        """Whether memfiles wrote this version after the known one; otherwise it was edited by hand."""

    def absorb(self, found: R, *, known: R | None, at: str) -> R:
        """The revision made by a hand edit of the known version; ``RecordCorrupt`` if it is over the cap."""

    def absent(self, before: Observed[R] | None, *, path: str) -> Observed[R]:
        """The state of a record without a file; ``RecordCorrupt`` if there has to be one."""

    def stamped(self, record: R, origin: str) -> R:
        """The record as a change made in the memory directory ``origin``."""

    def version(self, record: R, *, replaces: Signature | None) -> NewVersion:
        """The encoded next version; ``InvalidArgument`` if it could not be read back."""

    def is_erasure(self, record: R) -> bool:
        """Whether content that was in an index is gone for good with this version, or with one before it."""

    def event(self, record: R, origin: Origin, *, before: R | None = None, warning: str | None = None) -> RecordChanged:
        """The event for subscribers: this record is on disk now, where another one was ``before``."""


def assessed(
    kind: RecordKind[R], found: R, signature: Signature, *, before: Observed[R] | None, now: Callable[[], str]
) -> Observed[R]:
    """Tell a version written by memfiles from a hand edit; ``RecordCorrupt`` if that is over the cap.

    A file put where there was none is accepted as it is: a key may start again.
    """
    settled, known = is_settled(signature), before.last_stored if before is not None else None
    reappeared = before is not None and before.is_absent
    erased = _is_erased(found, known) or (before is not None and before.erased)
    if kind.is_written(found, known=None if reappeared else known):
        is_first_read = not kind.is_declared and _is_first_read(found, before)
        news = None if is_first_read else _origin_of(found, before)
        return Observed(found, signature, settled=settled, news=news, is_first_read=is_first_read, erased=erased)
    record = kind.absorb(found, known=known, at=now())
    return Observed(record, signature, by_hand=True, settled=settled, stored=known, news="external", erased=erased)


def unusable(signature: Signature | None, *, before: Observed[R] | None, problem: str) -> Observed[R]:
    """The state of a record whose file cannot be used."""
    settled = signature is None or is_settled(signature)
    if before is None:
        return Observed(None, signature, problem=problem, settled=settled)
    good = before.record or before.stored
    news: Origin | None = "restored" if good is not None else None
    return Observed(good, signature, problem=problem, settled=settled, stored=before.last_stored, news=news)


def news_of(kind: RecordKind[R], seen: Observed[R]) -> list[RecordChanged]:
    """The event of a version that came from elsewhere, if there is one."""
    if seen.news is None:
        return []
    if seen.record is not None:
        before = seen.stored if seen.by_hand else seen.record
        event = kind.event(seen.record, seen.news, before=before, warning=_warning_of(seen))
        return [replace(event, erased=event.erased or seen.erased)]
    if seen.stored is None or isinstance(seen.stored, Mark):
        return []
    removed = kind.event(seen.stored, seen.news)
    return [replace(removed, op=REMOVED, by=NOBODY, grown_bytes=-removed.grown_bytes)]


def _origin_of(found: R, before: Observed[R] | None) -> Origin | None:
    """The origin of an intact version that was not read before; None if it is not news."""
    if before is None:
        return None
    if found == before.last_stored and not before.is_absent:
        return before.news if before.is_plain else None
    return "process"


def _is_first_read(found: R, before: Observed[R] | None) -> bool:
    if before is None or (before.is_absent and before.stored is None):
        return True
    return before.is_first_read and found == before.record


def _warning_of(seen: Observed[R]) -> str | None:
    if seen.news != "restored":
        return None
    kept = "what was there is in quarantine, and " if seen.signature is not None else ""
    return f"{seen.problem}; {kept}the last good version was put back"


class _Verified(Struct, frozen=True):
    """The parts of a record that were read back: its content, also as encoded, and its changes in order.

    They are carried from version to version and not read back again, as reading all of them for every appended line
    would take longer than writing it. The rest of a record is read back each time.
    """

    content: str
    content_start: bytes
    history: tuple[Change, ...]


_NOTHING = _Verified("", b'"', ())


def version_of(record: Record, *, replaces: Signature | None) -> NewVersion:
    """Encode the next version of a memory file; ``InvalidArgument`` if it could not be read back."""
    try:
        unread = _unverified(record, declared_json=record.declared_json)  # derived here, so that later versions have it
        data = encode(unread)
        _check_same(read_record(data, of=record.uid), unread, of=record.uid)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    data, sections = _completed(data, record, unread)
    return NewVersion(record_path(record.uid), record.revision, data, replaces, sections)


def version_of_entry(record: EntryRecord, *, replaces: Signature | None) -> NewVersion:
    """Encode the next version of an entry or a mark; ``InvalidArgument`` if it could not be read back."""
    try:
        unread = record
        if isinstance(record, Entry) and (text := _unverified(record.text)) is not record.text:
            unread = record.amended(text=text)
        data = encode_entry(unread)
        _check_same(read_entry(data, of=record.path), unread, of=record.path)
    except RecordCorrupt as error:
        raise _unreadable(error) from error
    sections = None
    if isinstance(record, Entry) and isinstance(unread, Entry):
        data, sections = _completed(data, record.text, unread.text)
    return NewVersion(record.path, record.revision, data, replaces, sections)


def _unverified(record: Record, **derived: bytes) -> Record:
    """The record with only the content and changes that were not read back yet, itself if none were.

    The changes must be in order. ``derived`` holds further known parts of its encoding.
    """
    known: _Verified = vars(record).get(READ_BACK, _NOTHING)
    carried = _carried(record, known.history)
    check_order(record, of=record.uid, since=max(0, carried - 1))
    fresh = tuple([change for change in record.history[carried:] if READ_BACK not in change.__dict__])
    if known is _NOTHING and len(fresh) == len(record.history):
        return record
    encoded = b",\n".join([change.encoded for change in fresh])
    content, start = _added(record, known)
    return successor(
        record, derived | {"history_json": encoded, "content_start": start}, history=fresh, content=content
    )


def _carried(record: Record, known: tuple[Change, ...]) -> int:
    """The number of changes carried over from the verified ones, if only the last one is new; else 0.

    They are compared by identity: equal ones may differ in how they are written, as 1 and 1.0 do.
    """
    history, count = record.history, len(record.history) - 1
    if not 0 < count <= len(known):
        return 0
    before, after = vars(record).get(EXTENDED, (None, None))  # mostly known, and comparing 100 changes takes a while
    is_extended = before is known and after is history
    return count if is_extended or all(map(is_, history, known[-count:])) else 0


def _added(record: Record, known: _Verified) -> tuple[str, bytes]:
    """The unverified end of the content, and as it is encoded; all of it, unless it was only appended to."""
    content, start = record.content, record.content_start
    if not (start.startswith(known.content_start) and content.startswith(known.content)):
        return content, start
    return content[len(known.content) :], b'"' + start[len(known.content_start) :]


def _completed(data: bytes, record: Record, unread: Record) -> tuple[bytes, Sections]:
    """The bytes of the whole record, made from the verified ``data`` of its unread parts, which count as read now.

    Encoding the record a second time took as long as everything a save does to the index.
    """
    for change in unread.history:
        vars(change)[READ_BACK] = True
    vars(record)[READ_BACK] = _Verified(record.content, record.content_start, record.history)
    vars(record).pop(EXTENDED, None)  # it may hold what was redacted
    content = data.index(_CONTENT) + len(_CONTENT)
    rest, history = content + len(unread.content_start), data.rindex(_HISTORY) + len(_HISTORY)
    end = content + len(record.content_start)
    if unread is not record:
        data = b"".join((data[:content], record.content_start, data[rest:history], record.history_json, b"]}\n"))
    return data, Sections(end, end + history - rest)


def _check_same(found: AnyRecord, written: AnyRecord, *, of: str) -> None:
    if found != written:
        raise RecordCorrupt(f"record {of}: what was read back differs from what was written")


def _unreadable(why: RecordCorrupt) -> InvalidArgument:
    return InvalidArgument(f"nothing was changed, because the new version could not be read back: {why}")


class _FileKind:
    """Declared memory files: the last good version of a missing or broken file is put back."""

    is_declared = True
    version = staticmethod(version_of)

    def path(self, record: Record) -> str:
        return record_path(record.uid)

    def decode(self, data: bytes, *, path: str) -> Record:
        return decode_file(data, uid=path.removesuffix(RECORD_SUFFIX))

    def is_written(self, found: Record, *, known: Record | None) -> bool:
        return found.is_intact and (known is None or found.revision > known.revision or found == known)

    def absorb(self, found: Record, *, known: Record | None, at: str) -> Record:
        """A file that was over its cap already may only shrink."""
        record = absorb(found, known=known, at=at)
        size, cap = record.size_bytes, record.max_size_bytes
        if known is not None and size > cap and size > known.size_bytes:
            raise RecordCorrupt(f"record {found.uid}: changed by hand to {size} bytes, over its cap of {cap}")
        return record

    def absent(self, before: Observed[Record] | None, *, path: str) -> Observed[Record]:
        """A declared file must have a record: always ``RecordCorrupt``."""
        raise RecordCorrupt(f"record {path.removesuffix(RECORD_SUFFIX)}: it is gone")

    def stamped(self, record: Record, origin: str) -> Record:
        return record.stamped(origin)

    def is_erasure(self, record: Record) -> bool:
        """Declared files are in no index."""
        return False

    def event(
        self, record: Record, origin: Origin, *, before: Record | None = None, warning: str | None = None
    ) -> RecordChanged:
        op, by = (record.history[-1].op, record.history[-1].by) if record.history else ("seed", NOBODY)
        what = record.uid, record.name, record.revision, op, origin, warning, record_path(record.uid), record.level, by
        grown = record.size_bytes - (before.size_bytes if before is not None else 0)
        return RecordChanged(*what, grown, _is_erased(record, before))


class _EntryKind:
    """Entries and marks: an entry whose file is removed is gone, but not forgotten."""

    is_declared = False
    version = staticmethod(version_of_entry)

    def path(self, record: EntryRecord) -> str:
        return record.path

    def decode(self, data: bytes, *, path: str) -> EntryRecord:
        return decode_entry(data, path=path)

    def is_written(self, found: EntryRecord, *, known: EntryRecord | None) -> bool:
        """A mark cannot be edited by hand."""
        if not isinstance(found, Entry):
            return True
        is_newer = not isinstance(known, Entry) or found.revision > known.revision
        return found.text.is_intact and (is_newer or found == known)

    def absorb(self, found: EntryRecord, *, known: EntryRecord | None, at: str) -> EntryRecord:
        """Every entry has the same cap."""
        assert isinstance(found, Entry)
        text = absorb(found.text, known=known.text if isinstance(known, Entry) else None, at=at)
        if text.size_bytes > MAX_ENTRY_BYTES:
            raise RecordCorrupt(f"{found.path}: changed by hand to {text.size_bytes} bytes, over {MAX_ENTRY_BYTES}")
        return found.amended(text=text)

    def absent(self, before: Observed[EntryRecord] | None, *, path: str) -> Observed[EntryRecord]:
        """The entry is gone; the end of a run, which removes its entries, is not news."""
        if before is None:
            return Observed(None, None)
        last = before.last_stored
        is_news = before.signature is not None and isinstance(last, Entry) and not last.run
        return Observed(None, None, stored=last, news="external" if is_news else before.news)

    def stamped(self, record: EntryRecord, origin: str) -> EntryRecord:
        """An entry of one run is never mirrored, and needs no stamp."""
        return record if isinstance(record, Entry) and record.run else record.stamped(origin)

    def is_erasure(self, record: EntryRecord) -> bool:
        """A mark of a forget or purge, but not of a run, or a redacted file of a user; a scrub follows the others."""
        if isinstance(record, Entry):
            return bool(record.text.redactions)
        return (record.cleared or record.type == "tombstone") and not (record.run or record.of_run)

    def event(
        self, record: EntryRecord, origin: Origin, *, before: EntryRecord | None = None, warning: str | None = None
    ) -> RecordChanged:
        uid = record.key if record.agent == FILES and isinstance(record, Entry) else record.uid
        revision, path, level = record.revision, record.path, record.level
        grown, lost = _shown_bytes(record) - _shown_bytes(before), _is_erased(record, before)
        if isinstance(record, Entry):
            op, by = next(((it.op, it.by) for it in reversed(record.text.history)), ("save", NOBODY))
            return RecordChanged(uid, record.key, revision, op, origin, warning, path, level, by, grown, lost)
        went = "move" if record.type == "location" or (record.moved and not record.id) else "forget"
        went = "purge" if record.cleared else went  # a move erases nothing: the text is elsewhere then
        return RecordChanged(uid, "", revision, went, origin, warning, path, level, record.by, grown, went != "move")


def _shown_bytes(record: EntryRecord | None) -> int:
    """The size of the content that sessions can see."""
    return record.text.size_bytes if isinstance(record, Entry) and record.retired is None else 0


FILE_KIND, ENTRY_KIND = _FileKind(), _EntryKind()


def _is_erased(record: object, before: object) -> bool:
    """Whether a text of ``before``, if that is known, may be gone: redacted, or forgotten and its key saved again."""
    is_another = isinstance(record, Entry) and isinstance(before, Entry) and record.id != before.id
    now, was = getattr(record, "text", record), getattr(before, "text", before)
    return is_another or not {*getattr(now, "redactions", ())} <= {*getattr(was, "redactions", ())}
