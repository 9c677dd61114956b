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


def directory_store(directory: str) -> RecordStore:
    """The directory store."""
    return Store(Path(directory), now=lambda: time.strftime("%Y-%m-%dT%H:%M:%S.000Z"))


def postgres_store(url: str) -> RecordStore:
    """The PostgreSQL store."""
    from memfiles.storage.postgres.store import PostgresStore  # late: the other stores load no psycopg

    return PostgresStore(url)


def place_of(directory: Path) -> Path | str:
    """The directory, or with ``MEMFILES_TEST_STORE=postgresql`` the workspace that stands for it in this process."""
    if os.environ.get("MEMFILES_TEST_STORE") != "postgresql":
        return directory
    server, name = _server(), f"d{hashlib.sha256(os.path.realpath(directory).encode()).hexdigest()[:16]}"
    with server.admin() as admin:
        admin.execute("INSERT INTO memfiles.members VALUES ('memfiles_app', %s) ON CONFLICT DO NOTHING", (name,))
    return server.url(name)


@cache
def _server() -> PostgresServer:
    """One server for all tests of this process."""
    from tests.support.postgres import postgres_server  # late, as above

    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server())
