"""The home of a memory in PostgreSQL: one workspace, with all that belongs to it; see ``home.MemoryHome``.

The rules this file guards: a process has one store, and so one pool, for each workspace, however many parts use it; and
who only looks creates nothing, not even the schema.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from memfiles.errors import StorageFailed
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.home import AuditPages, Durability, KeptConflicts, MirrorSide, StateNotes, Turns
from memfiles.storage.postgres.connections import Patience, located
from memfiles.storage.postgres.lease import Lease, LeaseTurns
from memfiles.storage.postgres.migrations import VERSION
from memfiles.storage.postgres.rows import KeptRows
from memfiles.storage.postgres.store import ERASED_FROM, PostgresStore, StoreMissing
from memfiles.storage.postgres.tables import AuditRows, LedgerTables, NoteRows, ScopedConnection
from memfiles.storage.record_store import ReadableStore, StoreSurvey

if TYPE_CHECKING:
    from memfiles.storage.derived_database import DerivedDatabase, DerivedFile

_SCOPE = b"SELECT set_config('memfiles.workspace', %(workspace)s, true)"
_homes: WeakValueDictionary[str, PostgresHome] = WeakValueDictionary()
_finding = threading.Lock()


def home(url: str, *, cache: Path | None = None) -> PostgresHome:
    """The home at a URL, the same for the whole process. ``InvalidArgument``."""
    located(url)
    with _finding:
        found = _homes.setdefault(url, PostgresHome(url))
        found.cache = cache or found.cache
        return found


class PostgresHome:
    """One workspace of a database, which threads share; see ``MemoryHome``."""

    directory = None

    def __init__(self, url: str) -> None:
        """Nothing is connected to yet."""
        self.title = url
        self.cache: Path | None = None
        self.patience = Patience()
        self.ending = self.patience.ending
        self._workspace = Workspace(self)
        self.kept: KeptConflicts = KeptRows(self._workspace)
        self.audit: AuditPages = AuditRows(self._workspace)
        self.notes: StateNotes = NoteRows(self._workspace)
        self.mirrored: MirrorSide = MirrorTables(self._workspace)

    def exists(self) -> bool:
        with self._workspace.using() as store:
            return store is not None

    def open(
        self, *, now: Callable[[], str], durability: Durability = "fsync", lock_timeout: float = 30.0
    ) -> PostgresStore:
        """See ``MemoryHome``; the store is shared, unless others have it open with other settings."""
        return self._workspace.opened(durability, lock_timeout)

    def held(self) -> AbstractContextManager[object]:
        """See ``MemoryHome``: a process that ends gives its turn at the mirror back.

        That of a memory that nobody closed does nothing. A generator would go on when it is collected, at the latest at
        the end of Python, and wait there for locks of threads that are gone.
        """
        self.patience.hold(held := ExitStack())
        if (store := self._workspace.borrowed()) is not None:
            held.callback(store.close)
        held.callback(self._workspace.lease.give_back)
        return held

    def reading(self) -> AbstractContextManager[ReadableStore | None]:
        return self._workspace.using()

    def survey(self) -> StoreSurvey | None:
        with self._workspace.using() as store:
            return _surveyed(store) if store is not None else None


class Workspace:
    """The store of a home, opened when it is needed: for a moment, or as long as others have it open."""

    def __init__(self, home: PostgresHome) -> None:
        self._home = home
        self._store: PostgresStore | None = None
        self.lease = Lease(self)
        self._renew()
        renew_in_child(self, Workspace._renew)

    def _renew(self) -> None:
        self._opening = threading.RLock()

    def opened(self, durability: Durability, lock_timeout: float) -> PostgresStore:
        """The store to work with, made if it is not there."""
        with self._opening:
            if self._store is None or self._store.is_closed:
                self._store = self._connected(durability, lock_timeout)
                return self._store
            if self._store.settings == (durability, lock_timeout):
                return self._store.lent()
        return self._connected(durability, lock_timeout)

    @contextmanager
    def using(self) -> Iterator[PostgresStore | None]:
        """The store that is open, or one for a moment; None if there is nothing yet."""
        store = self.borrowed()
        try:
            yield store
        finally:
            if store is not None:
                store.close()

    @contextmanager
    def _existing(self, what: str) -> Iterator[PostgresStore]:
        """The store as of ``using``; ``StorageFailed`` if there is nothing yet."""
        with self.using() as store:
            if store is None:
                raise StorageFailed(f"{what}: nothing was kept in this workspace yet")
            yield store

    def ask(self, statement: str, /, *, what: str, **given: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement; ``StorageFailed`` if there is no store yet."""
        with self._existing(what) as store:
            return store.rows.ask(statement, what=what, **given)

    def look(self, statement: str, /, *, what: str, **given: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement; none if there is no store yet."""
        with self.using() as store:
            return store.rows.ask(statement, what=what, **given) if store is not None else ()

    @contextmanager
    def transaction(self) -> Iterator[ScopedConnection]:
        """A transaction in which the statements of a ledger are about this workspace."""
        what = "the notes on the mirror cannot be used"
        with self._existing(what) as store:
            scope = {"workspace": store.location.workspace}
            with store.connections.transaction(_SCOPE, scope, what=what) as connection:
                yield ScopedConnection(connection, store.location.schema)

    def vacuum_ledger(self) -> None:
        """Remove the dead rows of the ledger; errors as of a scrub."""
        with self.using() as store:
            if store is not None:
                store.scrub(["mirror_note"])

    def borrowed(self) -> PostgresStore | None:
        """The store as of ``using``; the caller closes it."""
        with self._opening:
            if self._store is not None and not self._store.is_closed:
                return self._store.lent()
            try:
                self._store = PostgresStore(self._home.title, home=self._home, is_looking=True)
            except StoreMissing:
                return None
            return self._store

    def _connected(self, durability: Durability, lock_timeout: float) -> PostgresStore:
        return PostgresStore(self._home.title, durability=durability, lock_timeout=lock_timeout, home=self._home)


class MirrorTables:
    """The ledger of a workspace's mirror, in tables of the workspace; see ``home.MirrorSide``."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._identity: str | None = None

    def database(self, file: DerivedFile, check: Callable[[Any], None] | None = None) -> DerivedDatabase:
        return cast("DerivedDatabase", LedgerTables(self._workspace, check, before=self.identity))

    @contextmanager
    def peeking(self, file: DerivedFile) -> Iterator[Any]:
        with self._workspace.using() as store:
            if store is None:
                yield None
                return
            with self._workspace.transaction() as connection:
                yield connection

    def scrub_database(self, file: DerivedFile, work: Callable[[Any], None]) -> None:
        found = self._workspace.look("has_ledger", what="the notes on the mirror cannot be read")
        if found and found[0][0]:
            with self._workspace.transaction() as connection:
                work(connection)
            self._workspace.vacuum_ledger()

    def turns(self, folder: str) -> Turns:
        """See ``MirrorSide``: one process at a time has any."""
        return LeaseTurns(self._workspace.lease)

    def identity(self) -> str:
        """See ``MirrorSide``: a dump that was put back is another database."""
        if self._identity is None:
            found = self._workspace.look("identity", what="the database cannot be told from a copy of it")
            self._identity = str(found[0][0]) if found else None
        return self._identity or ""

    def leading(self) -> AbstractContextManager[object]:
        return self._workspace.lease.held()


def _surveyed(store: PostgresStore) -> StoreSurvey:
    begun, what = time.monotonic(), "the store cannot be examined"
    row = store.rows.ask("survey", tables=[*ERASED_FROM], what=what)[0]
    took = round((time.monotonic() - begun) * 1000, 2)
    server, role, version, records, may_erase, lacks, is_standby, open_transactions = row
    place, (pool, connections) = store.location, store.connections.counts()
    known: dict[str, Any] = {"may_erase": may_erase, "lacks": lacks, "is_standby": is_standby, "records": records}
    known |= {"open_transactions": open_transactions, "pool": pool, "connections": connections}
    known |= {"is_pooled": store.connections.are_pooled(), "known_version": VERSION, "schema_version": version}
    return StoreSurvey(server, role, place.schema, place.workspace, answer_ms=took, **known)
