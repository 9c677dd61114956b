"""Many machines with one entry: in the end all have the same, with all that was saved and nothing forgotten."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.records.entry import Entry
from memfiles.records.marks import Mark
from memfiles.sync.merge.merge_files import ConflictPolicy
from tests.entries.machines import EntryMachine, EntryWorld
from tests.support.records import many_times

pytestmark = pytest.mark.slow

chances = st.integers(0, 2**32).map(random.Random)
policies = st.sampled_from(["local", "remote"])
kinds = st.sampled_from(["fact", "note", "procedure"])


def does_something(world: EntryWorld, *, forgetting: float, deleting: float = 0.1, kind: str = "note") -> None:
    """Somebody saves, says something else of the entry, deletes it or forgets it."""
    machine, what = world.chances.choice(world.machines), world.chances.random()
    if what < forgetting:
        machine.forgets()
    elif what < forgetting + deleting:
        machine.deletes()
    elif what < 0.6:
        machine.saves_anew(world.value(), kind=kind) if machine.record is None else machine.saves_anew(world.value())
    else:
        machine.says(importance=round(world.chances.random(), 2), tags=(f"tag-{world.made}",))


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 50), policies, kinds)
def test_what_was_forgotten_never_comes_back(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy, kind: str
) -> None:
    """Whoever was offline with whatever, saves after it, and however often the mirror was put back meanwhile."""
    world = EntryWorld.of(count, chances, on_conflict=on_conflict)
    for _ in range(days):
        what = chances.random()
        if what < 0.05:
            world.mirror_is_put_back()
        elif what < 0.5:
            does_something(world, forgetting=0.15, kind=kind)
        else:
            world.someone_syncs()
    world.settles()

    assert set() == world.leaks()
    assert len(world.copies()) <= 1


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40), policies, kinds)
def test_everything_saved_can_be_got_at(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy, kind: str
) -> None:
    """Where nothing is forgotten, every value is in the record, in its history or among the conflicts."""
    world = EntryWorld.of(count, chances, on_conflict=on_conflict)
    world.machines[0].saves_anew(world.value(), kind=kind)
    world.settles()
    for _ in range(days):
        if chances.random() < 0.5:
            does_something(world, forgetting=0.0, kind=kind)
        else:
            world.someone_syncs()
    world.settles()
    saves = {value.strip() for machine in world.machines for value in machine.saves}

    assert set() == saves - world.known()
    assert len(world.copies()) <= 1


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40), kinds)
def test_the_last_save_is_what_is_read(chances: random.Random, count: int, days: int, kind: str) -> None:
    """After whatever there was, a save that everybody's changes came before stands everywhere."""
    world = EntryWorld.of(count, chances)
    for _ in range(days):
        if chances.random() < 0.5:
            does_something(world, forgetting=0.2, kind=kind)
        else:
            world.someone_syncs()
    world.settles()
    last = world.value()
    chances.choice(world.machines).saves_anew(last)
    found = world.settles()

    assert isinstance(found, Entry)
    assert last == found.content
    assert {found.revision} == {machine.record.revision for machine in world.machines if machine.record is not None}


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40))
def test_a_tombstone_reaches_everyone(chances: random.Random, count: int, days: int) -> None:
    """A forget of the newest version leaves a mark everywhere, however far behind or ahead the others are."""
    world = EntryWorld.of(count, chances)
    world.machines[0].saves_anew(world.value())
    world.settles()
    for _ in range(days):
        if chances.random() < 0.6:
            does_something(world, forgetting=0.0)
        else:
            world.someone_syncs()
    machine = chances.choice(world.machines)
    machine.syncs(world.cell)
    if not isinstance(machine.record, Entry):
        machine.saves_anew(world.value())
    machine.forgets()
    machine.syncs(world.cell)
    world.settles()

    assert {Mark} == {type(each.record) for each in world.machines}


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 30))
def test_signals_are_counted_once(chances: random.Random, count: int, days: int) -> None:
    """A procedure's successes and failures are the sum of what all machines told, with every base known."""
    world = EntryWorld.of(count, chances)
    first, told = world.machines[0], 0
    first.saves_anew("how to\n", kind="procedure")
    world.settles()
    for _ in range(days):
        machine = chances.choice(world.machines)
        if chances.random() < 0.5 and isinstance(machine.record, Entry):
            machine.says(successes=machine.record.successes + 1)
            told += 1
        else:
            machine.syncs(world.cell)
    found = world.settles()

    assert isinstance(found, Entry)
    assert told == found.successes


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 30), policies, kinds)
def test_two_first_saves_are_both_kept(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy, kind: str
) -> None:
    """Machines that never met saved the same key: what each had when it synced first can be got at."""
    world = EntryWorld.of(count, chances, on_conflict=on_conflict)
    for machine in world.machines:
        machine.saves_anew(world.value(), kind=kind)
    for _ in range(days):
        world.someone_syncs()
    world.settles()

    assert set() == {value.strip() for machine in world.machines for value in machine.saves} - world.known()
    assert 1 == len(world.copies())


def test_two_that_forgot_and_saved_apart_keep_both() -> None:
    """Each forgot what both had and saved anew: neither text was meant by the other's forgetting."""
    world = EntryWorld.of(2, random.Random(1))
    one, other = world.machines
    one.saves_anew("value-900\n")
    world.settles()
    for machine, value in ((one, "value-901\n"), (other, "value-902\n")):
        machine.forgets()
        machine.saves_anew(value)
    world.settles()

    assert set() == world.leaks()
    assert {"value-901", "value-902"} <= world.known()
    assert _both_ids(one)


def _both_ids(machine: EntryMachine) -> bool:
    return isinstance(machine.record, Entry) and len(machine.record.ids) == 2
