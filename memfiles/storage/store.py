"""The directory store: records as files of one memory directory, changed under their locks through a journal.

It keeps the promises of ``record_store.RecordStore``. The rules this file guards: only ``change`` gives a record
another content; with durability ``fsync`` it returns once the change survives a power cut; a failure or a kill at any
point leaves every record either old or new; and as long as the journal holds anything, a thread checks when to empty
it: after a second without changes, or when another process asks.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from memfiles.errors import InvalidArgument, LockTimeout, MemfilesError, RecordCorrupt, StorageFailed, StorageRefused
from memfiles.records import late_logger as _log
from memfiles.records.keys import is_record_path
from memfiles.records.record import MAX_RECORD_BYTES
from memfiles.storage import atomic, entry_folders, quarantine, recovery
from memfiles.storage.atomic import Descriptor, Signature, reason, record_paths_in, storage_failure
from memfiles.storage.fork_safety import join_thread, renew_in_child, start_thread
from memfiles.storage.home import Durability as Durability
from memfiles.storage.home import MemoryHome
from memfiles.storage.journal import FOLDER, Journal
from memfiles.storage.locks import FOLDER as LOCK_FOLDER
from memfiles.storage.locks import RecordLocks, is_at
from memfiles.storage.quarantine import Quarantine
from memfiles.storage.record_store import (
    Changes,
    ChangeSet,
    CommitHook,
    Decide,
    NewVersion,
    Records,
    RecordStore,
    RemoteStore,
)
from memfiles.storage.transaction import LeftBehind, Transactions

STATE_FOLDER = ".state"
_ATTEMPTS = 50
_LOCKS_KEPT_OPEN = 16
_FOLDERS_KNOWN = 4096  # at most about so many are remembered as made
_IDLE_SECONDS = 1.0
_LOOK_SECONDS = 1.0  # for the directory at its path
_POLL_SECONDS = 0.1
_SCRUB_POLL_SECONDS = 0.02
T = TypeVar("T")


class Store:
    """The records of one open memory directory, for all threads of this process; see ``RecordStore``."""

    def __init__(
        self, directory: Path, *, now: Callable[[], str], durability: Durability = "fsync", lock_timeout: float = 30.0
    ) -> None:
        """Create the directory if needed, and recover what dead processes left.

        ``now`` gives the time for notes; ``lock_timeout`` is in seconds. ``StorageFailed`` if it cannot be used.
        """
        self.directory, self.name, self._is_closed = directory, directory.name, False
        self._now, self._lock_timeout, self._folders = now, lock_timeout, {""}
        self._flush = durability == "fsync"
        with storage_failure(f"cannot use the memory directory {directory}"):
            self.descriptor = _make_directory(directory, flush=self._flush)
            self.kept = Quarantine(self.descriptor)
            self._path, self._looks_at = os.path.realpath(directory), time.monotonic() + _LOOK_SECONDS
            self._start_parts()
            self.recover(among="agents")  # lists their entries: 70 ms for 100,000; the index finds those of users
        renew_in_child(self, Store._leave_to_parent)

    def close(self) -> None:
        """Checkpoint and release the directory, also in an interrupt: only the records matter then."""
        self._is_closed = True
        try:
            with storage_failure("some records could not be flushed; the journal stays for the next start"):
                self._checkpointer.stop()
                if not self._journal.close():
                    self.recover()
        finally:
            self._journal.close()
            self._locks.close()

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        """The bytes of a record and their signature, None if there is none; ``RecordCorrupt`` if unreadable."""
        with storage_failure(f"{path} cannot be read"):
            return atomic.read(self.descriptor, path, limit=MAX_RECORD_BYTES) if is_record_path(path) else None

    def signature(self, path: str) -> Signature | None:
        """The signature of a record's present version, None if there is none."""
        try:
            return atomic.signature(self.descriptor, path) if is_record_path(path) else None
        except OSError as error:
            raise StorageFailed(f"{path} cannot be examined: {reason(error)}") from error

    def view(self, paths: Iterable[str]) -> Records:
        """See ``RecordStore``: a file is read when it is asked for."""
        return self

    def paths(self, folder: str = "") -> list[str]:
        with storage_failure("the memory directory cannot be listed"):
            return record_paths_in(self.descriptor, folder)

    def change(
        self, paths: Iterable[str], decide: Decide[T], *, hook: CommitHook | None = None
    ) -> tuple[T, dict[str, Signature]]:
        """See ``RecordStore``: under the locks of these records, so a hand edit alone can come in between.

        Its bytes go to quarantine then. If a writer died here, the directory is recovered, and ``decide`` called again.
        """
        wanted = [*paths]
        if bad := [path for path in wanted if not is_record_path(path)]:
            raise InvalidArgument(f"there can be no record at {bad[0][:200]!r}: nothing was changed")
        for _ in range(_ATTEMPTS):
            held = self._locks.hold(wanted, check=self._refuse_if_gone)
            try:
                with held:
                    result, change = decide(self)
                    if not change.removed:
                        return result, self._write(change, hook)
                self._drop_from_journals(change.removed.keys())
                with held:
                    return result, self._write(change, hook)
            except LeftBehind:
                self.recover()
            except BaseException:
                held.release()  # an interrupt may have come just before the context did that
                raise
        raise LockTimeout(f"{', '.join(wanted[:3])}: a dead writer's temp file cannot be removed: run memfiles doctor")

    def make_folders(self, paths: Iterable[str]) -> None:
        """Ensure the folders of these records, durably; each is created once."""
        if len(self._folders) > _FOLDERS_KNOWN:
            self._folders = {""}
        for folder in {path.rpartition("/")[0] for path in paths} - self._folders:
            with storage_failure(f"the folder {folder} cannot be created"):
                atomic.make_folders(self.descriptor, folder, flush=self._flush)
            self._folders.add(folder)

    def recover(self, *, among: recovery.SweptEntries = "all") -> None:
        """Replay and remove the journals that dead processes left, and remove their temp files."""
        with storage_failure("recovering from a process that died failed"):
            self._journal.retire_broken()
            recovery.recover(self.descriptor, self._locks, at=self._now(), flush=self._flush, among=among)

    def checkpoint(self) -> None:
        """Flush every published record and empty this process's journal."""
        with storage_failure("the checkpoint failed; the journal keeps the changes that are not flushed"):
            if not self._journal.checkpoint():
                self.recover()

    def changes(self, since: str | None = None) -> Changes:
        """See ``RecordStore``; the version of a file that was edited in place may be missing."""
        with storage_failure("the records cannot be listed"):
            return entry_folders.changes(self.descriptor, since)

    def wait(self, since: str, *, seconds: float) -> bool:
        """See ``RecordStore``; the folders are looked at some times a second, less often if there are very many."""
        with storage_failure("the records cannot be listed"):
            return entry_folders.wait(self.descriptor, since, seconds=seconds)

    def scrub(self) -> None:
        """Return once no process's journal holds an earlier version of a record; ``LockTimeout`` if one may."""
        with (
            storage_failure("removed text may still be in a journal, which cannot be overwritten; do it again"),
            recovery.request_scrub(self.descriptor, timeout=self._lock_timeout) as token,
        ):
            self._journal.checkpoint(scrub_token=token)
            self._wait_for_scrub(token)

    def _write(self, change: ChangeSet, hook: CommitHook | None) -> dict[str, Signature]:
        """Carry out a decision under the locks of its records; the hook hears of it before and after."""
        versions, removed, aside, _ = change
        paths = [version.path for version in versions] or [*removed, *aside]
        if not paths:
            return {}
        for path, why in aside.items():
            self._put_aside(path, why, is_replaced=path in paths and bool(versions))
        self.make_folders(paths)
        if hook is None:
            return self._commit(versions, removed)
        hook.before(paths)
        try:
            written = self._commit(versions, removed)
            hook.after(written)
        except BaseException:  # also an interrupt after the commit
            hook.failed()
            raise
        return written

    def _commit(self, versions: Sequence[NewVersion], removed: Mapping[str, Signature]) -> dict[str, Signature]:
        if removed:
            self._remove(removed)
        if not versions:
            return {}
        try:
            return self._transactions.commit(versions)
        except StorageFailed as error:
            self._folders = {""}
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self.make_folders(version.path for version in versions)  # someone removed one by hand
            return self._transactions.commit(versions)
        finally:
            if self._journal.is_dirty:  # also after a failure, which may have left part of a frame
                self._checkpointer.wake()

    def _put_aside(self, path: str, why: str, *, is_replaced: bool) -> None:
        """Quarantine whatever is at ``path``.

        A readable file that is about to be replaced is copied, so that a kill before that loses nothing; anything else
        is moved.
        """
        with storage_failure(f"{path} could not be quarantined"):
            try:
                found = (self.find(path) or (b"",)) if is_replaced else None
            except RecordCorrupt:
                found = None
            at = self._now()
            if found is not None:
                quarantine.keep_copy(self.descriptor, path, found[0], reason=why, at=at)
                return
            kept = quarantine.set_aside(self.descriptor, path, reason=why, at=at)
        if not is_replaced:
            _log.warning("%s; it is in quarantine now: %s", why, kept)

    def _drop_from_journals(self, paths: Collection[str]) -> None:
        """Return once no journal holds a version of these records; replaying it would bring a removed one back."""
        self.checkpoint()
        with storage_failure("no record was removed, as the journals cannot be looked at"):
            names = [name for name in recovery.journal_names(self.descriptor) if name != self._journal.name]
            if any(recovery.may_hold_version(self.descriptor, name, paths) for name in names):
                self.scrub()
            elif self._flush:
                recovery.sync_journals(self.descriptor)

    def _remove(self, found: Mapping[str, Signature]) -> None:
        """Remove the files of these records that still have these signatures."""
        with storage_failure("a record cannot be removed"):
            for path, signature in found.items():
                if atomic.signature(self.descriptor, path) == signature:
                    atomic.remove(self.descriptor, path)
            for folder in {path.rpartition("/")[0] for path in found}:
                atomic.sync_folder(self.descriptor, folder)

    def _refuse_if_gone(self) -> None:
        if self._is_closed:
            raise InvalidArgument("the memory was closed while this call waited for a lock; nothing was changed")
        if (now := time.monotonic()) >= self._looks_at:
            if not is_at(self.descriptor, self._path):
                raise StorageRefused(f"{self._path} was moved or replaced while it was open, so nothing was changed: "
                                     f"move it back, or close this memory and open it again")  # fmt: skip
            self._looks_at = now + _LOOK_SECONDS

    def _wait_for_scrub(self, token: bytes) -> None:
        deadline = time.monotonic() + self._lock_timeout
        while True:
            recovery.recover(self.descriptor, self._locks, at=self._now(), flush=self._flush, among="none")
            names = [name for name in recovery.journal_names(self.descriptor) if name != self._journal.name]
            waiting = [name for name in names if recovery.may_hold_content(self.descriptor, name, token=token)]
            if not waiting:
                if self._flush:
                    recovery.sync_journals(self.descriptor)
                return
            if time.monotonic() >= deadline:
                pids = ", ".join(name.partition("-")[0] for name in waiting)
                raise LockTimeout(
                    f"removed text may still be in the journals of these processes: {pids}. They do not respond; stop "
                    f"them and do it again"
                )
            time.sleep(_SCRUB_POLL_SECONDS)

    def _recovery(self) -> Callable[[], None]:
        """``recover`` for the checkpointer's thread, which must not keep the store alive."""
        reference = weakref.WeakMethod(self.recover)
        return lambda: recover() if (recover := reference()) is not None else None

    def _start_parts(self) -> None:
        """Create the parts that belong to this process alone: its locks, its journal and its checkpointer."""
        self._locks = RecordLocks(self.descriptor, timeout=self._lock_timeout, keep_open=_LOCKS_KEPT_OPEN)
        self._journal = Journal(
            self.descriptor, new_id=lambda: f"{os.getpid()}-{uuid.uuid4().hex[:12]}", flush=self._flush
        )
        self._checkpointer = Checkpointer(self.descriptor, self._journal, recover=self._recovery())
        self._transactions = Transactions(self.descriptor, self._journal, flush=self._flush, now=self._now)
        self._end = weakref.finalize(self, self._checkpointer.finish)
        self._end.atexit = False  # the next start replays what is left

    def _leave_to_parent(self) -> None:
        """In a forked child: start over, as the journal, locks and threads are the parent's."""
        if not self._is_closed:
            self._end.detach()
            self._journal.abandon()
            self._locks.leave_to_parent()
            self._start_parts()


class Checkpointer:
    """Empties the journal in a thread, which polls it ten times a second and sleeps while it is empty."""

    def __init__(self, directory: int, journal: Journal, *, recover: Callable[[], None]) -> None:
        """The thread starts with the first ``wake``; ``recover`` replays a journal that had to be given up."""
        self._directory, self._journal, self._recover = directory, journal, recover
        self._is_awake = self._is_ending = self._is_dropped = False
        self._calls: SimpleQueue[None] = SimpleQueue()  # an event could not be set by the garbage collector
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        """Watch the journal, which holds something now; empty it at once where no thread can be started."""
        if self._is_awake:
            return
        with self._starting:
            if is_new := self._thread is None or not self._thread.is_alive():  # an interrupt may come before its start
                self._thread = threading.Thread(target=self._run, name="memfiles-checkpoint", daemon=True)
            self._is_awake = not is_new or start_thread(self._thread)
        if self._is_awake:
            self._calls.put(None)
        else:
            self._checkpoint(b"", recover=lambda: None)  # whoever recovers holds no lock of a record

    def stop(self) -> None:
        """End the thread and wait for it; the journal stays as it is."""
        self._is_ending = True
        self._calls.put(None)
        with self._starting:  # a thread can be joined only once it was started
            thread = self._thread
        join_thread(thread)

    def finish(self) -> None:
        """End the thread once it has closed the journal, without waiting: the store was dropped without a close."""
        self._is_ending = self._is_dropped = True
        self._calls.put(None)
        if self._thread is None or not self._thread.is_alive():
            self._close_journal()

    def _run(self) -> None:
        while not self._is_ending:
            try:
                self._calls.get()
                self._empty_journal()
            finally:
                self._is_awake = False  # also if this thread ends by an error: the next change starts another
            if self._journal.is_dirty:  # again, by a change that found this thread awake
                self.wake()
        self._calls.put(None)  # for a second thread: an interrupt may have hidden that the first one had started
        if self._is_dropped:
            self._close_journal()

    def _close_journal(self) -> None:
        try:
            self._journal.close()
        except OSError:
            _log.exception("a memory was dropped without close and could not be flushed; the next start does it")

    def _empty_journal(self) -> None:
        """Poll until a checkpoint has emptied the journal."""
        frames, since, answered = self._journal.frames_written, time.monotonic(), b""
        while self._journal.is_dirty and not self._is_ending:
            with suppress(Empty):
                self._calls.get(timeout=_POLL_SECONDS)
            if self._journal.frames_written != frames:
                frames, since = self._journal.frames_written, time.monotonic()
            request = recovery.requested_scrub(self._directory)
            if request not in (b"", answered) or time.monotonic() - since >= _IDLE_SECONDS:
                answered, since = request, time.monotonic()
                self._checkpoint(request, recover=self._recover)

    def _checkpoint(self, request: bytes, *, recover: Callable[[], None]) -> None:
        try:
            if not self._journal.checkpoint(scrub_token=request or None):
                recover()
        except Exception:  # the edge of the thread: the process may be short of memory
            _log.exception("a checkpoint failed and will be repeated; the journal keeps what is not flushed")


def with_files(store: RecordStore) -> Store | None:
    """The store if its records are files in a directory: it can be edited by hand, and has a ledger and an audit."""
    return store if isinstance(store, Store) else None


def kept_with(store: RecordStore) -> Path | MemoryHome | None:
    """The place of the audit and the mirror's ledger next to the records; None for a store without them."""
    return store.directory if isinstance(store, Store) else store.home if isinstance(store, RemoteStore) else None


def sweep(store: Store | None) -> None:
    """Remove temp files of dead writers; a failure is only logged."""
    try:
        if store is not None:
            store.recover()
    except MemfilesError as error:
        _log.warning("temp files of dead writers could not be removed: %s", error)


def _make_directory(directory: Path, *, flush: bool) -> Descriptor:
    """The descriptor of the memory directory, created with its folders (mode 0700) where they are missing.

    ``.journal`` is created once the names above it are flushed: where it exists, they survive a power cut.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = Descriptor.of_directory(directory)
    if flush and atomic.signature(descriptor, FOLDER) is None:
        for path in missing[::-1] or [directory]:
            with suppress(PermissionError):  # the folder above is someone else's and may not be read
                atomic.sync_folder(Descriptor.of_directory(path.parent))
    for folder in (FOLDER, STATE_FOLDER, LOCK_FOLDER):
        atomic.make_folder(descriptor, folder)
    return descriptor
