"""The connections of the PostgreSQL store: their pool, forks, interrupts, and the errors that they end in."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

from memfiles.errors import (
    LockTimeout,
    MemfilesError,
    SizeExceeded,
    StorageFailed,
    StorageRefused,
)
from memfiles.storage.postgres.connections import Connections, Patience, failure, located
from memfiles.storage.postgres.news import CommitNews
from memfiles.storage.postgres.pool import Pool, TimedConnection
from memfiles.storage.postgres.store import PostgresStore
from mirrors.testing.stores.place import append, lines, remove
from tests.durability.interrupted import (
    WORK,
    WORKFLOW,
    Interrupted,
    interrupt,
    interrupt_everywhere,
    starts_hidden,
    time_limit,
)
from tests.support.postgres import ROLE, PostgresServer, pooled
from tests.support.records import wait_until
from tests.support.workflows import opened

pytestmark = pytest.mark.slow

FEWEST_CALLS = 50


def test_a_thread_of_news_whose_start_was_hidden_ends_as_well(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """It runs next to the one that a later change started, and a close wakes both."""
    store = open_store(server.workspace())
    with starts_hidden("memfiles-news") as started:
        with pytest.raises(Interrupted):
            append(store, ["a.json"], "first")
        append(store, ["a.json"], "second")
        wait_until(lambda: [True, True] == [thread.is_alive() for thread in started], what="two threads")
    with time_limit(60):
        store.close()
    wait_until(lambda: not any(thread.is_alive() for thread in started), what="the end of both threads")


def test_times_of_a_role_end_no_statement(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """A role is often given some seconds for a statement; removing dead rows of a large table may take longer."""
    with server.admin() as admin, ExitStack() as stack:
        stack.callback(admin.execute, f"ALTER ROLE {ROLE} RESET statement_timeout")
        admin.execute(f"ALTER ROLE {ROLE} SET statement_timeout = '1ms'")
        store = open_store(server.workspace())
        append(store, ["a.json"], "1")
        store.scrub()
        patient = stack.enter_context(closing(store.connections.dedicated(is_patient=True)))
        with pooled(store) as other:
            found = [each.execute("SHOW statement_timeout").fetchone() for each in (patient, other)]

    assert [("0",), ("1min",)] == found


def test_only_a_close_waits_shorter_for_a_server_that_is_away() -> None:
    """All calls of the thread that closes a memory share one time, and all threads once no other memory is open."""
    patience, memory, other = Patience(), ExitStack(), ExitStack()
    patience.hold(memory)
    patience.hold(other)
    with ThreadPoolExecutor(1) as threads, patience.ending(), memory:
        until = patience.deadline(math.inf)
        theirs = threads.submit(patience.deadline, math.inf).result()
        other.close()
        shared = threads.submit(patience.deadline, math.inf).result()
        patience.answered()
        later = patience.deadline(math.inf)

    assert (math.inf, until) == (theirs, shared)
    assert until < later < math.inf == patience.deadline(math.inf)


def test_calls_leave_no_state_in_a_connection(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """No prepared statement, setting, lock or channel: a pooler may give each transaction another connection."""
    store = open_store(server.workspace(), pool="1")
    point = store.changes().until
    for number in range(10):
        append(store, ["a.json", "b.json"], str(number))
    assert store.wait(point, seconds=0.5)
    remove(store, ["b.json"])
    with pooled(store) as connection:
        left = [
            connection.execute(query).fetchall()
            for query in (
                "SELECT name FROM pg_prepared_statements",
                "SELECT name FROM pg_settings WHERE source = 'session'",
                "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
                "SELECT * FROM pg_listening_channels()",
            )
        ]

    assert [[], [], [], []] == left


def test_connections_are_lent_to_all_that_wait_in_turn(server: PostgresServer, tmp_path: Path) -> None:
    """Twelve threads share two connections, of which some are lost, and none waits for ever."""
    connections = Connections(located(server.url(server.workspace(), pool="2")), Patience())

    def ask(number: int) -> None:
        for turn in range(20):
            connection = connections.pool.take(60)
            connection.execute("BEGIN")
            assert (1,) == connection.execute("SELECT 1").fetchone()
            if turn % 5:
                connections.pool.give(connection)
            del connection

    with ThreadPoolExecutor(12) as pool, time_limit(60):
        assert [None] * 12 == list(pool.map(ask, range(12)))
    assert (2, 2) >= connections.counts()
    connections.close()
    assert 0 == connections.counts()[1]


def test_an_error_that_is_kept_takes_no_place_in_the_pool() -> None:
    """Its traceback knows the call that failed: once the server is back, there are as many connections as before."""

    def connect() -> TimedConnection:
        raise psycopg.OperationalError("the server is down")

    pool, kept = Pool(connect, limit=2), list[psycopg.Error]()
    for _ in range(5):
        with pytest.raises(psycopg.OperationalError, match="the server is down") as told:
            pool.take(0.1)
        kept.append(told.value)

    assert (5, 0) == (len(kept), len(pool))


def test_a_forked_child_has_connections_of_its_own(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Both go on, on connections of their own."""
    store = open_store(server.workspace())
    append(store, ["a.json"], "before")
    child = os.fork()
    if child == 0:
        try:
            append(store, ["a.json"], "child")
        finally:
            os._exit(0 if "child" in lines(store, "a.json") else 1)
    append(store, ["a.json"], "parent")
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    assert ["before", "child", "parent"] == sorted(lines(store, "a.json"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in a finaliser
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_at_any_call_leaves_nothing_locked(event: str, server: PostgresServer, tmp_path: Path) -> None:
    """After each of them another thread can change the same record, also if the pool has two connections only."""
    url = server.url(server.workspace(), pool="2")
    memory = opened(tmp_path, WORKFLOW.replace("memory:\n", f"memory:\n  store: {json.dumps(url)}\n", 1))
    assert interrupt_everywhere(memory, WORK["append"], event) > FEWEST_CALLS
    with time_limit(60):
        memory.close()


@pytest.mark.parametrize("number", range(12))
def test_an_interrupt_while_news_are_told_holds_nobody_up(
    number: int, server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """Wherever it comes, another thread can tell them as well."""
    news, seen = CommitNews(open_store(server.workspace()).connections), count()

    def interrupt_there(*_: object) -> None:
        if next(seen) == number:
            raise Interrupted

    with suppress(Interrupted):
        try:
            sys.setprofile(interrupt_there)
            news.tell()
        finally:
            sys.setprofile(None)
    other = threading.Thread(target=news.tell, daemon=True)
    other.start()
    other.join(30)

    assert not other.is_alive()
    news.close()


def test_an_interrupted_transaction_costs_no_connection(
    server: PostgresServer, open_store: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as there are connections, somebody stops waiting for the server; then there is one left."""
    monkeypatch.setattr("memfiles.storage.postgres.connections.PATIENCE_SECONDS", 2.0)
    store = open_store(server.workspace())
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(store.location.pool):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with (
                pytest.raises(Interrupted),
                store.connections.transaction(b"SELECT pg_sleep(30)", {}, what="nothing was done"),
            ):
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
    append(store, ["a.json"], "1")

    assert ["1"] == lines(store, "a.json")


def test_every_error_of_psycopg_has_one_of_ours() -> None:
    """By its SQLSTATE: transient where the same call may succeed later; without details, which may quote values."""
    errors = [it for it in vars(psycopg.errors).values() if isinstance(it, type) and issubclass(it, psycopg.Error)]
    made = [error("no") for error in errors if isinstance(error.sqlstate, str)]
    found = {error.sqlstate or "": failure(error, "here") for error in made}
    kinds = {
        "08006": StorageFailed,
        "25006": StorageFailed,
        "28P01": StorageRefused,
        "40001": LockTimeout,
        "42501": StorageRefused,
        "42P01": StorageRefused,
        "53100": StorageFailed,
        "53300": StorageFailed,
        "54000": SizeExceeded,
        "55P03": LockTimeout,
        "57014": StorageFailed,
        "57P01": StorageFailed,
        "58030": StorageFailed,
    }

    assert len(found) > 200
    assert all(isinstance(error, MemfilesError) for error in found.values())
    assert kinds == {state: type(found[state]) for state in kinds}
    assert (True, False) == (found["53300"].transient, found["42501"].transient)
