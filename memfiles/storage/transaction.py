"""Several records changed together or not at all, also across a kill or a power cut.

The rules this file guards, in order: *stage* every new version beside the old one; *journal* them all in
one flushed frame; *publish* them. While a version is journaled and not published its temp file exists, so
whoever next takes the record's lock and finds a temp file knows that its writer died (``LeftBehind``).
Transactions of several threads go through these steps together, each as its own frame.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from memfiles.errors import InvalidArgument, OutcomeUnknown, RecordCorrupt, SizeExceeded, StorageFailed
from memfiles.records.entry import Entry, EntryRecord
from memfiles.records.entry_codec import encode_entry, read_entry
from memfiles.records.keys import record_path, temp_path
from memfiles.records.record import (
    MAX_RECORD_BYTES,
    READ_BACK,
    Change,
    Record,
    check_order,
    encode,
    read_record,
    successor,
)
from memfiles.storage import atomic, quarantine
from memfiles.storage.atomic import Signature
from memfiles.storage.group_commit import Group, Request
from memfiles.storage.journal import CAPACITY, FramePosition, Journal
from memfiles.storage.journal_frames import Version

PLAIN_COMMITS = 1
LARGEST_JOURNALED = CAPACITY // 4
_WORTH_SHARING_SECONDS = 0.0003  # a quicker flush is over before another thread has anything to flush
_LONGEST_WAIT_SECONDS = 0.01  # a flush may have taken long for once
LARGEST_COMMIT = MAX_RECORD_BYTES  # also of several records together: all of it is in memory, and in the journal


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A record's next version: where it goes, which revision it is, its bytes, and the file it was made from."""

    path: str
    revision: int
    data: bytes
    replaces: Signature | None


@dataclass(eq=False, slots=True)
class Transaction:
    """The changes of one commit, and the versions that were staged for it."""

    changes: Sequence[NewVersion]
    staged: list[Version] = field(default_factory=list)


class LeftBehind(Exception):
    """A dead writer's temp file is in the way: recover, read the record again and decide anew."""


class Transactions:
    """Commits to one memory directory through this process's journal."""

    def __init__(self, directory: int, journal: Journal, *, flush: bool, now: Callable[[], str]) -> None:
        """``flush`` False leaves out every flush (durability ``os``); ``now`` gives the time for notes."""
        self._directory = directory
        self._journal = journal
        self._flush = flush
        self._now = now
        self._plain_commits = 0
        self._flush_seconds = 0.0  # how long the last one took
        self._group: Group[Transaction] = Group(self._serve, patience=self._patience)

    def commit(self, changes: Sequence[NewVersion]) -> dict[str, Signature]:
        """Change these records; the caller holds their locks. See ``Store.commit`` for the errors."""
        if (size := sum(len(change.data) for change in changes)) > LARGEST_COMMIT:
            raise SizeExceeded(
                f"the {len(changes)} records of this change have {size} bytes, over the {LARGEST_COMMIT} that can be "
                f"changed together: make it in several parts; nothing was changed"
            )
        transaction = Transaction(changes)
        try:
            if self._is_plain(changes):
                self._commit_plain(transaction)
            else:
                self._group.submit(transaction)
        except OSError as error:
            raise StorageFailed(f"the change was not written: {reason(error)}; nothing was changed") from error
        return {version.path: version.staged for version in transaction.staged}

    def _is_plain(self, changes: Sequence[NewVersion]) -> bool:
        """Whether to flush the file itself: one record, and a journal not worth it yet or too small for it.

        A process that changes one record (a command line) is done with two flushes and needs no journal.
        """
        if len(changes) != 1:
            return False
        return not self._flush or self._plain_commits < PLAIN_COMMITS or len(changes[0].data) > LARGEST_JOURNALED

    def _commit_plain(self, transaction: Transaction) -> None:
        """Stage and flush one version, publish it, and flush its name."""
        self._plain_commits += 1
        self._stage(transaction, flush=self._flush)
        path = transaction.changes[0].path
        try:
            atomic.publish(self._directory, path)
            if self._flush:
                self._flush_folder(path)
        finally:
            self._drop(transaction)

    def _flush_folder(self, path: str) -> None:
        try:
            atomic.sync_folder(self._directory, path.rpartition("/")[0])
        except OSError as error:
            raise OutcomeUnknown(
                f"{path} was replaced, but flushing its folder failed ({reason(error)}): the change is visible and "
                f"may be lost in a power cut"
            ) from error

    def _serve(self, requests: list[Request[Transaction]]) -> None:
        """Take the transactions of all waiting threads through the steps; each that fails has its error set."""
        with self._journal.turn:
            staged = [request for request in requests if self._stages(request)]
            places: list[FramePosition] = []
            try:
                places += self._journaled(staged) if staged else []
                for request, place in zip(staged, places, strict=True):  # all durable from here on
                    self._publishes(request, place)
            except BaseException as error:
                for number, request in enumerate(staged):
                    if not request.is_served:
                        self._fails(request, places[number] if places else None, because=error)
                if not isinstance(error, OSError):
                    raise

    def _patience(self) -> float:
        """For how long to wait for others to share a flush with: as long as it takes, and not at all if it is quick."""
        took = self._flush_seconds
        return min(took, _LONGEST_WAIT_SECONDS) if took >= _WORTH_SHARING_SECONDS else 0.0

    def _journaled(self, staged: Sequence[Request[Transaction]]) -> list[FramePosition]:
        begun = time.monotonic()
        places = self._journal.append([request.wanted.staged for request in staged])
        self._flush_seconds = time.monotonic() - begun if self._flush else 0.0
        return places

    def _stages(self, request: Request[Transaction]) -> bool:
        try:
            self._stage(request.wanted, flush=False)
        except (OSError, LeftBehind) as error:
            request.error = error
        return request.error is None

    def _stage(self, transaction: Transaction, *, flush: bool) -> None:
        """A full disk shows here, before anything is promised."""
        try:
            for change in transaction.changes:
                signature = atomic.stage(self._directory, change.path, change.data, flush=flush)
                transaction.staged.append(Version(change.path, change.revision, change.data, signature))
        except FileExistsError as error:
            self._drop(transaction)
            raise LeftBehind(str(error)) from error
        except BaseException:
            self._drop(transaction)
            raise

    def _publishes(self, request: Request[Transaction], place: FramePosition) -> None:
        """Put a journaled transaction's versions in place, or take all of them back and void the frame."""
        transaction = request.wanted
        first: set[str] = set()
        try:
            for change in transaction.changes:
                if not atomic.publish(self._directory, change.path, is_first=change.replaces is None):
                    first.add(change.path)
        except OSError as error:
            self._fails(request, place, because=error)
            request.is_served = True
            return
        request.is_served = True  # before any earlier version goes: from here on nothing may be taken back
        self._drop(transaction, besides=first)

    def _fails(self, request: Request[Transaction], place: FramePosition | None, *, because: BaseException) -> None:
        """Undo what was done of a transaction (``place``: where it was journaled) and set the error to report."""
        transaction = request.wanted
        request.error = because if isinstance(because, Exception) else InterruptedError(errno.EINTR, "interrupted")
        try:
            if place is not None:
                self._take_back(transaction, place)
        except OSError as error:
            self._journal.leave()  # durable and not taken back: the temp files tell the next writer to replay it
            request.error = OutcomeUnknown(
                f"the change failed ({because}) and so did taking it back ({reason(error)}): the next change or the "
                f"next start may bring it"
            )
        else:
            self._drop(transaction)

    def _take_back(self, transaction: Transaction, place: FramePosition) -> None:
        """Put the earlier versions back and void the frame.

        They are flushed in between: a checkpoint of another process may have taken the new ones for theirs.
        """
        published = [v.path for v in transaction.staged if atomic.signature(self._directory, v.path) == v.staged]
        for path in reversed(published):
            atomic.take_back(self._directory, path)
        if self._flush:
            atomic.sync_published(self._directory, published)
        self._journal.void(place)

    def _drop(self, transaction: Transaction, *, besides: Collection[str] = ()) -> None:
        """Let go of what the temp names hold: earlier versions, or new ones that were given up.

        ``besides``: the records of which nothing is there.
        """
        for change, version in zip(transaction.changes, transaction.staged, strict=False):
            if version.path in besides:
                continue
            with suppress(OSError):
                temp = temp_path(version.path)
                seen = atomic.signature(self._directory, temp)
                if seen in (change.replaces, version.staged):
                    atomic.remove(self._directory, temp)
                elif seen is not None:
                    self._keep(temp, of=version.path)

    def _keep(self, temp: str, *, of: str) -> None:
        """Someone saved the file by hand after the last look at it and before it was replaced: keep what they saved."""
        why = "changed by hand in the moment in which a new version took its place"
        quarantine.set_aside(self._directory, temp, reason=why, at=self._now(), of=of)


def groups_of(changes: Iterable[NewVersion]) -> Iterator[list[NewVersion]]:
    """The changes in their order, as many together as one commit can hold."""
    group: list[NewVersion] = []
    size = 0
    for change in changes:
        if group and size + len(change.data) > LARGEST_COMMIT:
            yield group
            group, size = [], 0
        group.append(change)
        size += len(change.data)
    if group:
        yield group


def reason(error: OSError) -> str:
    """What the system said, with the symbolic name of the error to search for."""
    name = errno.errorcode.get(error.errno or 0)
    return f"{error.strerror} ({name})" if name else str(error)


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
