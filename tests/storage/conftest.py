"""A PostgreSQL server for the tests of a module, and stores in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from memfiles.storage.postgres.store import PostgresStore
from tests.conftest import unavailable
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
