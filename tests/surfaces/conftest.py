"""The workflow of a memory that is in a directory, and then in PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.workflows import write_workflow
from tests.surfaces.desk import TEXT, Declare


@pytest.fixture(params=["directory", pytest.param("postgresql", marks=pytest.mark.slow)])
def declare(request: pytest.FixtureRequest, tmp_path: Path) -> Declare:
    """``declare(mirror)`` writes the workflow of an empty memory; the same one every time."""
    place = "directory: .memory"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("server")
        place = f"store: {json.dumps(server.url(server.workspace()))}"

    def declare(mirror: Path | None = None, *, pull: str = "cold-start") -> Path:
        if mirror is not None:
            mirror.mkdir(exist_ok=True)
        declared = f'mirror: {{url: "file://{mirror}", pull: {pull}}}' if mirror is not None else ""
        return write_workflow(tmp_path / "desk", TEXT.format(place=place, mirror=declared))

    return declare
