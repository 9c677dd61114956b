"""The memory manager: every operation on memory files.

Tools, command line and adapters call this class and add nothing. It decides nothing itself: ``file_changes`` decides,
the record repository applies a decision under the record's lock, and ``restorer`` restores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from memfiles.errors import FileNotDeclared, InvalidArgument, MemfilesError, RecordCorrupt
from memfiles.files import start_cache
from memfiles.files.file_gate import FileGate, Given, LostTexts, check_carried, erase, finish, note
from memfiles.files.restore_report import FileReport, FileView, RestoreReport, cards_of, declared_files
from memfiles.files.restorer import Restorer, seen_in
from memfiles.files.start_cache import CacheRow
from memfiles.files.user_files import FilesOfUser, UserEpoch, UserFiles, UserRecords
from memfiles.records import file_changes, history
from memfiles.records import late_logger as _log
from memfiles.records.file_changes import Decision, FileCard, Receipt, Redaction, card_of
from memfiles.records.keys import RECORD_SUFFIX, record_path
from memfiles.records.levels import DEFAULT_LEVELS
from memfiles.records.lineage import check_origin
from memfiles.records.record import Actor, Change, Record, Stamp, check_text
from memfiles.records.redactions import NONCE_BYTES
from memfiles.secrets.gate import Policy, Scanner, check_policy
from memfiles.storage.events import RecordChanged, Subscribers, utc_now
from memfiles.storage.fork_safety import collector_paused
from memfiles.storage.home import MemoryHome, directory_of, needs_recovery, real_home
from memfiles.storage.record_kinds import FILE_KIND
from memfiles.storage.record_store import RecordStore
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Durability
from memfiles.workflow.workflow import MemoryFile, Workflow

if TYPE_CHECKING:
    from memfiles.storage.watcher import DeclaredFiles
    from memfiles.sync.mirror import Mirror, Stored
    from memfiles.sync.replica import Replica

User = str | UserEpoch | None


class MemoryManager:
    """The memory files of one directory. Threads may share it; processes may share the directory.

    Every verb takes a file by its name or, if no file has that name, by its uid. ``gate`` judges every change.
    A file ``per: user`` (``per_user``, by uid) also needs the name of the ``user``; ``users`` has the records of users
    in an open memory.
    ``hydrated`` has the mirror's objects that the last restore wrote as records, by path. ``origin`` is the id of a
    mirrored directory, known after the first restore; ``subscribers`` hear of every change.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | MemoryHome,
        mirror: Mirror | None = None,
        *,
        durability: Durability = "fsync",
        secrets: Policy = "block",
        scan: Scanner | None = None,
        lock_timeout: float = 30.0,
        lowest_level: str = DEFAULT_LEVELS[0],
        origin: Callable[[], str | None] | None = None,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """Nothing touches the disk before ``restore``. A relative ``directory`` and links are resolved now.

        ``directory`` may also be the URL of a store, ``postgresql://host/db?workspace=...``.
        ``durability`` is ``fsync`` (a write is on the disk when it returns) or ``os`` (no flush: survives a kill, not
        a power cut). ``secrets`` says what happens to text that memfiles or ``scan`` take for a credential.
        ``lock_timeout`` is in seconds. ``lowest_level`` is the level of files that declare none.
        ``origin`` returns the id of a mirrored directory, 12 hexadecimal digits, which marks its changes; the first
        restore calls it once.
        """
        if durability not in ("fsync", "os"):
            raise InvalidArgument(f"durability {durability!r} is not known: use 'fsync' or 'os'")
        if mirror is not None:
            from memfiles.sync.mirror import require_mirror  # late: only workflows with a mirror need it

            require_mirror(mirror)
        self.place = real_home(directory)
        self._open = partial(self.place.open, now=now, durability=durability, lock_timeout=lock_timeout)
        self.hydrated: dict[str, Stored] = {}
        self.gate = FileGate(check_policy(secrets), scan)
        self._now, self._mirror, self._lowest_level = now, mirror, lowest_level
        self._durability, self._find_origin, self._was_open = durability, origin, False
        self.origin: str | None = None
        self.subscribers = Subscribers()
        self._records: RecordRepository[Record] | None = None
        self._cached: dict[str, CacheRow] = {}
        self._uids: dict[str, str] = {}  # by name
        self.per_user: Mapping[str, MemoryFile] = {}
        self.levels: Mapping[str, str] = {}  # as declared, by uid
        self.left_out: set[object] = set()  # files that the log already calls unreadable
        self.users: UserFiles | None = None

    def plan(self, files: Workflow | Iterable[MemoryFile]) -> RestoreReport:
        """The report of a ``restore``, without touching the disk or the live files."""
        return self._restorer().plan(self.place, declared_files(files))

    def with_users(self, declared: Iterable[MemoryFile], records: Callable[[], UserRecords]) -> None:
        """Give access to the files ``per: user`` among those declared; ``records`` is called when one is first used."""
        self._know(declared)
        self.users = UserFiles(records, self._lowest_level, self._now, at=self._now())

    def view(self, file: MemoryFile, report: FileReport) -> FileView:
        """A declared file as it is on disk, or as it would start, without touching the disk or the live set."""
        return seen_in(self.place, file, report, lowest_level=self._lowest_level)

    def recover(self) -> None:
        """Replay the journals of dead processes, as ``restore`` does; without one nothing is touched."""
        if self._records is None and needs_recovery(self.place):
            self._open().close()

    def restore(self, files: Workflow | Iterable[MemoryFile]) -> RestoreReport:
        """Make exactly these files live: local record over mirror copy over declared content. All or nothing.

        Files ``per: user`` are checked, but have no record of their own: see ``users``.
        ``WorkflowError`` for contradictory declarations: then neither the disk nor the live files change.
        """
        declared = declared_files(files)
        if self._records is None:
            self._store = store = self._open()
            self.origin = check_origin(self._find_origin()) if self._find_origin is not None else None
            told: dict[str, Any] = {"now": self._now, "subscribers": self.subscribers, "origin": self.origin}
            self._records = RecordRepository(store, FILE_KIND, **told)
            self._records.note_loss = partial(note, self)
            self.gate.look_at_hand_edits(self)
        self._repair_files()
        with collector_paused():
            restored = self._restorer().restore(self.records, declared, cached=start_cache.rows(self.place))
        self._live.declare(restored.seen)
        self._know(declared)
        self.gate.allowed = {file.uid: file.secrets_allow for file in declared}
        self.hydrated = restored.hydrated
        self._cached = start_cache.update(self.place, restored.cached, self._live)
        self.subscribers.tell(restored.edits)
        finish(self)
        return restored.report

    def take_hydrated(self) -> dict[str, Stored]:
        """Return ``hydrated`` and empty it: a sync needs these copies once."""
        self.hydrated, taken = {}, self.hydrated
        return taken

    def uids(self) -> list[str]:
        """The uids of the live files, sorted."""
        return sorted(path.removesuffix(RECORD_SUFFIX) for path in (self._records.paths() if self._records else []))

    def card(self, uid: str, *, user: User = None) -> FileCard:
        """Name, description, level, sizes in UTF-8 bytes and revision of a file, as it is now."""
        return card_of(self.snapshot(uid, user=user))

    def read(self, uid: str, *, user: User = None) -> str:
        """The content of a file, as it is now. ``FileNotDeclared``, ``RecordCorrupt``."""
        return self.snapshot(uid, user=user).content

    def snapshot(self, uid: str, *, user: User = None) -> Record:
        """Content, revision and history of a file in one consistent view."""
        records, path = self._at(uid, user)
        return records.current(path)

    def append(
        self,
        uid: str,
        content: str,
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
        by: Actor | None = None,
        user: User = None,
    ) -> Receipt:
        """Put ``content`` at the very end, exactly as it is; durable on return.

        ``SizeExceeded``, ``RevisionConflict``, ``SecretRefused``, ``LockTimeout``, ``StorageFailed``: nothing
        changed. The same call repeated (same actor, ``call_id`` and text) returns the first receipt.
        """
        check_text(content)
        stamp = self.gate.stamp(by, call_id, expected_revision, at=self._now())
        return self._change(uid, partial(file_changes.append, text=content), stamp, user=user)

    def append_many(self, appends: Iterable[tuple[str, str]], *, by: Actor | None = None) -> list[Receipt]:
        """Append to several files, or several times to one, all or nothing, with one flush; receipts in order."""
        wanted = [(self._at(uid, None)[1], content) for uid, content in file_changes.checked_pairs(appends)]
        for _, content in wanted:
            check_text(content)
        stamp, lost = self.gate.stamp(by, None, None, at=self._now()), LostTexts()

        def decide(records: Mapping[str, Record | None]) -> tuple[list[Decision], list[Record]]:
            lost.clear()
            before = {path: _found(record) for path, record in records.items()}
            judge = partial(self.gate.judged, stamp=stamp, lost=lost)
            decisions = file_changes.append_all(before, wanted, stamp, judge=judge)
            last = {decision.record.uid: decision.record for decision in decisions if decision.record}
            return decisions, list(last.values())  # the last record of a file holds its earlier changes too

        decisions = self._live.change([path for path, _ in wanted], decide)
        erase(self, lost, self._live)
        return [decision.receipt for decision in decisions]

    def edit(
        self,
        uid: str,
        old: str,
        new: str,
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
        by: Actor | None = None,
        user: User = None,
    ) -> Receipt:
        """Replace the first occurrence of ``old``; the receipt says how many there were and at which line.

        ``EmptyText`` without ``old``, ``EditNoMatch`` with the nearest line as a hint; else as ``append``.
        """
        stamp = self.gate.stamp(by, call_id, expected_revision, at=self._now())
        return self._change(uid, partial(file_changes.edit, old=old, new=new), stamp, user=user)

    def replace(
        self,
        uid: str,
        content: str,
        *,
        expected_revision: int | None = None,
        by: Actor | None = None,
        user: User = None,
    ) -> Receipt:
        """Make ``content`` the whole content, recorded as the smallest edit that does it; errors as ``append``."""
        stamp = self.gate.stamp(by, None, expected_revision, at=self._now())
        decide = partial(file_changes.replace_content, content=content)
        return self._change(uid, decide, stamp, given="all", user=user)

    def log(self, uid: str, *, user: User = None) -> list[Change]:
        """The kept changes of a file, newest first."""
        return list(reversed(self.snapshot(uid, user=user).history))

    def diff(self, uid: str, from_revision: int, to_revision: int, *, user: User = None) -> str:
        """A unified diff between two revisions, empty when equal. ``RevisionUnknown`` beyond the history."""
        return history.unified_diff(self.snapshot(uid, user=user), from_revision=from_revision, to_revision=to_revision)

    def undo(
        self,
        uid: str,
        *,
        to_revision: int | None = None,
        expected_revision: int | None = None,
        call_id: str | None = None,
        by: Actor | None = None,
        user: User = None,
    ) -> Receipt:
        """Take back the last change, or go back to the content at ``to_revision``, as a new revision.

        Undoing an undo brings the change back. ``RevisionUnknown`` beyond the history; else as ``append``. A credential
        that comes back is a warning.
        """
        stamp = self.gate.stamp(by, call_id, expected_revision, at=self._now())
        decide = partial(file_changes.undo, to_revision=to_revision)
        return self._change(uid, decide, stamp, given="nothing", user=user)

    def redact(
        self, uid: str, text: str, *, expected_revision: int | None = None, by: Actor | None = None, user: User = None
    ) -> Redaction:
        """Remove ``text`` from a file's content, its history, the journals and quarantined copies.

        1. repair a broken record; 2. commit, with a note to finish it after a kill; 3. see ``erase``. ``LockTimeout``:
        a process whose journal may hold it did not answer. ``MirrorRefused``: done, but not for other machines.
        """
        check_text(text)
        stamp = self.gate.stamp(by, None, expected_revision, at=self._now())
        (records, path), nonce = self._at(uid, user), os.urandom(NONCE_BYTES)

        def decide(found: Mapping[str, Record | None]) -> tuple[Redaction, list[Record]]:
            changed, redaction = file_changes.redact(_found(found[path]), stamp, text=text, nonce=nonce)
            return redaction, [changed] if changed is not None else []

        records.notice(path, at_once=True)
        done = records.change([path], decide)
        removed = erase(self, {record_path(done.receipt.uid): (done.receipt.revision, (text,))}, records)
        check_carried(done, mirror=self._mirror)
        return Redaction(done.receipt, done.in_content, done.in_history, removed)

    def notice(self, uid: str) -> bool:
        """Look at a file that may have been changed from outside: commit a hand edit, repair a broken record.

        False: someone may still be saving it; look again in a moment. ``RecordCorrupt`` if no good version is known.
        """
        return self._live.notice(self._at(uid, None)[1])

    def subscribe(self, callback: Callable[[RecordChanged], None]) -> Callable[[], None]:
        """Call ``callback`` after every change, in the thread that made or noticed it; returns the function to stop."""
        return self.subscribers.add(callback)

    def cards(self) -> tuple[list[FileCard], dict[str, str]]:
        """The cards of the live files, and the problems of the unreadable ones by uid."""
        return cards_of(self.card, self.uids())

    def status(self) -> dict[str, Any]:
        """A JSON object: directory, durability, live files, ``problems`` as in ``cards``, orphans and quarantine."""
        declared, (cards, problems) = {record_path(uid) for uid in self.uids()}, self.cards()
        return {
            "directory": self.place.title,
            "durability": self._durability,
            "files": [card.to_dict() for card in cards],
            "problems": problems,
            "orphans": [path for path in self.records.paths() if path not in declared],
            "quarantine": [{"path": path, "reason": why} for path, why in self.records.kept.listing()],
        }

    def checkpoint(self) -> None:
        """Flush every published record and empty this process's journal."""
        self.records.checkpoint()

    def close(self) -> None:
        """Checkpoint and release the directory; then only the records matter. Idempotent."""
        if self._records is None:
            return
        try:
            try:
                self._repair_files()
            except MemfilesError as error:
                _log.warning("a change by others may not have been noticed before the memory closed: %s", str(error))
            self._cached = start_cache.update(self.place, self._cached, self._live)
        finally:
            self._records, self._was_open = None, True
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def watched(self) -> DeclaredFiles:
        """The live files, to be watched for changes by others."""
        from memfiles.storage.watcher import DeclaredFiles  # late: a command watches nothing

        return DeclaredFiles(self._live, self.place.directory)

    @property
    def replica(self) -> Replica:
        """The live files, to be kept in sync with a mirror."""
        from memfiles.sync.replica import Replica  # late: only workflows with a mirror need it

        return Replica(self._live, self.records, self.place, now=self._now)

    def _restorer(self) -> Restorer:
        return Restorer(self._mirror, now=self._now, lowest_level=self._lowest_level, origin=self.origin)

    @property
    def directory(self) -> Path:
        """The memory directory. ``InvalidArgument`` if the records are elsewhere."""
        return directory_of(self.place)

    @property
    def records(self) -> RecordStore:
        """The open store, which also holds the entries."""
        _ = self._live  # refuses while it is not open
        return self._store

    @property
    def _live(self) -> RecordRepository[Record]:
        if self._records is None:
            why = "closed: open the memory again, or" if self._was_open else "not restored yet:"
            raise InvalidArgument(f"the manager is {why} call restore")
        return self._records

    def _repair_files(self) -> None:
        """Repair files whose last good version only this process knows, before a restore or a close."""
        for path in self._live.known():
            try:
                self._live.notice(path, at_once=True)
            except RecordCorrupt as error:  # the next restore reports it
                _log.info("%s cannot be repaired: %s", path, error)

    def _change(
        self, uid: str, decide: Callable[[Record, Stamp], Decision], stamp: Stamp, *, given: Given = "part", user: User
    ) -> Receipt:
        (records, path), lost = self._at(uid, user), LostTexts()
        if isinstance(user, str):  # a session has asked already
            self.gate.labels.check({"user": user})

        def run(found: Mapping[str, Record | None]) -> tuple[Receipt, list[Record]]:
            lost.clear()
            record = _found(found[path])
            decision = self.gate.judged(record, decide(record, stamp), stamp=stamp, lost=lost, given=given)
            return decision.receipt, [decision.record] if decision.record is not None else []

        receipt = records.change([path], run)
        erase(self, lost, records)
        return receipt

    def _know(self, declared: Iterable[MemoryFile]) -> None:
        self._uids = {file.name: file.uid for file in declared}
        self.per_user = {file.uid: file for file in declared if file.per is not None}
        self.levels = {file.uid: file.level or self._lowest_level for file in declared}

    def _at(self, name: str, user: User) -> tuple[RecordRepository[Record] | FilesOfUser, str]:
        """The records that have the file with this name or uid, and its path there; see ``RecordRepository``."""
        if not isinstance(name, str):
            raise FileNotDeclared(f"no memory file {str(name)[:80]!r} is declared")
        uid = self._uids.get(name, name)
        if uid in self.per_user:
            if user is None or self.users is None:
                raise InvalidArgument(f"{name} is kept for each user: name the user of a memory that is open")
            return (files := self.users.of(user, self.per_user)), files.path(uid)
        if user is not None:
            self._live.current(uid + RECORD_SUFFIX)
            raise InvalidArgument(f"{name} is one file for all users: leave out the user")
        return self._live, uid + RECORD_SUFFIX


def _found(record: Record | None) -> Record:
    assert record is not None, "a declared file always has a record"
    return record
