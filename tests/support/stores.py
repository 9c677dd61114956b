"""The stores as the exam of record stores opens them, here and in other processes: few imports, as it starts many."""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import Store

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

STORE = "MEMFILES_TEST_STORE"
"""With ``postgresql`` as its value, tests that know nothing of directories run on that store."""

_TABLES = (
    ("records", "path", "data"),
    ("quarantine", "path", "data"),
    ("audit", "month", "line"),
    ("notes", "name", "body"),
    ("mirror_note", "path", "body"),
    ("mirror_note", "path", "sent"),
)
_ending = ExitStack()
atexit.register(_ending.close)


def directory_store(directory: str) -> RecordStore:
    """The directory store."""
    return Store(Path(directory), now=lambda: time.strftime("%Y-%m-%dT%H:%M:%S.000Z"))


def postgres_store(url: str) -> RecordStore:
    """The PostgreSQL store."""
    from memfiles.storage.postgres.store import PostgresStore  # late: the other stores load no psycopg

    return PostgresStore(url)


def place_of(directory: Path) -> Path | str:
    """The directory, or the URL of a workspace that stands for it if the tests are to run on the PostgreSQL store."""
    return _server().url(_joined(_workspace(directory))) if STORE in os.environ else directory


def kept_in(directory: Path) -> dict[str, bytes]:
    """Everything that is kept in the workspace for a directory: the paths of records, and rows of other tables."""
    from tests.support.postgres import SCHEMA  # late, as above

    found, place = {}, {"workspace": _workspace(directory)}
    with _server().admin() as admin:
        for table, name, body in _TABLES:
            rows = admin.execute(
                f"SELECT {name}, {body} FROM {SCHEMA}.{table} WHERE workspace = %(workspace)s ORDER BY ctid", place
            )
            for number, (name, body) in enumerate(rows.fetchall()):
                found[name if table == "records" else f"{table}/{name}.{number}"] = bytes(body or b"")
    return found


def put_by_hand(directory: Path, path: str, body: bytes) -> None:
    """Put a record there as whoever has the directory, or the database, can."""
    if STORE not in os.environ:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(body)
        return
    from tests.support.postgres import SCHEMA  # late, as above

    given = {"workspace": _joined(_workspace(directory)), "path": path, "body": body, "id": time.time_ns()}
    with _server().admin() as admin, admin.transaction():
        admin.execute(
            f"INSERT INTO {SCHEMA}.records VALUES (%(workspace)s, %(path)s, %(id)s, %(body)s)"
            " ON CONFLICT (workspace, path) DO UPDATE SET version = excluded.version, data = excluded.data",
            given,
        )
        admin.execute(
            f"INSERT INTO {SCHEMA}.commits (workspace, id, paths) VALUES (%(workspace)s, %(id)s, ARRAY[%(path)s])",
            given,
        )


def _workspace(directory: Path) -> str:
    return f"d{hashlib.sha256(os.path.realpath(directory).encode()).hexdigest()[:16]}"


@cache
def _joined(workspace: str) -> str:
    """The workspace, of which the role of the tests is a member."""
    from tests.support.postgres import ROLE, SCHEMA  # late, as above

    with _server().admin() as admin:
        admin.execute(f"INSERT INTO {SCHEMA}.members VALUES (%s, %s) ON CONFLICT DO NOTHING", (ROLE, workspace))
    return workspace


@cache
def _server() -> PostgresServer:
    """The server of all tests of this process; the programs that they start find it in the environment."""
    from tests.support.postgres import PostgresServer, postgres_server  # late, as above

    store, _, dsn = os.environ[STORE].partition(" ")
    assert store == "postgresql", f"{STORE}={store} is no store"
    if dsn:
        return PostgresServer(None, dsn)
    server = _ending.enter_context(postgres_server())
    os.environ[STORE] = f"{store} {server.dsn}"
    return server
