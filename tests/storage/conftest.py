"""A PostgreSQL server for the tests of a module, stores in it, and a log of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles.storage.events import AuditLog
from memfiles.storage.postgres.store import PostgresStore
from tests.conftest import unavailable
from tests.storage.audit_logs import Months
from tests.support.postgres import PostgresServer, stores_of


@pytest.fixture
def own(server: PostgresServer) -> PostgresServer:
    """A server that may be stopped, and whose files are known."""
    return server if server.folder is not None else unavailable("MEMFILES_TEST_DSN names a server that is not ours")


@pytest.fixture
def open_store(server: PostgresServer) -> Iterator[Callable[..., PostgresStore]]:
    """``open_store(workspace, ...)`` opens a store until the end of the test."""
    with stores_of(server) as opening:
        yield opening


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    """A log in ``tmp_path``."""
    log = AuditLog(tmp_path, now=Months())
    yield log
    log.close()
