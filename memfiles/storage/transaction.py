"""Transactions: several records changed together or not at all, also across a kill or a power cut.

The rules this file guards, in order: *stage* every new version next to the old one; *journal* them all in one flushed
frame; *publish* them. While a version is journaled and not published its temp file exists, so a writer that takes the
record's lock and finds a temp file knows that the last writer died (``LeftBehind``).

Threads that commit at the same time go through these steps together (group commit): one leads and serves all with a
single flush, each as its own frame. Every request is served exactly once, by whichever waiting thread leads, and a
follower that was served needs nothing more from the others to go on.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import Struct, field

from memfiles.errors import OutcomeUnknown, SizeExceeded, StorageFailed
from memfiles.records.keys import temp_path
from memfiles.records.record import MAX_RECORD_BYTES
from memfiles.storage import atomic, quarantine
from memfiles.storage.atomic import Signature, reason, storage_failure
from memfiles.storage.journal import CAPACITY, FramePosition, Journal
from memfiles.storage.journal_frames import Version
from memfiles.storage.record_store import NewVersion

PLAIN_COMMITS = 1
LARGEST_JOURNALED = CAPACITY // 4
LARGEST_COMMIT = MAX_RECORD_BYTES  # also of several records together: all of it is in memory and in the journal
_WORTH_SHARING_SECONDS = 0.0003  # a quicker flush is over before another thread has anything to flush
_LONGEST_WAIT_SECONDS = 0.01  # one flush may take unusually long
_GATHER_POLL_SECONDS = 0.0001
T = TypeVar("T")


class Transaction(Struct, eq=False):
    """The changes of one commit, and the versions staged for it so far."""

    changes: Sequence[NewVersion]
    staged: list[Version] = field(default_factory=list)


class LeftBehind(Exception):
    """A dead writer's temp file is in the way: recover, read the record again and decide again."""


class Transactions:
    """Commits to one memory directory through this process's journal."""

    def __init__(self, directory: int, journal: Journal, *, flush: bool, now: Callable[[], str]) -> None:
        """``flush`` False leaves out every flush (durability ``os``); ``now`` gives the time for quarantine notes."""
        self._directory = directory
        self._journal = journal
        self._flush = flush
        self._now = now
        self._plain_commits = 0
        self._flush_seconds = 0.0  # how long the last flush took
        self._group: GroupCommit[Transaction] = GroupCommit()

    def commit(self, changes: Sequence[NewVersion]) -> dict[str, Signature]:
        """Change these records; the caller holds their locks. See ``Store.commit`` for the errors."""
        if (size := sum([len(change.data) for change in changes])) > LARGEST_COMMIT:
            raise SizeExceeded(
                f"the {len(changes)} records of this change have {size} bytes, over the {LARGEST_COMMIT} that can be "
                f"changed together: split the change; nothing was changed"
            )
        transaction = Transaction(changes)
        try:
            if self._is_plain(changes):
                self._commit_plain(transaction)
            else:
                self._group.submit(transaction, self._serve, patience=self._patience)
        except OSError as error:
            raise StorageFailed(f"the change was not written: {reason(error)}; nothing was changed") from error
        return {version.path: version.staged for version in transaction.staged}

    def _is_plain(self, changes: Sequence[NewVersion]) -> bool:
        """Whether to flush the file itself: one record, and a journal not worth it yet or too small for it.

        A process that changes one record (a command line) needs two flushes that way, and no journal.
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
                unflushed = f"{path} was replaced, but may be lost in a power cut, as its folder could not be flushed"
                with storage_failure(unflushed, OutcomeUnknown):
                    atomic.sync_folder(self._directory, path.rpartition("/")[0])
        finally:
            self._drop_temps(transaction)

    def _serve(self, requests: list[Request[Transaction]]) -> None:
        """Commit the transactions of all waiting threads; each that fails has its error set."""
        with self._journal.turn:
            staged = [request for request in requests if self._try_stage(request)]  # 1 a full disk shows here
            positions: list[FramePosition] = []
            try:
                positions += self._append_frames(staged) if staged else []  # 2 durable from here on
                for request, position in zip(staged, positions, strict=True):
                    self._publish(request, position)  # 3 visible and acknowledged
            except BaseException as error:
                for number, request in enumerate(staged):
                    if not request.is_served:
                        self._undo(request, positions[number] if positions else None, because=error)
                if not isinstance(error, OSError):
                    raise

    def _patience(self) -> float:
        """The seconds to wait for others to share a flush: as long as one takes, none if flushing is quick."""
        took = self._flush_seconds
        return min(took, _LONGEST_WAIT_SECONDS) if took >= _WORTH_SHARING_SECONDS else 0.0

    def _append_frames(self, staged: Sequence[Request[Transaction]]) -> list[FramePosition]:
        begun = time.monotonic()
        positions = self._journal.append([request.work.staged for request in staged])
        self._flush_seconds = time.monotonic() - begun if self._flush else 0.0
        return positions

    def _try_stage(self, request: Request[Transaction]) -> bool:
        try:
            self._stage(request.work, flush=False)
        except (OSError, LeftBehind) as error:
            request.error = error
        return request.error is None

    def _stage(self, transaction: Transaction, *, flush: bool) -> None:
        """Write every new version into its temp file, or none."""
        try:
            for change in transaction.changes:
                signature = atomic.stage(self._directory, change.path, change.data, flush=flush)
                version = Version(change.path, change.revision, change.data, signature, change.sections)
                transaction.staged.append(version)
        except FileExistsError as error:
            self._drop_temps(transaction)
            raise LeftBehind(str(error)) from error
        except BaseException:
            self._drop_temps(transaction)
            raise

    def _publish(self, request: Request[Transaction], position: FramePosition) -> None:
        """Put a journaled transaction's versions in place, or take all of them back and void the frame."""
        transaction = request.work
        moved: set[str] = set()  # to a free name: nothing is left under the temp name
        try:
            for change in transaction.changes:
                if not atomic.publish(self._directory, change.path, is_new=change.replaces is None):
                    moved.add(change.path)
        except OSError as error:
            self._undo(request, position, because=error)
            request.is_served = True
            return
        request.is_served = True  # before any earlier version is removed: from here on nothing may be undone
        self._drop_temps(transaction, but=moved)

    def _undo(self, request: Request[Transaction], position: FramePosition | None, *, because: BaseException) -> None:
        """Undo a transaction, journaled at ``position`` if at all, and set the error to report."""
        transaction = request.work
        request.error = because if isinstance(because, Exception) else InterruptedError(errno.EINTR, "interrupted")
        try:
            if position is not None:
                self._take_back(transaction, position)
        except OSError as error:
            self._journal.leave()  # durable and not taken back: the temp files tell the next writer to replay it
            request.error = OutcomeUnknown(
                f"the change failed ({because}) and so did undoing it ({reason(error)}): the next change or the "
                f"next start may complete it"
            )
        else:
            self._drop_temps(transaction)

    def _take_back(self, transaction: Transaction, position: FramePosition) -> None:
        """Put the earlier versions back and void the frame.

        They are flushed in between: a checkpoint of another process may have taken the new ones for its own.
        """
        published = [v.path for v in transaction.staged if atomic.signature(self._directory, v.path) == v.staged]
        for path in reversed(published):
            atomic.undo_publish(self._directory, path)
        if self._flush:
            atomic.sync_published(self._directory, published)
        self._journal.void(position)

    def _drop_temps(self, transaction: Transaction, *, but: Collection[str] = ()) -> None:
        """Remove what the temp names hold, earlier versions or discarded new ones, of all paths ``but`` these."""
        for change, version in zip(transaction.changes, transaction.staged, strict=False):
            if version.path in but:
                continue
            temp = temp_path(version.path)
            try:
                if (seen := atomic.signature(self._directory, temp)) is None:
                    continue
                known = [it[1:] for it in (change.replaces, version.staged) if it]  # without the inode, as of a copy
                if seen[1:] in known:
                    atomic.remove(self._directory, temp)
                else:  # saved by someone after the record was last read
                    why = "edited by hand just before a new version replaced it"
                    quarantine.set_aside(self._directory, temp, reason=why, at=self._now(), of=version.path)
            except OSError:
                continue  # the next writer finds it


def groups_of(changes: Iterable[NewVersion]) -> Iterator[list[NewVersion]]:
    """The changes in their order, in groups as large as one commit can hold."""
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


class Request(Generic[T]):
    """The work of one thread; ``error`` says why it could not be done."""

    __slots__ = ("error", "gate", "is_served", "work")

    def __init__(self, work: T) -> None:
        """The gate stays closed until the request was dealt with or becomes the leader's."""
        self.work = work
        self.error: BaseException | None = None
        self.is_served = False
        self.gate = threading.Lock()
        self.gate.acquire()

    def wait(self) -> None:
        """Return once the gate is open."""
        with suppress(RuntimeError), self.gate:  # and leave it open, also in an interrupt; it may be opened just then
            return

    def open_gate(self) -> None:
        """Release the request's thread. May be called again."""
        with suppress(RuntimeError):  # it is open
            self.gate.release()


class GroupCommit(Generic[T]):
    """Makes one of the waiting threads the leader, which serves the requests of all.

    On CPython this also keeps eight threads from passing the interpreter's lock around at every system
    call: the leader makes all the calls while its followers sleep.
    """

    def __init__(self) -> None:
        self._last_size = 1  # of the group that was served last
        self._queue_lock = threading.Lock()
        self._waiting: deque[Request[T]] = deque()
        self._serving: deque[Request[T]] = deque()
        self._leader: Request[T] | None = None

    @property
    def waiting(self) -> int:
        """The number of requests that are not being served yet."""
        return len(self._waiting)

    def submit(
        self, work: T, serve: Callable[[list[Request[T]]], None], *, patience: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Return once the work is done; raises the error that made it fail.

        The leader's ``serve`` gets every waiting request and marks each as served or failed; no two run at once. Its
        ``patience`` gives the seconds for which it is worth waiting for more requests.
        """
        request = Request(work)
        try:
            self._enqueue(request)
            if self._leader is request:
                self._lead(request, serve, patience)
        except BaseException:
            self._withdraw(request)
            raise
        if request.error is not None:
            raise request.error

    def _enqueue(self, request: Request[T]) -> None:
        """Return once another thread has served this request, or it is the leader's."""
        with self._queue_lock:
            if self._leader is None:
                self._leader = request
            self._waiting.append(request)
        if self._leader is not request:
            request.wait()

    def _lead(
        self, leader: Request[T], serve: Callable[[list[Request[T]]], None], patience: Callable[[], float]
    ) -> None:
        try:
            if self._last_size > 1:
                self._gather(patience())
            with self._queue_lock:
                self._last_size = len(self._waiting)
                self._serving, self._waiting = self._waiting, deque()
            serve(list(self._serving))
        finally:
            self._resign(leader)

    def _gather(self, seconds: float) -> None:
        """Wait for as many requests as were served last time: their threads come back, and can share one flush.

        Otherwise the first to come back would be served alone in every other round.
        """
        deadline = time.monotonic() + seconds
        while self.waiting < self._last_size and time.monotonic() < deadline:
            time.sleep(_GATHER_POLL_SECONDS)

    def _resign(self, leader: Request[T]) -> None:
        """Release the followers that were served, and make the first waiting request the leader.

        An interrupt may come at any point; then this is called again.
        """
        while self._serving:
            request = self._serving[-1]
            if not request.is_served and request.error is None:  # never acknowledge what did not happen
                request.error = InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            if request is not leader:
                request.open_gate()
            self._serving.pop()
        with self._queue_lock:
            if self._leader is leader:
                self._leader = self._waiting[0] if self._waiting else None
            self._wake_leader()

    def _withdraw(self, request: Request[T]) -> None:
        """Take out the request of an interrupted thread (Ctrl-C, say), unless it is being served: then wait for it."""
        with self._queue_lock:
            if request in self._waiting:
                self._waiting.remove(request)
            is_being_served = request in self._serving
            self._wake_leader()
        if self._leader is request:
            self._resign(request)
        elif is_being_served:
            request.wait()

    def _wake_leader(self) -> None:
        """Open the leader's gate, the queue locked; the thread about to do it may have been interrupted."""
        if self._leader is not None:
            self._leader.open_gate()
