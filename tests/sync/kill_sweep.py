"""Kills a process before every system call that can change a file while it brings a record and its copy together.

Run as a program, ``python -m tests.sync.kill_sweep WORKSPACE STORY`` prints one line of JSON a kill: what happened, and
what was wrong after the next start and a pull of the other machine. A kill before a call that changes nothing leaves
what a kill before the next one leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import memfiles
from memfiles import Workflow
from memfiles.files.manager import MemoryManager
from memfiles.memory import open_mirror_of
from memfiles.storage.events import utc_now
from memfiles.sync.downloads import EntryDownloads
from memfiles.sync.ledger import Ledger
from memfiles.sync.reconciler import Reconciler
from tests.durability.sweep import Acknowledge, run_sweeps
from tests.sync.sync_machines import content, record_bytes, write_shared_workflow

UID, PATH = "notes", "notes.json"
Change = tuple[str, ...]  # a method of the manager and what it is given after the uid; nothing: no change


@dataclass(frozen=True)
class Story:
    """What each machine did to the record after both were equal; the first is killed while it synchronises.

    ``kept`` are the lines that must be in both copies at the end, once; ``lost`` may be in ``conflicts/`` instead.
    ``redacted`` is in no file of either machine and of the mirror.
    """

    name: str
    here: Change
    there: Change
    kept: tuple[str, ...]
    lost: tuple[str, ...] = ()
    redacted: str = ""


STORIES = {
    story.name: story
    for story in (
        Story("push", ("append", "- here\n"), (), ("- shared", "- here")),
        Story("pull", (), ("append", "- there\n"), ("- shared", "- there")),
        Story("merge", ("append", "- here\n"), ("append", "- there\n"), ("- shared", "- there", "- here")),
        Story("redaction", (), ("redact", "- share"), ("[redacted]d",), redacted="- share"),
        Story(
            "redactions",
            ("redact", "shared"),
            ("append", "- there shared\n"),
            ("- [redacted]", "- there [redacted]"),
            redacted="- shared",
        ),
        Story("conflict", ("edit", "shared", "here"), ("edit", "shared", "there"), ("- here",), ("- there",)),
    )
}


class FileScenario:
    """A story in which this machine is killed while it synchronises."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.name = story.name

    def prepare(self, base: Path) -> None:
        """Two machines that were equal and then each did their part; only the other one has pushed it."""
        (base / "mirror").mkdir(parents=True)
        here, there = _workflow(base, "here"), _workflow(base, "there")
        with memfiles.open(here, watch=False) as memory:
            memory.manager.append(UID, "- shared\n")
        with memfiles.open(there, watch=False) as memory:
            _make(memory.manager, self._story.there)
        declared = Workflow.load(here)
        with MemoryManager(declared.directory, origin=_ledger(declared).meta.origin) as manager:  # nothing is pushed
            manager.restore(declared)
            _make(manager, self._story.here)

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """See ``Scenario``."""
        declared = Workflow.load(_workflow(place, "here"))
        ledger, mirror = _ledger(declared), open_mirror_of(declared)
        assert mirror is not None
        manager = MemoryManager(declared.directory, mirror, origin=ledger.meta.origin)
        manager.restore(declared)
        downloads = EntryDownloads(manager.replica, mirror, ledger, "local", utc_now)
        reconciler = Reconciler(manager.replica, mirror, ledger, downloads, "local", now=utc_now)

        def act() -> None:
            reconciler.reconcile(PATH, look=True)
            acknowledge()

        return act

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """See ``Scenario``."""
        here, there = _workflow(place, "here"), _workflow(place, "there")
        return lambda acknowledged: _examine(self._story, here, there, mirror=place / "mirror")


def _workflow(place: Path, name: str) -> Path:
    return write_shared_workflow(place / name, (place / "mirror").as_uri(), uids=[UID])


def _make(manager: MemoryManager, change: Change) -> None:
    if change:
        getattr(manager, change[0])(UID, *change[1:])


def _ledger(declared: Workflow) -> Ledger:
    assert declared.memory.mirror is not None
    return Ledger(declared.directory, mirror=declared.memory.mirror.url)


def _examine(story: Story, here: Path, there: Path, *, mirror: Path) -> list[str]:
    """What is wrong after the next start, with no further write, and after the other machine has pulled."""
    problems = []
    with memfiles.open(here, watch=False) as memory:
        if not memory.sync.flush(60):
            problems.append("not everything could be pushed")
        memory.sync.pull(60)
    with memfiles.open(there, watch=False) as memory:
        memory.sync.pull(60)
    bodies = {record_bytes(here), record_bytes(there), (mirror / PATH).read_bytes()}
    if len(bodies) != 1:
        problems.append(f"there are {len(bodies)} different copies")
    lines = Counter(content(here).splitlines())
    problems += [f"{line!r} is there {lines[line]} times" for line in story.kept if lines[line] != 1]
    conflicts = "".join(path.read_text("utf-8") for path in here.parent.rglob("conflicts/*"))
    problems += [f"{line!r} is gone" for line in story.lost if line not in conflicts]
    if story.redacted:
        found = [path for path in here.parent.parent.rglob("*") if path.is_file() and ".memory" in path.parts]
        found += [path for path in mirror.rglob("*") if path.is_file()]
        problems += [f"{path} holds the text" for path in found if story.redacted.encode() in path.read_bytes()]
    left = [path.name for path in here.parent.rglob("*.tmp")]
    return problems + [f"left behind: {name}" for name in left]


SCENARIOS = {story.name: FileScenario(story) for story in STORIES.values()}


def main() -> None:
    """Sweep the stories that the command line names."""
    run_sweeps(SCENARIOS)


if __name__ == "__main__":
    main()
