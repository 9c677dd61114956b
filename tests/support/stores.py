"""The stores as the exam of record stores opens them, here and in other processes: few imports, as it starts many."""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from collections.abc import Iterator
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
    ("quarantine", "folder || '/' || path || '.' || id", "data"),
    ("audit", "'audit/' || month || '.jsonl'", r"line || '\x0a'::bytea"),
    ("notes", "'.state/' || name", "body"),
    ("mirror_note", "'.state/mirrored/' || path", "body"),
    ("mirror_note", "'.state/sent/' || path", "sent"),
)
_places: set[Path] = set()  # the directories that a store stands for
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
    return _server().url(_joined(directory.absolute())) if STORE in os.environ else directory


def kept_in(directory: Path) -> dict[str, bytes]:
    """What is kept in the stores that stand for directories here, by the paths that it would have in them.

    Of the audit a month is one text; a row of another table has a name of its own.
    """
    found: dict[str, bytes] = {}
    asked = directory.absolute()
    for place in [each for each in _places if each.is_relative_to(asked) or asked.is_relative_to(each)]:
        for name, body in _rows(place):
            path = place / name
            if path.is_relative_to(asked):
                name = path.relative_to(asked).as_posix()
                found[name] = found.get(name, b"") + body
    return found


def columns_in(directory: Path) -> dict[str, bytes]:
    """What every column of every table has of the workspaces that stand for directories here, by table and column.

    The catalog says which there are, so that none is left out that is made later.
    """
    found: dict[str, bytes] = {}
    places = [place for place in _places if place.is_relative_to(directory.absolute())]
    if not places:
        return found
    from tests.support.postgres import SCHEMA  # late, as above

    with _server().admin() as admin:
        columns = admin.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns c WHERE table_schema = %s"
            " AND EXISTS (SELECT FROM information_schema.columns w WHERE w.column_name = 'workspace'"
            " AND (w.table_schema, w.table_name) = (c.table_schema, c.table_name))",
            (SCHEMA,),
        ).fetchall()
        for table, column, kind in columns:
            body = column if kind == "bytea" else f"convert_to({column}::text, 'utf8')"
            rows = f"SELECT string_agg({body}, '\\x0a') FROM {SCHEMA}.{table} WHERE workspace = ANY(%s)"
            (held,) = admin.execute(rows, ([_workspace(place) for place in places],)).fetchone() or (None,)
            found[f"{table}.{column}"] = bytes(held or b"")
    return found


def _rows(place: Path) -> Iterator[tuple[str, bytes]]:
    """The rows of the workspace for a directory, with their names."""
    from tests.support.postgres import SCHEMA  # late, as above

    with _server().admin() as admin:
        for table, name, body in _TABLES:
            rows = f"SELECT {name}, {body} FROM {SCHEMA}.{table} t WHERE workspace = %s ORDER BY to_jsonb(t) -> 'id'"
            found = admin.execute(rows, (_workspace(place),))
            yield from ((name, bytes(body or b"")) for name, body in found.fetchall())


def put_by_hand(directory: Path, path: str, body: bytes) -> None:
    """Put a record there as whoever has the directory, or the database, can."""
    if STORE not in os.environ:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(body)
        return
    from tests.support.postgres import SCHEMA  # late, as above

    given = {"workspace": _joined(directory.absolute()), "path": path, "body": body, "id": time.time_ns()}
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
def _joined(directory: Path) -> str:
    """The workspace for a directory, of which the role of the tests is a member."""
    from tests.support.postgres import ROLE, SCHEMA  # late, as above

    with _server().admin() as admin:
        workspace = _workspace(directory)
        admin.execute(f"INSERT INTO {SCHEMA}.members VALUES (%s, %s) ON CONFLICT DO NOTHING", (ROLE, workspace))
    _places.add(directory)
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
