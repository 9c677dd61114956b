"""Kills a process before every system call that can change a file while it brings an entry and its copy together.

Run as a program, ``python -m tests.sync.entry_kill_sweep WORKSPACE STORY`` prints one line of JSON a kill, as
``kill_sweep`` does for memory files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.storage.events import Subscribers, utc_now
from memfiles.sync.downloads import EntryDownloads
from memfiles.sync.ledger import Ledger
from memfiles.sync.reconciler import Reconciler
from mirrors.urls import open_mirror
from tests.durability.sweep import Acknowledge, run_sweeps
from tests.support.records import declared, files_of
from tests.support.saved import Visitor, files_holding, saved
from tests.sync.entry_machine import AGENT, EntryMachine, bodies_in

KEY, MOVED = "color", "colour"
SECRET = "the needle in it"
Act = Callable[[EntryMachine], None]


@dataclass(frozen=True)
class Story:
    """What the other machine did and has pushed, and what this one did that is not pushed; it is killed then.

    ``is_shared``: both had the entry before. ``content`` is what both have at the end, None for a tombstone; it is
    under ``key`` then, and nothing is under another one.
    """

    name: str
    here: Act | None
    there: Act | None
    content: str | None
    is_shared: bool = True
    key: str = KEY


def saves(content: str) -> Act:
    return lambda machine: machine.save(KEY, content)


def forgets(machine: EntryMachine) -> None:
    machine.forget(KEY)


def renames(machine: EntryMachine) -> None:
    machine.entries.relocate(Visitor(AGENT), {KEY: MOVED})


STORIES = {
    story.name: story
    for story in (
        Story("fetch", None, saves("there"), "there", is_shared=False),
        Story("push-forgotten", forgets, None, None),
        Story("pull-forgotten", saves(f"{SECRET}, here"), forgets, None),
        Story("outlived", forgets, saves(f"{SECRET}, there"), None),
        Story("changed-and-renamed", saves("here"), renames, "here", key=MOVED),
        Story("renamed-and-changed", renames, saves("there"), "there", key=MOVED),
        Story("renamed-and-forgotten", renames, forgets, None),
        Story("forgotten-and-renamed", forgets, renames, None),
    )
}


class EntryScenario:
    """A story in which this machine is killed while it synchronises."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.name = story.name

    def prepare(self, base: Path) -> None:
        """Two machines that were equal and then each did its part; only the other one has pushed it."""
        (base / "mirror").mkdir(parents=True)
        with _machine(base, "there") as there:
            if self._story.is_shared:
                there.save(KEY, SECRET)
        with _machine(base, "here"):
            pass
        with _machine(base, "there") as there:
            if self._story.there is not None:
                self._story.there(there)
            there.flush()
        if self._story.here is not None:
            _alone(base, self._story.here)

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """See ``Scenario``."""
        mirror = open_mirror((place / "mirror").as_uri())
        ledger = Ledger(place / "here", mirror="the shared one")
        manager = MemoryManager(place / "here", mirror, origin=ledger.meta.origin)
        manager.restore([declared("notes", content="# notes\n")])
        entries = Entries(files_of(manager), rules=EntryRules(), subscribers=Subscribers(), origin=manager.origin)
        replica = manager.replica.with_entries(entries.repository, release_forgotten=entries.users.follow)
        downloads = EntryDownloads(replica, mirror, ledger, "local", utc_now)
        reconciler = Reconciler(replica, mirror, ledger, downloads, "local", now=utc_now)

        def act() -> None:
            for key in (MOVED, KEY):  # an entry is pushed before what it left behind
                reconciler.reconcile(saved(key, agent=AGENT).path, look=True)
            acknowledge()

        return act

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """See ``Scenario``."""
        return lambda acknowledged: _examine(self._story, place)


def _machine(place: Path, name: str) -> EntryMachine:
    return EntryMachine(place / name, open_mirror((place / "mirror").as_uri()))


def _alone(place: Path, act: Act) -> None:
    """Do something on this machine while the mirror is not there; the notes stay those of the mirror."""
    shutil.move(place / "mirror", place / "hidden")
    with _machine(place, "here") as here:
        act(here)
    shutil.move(place / "hidden", place / "mirror")


def _examine(story: Story, place: Path) -> list[str]:
    """What is wrong after the next start, and after the other machine has pulled."""
    problems = []
    for name in ("here", "there", "here"):
        with _machine(place, name) as machine:
            machine.pull()
            found = {key: machine.content(key) for key in (KEY, MOVED)}
            if found != {KEY: None, MOVED: None, story.key: story.content}:
                problems.append(f"{name} has {found}")
    bodies = [bodies_in(place / name) for name in ("here", "there", "mirror")]
    if not bodies[0] == bodies[1] == bodies[2] != {}:
        problems.append("there are different copies")
    left = [path.name for path in place.rglob("*.tmp")]
    held = files_holding(place, SECRET) if story.content is None else []
    return problems + [f"left behind: {name}" for name in left] + [f"not forgotten: {name}" for name in held]


SCENARIOS = {story.name: EntryScenario(story) for story in STORIES.values()}


def main() -> None:
    """Sweep the stories that the command line names."""
    run_sweeps(SCENARIOS)


if __name__ == "__main__":
    main()
