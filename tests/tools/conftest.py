"""What most tests of tools begin with: a memory of the workflow that their module declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles import Memory
from tests.support.workflows import opened


@pytest.fixture
def memory(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Memory]:
    """A new memory of the module's ``WORKFLOW``."""
    with opened(tmp_path, request.module.WORKFLOW) as memory:
        yield memory
