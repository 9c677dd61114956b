"""Noninterference: what a session may not see changes nothing that it can observe, through any surface."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.surfaces.authors import Author
from tests.surfaces.verbs import VERBS
from tests.surfaces.worlds import BOUNDARIES, Actor, Boundary, difference, script, shrunk

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("MEMFILES_WORLDS", "56"))
PORTIONS = 8


@pytest.mark.parametrize("portion", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, PORTIONS))])
def test_two_worlds_look_the_same(portion: int, tmp_path: Path) -> None:
    """A program with and without the steps of hidden sessions: the others get the same bytes."""
    for seed in range(portion, COUNT, PORTIONS):
        program = Author(seed).program()
        if difference(program, tmp_path / "worlds"):
            least = shrunk(program, tmp_path / "worlds")
            pytest.fail(f"seed {seed}, * is hidden:\n{script(least)}\n\n{difference(least, tmp_path / 'worlds')}")


def test_a_difference_is_found_and_shrunk(tmp_path: Path) -> None:
    """Where nothing hides one session from another, some program shows it, and few of its steps do."""
    open_door = Boundary("none", (Actor("support", "INTERNAL"),), (Actor("support", "INTERNAL", "tuesday"),), True)
    programs = (Author(seed, [open_door]).program() for seed in range(20))
    told = next(program for program in programs if difference(program, tmp_path / "worlds"))
    least = shrunk(told, tmp_path / "worlds")

    assert len(least.steps) <= 4
    assert difference(least, tmp_path / "worlds") is not None


def test_every_verb_is_called_by_seen_and_by_hidden_actors() -> None:
    """Within the programs of one test run; only a restart is nobody's, as it ends the sessions of all."""
    programs = [Author(seed).program() for seed in range(200)]
    called = {(step.actor in each.boundary.hidden, step.verb) for each in programs for step in each.steps}

    assert {(False, verb) for verb in VERBS} | {(True, verb) for verb in VERBS if verb != "restart"} == called
    assert {boundary.name for boundary in BOUNDARIES} == {each.boundary.name for each in programs}
