"""The records of this directory as the mirror's other side: read whole, and changed to what was decided over both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from memfiles import quarantine
from memfiles.atomic import Signature
from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.forking import renew_in_child
from memfiles.keys import record_path, uid_of
from memfiles.live_files import LiveFiles
from memfiles.locks import RecordLocks
from memfiles.record import Record, decode, digest, encode
from memfiles.restoring import confirmed
from memfiles.store import Store, storage_failure

TURNS = ".state/mirror-turns"


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A record as it lies on the disk: its bytes, what they mean, and the file's signature."""

    body: bytes
    record: Record
    signature: Signature

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes."""
        return digest(self.body)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of a record: ``record`` (None: it stays as it is), and which copy is kept in ``conflicts/``.

    ``is_ours``: the record holds changes that only this directory has made so far.
    """

    record: Record | None
    is_ours: bool = True
    loser: Record | None = None
    why: str = ""


class Replica:
    """The live memory files of one open store."""

    def __init__(self, directory: Path, *, files: LiveFiles, store: Store, now: Callable[[], str]) -> None:
        """``now`` gives the time for changes and notes."""
        self.directory = directory
        self._files = files
        self._store = store
        self._now = now
        self._turns = RecordLocks(store.descriptor, timeout=0.0, folder=TURNS)
        renew_in_child(self, Replica._leave_to_parent)

    def turn(self, path: str) -> AbstractContextManager[None]:
        """Be the only one, among all threads and processes, who brings this record and its copy together.

        ``LockTimeout`` at once if someone else does. Nobody who reads or writes the record is kept waiting by it.
        """
        return self._turns.hold([path])

    def _leave_to_parent(self) -> None:
        self._turns.leave_to_parent()
        self._turns = RecordLocks(self._store.descriptor, timeout=0.0, folder=TURNS)

    def paths(self) -> list[str]:
        """Where the live records lie, sorted."""
        return [record_path(uid) for uid in self._files.uids()]

    def signature(self, path: str) -> Signature | None:
        """What tells the present version of a record from every other, None if there is none."""
        return self._store.signature(path)

    def read(self, path: str) -> LocalCopy | None:
        """The record at ``path``, a hand edit made a revision first; None while it cannot be read."""
        try:
            self._files.notice(_uid(path))
            found = self._store.find(path)
            record = decode(found[0], uid=_uid(path)) if found else None
        except RecordCorrupt:
            return None
        return LocalCopy(found[0], record, found[1]) if found and record and record.is_intact else None

    def current(self, path: str) -> Record:
        """The newest version of the record at ``path``."""
        return self._files.current(_uid(path))

    def change(self, path: str, decide: Callable[[Record], Resolution]) -> None:
        """Apply what ``decide`` makes of the newest version, under the record's lock.

        The loser of a conflict is kept first, so that a kill in between loses nothing.
        """

        def run(current: Record) -> tuple[Record | None, bool]:
            resolution = decide(current)
            if resolution.loser is not None:
                self._keep(path, encode(resolution.loser), why=resolution.why, folder=quarantine.CONFLICTS)
            return resolution.record, resolution.is_ours

        self._files.merge(_uid(path), run)

    def confirm(self, path: str) -> None:
        """Make a provisional seed one like any other: the mirror answers, and holds no copy."""
        self._files.merge(_uid(path), lambda current: (confirmed(current, at=self._now()), True))

    def keep_unusable(self, path: str, body: bytes, *, why: str) -> None:
        """Have in quarantine what the mirror held at ``path`` and cannot be used."""
        self._keep(path, body, why=why, folder=quarantine.FOLDER)

    def conflicts(self) -> list[tuple[str, str]]:
        """The path and the reason of every losing copy that was kept."""
        with storage_failure("the kept conflicts cannot be listed"):
            return quarantine.listing(self._store.descriptor, folder=quarantine.CONFLICTS)

    def _keep(self, path: str, body: bytes, *, why: str, folder: str) -> None:
        with storage_failure(f"a copy of {path} cannot be kept in {folder}"):
            quarantine.keep_copy(self._store.descriptor, path, body, reason=why, at=self._now(), folder=folder)


def _uid(path: str) -> str:
    uid = uid_of(path)
    if uid is None:
        raise InvalidArgument(f"{path[:80]!r} is not where a memory file's record lies")
    return uid
