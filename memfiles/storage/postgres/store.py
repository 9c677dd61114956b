"""The PostgreSQL store: records as rows of one workspace, changed together in one transaction or not at all.

It keeps the promises of ``record_store.RecordStore``. The rules this file guards: what a decision saw is compared with
what is there in the transaction that carries it out, or before its refusal is believed; so a decision may begin with
what this process knows, without asking. Every transaction carries a random id, which is also the version of the records
that it writes: a transaction whose answer was lost is sent again under the same id, and is done once. Threads of this
process take turns at a record, so that hooks hear of its versions in their order.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import count
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import psycopg
from psycopg import sql

from memfiles.errors import InvalidArgument, LockTimeout, MemfilesError, SizeExceeded, StorageRefused
from memfiles.records.keys import is_record_path
from memfiles.storage.atomic import Signature
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.locks import ThreadLocks
from memfiles.storage.postgres.connections import Connections, failure, located
from memfiles.storage.postgres.migrations import VERSION, check_version, migrate, version_of
from memfiles.storage.postgres.news import CommitNews
from memfiles.storage.postgres.rows import FLUSHED, STATEMENTS, DecisionView, KeptRows, Rows
from memfiles.storage.postgres.tables import STATEMENTS as TABLE_STATEMENTS
from memfiles.storage.postgres.tables import ImageRows
from memfiles.storage.record_store import Changes, ChangeSet, CommitHook, Decide

if TYPE_CHECKING:
    from memfiles.storage.home import MemoryHome
    from memfiles.storage.postgres.home import PostgresHome

_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 0.002, 0.05
_LOCKS_MAX = 100  # above, one lock for the workspace: a server has room for some thousands
_TOGETHER_MAX = 256 * 2**20  # a value, and so an array of bodies, is at most 1 GB
_SCRUB_POLL_SECONDS = 0.05
KEPT_SECONDS = 86_400.0
"""How long the feed goes back, and a commit is recognised whose answer was lost."""

_PRUNED_AT_ONCE = 10_000
_LEAST_SERVER = 140_000
ERASED_FROM = ("records", "quarantine", "image")
_POINT = re.compile(r"([0-9a-f-]{36})/((\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?))@(\d{1,18})/([0-9.]{1,60})")
_UNLISTED = "the records cannot be listed"
_ONE = [psycopg.adapters.types[name].oid for name in "text text int8 bytea int8 bool int4 bool".split()]
_bigint = Struct("!q").pack
_WAIT_MAX_MS = 2**31 - 1
T = TypeVar("T")


class StoreMissing(StorageRefused):
    """There is no store at the URL yet, and a reader does not create one."""


class PostgresStore:
    """The records of one workspace, for all threads of this process; see ``RecordStore`` and ``RemoteStore``."""

    def __init__(
        self,
        url: str,
        *,
        durability: Literal["fsync", "os"] = "fsync",
        lock_timeout: float = 30.0,
        home: PostgresHome | None = None,
        is_looking: bool = False,
    ) -> None:
        """Connect, and create or upgrade the schema where this role may do so; see ``located`` for the URL.

        ``os`` does not wait for the server's disk (``synchronous_commit=off``): a crash of the server may lose the last
        changes. ``lock_timeout`` is in seconds. ``is_looking``: nothing is created; ``StoreMissing`` says so.
        ``StorageRefused``, ``StorageFailed``.
        """
        from memfiles.storage.postgres.home import home as home_at  # late: it imports this module

        self.settings = (durability, lock_timeout)
        self._holders, self._counting = 1, threading.Lock()
        self.location = located(url)
        self.cache = home.cache if home is not None else None
        self.home: MemoryHome = (home := home or home_at(url))
        self._patience = home.patience
        self.name = self.location.workspace
        self._is_durable, self._lock_timeout = durability == "fsync", lock_timeout
        self._how = bytes([self._is_durable]), min(int(lock_timeout * 1000), _WAIT_MAX_MS).to_bytes(4)
        known = STATEMENTS | TABLE_STATEMENTS
        self._statements = {name: self.location.named(text) for name, text in known.items()}
        self._place = hashlib.blake2b(f"{self.location.schema}\0{self.location.workspace}\0".encode(), digest_size=8)
        self.is_closed = False
        self._begin()
        try:
            self.id = self._admitted(is_looking=is_looking)
        except BaseException:
            self.close()
            raise
        renew_in_child(self, PostgresStore._begin)

    def lent(self) -> Self:
        """The store for one more part of the program, which closes it as well."""
        with self._counting:
            if self.is_closed:
                raise InvalidArgument("the store was closed")
            self._holders += 1
        return self

    def point(self) -> str:
        return f"{self.id}/{self.rows.ask('point', what=_UNLISTED)[0][0]}"

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        return self.rows.find([path]).get(path)

    def signature(self, path: str) -> Signature | None:
        return self.rows.signatures([path]).get(path)

    def view(self, paths: Iterable[str]) -> DecisionView:
        return DecisionView(self.rows, [*paths], is_all=True)

    def paths(self, folder: str = "") -> list[str]:
        rows = self.rows.ask("paths", folder=f"{folder}/" if folder else "", what=_UNLISTED)
        return sorted(path for (path,) in rows)

    def checkpoint(self) -> None:
        """See ``RecordStore``: notes of commits are removed that are so old that nobody asks for them any more."""
        self.rows.ask("prune", age=KEPT_SECONDS, limit=_PRUNED_AT_ONCE, what="old notes of commits cannot be removed")

    def change(
        self, paths: Iterable[str], decide: Decide[T], *, hook: CommitHook | None = None
    ) -> tuple[T, dict[str, Signature]]:
        """See ``RecordStore``: decided on what is known, carried out if it still holds, else decided again."""
        wanted = sorted(set(paths))
        if not all(map(is_record_path, wanted)):
            bad = next(path for path in wanted if not is_record_path(path))
            raise InvalidArgument(f"there can be no record at {bad[:200]!r}: nothing was changed")
        return self._thread_locks.while_held(wanted, lambda: self._change(wanted, decide, hook))

    def changes(self, since: str | None = None) -> Changes:
        """See ``RecordStore``. A point is what a snapshot of the database had seen, in a history of the database."""
        if (seen := self._seen(since)) is None:
            return self._changes_in(self.rows.ask("every", what=_UNLISTED), is_all=True)
        rows = self.rows.ask("changed", **seen, what=_UNLISTED)
        found = self._changes_in(rows)
        if rows[0][1]:
            return found
        # the server was restarted, or restored, or the point is older than what is kept
        every = self.changes()
        return Changes(found.until, every.records, every.complete, frozenset(found.records))

    def _changes_in(self, rows: Sequence[tuple[Any, ...]], *, is_all: bool = False) -> Changes:
        found = [row[2:] for row in rows if row[2] is not None]
        records = {path: Signature(version, size, 0) if version is not None else None for path, version, size in found}
        folders = {"", *(path.rpartition("/")[0] for path in records)} if is_all else ()
        return Changes(f"{self.id}/{rows[0][0]}", records, frozenset(folders))

    def wait(self, since: str, *, seconds: float) -> bool:
        """See ``RecordStore``: told by a notification, or found by a look twice a second."""
        if (seen := self._seen(since)) is None:
            return True
        return self._news.wait(lambda: bool(self.rows.ask("is_behind", **seen, what=_UNLISTED)[0][0]), seconds=seconds)

    def scrub(self, tables: Sequence[str] = ERASED_FROM) -> None:
        """See ``RecordStore``: return once no row and no dead row holds what is in no record any more.

        That no image has it is guaranteed here, as every forget, also one of another machine, a purge and a redaction
        end here: not every commit that erases is known for one. A commit that is removes the image earlier.
        What is left is in the free space of pages until it is used again, in the write-ahead log, and in backups.
        """
        erased = "the text is in no record any more, but dead rows of the database may hold it"
        with closing(self.connections.dedicated(is_patient=True, what=erased)) as connection:
            try:
                if "image" in tables:
                    given = {"workspace": self.location.workspace, "wait": f"{int(self._lock_timeout * 1000)}ms"}
                    connection.execute(self._statements["erase_image"], given)
                self._vacuum(connection, tables, erased)
            except psycopg.Error as error:
                raise failure(error, erased) from error

    def close(self) -> None:
        """See ``RecordStore``: once everyone who has it did."""
        with self._counting:
            self._holders -= 1
            if self._holders > 0 or self.is_closed:
                return
            self.is_closed = True
        self._news.close()
        self.connections.close()

    def _change(
        self, wanted: Sequence[str], decide: Decide[T], hook: CommitHook | None
    ) -> tuple[T, dict[str, Signature]]:
        for _ in self._attempts(wanted):
            view = DecisionView(self.rows, wanted)
            try:
                result, change = decide(view)
            except MemfilesError:
                if view.holds():
                    raise
                continue
            if not (change.versions or change.removed or change.aside):
                if view.holds():
                    return result, {}
            elif view.is_of_one_time and (signatures := self._carry_out(view, change, hook)) is not None:
                return result, signatures
        raise AssertionError("the attempts end with an error")

    def _attempts(self, wanted: Sequence[str]) -> Iterator[int]:
        """Attempts at a change, with pauses of random length when others keep changing the same records."""
        deadline = time.monotonic() + self._lock_timeout
        for attempt in count():
            yield attempt
            if time.monotonic() >= deadline:
                break
            time.sleep(min(_PAUSE_MAX_SECONDS, _PAUSE_SECONDS * attempt) * os.urandom(1)[0] / 255)
        names = ", ".join(wanted[:3])
        raise LockTimeout(f"{names}: others kept changing it for {self._lock_timeout:g} s; nothing was changed")

    def _begin(self) -> None:
        """Create what belongs to this process alone, also in a forked child."""
        self._thread_locks = ThreadLocks(timeout=self._lock_timeout)
        self.connections = Connections(self.location, self._patience, before=getattr(self, "connections", None))
        self._news = CommitNews(self.connections)
        self.rows = Rows(self.connections, self._statements)
        self.kept = KeptRows(self.rows)
        self.images = ImageRows(self.connections, self._statements, old=KEPT_SECONDS / 2)
        self._counting = threading.Lock()

    def _admitted(self, *, is_looking: bool) -> str:
        """The id of this workspace in this database, once there is a schema that this role may use for it."""
        schema, workspace = self.location.schema, self.location.workspace
        with closing(self.connections.dedicated(is_patient=True)) as connection:
            try:
                if connection.info.server_version < _LEAST_SERVER:
                    raise StorageRefused("the store needs PostgreSQL 14 or later")
                if (found := check_version(version_of(connection, schema), schema)) < VERSION:
                    if is_looking and not found:
                        raise StoreMissing(f"there is no schema {schema} yet")
                    if is_looking:
                        raise StorageRefused(f"the schema {schema} has version {found}: memfiles restore upgrades it")
                    migrate(connection, schema)
                given = {"workspace": workspace}
                row = connection.execute(self._statements["membership"], given).fetchone()
                is_member, may_join, role, id, waits_not = row or (False, False, "", uuid.UUID(int=0), False)
                if not is_member and may_join:
                    if is_looking:
                        raise StoreMissing(f"there is no workspace {workspace} yet")
                    connection.execute(self._statements["join"], given)
            except psycopg.Error as error:
                raise failure(error, f"the schema {schema} cannot be used, created or upgraded") from error
        if not (is_member or may_join):
            raise StorageRefused(
                f"the role {role} does not belong to the workspace {workspace}. Its owner adds it with: "
                f"INSERT INTO {schema}.members (role, workspace) VALUES ('{role}', '{workspace}')"
            )
        if waits_not and self._is_durable:  # else the statement would take a tenth longer for nothing
            self._statements |= {name: self._statements[name] + FLUSHED for name in ("change", "erase", "change_one")}
        return str(uuid.uuid5(id, workspace))

    def _carry_out(self, view: DecisionView, change: ChangeSet, hook: CommitHook | None) -> dict[str, Signature] | None:
        """Do what was decided, in one transaction; None if it has to be decided again."""
        removed = {path: at for path, at in change.removed.items() if view.seen.get(path, at) == at}
        written = {version.path for version in change.versions}
        alone = {path: at for path in change.aside if path not in written and (at := view.signature(path)) is not None}
        rows: list[tuple[str, int | None, bytes | None]] = [
            (each.path, each.replaces[0] if each.replaces else None, each.data) for each in change.versions
        ]
        rows += [(path, at[0], None) for path, at in {**alone, **removed}.items()]
        if sum(len(data) for *_, data in rows if data is not None) > _TOGETHER_MAX:
            raise SizeExceeded(f"at most {_TOGETHER_MAX} bytes can be changed together; nothing was written")
        if hook is not None:
            hook.before([version.path for version in change.versions] or [*change.removed, *change.aside])
        done: set[str] | None = None
        try:
            id = int.from_bytes(os.urandom(8)) >> 2
            done = self._commit(id, view, sorted(rows, key=itemgetter(0)), change)
            if done is not None and not all(path in done for path in removed if path in view.seen):
                done = None  # some were removed, and others were changed meanwhile
        finally:
            if done is None:
                self.rows.forget(view.wanted)
                if hook is not None:
                    hook.failed()
        if done is None:
            return None
        signatures = {each.path: Signature(id, len(each.data), 0) for each in change.versions}
        self.rows.note({**dict.fromkeys(done), **signatures})
        if done:
            self._news.tell()
        if hook is not None:
            hook.after(signatures)
        return signatures

    def _commit(
        self, id: int, view: DecisionView, rows: Sequence[tuple[str, int | None, bytes | None]], change: ChangeSet
    ) -> set[str] | None:
        """The paths that one transaction changed, None if it has to be decided again."""
        if len(view.wanted) == len(rows) == 1 and rows[0][2] is not None and not (change.aside or change.erases):
            return self._commit_one(id, *rows[0])
        new = {path for path, *_ in rows}
        seen = {path: at[0] if at else None for path, at in view.seen.items() if path not in new}
        answer = self.connections.ask(
            self._statements["erase" if change.erases else "change"],
            {
                "workspace": self.location.workspace,
                "id": id,
                "is_durable": self._is_durable,
                "wait_ms": min(int(self._lock_timeout * 1000), _WAIT_MAX_MS),
                "locks": self._locks(view.wanted),
                "seen_paths": list(seen),
                "seen": list(seen.values()),
                "aside": list(change.aside),
                "reasons": list(change.aside.values()),
                "paths": [path for path, _, _ in rows],
                "replaced": [version for _, version, _ in rows],
                "bodies": [data for _, _, data in rows],
            },
            what="nothing was changed",
            changes=True,
        )
        return set(answer[0][0]) if answer is not None else None

    def _commit_one(self, id: int, path: str, replaced: int | None, data: bytes | None) -> set[str] | None:
        """Commit the new version of one record, if no other was seen; returns as ``_commit``."""
        before = None if replaced is None else _bigint(replaced)
        values = [self.location.workspace, path, before, data, _bigint(id), *self._how]
        is_made = self.connections.call(self._statements["change_one"], values, _ONE, what="nothing was changed")
        return {path} if is_made == b"\1" else None

    def _locks(self, paths: Sequence[str]) -> list[int]:
        """The keys of the locks for a change: of the workspace, and of each record unless there are many.

        The order is the same for everyone. A change that is sent again waits here until its first try is over, and is
        found by its id then: a removal that was done would else be taken for one that found nothing.
        """
        return [self._lock(""), *(sorted({self._lock(path) for path in paths}) if len(paths) <= _LOCKS_MAX else ())]

    def _lock(self, path: str) -> int:
        place = self._place.copy()
        place.update(path.encode())
        return int.from_bytes(place.digest(), signed=True)

    def _seen(self, since: str | None) -> dict[str, Any] | None:
        """The snapshot in a point of this workspace, its time and history; None if it means nothing here."""
        found = _POINT.fullmatch(since or "")
        if found is None or found[1] != self.id:
            return None
        running = [int(each) for each in found[5].split(",") if each]
        numbers = [int(found[3]), *running, int(found[4])]
        is_sound = running == sorted(set(running)) and numbers == sorted(numbers) and numbers[0] > 0
        return {"point": found[2], "at": int(found[6]), "history": found[7]} if is_sound else None

    def _vacuum(self, connection: psycopg.Connection[Any], tables: Sequence[str], erased: str) -> None:
        """Remove the dead rows of every transaction up to now."""
        schema, named = sql.Identifier(self.location.schema), {"tables": [*tables]}
        vacuum = sql.SQL("VACUUM (FREEZE, INDEX_CLEANUP ON, TRUNCATE OFF) {}").format(
            sql.SQL(", ").join(sql.SQL("{}.{}").format(schema, sql.Identifier(table)) for table in tables)
        )
        row = connection.execute(self._statements["may_vacuum"], named).fetchone()
        if row is None or not row[0]:
            raise StorageRefused(
                f"{erased}, and this role may not remove them. From PostgreSQL 17 on, the owner allows it with "
                f"GRANT MAINTAIN ON {', '.join(f'{self.location.schema}.{table}' for table in tables)}; before, the "
                f"owner vacuums"
            )
        deadline = time.monotonic() + self._lock_timeout
        (now,) = connection.execute(self._statements["now"]).fetchone() or ("0",)
        while True:
            connection.execute(vacuum)
            if connection.execute(self._statements["is_clean"], {"now": now, **named}).fetchone() == (True,):
                return
            if time.monotonic() >= deadline:
                raise LockTimeout(
                    f"{erased}: a transaction has been open on this server for longer than {self._lock_timeout:g} s. "
                    f"End it, and redact or forget again"
                )
            time.sleep(_SCRUB_POLL_SECONDS)
