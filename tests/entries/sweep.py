"""Kills a process with SIGKILL before every file-changing system call of each operation on entries.

Run as a program, ``python -m entry_sweep WORKSPACE`` prints one line of JSON a kill: before which call it came, whether
the operation had returned by then, and what was wrong for whoever opens the directory next.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, MemfilesError
from memfiles.storage.events import Subscribers
from memfiles.storage.store import Store
from tests.durability.sweep import Acknowledge, run_sweeps
from tests.support.saved import Visitor, entries_in, files_holding

KEYS = ["first", "second", "third", "fourth", "talk", "again"]
SECRET = "xylophone"
SOMEBODY = Visitor(run="evt-1")
State = dict[str, str]


@dataclass(frozen=True)
class Operation:
    """What is on disk already, what the process did before, and the ``step`` at each of whose calls it is killed.

    ``forgets``: afterwards, made again if it was killed, no file holds the secret.
    """

    name: str
    step: Callable[[Entries], object]
    start: Callable[[Entries], object] = lambda entries: None
    prepare: Callable[[Entries], object] = lambda entries: None
    rules: EntryRules = EntryRules()
    forgets: bool = False


def _save(key: str, content: str) -> Callable[[Entries], object]:
    return lambda entries: entries.save(SOMEBODY, key, f"word {content}")


def _some(entries: Entries) -> None:
    """Three entries; the second holds what is to be forgotten, in its history too."""
    for key in ("first", "third"):
        entries.save(SOMEBODY, key, f"word of the {key}")
    for content in (f"word {SECRET}", f"word {SECRET} again"):
        entries.save(SOMEBODY, "second", content)


def _buried(entries: Entries) -> None:
    _some(entries)
    entries.save(SOMEBODY, "again", "word to forget")
    entries.forget(SOMEBODY, key="again")


def _warm(entries: Entries) -> None:
    """A process with a journal and an open index."""
    for content in ("word one", "word two"):
        entries.save(SOMEBODY, "first", content)
    entries.search(SOMEBODY, "word")


def _busy(entries: Entries) -> None:
    """One that has changed what is to be forgotten itself."""
    _warm(entries)
    entries.save(SOMEBODY, "second", f"word {SECRET} once more")


def _talking(entries: Entries) -> None:
    _warm(entries)
    entries.save(SOMEBODY, "talk", f"word {SECRET} of the run", category="conversation")


def _doubled(entries: Entries) -> None:
    for key in ("first", "third", "fourth"):
        entries.save(SOMEBODY, key, "word for word the same, at some length so that it counts")


def _told(entries: Entries) -> None:
    entries.save(SOMEBODY, "first", "word for word the same")
    entries.save(SOMEBODY, "third", "word for word the same")
    for key in ("second", "again"):
        entries.save(
            SOMEBODY, key, f"word of what happened, at length enough to be worth a note, {key} " * 4, kind="episode"
        )


def _save_two(entries: Entries) -> None:
    entries.save_many(SOMEBODY, [Draft("fourth", "word new"), Draft("talk", "word newer")])


def _consolidate(entries: Entries) -> None:
    plan = entries.plan(SOMEBODY, share=0.4)
    assert plan.steps
    entries.apply(SOMEBODY, plan)


def _forget(entries: Entries) -> None:
    with suppress(EntryNotFound):
        entries.forget(SOMEBODY, key="second")


_THREE = EntryRules(budget=Budget(max_entries=3))
_FOUR = EntryRules(budget=Budget(max_entries=4))
OPERATIONS = {
    each.name: each
    for each in (
        Operation("first save in a directory", _save("first", "new")),
        Operation("first save of a process", _save("fourth", "new"), prepare=_some),
        Operation("save under a new key", _save("fourth", "new"), _warm, _some),
        Operation("save under a known key", _save("second", "other"), _warm, _some),
        Operation("save over a budget", _save("fourth", "new"), _warm, _some, _THREE),
        Operation("save that merges and folds", _save_two, prepare=_told, rules=_FOUR),
        Operation("save over a tombstone", _save("again", "anew"), _warm, _buried),
        Operation("delete", lambda entries: entries.delete(SOMEBODY, "second"), _warm, _some),
        Operation("forget", _forget, _busy, _some, forgets=True),
        Operation("end of a run", lambda entries: entries.end_run(SOMEBODY), _talking),
        Operation("consolidation", _consolidate, _warm, _doubled, _THREE),
        Operation("first search", lambda entries: entries.search(SOMEBODY, "word"), prepare=_some),
        Operation("close", Entries.close, _warm, _some),
    )
}


class EntryScenario:
    """An operation on entries, killed."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self.name = operation.name

    def prepare(self, base: Path) -> None:
        """See ``Scenario``."""
        with entries_in(base, rules=self._operation.rules, durability="fsync") as entries:
            self._operation.prepare(entries)
        self._before, self._after = _rehearsed(self._operation, base, base.with_name("played"))

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """See ``Scenario``."""
        store = Store(place, now=lambda: "2026-11-21T09:00:00.000Z")
        entries = Entries(store, rules=self._operation.rules, subscribers=Subscribers())
        self._operation.start(entries)

        def act() -> None:
            self._operation.step(entries)
            acknowledge()

        return act

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """See ``Scenario``."""

        def examined(acknowledged: int) -> list[str]:
            return _examined(self._operation, place, [self._after] if acknowledged else [self._before, self._after])

        return examined


def _rehearsed(operation: Operation, base: Path, played: Path) -> tuple[State, State]:
    """What is seen before the step and after it."""
    shutil.copytree(base, played)
    with entries_in(played, rules=operation.rules) as entries:
        operation.start(entries)
        before = _seen(entries)
        if operation.name != "close":
            operation.step(entries)
        return before, _seen(entries)


def _examined(operation: Operation, directory: Path, possible: list[State]) -> list[str]:
    """What is wrong for whoever opens the directory next."""
    problems = []
    acknowledged = len(possible) == 1
    if operation.forgets and acknowledged and (files := files_holding(directory, SECRET)):
        problems.append(f"forgotten, but in {files}")
    try:
        with entries_in(directory, rules=operation.rules) as entries:
            found = _seen(entries)
            if found not in possible:
                problems.append(f"found {found}")
            if operation.forgets:
                operation.step(entries)
                problems += [f"forgotten again, but in {path}" for path in files_holding(directory, SECRET)]
            if acknowledged and not operation.forgets:
                entries.save(SOMEBODY, "first", "word at last")
    except (MemfilesError, OSError, ValueError, AssertionError) as error:
        problems.append(f"the next process failed: {error!r}")
    left = [path for path in directory.rglob("*") if path.suffix == ".tmp" or path.parent.name == ".journal"]
    return problems + [f"left behind: {path.relative_to(directory)}" for path in left]


def _seen(entries: Entries) -> State:
    """What is there, by each way of asking for it; all of them must agree."""
    got = {key: found.content for key in KEYS if (found := entries.get(SOMEBODY, key)) is not None}
    searched = {m.found.key: m.found.content for m in entries.search(SOMEBODY, "word", max_results=50).matches}
    listed = {found.key: found.content for found in entries.list(SOMEBODY).memories}
    assert got == {key: got[key] for key in listed if key in got}, f"got {got}, listed {listed}"
    notes = {key: content for key, content in listed.items() if key not in KEYS}  # what a consolidation wrote
    assert listed == got | notes, f"got {got}, listed {listed}"
    assert searched == {key: content for key, content in listed.items() if "word" in content}, f"searched {searched}"
    return listed


SCENARIOS = {name: EntryScenario(operation) for name, operation in OPERATIONS.items()}


def main() -> None:
    """Sweep all operations, or those that the command line names."""
    run_sweeps(SCENARIOS)


if __name__ == "__main__":
    main()
