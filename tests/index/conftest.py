"""A directory with its index, and a workspace of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.indexed import Memory
from tests.support.postgres import PostgresServer


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """An index of a directory, with what saves into it, until the end of the test."""
    memory = Memory(tmp_path / "memory")
    yield memory
    memory.close()


@pytest.fixture
def workspace(server: PostgresServer) -> str:
    return server.workspace()


@pytest.fixture
def url(server: PostgresServer, workspace: str) -> str:
    return server.url(workspace)
