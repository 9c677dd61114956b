"""A process killed with SIGKILL before any of its system calls: a sweep, not a sample.

An append, an edit, a restore and a checkpoint are swept over all of them; the others over those that can change a file,
as a kill before any other leaves the same. With MEMFILES_EVERY_CALL set all are swept over all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.durability.conftest import Program
from tests.durability.kill_sweep import LIVING, NewFileScenario
from tests.durability.operations import BAD_EXAMPLE, OPERATIONS

pytestmark = [pytest.mark.kill, pytest.mark.usefixtures("require_tracing")]

OVER_ALL = ["append that makes the journal", "journaled edit", "first restore", "checkpoint"]
BY_LIVING = ["journaled edit", "append to three files at once", "checkpoint"]
LACKING = ["first append of a process", "journaled edit", "append to three files at once"]
FEWEST_CALLS = 4  # the shortest operation makes three that change a file, and is let go to its end twice


def _broken(kills: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kills that did harm, once it is sure that they came one call later each time, up to the end and beyond."""
    assert list(range(len(kills))) == [kill["number"] for kill in kills]
    assert len(kills) > FEWEST_CALLS
    assert ["", ""] == [kill["call"] for kill in kills[-2:]]
    assert all(kill["acknowledged"] > 0 for kill in kills[-2:])
    return [kill for kill in kills if kill["problems"]]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_any_call_does_no_harm(name: str, program: Program, scratch: Path) -> None:
    """Records are old or new, whole; all of a commit or none; the acknowledged is there; nothing is left over."""
    kills = program("tests.durability.kill_sweep", scratch, name, *(["--every"] if name in OVER_ALL else []))

    assert [] == _broken(kills)


@pytest.mark.parametrize("name", BY_LIVING)
def test_a_process_that_lives_on_mends_what_a_kill_left(name: str, program: Program, scratch: Path) -> None:
    """No start is needed: the next writer finishes or takes back what the dead one began, then writes."""
    kills = program("tests.durability.kill_sweep", scratch, f"{LIVING}{name}")

    assert [] == _broken(kills)


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.parametrize("calls", ["renameat2", "renameat2,linkat"])
def test_kills_do_no_harm_where_names_cannot_be_exchanged(
    calls: str, name: str, program: Program, scratch: Path
) -> None:
    """On a file system without RENAME_EXCHANGE the same holds, also if a file has only one name there, as on exFAT."""
    kills = program("tests.durability.kill_sweep", scratch, name, "--lacking", calls)

    assert [] == _broken(kills)


@pytest.mark.parametrize("lacking", [[], ["--lacking", "linkat"]])
def test_a_killed_init_leaves_no_part_of_a_file(lacking: list[str], program: Program, scratch: Path) -> None:
    """Also where a file has only one name."""
    kills = program("tests.durability.kill_sweep", scratch, NewFileScenario.name, *lacking)

    assert [] == _broken(kills)


def test_the_sweep_finds_what_writing_in_place_breaks(program: Program, scratch: Path) -> None:
    """The same sweep over a writer that opens the record and dumps JSON into it finds torn records."""
    broken = _broken(program("tests.durability.kill_sweep", scratch, BAD_EXAMPLE.name, "--every"))

    assert len(broken) >= 5
    assert "cannot be read" in broken[0]["problems"][0]
