"""Connections to PostgreSQL: where the store is, a bounded pool, time-outs, reconnects, and every error mapped.

The rules this file guards: no password is taken from a URL, so none gets into a workflow, a log or an error; a call
ends in time, whatever the network and the server do; no connection has a state, such as a setting, a prepared statement
or a lock, that another call relies on, because a pooler may give each transaction another one; and an error says
whether it may help to try again.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit
from weakref import WeakSet

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfiles.errors import (
    InvalidArgument,
    LockTimeout,
    MemfilesError,
    OutcomeUnknown,
    SizeExceeded,
    StorageFailed,
    StorageRefused,
)
from memfiles.storage.postgres.pool import Pool, TimedConnection

STALE = "MF001"
"""The SQLSTATE of ``change`` if a record is not at the version that a decision saw."""

_DECIDE_AGAIN = frozenset({STALE, "40001", "40P01"})  # so with a serialization failure and a deadlock
_GOING_DOWN = frozenset({"57P01", "57P02", "57P03", "57P05"})
_MAY_HELP = ("08", "25", "53", "55", "57", "58")  # connection, read-only standby, resources, object in use, operator
_TOO_MUCH = ("54",)  # limits of the program, such as a value of more than 1 GB
_POOL_MAX = 8
_CONNECT_SECONDS = 5
_STATEMENT, _PATIENT = "60s", "0"  # the server ends what hangs there, whatever its role was given
_STEP_SECONDS = 1.0  # after which a wait for a connection says why there is none
_BACKOFF_SECONDS = (0.02, 1.0)
_RETRY_SECONDS = 0.2  # until another connection is tried
PATIENCE_SECONDS = 15.0
"""A call goes on for so long while no connection can be had, or one is lost."""

RECOGNISED_SECONDS = 43_200.0
"""After so long it cannot be found out any more what became of a statement: half of what notes of commits are kept."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps
_ALIVE = {  # a peer that is gone is noticed within half a minute, also while an answer is awaited
    "connect_timeout": str(_CONNECT_SECONDS),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "application_name": "memfiles",
    "client_encoding": "UTF8",  # a database in SQL_ASCII would give bytes for text, and takes any
}
_PLAIN: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})|\s")  # what libpq refuses in a URL
_UNREADABLE = "the store's URL cannot be read: postgresql://host/database?schema=memfiles"
_BOOLEAN = (b"\0", b"\1")
_WHERE = "libpq finds it in ~/.pgpass, PGPASSFILE, a service file or PGPASSWORD"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Location:
    """Where the records of a workspace are: how to connect, the schema, and the name of the workspace."""

    conninfo: str
    schema: str
    workspace: str
    pool: int = _POOL_MAX

    def named(self, statement: LiteralString) -> bytes:
        """A statement with the schema in the place of ``{s}``."""
        return sql.SQL(statement).format(s=sql.Identifier(self.schema)).as_bytes(None)


def located(url: str) -> Location:
    """The location in ``postgresql://[user@]host[:port]/database?schema=...&workspace=...``.

    ``pool`` is the most connections at a time (1 to 100). Any other option is libpq's, such as ``sslmode``,
    ``service``, or ``host`` for the folder of a socket. ``InvalidArgument``.
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InvalidArgument(_UNREADABLE) from error
    options = dict(given)
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidArgument("a store's URL begins with postgresql://")
    if parts.password is not None or "password" in options:
        raise InvalidArgument(f"the store's URL contains a password: leave it out; {_WHERE}")
    found = _server_in(parts.netloc + parts.path)
    if any("\0" in value for value in options.values()):
        raise InvalidArgument(_UNREADABLE)
    if len(options) != len(given):
        raise InvalidArgument("the store's URL has an option twice")
    schema, pool = options.pop("schema", "memfiles"), options.pop("pool", str(_POOL_MAX))
    workspace = options.pop("workspace", "")
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidArgument("schema in the store's URL: use 1 to 63 of a-z, 0-9 and _, not beginning with a digit")
    if not (1 <= len(workspace) <= 128 and workspace.isprintable()):
        raise InvalidArgument("workspace in the store's URL: use 1 to 128 characters")
    if (encoding := options.get("client_encoding", "")).replace("_", "").upper() == "SQLASCII":
        raise InvalidArgument(f"client_encoding in the store's URL: {encoding} says nothing of what text means")
    if not (pool.isascii() and pool.isdigit() and 1 <= int(pool) <= 100):
        raise InvalidArgument("pool in the store's URL must be a whole number from 1 to 100")
    known = _ALIVE | found | options
    try:
        return Location(make_conninfo(**known), schema, workspace, int(pool))
    except psycopg.ProgrammingError as error:
        raise InvalidArgument(f"the store's URL: {_said(error)}") from error


def _server_in(place: str) -> dict[str, Any]:
    """The hosts, ports, user and database in a URL, as libpq reads them, but spaces and a stray % are taken as well."""
    try:
        found: dict[str, Any] = conninfo_to_dict(f"postgresql://{_STRAY.sub(lambda it: quote(it[0]), place)}")
    except (ValueError, psycopg.ProgrammingError):  # which quotes what may be a password in an odd place
        raise InvalidArgument(_UNREADABLE) from None
    ports = str(found.pop("port", ""))
    if not all(re.fullmatch("[0-9]{0,5}", port) and 0 < int(port or 1) < 65536 for port in ports.split(",")):
        raise InvalidArgument(_UNREADABLE)
    return found | ({"port": ports} if ports.strip(",") else {})


class _OpenMemory:
    """Stands for a memory that is open, without a cycle of references: one that nobody closed is freed at once."""


class Patience:
    """How long calls wait for a server that is away: each has its own time, but all of a close share the time of one.

    Those are the calls of the thread that closes a memory, and of all threads once every memory with it is closing.
    """

    def __init__(self) -> None:
        """No memory is open."""
        self._open, self._closing = WeakSet[_OpenMemory](), set[threading.Thread]()
        self._until = 0.0

    def hold(self, held: ExitStack) -> None:
        """A memory is open until ``held`` is closed, or until nothing refers to it any more."""
        self._open.add(memory := _OpenMemory())
        held.callback(self._open.discard, memory)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """This thread closes a memory."""
        thread = threading.current_thread()
        try:
            self._closing.add(thread)
            self._until = 0.0
            yield
        finally:
            self._closing.discard(thread)

    def answered(self) -> None:
        """The server is there: it may be away again for as long."""
        self._until = 0.0

    def deadline(self, own: float) -> float:
        """Until when a call tries again that would do so until ``own``, and could not reach the server now."""
        if threading.current_thread() not in self._closing and len(self._closing) < max(1, len(self._open)):
            return own
        until = self._until = self._until or time.monotonic() + PATIENCE_SECONDS
        return min(own, until)


class Connections:
    """The connections of one process to a store, made when they are needed and given back after each call."""

    def __init__(self, location: Location, patience: Patience, *, before: Connections | None = None) -> None:
        """``before`` are the connections of a forked child's parent. They are kept: collecting them closes them."""
        self.location, self._patience = location, patience
        self._before = before
        self._options = str(conninfo_to_dict(location.conninfo).get("options") or "")
        self._has_timeout: bool = before is None or before._has_timeout
        self._is_closed = False
        self.pool = Pool(self._connect, limit=location.pool)

    def dedicated(self, *, is_patient: bool = False, what: str = "the store cannot be reached") -> TimedConnection:
        """A connection outside the pool; if ``is_patient``, its statements may take any time. ``what``: see ``ask``."""
        try:
            return self._connect(is_patient=is_patient)
        except psycopg.Error as error:
            raise failure(error, what) from error

    def _connect(self, *, is_patient: bool = False) -> TimedConnection:
        """Connect; without the statement's time-out where a pooler does not take it."""
        timeout = f" -c statement_timeout={_PATIENT if is_patient else _STATEMENT}" if self._has_timeout else ""
        given = {"options": self._options + timeout} if timeout else {}
        try:
            connection = TimedConnection.connect(make_conninfo(self.location.conninfo, **given), **_PLAIN)
        except psycopg.OperationalError as error:
            if not timeout or "startup parameter" not in str(error):
                raise
            self._has_timeout = False
            return self._connect(is_patient=is_patient)
        if is_patient:
            connection.answers_within = None
        return connection

    def are_pooled(self) -> bool:
        """Whether a pooler is in between, so that no notification arrives."""
        with closing(self.dedicated()) as probe:
            return is_pooled(probe)

    def counts(self) -> tuple[int, int]:
        """The most connections at a time, and how many there are."""
        return self.location.pool, len(self.pool)

    def close(self) -> None:
        """Close the connections; those of calls in progress are closed at their end."""
        self._is_closed = True
        self.pool.close()

    def ask(
        self,
        query: bytes,
        given: Mapping[str, Any],
        *,
        what: str,
        changes: bool = False,
        patience: float | None = None,
    ) -> Sequence[tuple[Any, ...]] | None:
        """The rows of a statement, repeated if the connection is lost, then with ``is_again`` as True.

        None if a record is not at the version seen, or for a like reason the transaction has to be decided again.
        ``what`` begins the message of an error. ``patience`` replaces ``PATIENCE_SECONDS``. If a statement that
        ``changes`` something was sent and never answered, it is ``OutcomeUnknown``.
        """
        return self._repeated(
            lambda connection, is_again: connection.execute(
                query, {**given, "is_again": is_again}, binary=True
            ).fetchall(),
            what=what,
            changes=changes,
            patience=patience,
        )

    def call(
        self, query: bytes, values: Sequence[bytes | str | None], types: Sequence[int], *, what: str
    ) -> bytes | None:
        """The value of a statement that changes something, as ``ask``; its last parameter is ``is_again``."""
        return self._repeated(
            lambda connection, is_again: connection.call(query, [*values, _BOOLEAN[is_again]], types),
            what=what,
            changes=True,
        )

    def _repeated(
        self, run: Callable[[TimedConnection, bool], T], *, what: str, changes: bool, patience: float | None = None
    ) -> T | None:
        """See ``ask``; ``run`` is told whether the statement was sent before."""
        deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
        begun = time.clock_gettime(_CLOCK)
        pause, was_sent, may_be_made = _BACKOFF_SECONDS[0], False, False  # a change that was sent and not answered
        while True:
            connection = self._taken(deadline, what, was_sent=may_be_made)
            try:
                if may_be_made and time.clock_gettime(_CLOCK) - begun > RECOGNISED_SECONDS:
                    raise _unknown("it was sent too long ago to be found out")
                answer = run(connection, was_sent)
                self._patience.answered()
                return answer
            except psycopg.Error as error:
                has_conflict = error.sqlstate in _DECIDE_AGAIN  # with another change, or with this one as sent before
                if has_conflict and (not may_be_made or error.sqlstate == STALE):
                    return None
                if not (has_conflict or _is_lost(error, connection)):
                    raise self._given_up(what, error, was_sent=may_be_made) from error
                deadline = self._patience.deadline(deadline)
                if time.monotonic() + pause > deadline:
                    raise self._given_up(what, error, was_sent=changes) from error
            finally:
                self.pool.give(connection)
            was_sent, may_be_made = True, changes
            time.sleep(pause)
            pause = min(2 * pause, _BACKOFF_SECONDS[1])

    @contextmanager
    def transaction(self, first: bytes, given: Mapping[str, Any], *, what: str) -> Iterator[TimedConnection]:
        """A transaction, which begins with a statement; a connection that was lost before that is replaced."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            connection = self._taken(deadline, what, was_sent=False)
            try:
                connection.execute("BEGIN")
                connection.execute(first, given)
                self._patience.answered()
                break
            except psycopg.Error as error:
                self.pool.give(connection)
                if not _is_lost(error, connection) or time.monotonic() > self._patience.deadline(deadline):
                    raise failure(error, what) from error
            except BaseException:  # an interrupt
                self.pool.give(connection)
                raise
        try:
            yield connection
            connection.execute("COMMIT")
        except psycopg.Error as error:
            raise failure(error, what) from error
        finally:
            self.pool.give(connection)  # which rolls back what was not committed

    def _taken(self, deadline: float, what: str, *, was_sent: bool) -> TimedConnection:
        while not self._is_closed:
            try:
                return self.pool.take(_STEP_SECONDS)
            except psycopg.Error as error:
                if time.monotonic() >= (deadline := self._patience.deadline(deadline)):
                    raise self._given_up(what, error, was_sent=was_sent) from error
                time.sleep(_RETRY_SECONDS)
        raise InvalidArgument(f"{what}: the memory was closed")

    def _given_up(self, what: str, error: psycopg.Error, *, was_sent: bool) -> MemfilesError:
        if was_sent:
            return _unknown(f"it cannot be found out: {_said(error)}")
        return failure(error, what)


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether another process of the server answers than the one that this connection was made to."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"nobody can tell whether the change was made, as the answer was lost, and {why}")


def failure(error: psycopg.Error, what: str) -> MemfilesError:
    """The error of ours for any error of psycopg, by the class of its SQLSTATE; it says nothing of what was written."""
    state, said = error.sqlstate or "", f"{what}: {_said(error)}"
    if state == "55P03" or state in _DECIDE_AGAIN:
        return LockTimeout(said)
    if state.startswith(_TOO_MUCH):
        return SizeExceeded(said)
    if state == "42501":  # also after an upgrade, until the owner gave the rights to what is new
        return StorageRefused(f"{said}; the owner gives a role its rights with postgres-role.sql of the docs")
    if state.startswith(_MAY_HELP) or (not state and isinstance(error, psycopg.OperationalError)):
        return StorageFailed(said)
    return StorageRefused(said)


def _is_lost(error: psycopg.Error, connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection is gone, so that the statement may have been done or not."""
    state = error.sqlstate or ""
    return connection.closed or state in _GOING_DOWN or state.startswith("08")


def _said(error: psycopg.Error) -> str:
    """The first line that the server or libpq said, without details, in which there may be values."""
    text = error.diag.message_primary or str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]
