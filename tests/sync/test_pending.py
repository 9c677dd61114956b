"""Whatever machines do to an entry at once, it is pushed in the end: nothing waits for itself, or merges for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mirrors.memory import MemoryMirror
from tests.model.machine import InlineDispatcher
from tests.support.saved import Visitor
from tests.sync.entry_machine import AGENT, EntryMachine

WHO, ADA = Visitor(AGENT), Visitor(AGENT, user="ada")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[EntryMachine]]:
    """Three that share a mirror."""
    mirror = MemoryMirror()
    with ExitStack() as ending:
        yield [ending.enter_context(_machine(tmp_path / name, mirror)) for name in ("one", "two", "three")]


def _machine(folder: Path, mirror: MemoryMirror) -> EntryMachine:
    """One that pushes only when it pulls."""
    return EntryMachine(folder, mirror, dispatcher=InlineDispatcher)


def synced(*machines: EntryMachine) -> list[int]:
    """Sync these in turn, some times; how much each has still to push."""
    for machine in machines * 3:
        machine.pull()
    return [machine.sync.status().pending for machine in machines]


def test_a_delete_of_an_entry_that_another_machine_moved_meanwhile_is_pushed(machines: list[EntryMachine]) -> None:
    """What that one made of the move is older by the texts and not by the numbers: it was merged again and again."""
    one, two, three = machines
    one.entries.save_many(WHO, [{"key": "a", "content": "text of a"}, {"key": "b", "content": "text of b"}])
    synced(*machines)
    two.entries.relocate(WHO, {"a": "b", "b": "a"})
    three.entries.save(WHO, "b", "another text of b")
    two.pull()
    two.entries.delete(WHO, "b")
    three.pull()

    assert [0, 0, 0] == synced(*machines)
    for machine in machines:
        assert {"a": "another text of b"} == {it.key: it.content for it in machine.entries.list(WHO).memories}


def test_the_mark_of_an_entry_that_came_back_to_its_place_is_pushed(machines: list[EntryMachine]) -> None:
    """It waits until the entry is pushed where it is now, unless that is the place of the mark."""
    one, two, three = machines
    for machine in (one, two):
        machine.entries.save(ADA, "plan", f"of {machine.directory.name}")
    two.entries.relocate(ADA, {"plan": "plan"})
    two.pull()
    three.entries.users.forget("ada")

    assert [0, 0, 0] == synced(three, one, two)
