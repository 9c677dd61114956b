"""A process that is killed at any point of bringing a record and its copy together leaves nothing unmended.

Entries are killed before every second call that changes a file, with MEMFILES_EVERY_CALL set before all calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durability.conftest import Program, program, require_tracing, scratch  # noqa: F401 (fixtures)
from tests.durability.stops import EVERY_CALL
from tests.sync import entry_kill_sweep
from tests.sync.kill_sweep import STORIES

FEWEST_CALLS = 12  # that change a file, but for most of those of SQLite


@pytest.mark.kill
@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("story", list(STORIES))
def test_a_kill_at_any_call_is_mended_by_the_next_start(story: str, program: Program, scratch: Path) -> None:  # noqa: F811
    """Both copies, and the other machine's, are equal after the next start, with every line there once."""
    kills = program("tests.sync.kill_sweep", scratch, story)

    assert [] == [kill for kill in kills if kill["problems"]]
    assert len(kills) >= FEWEST_CALLS


@pytest.mark.kill
@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("story", list(entry_kill_sweep.STORIES))
def test_a_kill_brings_nothing_back(story: str, program: Program, scratch: Path) -> None:  # noqa: F811
    """Entries and tombstones are equal on all sides after the next start, and what was forgotten is in no file."""
    kills = program("tests.sync.entry_kill_sweep", scratch, story, "--stride", 1 if EVERY_CALL else 2)

    assert [] == [kill for kill in kills if kill["problems"]]
    assert len(kills) >= FEWEST_CALLS
