"""What machines do one after the other, each after it synced, is what one machine would have done, whatever the clocks.

The oracle of the other scripts looks for texts alone; here keys, places, facets and what is deleted count as well.
``MEMFILES_SERIAL_SCRIPTS`` is how many scripts are run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import MemfilesError
from mirrors.memory import MemoryMirror
from tests.model.machine import InlineDispatcher, SkewedClock
from tests.model.world import quiet
from tests.support.saved import Visitor
from tests.sync.entry_machine import EntryMachine

SCRIPTS = int(os.environ.get("MEMFILES_SERIAL_SCRIPTS", "20"))
DAY = 86_400
SKEWS = (0, 0, 90, DAY, 20 * DAY, -DAY)
KEYS = ("K", "N", "M")
AGENTS = ("support", "sales")
Call = Callable[[EntryMachine, Visitor, str, str, str], object]
CALLS: dict[str, Call] = {
    "save": lambda it, who, key, other, text: it.entries.save(who, key, text),
    "update": lambda it, who, key, other, text: it.entries.update(who, key, content=text),
    "tag": lambda it, who, key, other, text: it.entries.update(who, key, tags=[other]),
    "pin": lambda it, who, key, other, text: it.entries.update(who, key, pinned=True),
    "unpin": lambda it, who, key, other, text: it.entries.update(who, key, pinned=False),
    "share": lambda it, who, key, other, text: it.entries.update(who, key, category="workspace"),
    "unshare": lambda it, who, key, other, text: it.entries.update(who, key, category="general"),
    "rename": lambda it, who, key, other, text: it.entries.relocate(who, {key: other}),
    "swap": lambda it, who, key, other, text: it.entries.relocate(who, {key: other, other: key}),
    "delete": lambda it, who, key, other, text: it.entries.delete(who, key),
    "restore": lambda it, who, key, other, text: it.entries.restore(who, key),
    "forget": lambda it, who, key, other, text: it.entries.forget(who, key=key),
    "undo": lambda it, who, key, other, text: it.entries.undo(who, key),
    "append": lambda it, who, key, other, text: it.manager.append("notes", text),
    "edit": lambda it, who, key, other, text: it.manager.edit("notes", "text", f"edited {text.strip()}"),
    "redact": lambda it, who, key, other, text: it.manager.redact("notes", "text 1"),
}
WEIGHTS = {"share": 2, "unshare": 2, "rename": 5, "delete": 2, "restore": 2}
Step = tuple[str, str, str, str, str, str]  # the machine, the verb, the agent, two keys and a text


@pytest.mark.slow
def test_what_is_done_one_after_the_other_is_as_on_one_machine(tmp_path: Path) -> None:
    """Other machines lag behind until the end, and some clocks are days off."""
    with quiet():
        found = [why for seed in range(SCRIPTS) if (why := difference(seed, tmp_path / str(seed)))]

    assert [] == found


def difference(seed: int, place: Path) -> str | None:
    """Run the script of a seed on machines and on one that is alone; where they differ."""
    draw = random.Random(f"serial {seed}")
    names = "ABC"[: draw.choice([2, 2, 3])]
    steps = [*(("A", "save", "support", key, key, f"{key}\n") for key in "KN"), *_steps(draw, names)]
    with _opened(draw, names, place) as machines:
        for number, step in enumerate(steps):
            name, *call = step
            machines[name].pull()
            outcomes = [_outcome(machines[it], *call) for it in (name, "alone")]
            machines[name].pull()
            is_last = number == len(steps) - 1
            for other in [*names] * 3 if is_last else []:
                machines[other].pull()
            for other in names if is_last else name:
                if outcomes[0] != outcomes[1] or _seen(machines[other]) != _seen(machines["alone"]):
                    return f"seed {seed}: {other} after {steps[: number + 1]}: {outcomes}"
    return None


def _steps(draw: random.Random, names: str) -> Iterator[Step]:
    weights = [WEIGHTS.get(verb, 1) for verb in CALLS]
    for number in range(draw.randint(3, 14)):
        (verb,) = draw.choices([*CALLS], weights)
        agent = draw.choices(AGENTS, [4, 1])[0]
        yield draw.choice(names), verb, agent, draw.choice(KEYS), draw.choice(KEYS), f"text {number}\n"


@contextmanager
def _opened(draw: random.Random, names: str, place: Path) -> Iterator[dict[str, EntryMachine]]:
    """Machines that share a mirror, by name, each with a clock of its own; and one that is ``alone``."""
    ticks, shared = count(0, 60), MemoryMirror()
    with ExitStack() as ending:

        def opened(name: str, mirror: MemoryMirror, skew: int) -> EntryMachine:
            now = SkewedClock(ticks, skew_seconds=skew)
            return ending.enter_context(EntryMachine(place / name, mirror, now=now, dispatcher=InlineDispatcher))

        machines = {name: opened(name, shared, draw.choice(SKEWS)) for name in names}
        yield machines | {"alone": opened("alone", MemoryMirror(), 0)}


def _outcome(machine: EntryMachine, verb: str, agent: str, key: str, other: str, text: str) -> str:
    """Make a call; "done", or the error that refused it."""
    try:
        CALLS[verb](machine, Visitor(agent), key, other, text)
    except MemfilesError as error:
        return type(error).__name__
    return "done"


def _seen(machine: EntryMachine) -> dict[str, Any]:
    """What every agent sees, also of what is deleted, and the memory file."""
    shown: dict[str, Any] = {"notes": machine.manager.read("notes")}
    for agent in AGENTS:
        entries = machine.entries.list(Visitor(agent)).memories
        deleted = machine.entries.deleted(Visitor(agent)).entries
        shown[agent] = {it.key: (it.content, it.tags, it.pinned, it.category) for it in entries}
        shown[f"{agent}, deleted"] = sorted((it.found.key, it.found.content) for it in deleted)
    return shown
