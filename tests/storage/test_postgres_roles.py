"""Who may do what in a PostgreSQL store, and which URLs and schemas it takes."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from memfiles.errors import (
    InvalidArgument,
    StorageRefused,
)
from memfiles.storage.postgres.connections import located
from memfiles.storage.postgres.migrations import VERSION, migrate
from memfiles.storage.postgres.store import PostgresStore
from mirrors.testing.stores.place import put, read
from tests.support.postgres import OUTSIDER, ROLE, PostgresServer

pytestmark = pytest.mark.slow


def test_a_wrong_role_sees_nothing(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """Not in the store, not with SQL, whatever it sets; and it writes nothing."""
    workspace = server.workspace()
    put(open_store(workspace), {"a.json": "ours"})
    with pytest.raises(StorageRefused, match="does not belong to the workspace"):
        open_store(workspace, user=OUTSIDER)

    theirs = server.workspace(OUTSIDER)
    store = open_store(theirs, user=OUTSIDER)
    with psycopg.connect(located(server.url(theirs, user=OUTSIDER)).conninfo, autocommit=True) as connection:
        for setting in ("memfiles.workspace", "memfiles.role"):
            connection.execute("SELECT set_config(%s, %s, false)", (setting, workspace))
        tables = ("records", "commits", "quarantine", "members")
        seen = [connection.execute(f"SELECT * FROM memfiles.{each}").fetchall() for each in tables]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO memfiles.members VALUES (current_user, %s)", (workspace,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO memfiles.records VALUES (%s, 'b.json', 1, 'x')", (workspace,))
        for change in ("UPDATE memfiles.records SET data = 'x'", "DELETE FROM memfiles.records"):
            assert 0 == connection.execute(change).rowcount
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET row_security = off")
            connection.execute("SELECT * FROM memfiles.records").fetchall()

    assert [[], [], [], [(OUTSIDER, theirs)]] == seen
    assert ({}, "ours") == (dict(store.changes().records), read(open_store(workspace), "a.json"))


def test_workspaces_of_one_role_are_apart(server: PostgresServer, open_store: Callable[..., PostgresStore]) -> None:
    """Each has its records, its feed and its points."""
    one, two = open_store(server.workspace()), open_store(server.workspace())
    put(one, {"a.json": "1"})
    put(two, {"b.json": "2"})

    assert (None, "2", ["b.json"]) == (read(two, "a.json"), read(two, "b.json"), [*two.changes().records])
    assert ["b.json"] == [*two.changes(one.changes().until).records]


def test_a_scrub_without_the_right_says_who_can(
    server: PostgresServer, open_store: Callable[..., PostgresStore]
) -> None:
    """It does not claim that dead rows are gone."""
    store = open_store(server.workspace())
    with server.admin() as admin:
        admin.execute(f"REVOKE MAINTAIN ON memfiles.records FROM {ROLE}")
        try:
            with pytest.raises(StorageRefused, match="GRANT MAINTAIN ON memfiles.records"):
                store.scrub()
        finally:
            admin.execute(f"GRANT MAINTAIN ON memfiles.records TO {ROLE}")


def test_the_owner_creates_the_schema_and_joins(server: PostgresServer) -> None:
    """A role that may create it needs no preparation; a second process finds it made; a third schema is apart."""
    with server.admin() as admin:
        url = server.url("w", user=admin.info.user, schema="fresh")
    stores: list[PostgresStore] = []
    opening = [threading.Thread(target=lambda: stores.append(PostgresStore(url))) for _ in range(4)]
    for each in opening:
        each.start()
    for each in opening:
        each.join()
    try:
        put(stores[0], {"a.json": "1"})
        found = [read(store, "a.json") for store in stores]
    finally:
        for store in stores:
            store.close()
        with server.admin() as admin:
            admin.execute("DROP SCHEMA fresh CASCADE")

    assert ["1"] * 4 == found


def test_a_newer_schema_is_left_alone(server: PostgresServer) -> None:
    """A program that does not know it refuses to use or to migrate it."""
    with server.admin() as admin:
        migrate(admin, "later")
        admin.execute("UPDATE later.store SET version = %s", (VERSION + 1,))
        try:
            with pytest.raises(StorageRefused, match="upgrade memfiles"):
                PostgresStore(server.url("w", user=admin.info.user, schema="later"))
            with pytest.raises(StorageRefused, match="upgrade memfiles"):
                migrate(admin, "later")
        finally:
            admin.execute("DROP SCHEMA later CASCADE")


def test_a_role_that_may_not_create_the_schema_is_told(server: PostgresServer) -> None:
    """The error is not one that goes away by itself."""
    what = "the schema nowhere cannot be used, created or upgraded: .*; the owner .* with postgres-role.sql of the docs"
    with pytest.raises(StorageRefused, match=what) as error:
        PostgresStore(server.url("w", schema="nowhere"))

    assert not error.value.transient


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://ada:hunter2@host/db?workspace=w", "contains a password: leave it out"),
        ("postgresql://ada:hunter2%@host/db?workspace=w", "contains a password: leave it out"),
        ("postgresql://ada:%00hunter2/x@host/db?workspace=w", "cannot be read"),
        ("postgresql://host/db?workspace=w&password=hunter2", "contains a password: leave it out"),
        ("postgresql://host/db", "workspace in the store's URL"),
        ("postgresql://host/db?workspace=w&schema=My-Schema", "schema in the store's URL"),
        ("postgresql://host/db?workspace=w&schema=pg_catalog", "schema in the store's URL"),
        ("postgresql://host/db?workspace=w&pool=0", "pool in the store's URL"),
        ("postgresql://host/db?workspace=w&pool=²", "pool in the store's URL"),
        ("postgresql://host/db?workspace=w&workspace=v", "has an option twice"),
        ("postgresql://host/db?workspace=w&client_encoding=sql_ascii", "client_encoding in the store's URL"),
        ("postgresql://host/db?workspace=w&colour=blue", "the store's URL: invalid"),
        ("postgresql://host:port/db?workspace=w", "cannot be read"),
        ("postgresql://one:5432,two:65536/db?workspace=w", "cannot be read"),
        ("postgresql://host/d%00b?workspace=w", "cannot be read"),
        ("postgresql://host/%FF?workspace=w", "cannot be read"),
        ("postgresql:///db?workspace=w&host=a%00b", "cannot be read"),
        ("mysql://host/db?workspace=w", "begins with postgresql://"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str, problem: str) -> None:
    """The message says what is wrong, and nothing of a password."""
    with pytest.raises(InvalidArgument, match=problem) as error:
        located(url)

    assert "hunter2" not in "".join(traceback.format_exception(error.value))


def test_a_url_may_leave_most_to_libpq() -> None:
    """Its options are passed on."""
    place = located("postgresql://db.example:6432/memory?sslmode=verify-full&schema=agents&workspace=desk")

    assert ("agents", "desk") == (place.schema, place.workspace)
    assert {"host=db.example", "port=6432", "dbname=memory", "sslmode=verify-full"} <= set(place.conninfo.split())


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("%2FTmp%2FSockets", (None, "/Tmp/Sockets", None)),
        ("ada%40home@one:6432,two", ("ada@home", "one,two", "6432,")),
        ("one,two", (None, "one,two", None)),
        ("[::1]:6432", (None, "::1", "6432")),
        ("100%@[fe80::1%eth0]:", ("100%", "fe80::1%eth0", None)),
        ("ada lovelace@one", ("ada lovelace", "one", None)),
    ],
)
def test_hosts_are_read_as_libpq_reads_them(host: str, found: tuple[str | None, ...]) -> None:
    """A folder of a socket with its capitals, several hosts with ports of their own, addresses, and stray signs."""
    given = conninfo_to_dict(located(f"postgresql://{host}/memory?workspace=desk").conninfo)

    assert found == tuple(given.get(name) for name in ("user", "host", "port"))
