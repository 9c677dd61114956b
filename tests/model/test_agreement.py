"""Machines that share a mirror agree in the end: on what one machine would have, if each syncs around each call.

If they do not, they agree all the same: all have the same records, each entry is under one key, nothing is left to be
pushed, and no file holds what was forgotten, whatever was imported. The oracle of the other scripts looks for texts
alone; here keys, places, facets and what is deleted count as well.
``MEMFILES_SERIAL_SCRIPTS`` is how many scripts of each kind are run.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.results import Found
from memfiles.errors import MemfilesError
from mirrors.memory import MemoryMirror
from tests.model.machine import InlineDispatcher, SkewedClock
from tests.model.world import quiet
from tests.support.records import files_under
from tests.support.saved import Visitor, files_holding
from tests.sync.entry_machine import EntryMachine

SCRIPTS = int(os.environ.get("MEMFILES_SERIAL_SCRIPTS", "20"))
DAY = 86_400
SYNCED, ROUNDS = 0.3, 4  # how often one syncs after a call, and how often all do at the end
SKEWS = (0, 0, 90, DAY, 20 * DAY, -DAY)
KEYS = ("K", "N", "M")
WHO: dict[str, Callable[[], Visitor]] = {
    "support": lambda: Visitor("support"),
    "sales": lambda: Visitor("sales"),
    "ada": lambda: Visitor("support", user="ada"),
    "low": lambda: Visitor("support", "PUBLIC"),
}
OFTEN = (4, 1, 2, 1)  # how often each of them calls
Call = Callable[[EntryMachine, Visitor, str, str, str], object]


def _exports_of(it: EntryMachine, who: Visitor) -> Path:
    """The last export of a visitor on any machine, next to other files; the one that is alone has its own."""
    folder = it.directory.parent / ("exports of alone" if it.directory.name == "alone" else "exports")
    folder.mkdir(exist_ok=True)
    return folder / f"{who.provenance.agent}-{who.provenance.user}-{who.level}.jsonl"


def _import(it: EntryMachine, who: Visitor, *, of: Visitor, text: str = "") -> None:
    """Import the last export of a visitor, with the text in place of each content."""
    if (exported := _exports_of(it, of)).exists():
        lines = [json.loads(line) for line in exported.read_text().splitlines()]
        source = exported.with_suffix(".edited.jsonl")
        source.write_text("".join(json.dumps(each | ({"content": text} if text else {})) + "\n" for each in lines))
        it.entries.import_(who, source)


def _consolidate(it: EntryMachine, who: Visitor) -> None:
    """Get down to two entries, so to merge, fold and evict."""
    plan = it.entries.plan(who, share=0.000_02)  # of the 100,000 that a machine may have
    it.entries.apply(who, plan)
    _exports_of(it, who).with_suffix(".plan").write_text(plan.id)


def _undo_plan(it: EntryMachine, who: Visitor) -> None:
    """Take back the visitor's last plan, whichever machine applied it."""
    if (noted := _exports_of(it, who).with_suffix(".plan")).exists():
        it.entries.undo_plan(who, noted.read_text())


def _edit_by_hand(it: EntryMachine, who: Visitor, key: str, text: str) -> None:
    """Write another content into the file of the entry that the visitor sees, and no more."""
    found = it.entries.get(who, key)
    for path in sorted((it.directory / "entries").rglob("*.json")):
        record = json.loads(path.read_text())
        if found is not None and record.get("id", record["uid"]) == found.id and "content" in record:
            path.write_text(json.dumps(record | {"content": text}, indent=2))
            it.shelf.notice(str(path.relative_to(it.directory)), at_once=True)


CALLS: dict[str, Call] = {
    "save": lambda it, who, key, other, text: it.entries.save(who, key, text),
    "update": lambda it, who, key, other, text: it.entries.update(who, key, content=text),
    "change": lambda it, who, key, other, text: it.entries.edit(who, key, "text", f"edited {text.strip()}"),
    "save many": lambda it, who, key, other, text: it.entries.save_many(
        who, [{"key": key, "content": text}, {"key": other, "content": f"2nd {text}"}]
    ),
    "episode": lambda it, who, key, other, text: it.entries.save(who, key, text, kind="episode"),
    "fact": lambda it, who, key, other, text: it.entries.save(who, key, text, kind="fact"),
    "praise": lambda it, who, key, other, text: it.entries.update(who, key, outcome="success"),
    "weigh": lambda it, who, key, other, text: it.entries.update(who, key, importance=0.9),
    "tag": lambda it, who, key, other, text: it.entries.update(who, key, tags=[other]),
    "pin": lambda it, who, key, other, text: it.entries.update(who, key, pinned=True),
    "unpin": lambda it, who, key, other, text: it.entries.update(who, key, pinned=False),
    "share": lambda it, who, key, other, text: it.entries.update(who, key, category="workspace"),
    "unshare": lambda it, who, key, other, text: it.entries.update(who, key, category="general"),
    "rename": lambda it, who, key, other, text: it.entries.relocate(who, {key: other}),
    "swap": lambda it, who, key, other, text: it.entries.relocate(who, {key: other, other: key}),
    "delete": lambda it, who, key, other, text: it.entries.delete(who, key),
    "delete both": lambda it, who, key, other, text: it.entries.delete_many(who, [key, other]),
    "restore": lambda it, who, key, other, text: it.entries.restore(who, key),
    "forget": lambda it, who, key, other, text: it.entries.forget(who, key=key),
    "undo": lambda it, who, key, other, text: it.entries.undo(who, key),
    "go back": lambda it, who, key, other, text: it.entries.undo(who, key, 1),
    "forget a tag": lambda it, who, key, other, text: it.entries.forget(who, tag=other),
    "forget a kind": lambda it, who, key, other, text: it.entries.forget(who, kind="fact"),
    "say": lambda it, who, key, other, text: it.entries.save(who, key, text, said_at="2020-01-02"),
    "link": lambda it, who, key, other, text: it.entries.update(who, key, links=[other], confidence=0.4),
    "make a procedure": lambda it, who, key, other, text: it.entries.update(who, key, kind="procedure"),
    "fail": lambda it, who, key, other, text: it.entries.update(who, key, outcome="failure"),
    "say the same": lambda it, who, key, other, text: it.entries.save(who, key, "the same text"),
    "consolidate": lambda it, who, key, other, text: _consolidate(it, who),
    "undo a plan": lambda it, who, key, other, text: _undo_plan(it, who),
    "edit by hand": lambda it, who, key, other, text: _edit_by_hand(it, who, key, text),
    "export": lambda it, who, key, other, text: it.entries.export(who, _exports_of(it, who), format="jsonl"),
    "import": lambda it, who, key, other, text: _import(it, who, of=who),
    "import edited": lambda it, who, key, other, text: _import(it, who, of=who, text=text),
    "import another's": lambda it, who, key, other, text: _import(it, who, of=Visitor()),
    "leave": lambda it, who, key, other, text: it.entries.users.forget("ada"),
    "append": lambda it, who, key, other, text: it.manager.append("notes", text),
    "edit": lambda it, who, key, other, text: it.manager.edit("notes", "text", f"edited {text.strip()}"),
    "redact": lambda it, who, key, other, text: it.manager.redact("notes", "text 1z"),
}
WEIGHTS = {
    **{"share": 2, "unshare": 2, "rename": 5, "delete": 2, "restore": 2, "forget": 3},
    **{"export": 2, "import": 2, "consolidate": 2, "undo a plan": 2, "say the same": 2},
}
Step = tuple[str, str, str, str, str, str]  # the machine, the verb, who, two keys and a text


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
    skews = draw.choice([SKEWS, (0,)])
    steps = [*(("A", "save", "support", key, key, f"{key}\n") for key in "KN"), *_steps(draw, names, skews)]
    with _opened(draw, names, place, skews) as machines:
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


@pytest.mark.slow
def test_what_is_done_at_the_same_time_is_the_same_everywhere_in_the_end(tmp_path: Path) -> None:
    """Some machines sync now and then, and all at the end."""
    with quiet():
        found = [why for seed in range(SCRIPTS) if (why := disagreement(seed, tmp_path / str(seed)))]

    assert [] == found


def disagreement(seed: int, place: Path) -> str | None:
    """Run the script of a seed on machines that sync now and then; where they differ in the end."""
    draw = random.Random(f"at once {seed}")
    names = "ABC"[: draw.choice([2, 2, 3])]
    steps = [*(("A", "save", "support", key, key, f"{key}\n") for key in "KN"), *_steps(draw, names)]
    with _opened(draw, names, place) as opened:
        machines, held = [opened[name] for name in names], dict[str, set[str]]()
        for number, (name, *call) in enumerate(steps):
            _outcome(opened[name], *call)
            _note_texts(opened[name], held)
            for machine in machines if number == 1 else ():
                machine.pull()
            if draw.random() < SYNCED:
                opened[draw.choice(names)].pull()
        for machine in machines * ROUNDS:
            machine.pull()
        kept = [files_under(machine.directory / "entries") for machine in machines]
        problems = {
            "not all see the same": any(_seen(each) != _seen(machines[0]) for each in machines),
            "not all have the same records": any(each != kept[0] for each in kept),
            "something is left to be pushed": any(each.sync.status().pending for each in machines),
            "an entry is under two keys": any(_entries_twice(each) for each in machines),
            "something forgotten is there": any(
                ids <= _buried(each) and files_holding(each.directory, text)
                for each in machines
                for text, ids in held.items()
            ),
        }
    return next((f"seed {seed}: {why} after {steps}" for why, holds in problems.items() if holds), None)


def _steps(draw: random.Random, names: str, skews: Sequence[int] = ()) -> Iterator[Step]:
    """Calls of the machines; clocks that are off decide what an import takes for newer, and what is evicted first."""
    verbs = [verb for verb in CALLS if DAY not in skews or not verb.startswith(("import", "consolidate"))]
    weights = [WEIGHTS.get(verb, 1) for verb in verbs]
    for number in range(draw.randint(3, 14)):
        (verb,) = draw.choices(verbs, weights)
        (who,) = draw.choices([*WHO], OFTEN)
        yield draw.choice(names), verb, who, draw.choice(KEYS), draw.choice(KEYS), f"text {number}z\n"


@contextmanager
def _opened(
    draw: random.Random, names: str, place: Path, skews: Sequence[int] = SKEWS
) -> Iterator[dict[str, EntryMachine]]:
    """Machines that share a mirror, by name, each with a clock of its own; and one that is ``alone``."""
    ticks, shared = count(0, 60), MemoryMirror()
    with ExitStack() as ending:

        def opened(name: str, mirror: MemoryMirror, skew: int) -> EntryMachine:
            now = SkewedClock(ticks, skew_seconds=skew)
            return ending.enter_context(EntryMachine(place / name, mirror, now=now, dispatcher=InlineDispatcher))

        machines = {name: opened(name, shared, draw.choice(skews)) for name in names}
        yield machines | {"alone": opened("alone", MemoryMirror(), 0)}


def _outcome(machine: EntryMachine, verb: str, who: str, key: str, other: str, text: str) -> str:
    """Make a call; "done", or the error that refused it."""
    try:
        CALLS[verb](machine, WHO[who](), key, other, text)
    except MemfilesError as error:
        return type(error).__name__
    return "done"


def _seen(machine: EntryMachine) -> dict[str, Any]:
    """What everyone sees, also of what is deleted, and the memory file."""
    shown: dict[str, Any] = {"notes": machine.manager.read("notes")}
    for who, visitor in WHO.items():
        entries = machine.entries.list(visitor()).memories
        deleted = machine.entries.deleted(visitor()).entries
        shown[who] = {
            it.key: (it.content, it.tags, it.pinned, it.category, it.kind, it.successes, it.importance, *_more(it))
            for it in entries
        }
        shown[f"{who}, deleted"] = sorted((it.found.key, it.found.content) for it in deleted)
    return shown


def _note_texts(machine: EntryMachine, held: dict[str, set[str]]) -> None:
    """Note for each text the ids of the entries that hold it, also in their histories."""
    for path in (machine.directory / "entries").rglob("*.json"):
        record = json.loads(written := path.read_text())
        for text in re.findall(r"text \d+z", written) if "content" in record else ():
            held.setdefault(text, set()).update([record.get("id", record["uid"]), *record.get("aliases", ())])


def _buried(machine: EntryMachine) -> set[str]:
    """The ids of forgotten entries."""
    ids = (machine.directory / "entries" / "@ids").glob("*.json")
    return {path.stem for path in ids if json.loads(path.read_text())["type"] == "tombstone"}


def _more(it: Found) -> tuple[object, ...]:
    return it.failures, it.confidence, it.links, it.said_at


def _entries_twice(machine: EntryMachine) -> list[str]:
    """The ids that are under two keys."""
    found = [it for visitor in WHO.values() for it in machine.entries.list(visitor()).memories]
    keys = {(it.id, it.key) for it in found}
    return [id for id, times in Counter(id for id, _ in keys).items() if times > 1]
