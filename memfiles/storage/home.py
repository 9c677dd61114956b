"""The home of a memory: its store, and what it keeps next to the records: audit, kept copies, and notes.

The rules this file guards: nothing is made before something is written; no link is followed; lines of the audit are
written whole, by one call; and nothing above asks what kind of home it is. ``DirectoryHome`` is a memory directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from memfiles.errors import InvalidArgument, StorageFailed
from memfiles.records.keys import scheme_of, temp_path
from memfiles.records.record import MAX_RECORD_BYTES
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature, storage_failure
from memfiles.storage.postgres import SCHEMES, home_at
from memfiles.storage.record_store import (
    Changes,
    ForgetNotes,
    KeptCopies,
    ReadableStore,
    Records,
    RecordStore,
    StoreSurvey,
)

if TYPE_CHECKING:
    import sqlite3

    from memfiles.storage.derived_database import DerivedDatabase, DerivedFile
    from memfiles.storage.quarantine import KeptCopy, MergeSide

AUDIT = "audit"
_REDACTIONS = ".state/redactions"  # by the paths of records of memory files that all users share
Durability = Literal["fsync", "os"]
"""``fsync``: a change is on the disk when its commit returns; ``os``: it survives a kill, but not a power cut."""


class AuditPages(Protocol):
    """The lines of an audit by month. Months are named ``2026-11.jsonl``; a line is JSON, with its newline."""

    def append(self, month: str, lines: bytes, *, is_hurried: bool = False) -> None:
        """Add whole lines at the end of a month, at once. ``OSError``, ``MemfilesError``: some may be missing.

        ``is_hurried``: a server that is away is given up after a second.
        """

    def let_go(self) -> None:
        """Give up what is open; the next call opens it again. Also in a forked child."""

    def backwards(self, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, int | str, bytes | None]]:
        """The lines of the wanted months, the last first, each with its month and its place there.

        An unreadable line is None; its place may be a text that says why.
        """

    def blank(self, tombstones: Collection[str], user_of: Callable[[str], str]) -> None:
        """Remove the runs of users from all lines but those of others; ``user_of`` the path of a tombstone is a hash.

        Their own lines also lose call ids and actors, except lines of an operator. Nothing is done for a tombstone
        again, as its user may have come back.
        """

    def blanked(self) -> frozenset[str]:
        """The tombstones for which that was done here."""

    def drop(self, before: str, *, dry_run: bool) -> tuple[str, ...]:
        """Remove the months before that one, ``2026-11``; returns them."""


class KeptConflicts(KeptCopies, Protocol):
    """All kept copies, including the losing ones of merges, in the folder ``conflicts``."""

    def notes(self, folder: str) -> Sequence[KeptCopy]:
        """The notes on all copies in ``folder``."""

    def read(self, kept: str) -> bytes | None:
        """The bytes of a copy; None if it is gone or larger than a record."""

    def keep(self, path: str, data: bytes, *, reason: str, at: str, folder: str, lost: MergeSide | None = None) -> None:
        """Keep a copy of the record at ``path``; ``lost`` is its side of a merge. Durable on return."""

    def remove_copy(self, kept: str) -> None:
        """Delete one copy."""


class StateNotes(ForgetNotes, Protocol):
    """Small notes about a memory, derived like an index: losing one costs requests; and those of ``ForgetNotes``."""

    def get(self, name: str) -> bytes | None:
        """A note."""

    def put(self, name: str, body: bytes, *, makes: bool = False) -> None:
        """Replace a note; if the memory does not exist yet, it fails, or ``makes`` it."""

    def delete(self, name: str) -> None:
        """Remove a note, if there is one."""


class Turns(Protocol):
    """Turns at reconciling records with a mirror, among all threads and processes of a home."""

    def hold(self, paths: Sequence[str]) -> AbstractContextManager[object]:
        """Hold the turn of these records; ``LockTimeout`` at once if another has it."""

    def leave_to_parent(self) -> None:
        """In a forked child: the turns are the parent's."""


class MirrorSide(Protocol):
    """The ledger of a mirror, and the turns of the processes that use the mirror."""

    def database(self, file: DerivedFile, check: Callable[[Any], None] | None = None) -> DerivedDatabase:
        """The database of the ledger; see ``DerivedDatabase``."""

    def peeking(self, file: DerivedFile) -> AbstractContextManager[sqlite3.Connection | None]:
        """That database, to be read only; None if it does not exist or cannot be read."""

    def scrub_database(self, file: DerivedFile, work: Callable[[Any], None]) -> None:
        """Delete rows of that database, if there is one, so that no deleted byte stays in it. Durable on return."""

    def turns(self, folder: str) -> Turns:
        """The turns of this name."""

    def identity(self) -> str:
        """An id that this home shares with no copy of it; "" if it is not known."""

    def leading(self) -> AbstractContextManager[object]:
        """Be the one process that works with a mirror as a whole, where there may be only one; ``LockTimeout``."""


class MemoryHome(Protocol):
    """Where one memory is kept. Threads may share it; nothing is made before something is written."""

    @property
    def title(self) -> str:
        """Its full name for people: a path, or a URL."""

    @property
    def directory(self) -> Path | None:
        """The directory of its files; None if it has none, so that nobody can change them by hand."""

    @property
    def kept(self) -> KeptConflicts:
        """The copies that were put aside, or lost in a merge."""

    @property
    def audit(self) -> AuditPages:
        """The lines of the audit."""

    @property
    def notes(self) -> StateNotes:
        """Small derived notes."""

    @property
    def mirrored(self) -> MirrorSide:
        """The ledger of a mirror, and the turns at it."""

    def exists(self) -> bool:
        """Whether anything was kept here yet."""

    def open(
        self, *, now: Callable[[], str], durability: Durability = "fsync", lock_timeout: float = 30.0
    ) -> RecordStore:
        """The store, made if it is not there; the caller closes it. Errors as of a store."""

    def held(self) -> AbstractContextManager[object]:
        """Keep what is costly to open, such as connections, for the calls within."""

    def ending(self) -> AbstractContextManager[object]:
        """While a memory is closed: all calls together wait for a server that is away only as long as one would."""

    def reading(self) -> AbstractContextManager[ReadableStore | None]:
        """The records to be read, None if there is nothing yet. Nothing is made or repaired."""

    def survey(self) -> StoreSurvey | None:
        """The facts about a store for its operator; None for a directory, or if nothing was kept yet."""


MemoryPlace = str | PathLike[str] | MemoryHome
"""The path of a directory, the URL of a store, or a home."""


def real_home(where: MemoryPlace, *, cache: Path | None = None) -> MemoryHome:
    """The home with its links resolved now; ``cache`` is where this machine keeps derived data of a home elsewhere."""
    home = home_of(where, cache=cache)
    return DirectoryHome(_real_directory(home.directory)) if isinstance(home, DirectoryHome) else home


def _real_directory(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a memory directory without links: where they lead later does not matter.

    ``StorageFailed`` for a link to nothing, such as a disk that is not mounted, or to another user's directory.
    """
    given, real = Path(path).absolute(), Path(os.path.realpath(path))
    if given.is_symlink():
        if not real.exists():
            raise StorageFailed(f"{given} links to {real}, which does not exist: create it, or remove the link")
        if os.geteuid() not in (0, owner := real.stat().st_uid):
            raise StorageFailed(f"{given} links to {real}, which belongs to user {owner}: use a directory of your own")
    return real


def url_scheme(path: str) -> str:
    """The scheme of a URL in place of a path, which would become a folder "s3:"; "" also if that folder is there."""
    scheme = scheme_of(path)
    return "" if scheme and not path.startswith(f"{scheme}//") and os.path.isdir(scheme) else scheme


def home_of(where: MemoryPlace, *, cache: Path | None = None) -> MemoryHome:
    """The home at a path or a store's URL; a home as it is. Nothing is opened. ``InvalidArgument`` for another URL."""
    name = os.fspath(where) if isinstance(where, (str, PathLike)) else where
    if isinstance(name, str):
        if name.startswith(SCHEMES):
            return home_at(name, cache=cache)
        if scheme := url_scheme(name):
            known = f"write {SCHEMES[0]}host/database as text, or a directory's path"
            raise InvalidArgument(f"{scheme}// is not a store: {known}")
        return DirectoryHome(Path(name))
    if not hasattr(name, "reading"):
        raise InvalidArgument(f"a memory needs the path of a directory as text, not {type(name).__name__}")
    return name


def directory_of(home: MemoryHome) -> Path:
    """The directory of a home. ``InvalidArgument`` if it is elsewhere."""
    if home.directory is None:
        raise InvalidArgument("this needs a memory directory: the records are in a store")
    return home.directory


def needs_recovery(home: MemoryHome) -> bool:
    """Whether a process died in a directory and left changes that are not in place."""
    if home.directory is None or not home.directory.is_dir():
        return False
    from memfiles.storage import recovery  # late: a reader does not need it

    with storage_failure(f"cannot examine the memory directory {home.directory}"):
        return recovery.is_needed(Descriptor.of_directory(home.directory))


def has_record(home: MemoryHome, path: str, body: bytes) -> bool:
    """Whether the record at ``path`` has just these bytes."""
    with home.reading() as records:
        found = records.find(path) if records is not None else None
    return found is not None and found[0] == body


class DirectoryRecords(Struct, frozen=True):
    """The records in a memory directory, read without a store; see ``ReadableStore``."""

    descriptor: Descriptor

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        return atomic.read(self.descriptor, path, limit=MAX_RECORD_BYTES)

    def signature(self, path: str) -> Signature | None:
        return atomic.signature(self.descriptor, path)

    def view(self, paths: Any) -> Records:
        return self

    def paths(self, folder: str = "") -> list[str]:
        return atomic.record_paths_in(self.descriptor, folder)

    def changes(self, since: str | None = None) -> Changes:
        from memfiles.storage import entry_folders  # late: most that read need no list

        return entry_folders.changes(self.descriptor, since)


class DirectoryHome(Struct, frozen=True):
    """A memory directory; see ``MemoryHome``."""

    directory: Path

    @property
    def title(self) -> str:
        return str(self.directory)

    @property
    def kept(self) -> KeptConflicts:
        from memfiles.storage.quarantine import Quarantine  # late: few records are ever put aside

        return Quarantine(self.directory)

    @property
    def audit(self) -> AuditPages:
        from memfiles.storage.audit_reader import AuditFiles  # late: a reader of records needs none

        return AuditFiles(self.directory)

    @property
    def notes(self) -> StateNotes:
        return NoteFiles(self.directory)

    @property
    def mirrored(self) -> MirrorSide:
        from memfiles.storage.derived_database import MirrorFiles  # late: only mirrors need it

        return MirrorFiles(self.directory)

    def exists(self) -> bool:
        return self.directory.is_dir()

    def open(
        self, *, now: Callable[[], str], durability: Durability = "fsync", lock_timeout: float = 30.0
    ) -> RecordStore:
        from memfiles.storage.store import Store  # late: a reader needs no store

        return Store(self.directory, now=now, durability=durability, lock_timeout=lock_timeout)

    def held(self) -> AbstractContextManager[object]:
        """See ``MemoryHome``: nothing is costly."""
        return nullcontext()

    ending = held

    @contextmanager
    def reading(self) -> Iterator[ReadableStore | None]:
        """See ``MemoryHome``; other failures of the disk are passed on as they are."""
        with storage_failure(f"cannot look at the memory directory {self.directory}"):
            try:
                descriptor = Descriptor.of_directory(self.directory)
            except FileNotFoundError:
                descriptor = None
        yield DirectoryRecords(descriptor) if descriptor is not None else None

    def survey(self) -> StoreSurvey | None:
        return None


def put_derived(directory: int, path: str, body: bytes) -> None:
    """Put a derived file in the place of whatever is there, a folder with its content as well. It is not flushed."""
    atomic.remove_all(directory, temp := temp_path(path))
    atomic.stage(directory, path, body, flush=False)
    try:
        atomic.publish(directory, path)
    except IsADirectoryError:  # where two names cannot be exchanged
        atomic.remove_all(directory, path)
        atomic.publish(directory, path)
    atomic.remove_all(directory, temp)


class NoteFiles(Struct, frozen=True):
    """The notes of a memory directory, each a file; see ``StateNotes``, and ``ForgetNotes`` for those of redactions."""

    directory: Path

    def get(self, name: str) -> bytes | None:
        try:
            found = atomic.read(Descriptor.of_directory(self.directory), name, limit=MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        return found[0] if found is not None else None

    def put(self, name: str, body: bytes, *, makes: bool = False) -> None:
        if makes:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = Descriptor.of_directory(self.directory)
        atomic.make_folder(root, name.rpartition("/")[0])
        put_derived(root, name, body)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            atomic.remove(Descriptor.of_directory(self.directory), name)

    def note_forgets(self, revisions: Mapping[str, int]) -> None:
        with storage_failure("what is to be redacted cannot be noted"):
            root = Descriptor.of_directory(self.directory)
            atomic.make_folders(root, _REDACTIONS, flush=True)
            for path, revision in revisions.items():
                with suppress(FileExistsError):
                    atomic.create(root, f"{_REDACTIONS}/{path} {revision}", b"")
            atomic.sync_folder(root, _REDACTIONS)

    def noted_forgets(self) -> dict[str, int]:
        """See ``ForgetNotes``; one without a revision counts from the beginning."""
        return dict(sorted(((path, revision) for _, path, revision in self._forgets()), reverse=True))  # the first

    def strike_forgets(self, revisions: Mapping[str, int]) -> None:
        for name, path, revision in self._forgets():
            if revision < revisions.get(path, 0):
                with storage_failure("a note of what was redacted cannot be removed"):
                    self.delete(f"{_REDACTIONS}/{name}")

    def _forgets(self) -> list[tuple[str, str, int]]:
        """The name of each note, and the path and revision that it has."""
        with storage_failure("the notes of redactions cannot be read"):
            try:
                names = atomic.names(Descriptor.of_directory(self.directory), _REDACTIONS)
            except FileNotFoundError:
                return []
        parted = ((name, *name.partition(" ")) for name in names)
        return [(name, path, int(revision) if revision.isdigit() else 0) for name, path, _, revision in parted]
