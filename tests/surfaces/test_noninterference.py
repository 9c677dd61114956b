"""Noninterference: what a session may not see changes nothing that it can observe, through any surface."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.surfaces.worlds import Author, difference, script, shrunk

COUNT = int(os.environ.get("MEMFILES_WORLDS", "200"))
PORTIONS = 8


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_two_worlds_look_the_same(portion: int, tmp_path: Path) -> None:
    """A program with and without the steps of hidden sessions: the others get the same bytes."""
    for seed in range(portion, COUNT, PORTIONS):
        program = Author(seed).program()
        if difference(program, tmp_path / "worlds"):
            least = shrunk(program, tmp_path / "worlds")
            pytest.fail(f"seed {seed}, * is hidden:\n{script(least)}\n\n{difference(least, tmp_path / 'worlds')}")
