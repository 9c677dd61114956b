"""What most tests of entries begin with: a clock that is set by hand, and an empty memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.entries.entries import Entries
from tests.support.saved import Clock, entries_in


@pytest.fixture
def clock() -> Clock:
    """A clock that is set by hand."""
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """The entries of an empty directory."""
    with entries_in(tmp_path / "memory", now=clock) as opened:
        yield opened
