"""Many machines on one mirror: in the end all have the same record, with all that any of them acknowledged, once."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.records.file_changes import append, edit
from memfiles.records.history import contents
from memfiles.sync.merge.merge_files import ConflictPolicy
from memfiles.sync.merge.text_merge import lines_of
from tests.support.records import many_times, redact
from tests.sync.merge.machines import Machine, World

pytestmark = pytest.mark.slow

TITLE = "# Notes\n"
chances = st.integers(0, 2**32).map(random.Random)
policies = st.sampled_from(["local", "remote"])


def does_something(machine: Machine, chances: random.Random, *, day: int) -> None:
    """Append a line, edit one of its own, or append one and take it back."""
    editable = [line for line in machine.own if machine.record.content.count(line) == 1]
    what = chances.random()
    if what < 0.2 and editable:
        machine.edits(chances.choice(editable))
    elif what < 0.3:
        machine.regrets(f"regret {day}\n")
    else:
        machine.appends(f"{machine.origin[-1]}-{day}\n")


def lived(world: World, chances: random.Random, *, days: int) -> None:
    """Anyone does anything at any time, or syncs."""
    for day in range(days):
        if chances.random() < 0.6:
            does_something(chances.choice(world.machines), chances, day=day)
        else:
            world.someone_syncs(chances)


def lines(world: World, *, without: str = TITLE) -> Counter[str]:
    """Every line that all machines have in the end."""
    return Counter(line for line in lines_of(world.settles().content) if line not in without)


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40), st.sampled_from([TITLE, ""]), policies)
def test_everything_acknowledged_is_everywhere_once(
    chances: random.Random, count: int, days: int, content: str, on_conflict: ConflictPolicy
) -> None:
    """Appends, edits and undos, in any order, with lost answers, crossed syncs and forgotten bookkeeping."""
    world = World.of(count, content=content, on_conflict=on_conflict)
    for _ in range(2):
        lived(world, chances, days=days)
        assert world.promised() == lines(world)

    assert 1 == len(world.copies())
    assert [] == [machine for machine in world.machines if machine.conflicts]


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40))
def test_a_line_is_there_as_often_as_it_was_acknowledged(chances: random.Random, count: int, days: int) -> None:
    """Lines of the same text are not taken for one another."""
    world = World.of(count)
    for _ in range(days):
        if chances.random() < 0.6:
            chances.choice(world.machines).appends(f"same {chances.randrange(3)}\n")
        else:
            world.someone_syncs(chances)

    assert world.promised() == lines(world)


@many_times
@given(chances, st.integers(2, 4), st.integers(1, 40), policies)
def test_every_call_in_the_history_is_known(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy
) -> None:
    """Whichever machine it was made on; and every earlier content can be told."""
    world = World.of(count, on_conflict=on_conflict)
    lived(world, chances, days=days)
    record = world.settles()

    assert [] == world.lost_calls()
    assert len(record.history) == len(list(contents(record)))


@pytest.mark.parametrize("knows_base", [True, False])
@pytest.mark.parametrize("has_met", [True, False])
@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_a_long_time_offline_loses_nothing(knows_base: bool, has_met: bool, on_conflict: ConflictPolicy) -> None:
    """More changes on each machine than a history holds, also if nobody knows any more what they began with."""
    world = World.of(3, on_conflict=on_conflict)
    if has_met:
        world.settles()
    for machine in world.machines:
        machine.acknowledged = machine.acknowledged if knows_base else None
        for number in range(130):
            machine.appends(f"{machine.origin[-1]}-{number}\n")

    assert world.promised() == lines(world)
    assert ([], 1) == (world.lost_calls(), len(world.copies()))


@many_times
@given(chances, st.integers(2, 3), st.integers(1, 40), policies)
def test_conflicts_cost_no_appended_line(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy
) -> None:
    """Everyone edits and deletes the same lines; of these the winner's are there, of the others all."""
    shared = "".join(f"shared {number}\n" for number in range(5))
    world = World.of(count, content=shared, on_conflict=on_conflict)
    for day in range(days):
        machine = chances.choice(world.machines)
        common = [line for line in lines_of(machine.record.content) if line.startswith("shared")]
        what = chances.random()
        if what < 0.3 and common:
            line = chances.choice(common)
            new = "" if what < 0.1 else line.replace("\n", f" {machine.origin[-1]}{day}\n")
            machine.does(partial(edit, old=line, new=new))
        elif what < 0.6:
            machine.appends(f"{machine.origin[-1]}-{day}\n")
        else:
            world.someone_syncs(chances)
    found = {line: count for line, count in lines(world).items() if not line.startswith("shared")}

    assert (dict(world.promised()), 1) == (found, len(world.copies()))
    assert [] == world.lost_calls()


@many_times
@given(chances, st.integers(2, 3), st.integers(1, 30), policies)
def test_a_redacted_text_leaves_every_machine(
    chances: random.Random, count: int, days: int, on_conflict: ConflictPolicy
) -> None:
    """Whatever the others did to its line meanwhile; what they appended stays."""
    world = World.of(count, content="one\nthe word is hunter2\nthree\n", on_conflict=on_conflict)
    world.settles()
    for day in range(days):
        machine = chances.choice(world.machines)
        line = chances.choice(lines_of(machine.record.content))
        if chances.random() < 0.3 and line in ("one\n", "the word is hunter2\n", "three\n"):
            machine.does(partial(edit, old=line[:3], new=line[:3].upper()))
        elif chances.random() < 0.5:
            machine.appends(f"{machine.origin[-1]}-{day}\n")
        else:
            world.someone_syncs(chances)
    machine = chances.choice(world.machines)
    redacted, _ = redact(machine.record, machine.stamp("redact"), text="hunter2")
    assert redacted is not None
    machine.keep(redacted.stamped(machine.origin))

    assert set() == set(world.promised()) - set(lines(world))
    assert [] == [body for body in world.copies() if b"hunter2" in body]


def test_two_declarations_do_not_answer_each_other_for_ever() -> None:
    """During a deploy machines with the old and the new one run side by side: each keeps its own, the text is one."""
    world = World.of(2)
    old, new = world.machines
    world.settles()
    new.record = replace(new.record, description="new").stamped(new.origin)
    old.appends("old\n")
    new.appends("new\n")
    world.settles()

    assert ("What is known.", "new") == (old.record.description, new.record.description)
    assert old.record.content == new.record.content


@pytest.mark.parametrize("content", ["", TITLE])
def test_an_edit_of_what_joined_a_line_without_an_end_is_no_conflict(content: str) -> None:
    """It changed no line of the other machine, and nothing is there twice."""
    world = World.of(2, content=content)
    one, two = world.machines
    one.appends("- a\n- b")
    two.appends("- c")
    two.does(partial(edit, old="- c", new="- C"))
    one.syncs(world.cell)

    assert f"{content}- a\n- b- C" == world.settles().content
    assert [] == two.conflicts


def test_a_line_that_got_its_end_in_a_conflict_is_not_appended_once_more() -> None:
    """It is there, with an end: the other machine appended after it."""
    world = World.of(2, content="a\nb")
    one, two = world.machines
    for machine, new, line in ((one, "A", "\nc"), (two, "AA", "\nd")):
        machine.does(partial(append, text=line))
        machine.does(partial(edit, old="a", new=new))
    one.syncs(world.cell)

    assert "AA\nb\nc\nd" == world.settles().content
    assert ["A\nb\nc"] == [loser.content for loser in two.conflicts]
