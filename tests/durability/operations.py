"""What the sweeps do to a memory directory, each operation as a start and the steps that follow it.

An operation is done once undisturbed to learn what the files hold after each step; then again and again,
disturbed at every point, and what is found must be what they held before or after one of those steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.storage.events import Subscribers
from memfiles.workflow.workflow import MemoryFile
from tests.durability.tracer import Traced
from tests.support.records import files_of
from tests.support.saved import Visitor

_WHILE_NS = 10**10
UIDS = ("notes", "plans", "facts")
Contents = dict[str, str]


class Memory(Protocol):
    """What is disturbed while it works: the product, or the bad example that shows that the sweeps find faults."""

    def append(self, uid: str, content: str) -> object: ...


def declared(*, description: str = "What we know.", content: str = "# Start\n") -> list[MemoryFile]:
    """The three memory files of every operation."""
    return [
        MemoryFile(uid=uid, name=uid, description=description, content=content, max_size_bytes=1 << 20) for uid in UIDS
    ]


FILES = declared()
MANY = [MemoryFile(uid=f"many-{number}", name=f"many-{number}") for number in range(20)]
REDEPLOYED = declared(description="Told anew.")


@dataclass(frozen=True)
class Operation:
    """What is on disk (``prepare``), what the process has done already (``start``), and the ``steps`` to disturb.

    ``mends``: what is on disk is half a change, and whoever starts must find it whole.
    ``halts``: a step that fails may have done a part, which the next try or the next start completes.
    """

    name: str
    start: Callable[[Path], Any]
    steps: Sequence[Callable[[Any], object]]
    prepare: Callable[[Path], object] = lambda directory: None
    mends: bool = False
    halts: bool = False


def opened(directory: Path) -> MemoryManager:
    """A process that has restored the files and changed nothing."""
    manager = MemoryManager(directory)
    manager.restore(FILES)
    return manager


def seeded(directory: Path) -> None:
    """A directory that an earlier process left after a clean close."""
    with opened(directory) as manager:
        manager.append("notes", "- the customer is Ada\n")


def warm(directory: Path) -> MemoryManager:
    """A process with a journal: the first change of a process goes without one."""
    manager = opened(directory)
    manager.append("notes", "- first\n")
    manager.append("notes", "- second\n")
    return manager


def lukewarm(directory: Path) -> MemoryManager:
    """A process whose next change makes its journal."""
    manager = opened(directory)
    manager.append("notes", "- first\n")
    return manager


def busy(directory: Path) -> MemoryManager:
    """A process with changes of all files in its journal."""
    manager = warm(directory)
    append_to_all(manager)
    manager.edit("plans", "all", "every one")
    return manager


def append_to_all(manager: MemoryManager) -> object:
    """One change of all the files."""
    return manager.append_many([(uid, f"- for all: {uid}\n") for uid in UIDS])


def half_done(directory: Path) -> None:
    """What a process leaves that is killed when one of three files is in place and the two others are not."""
    seeded(directory)

    def setup() -> Callable[[], None]:
        manager = warm(directory)
        return lambda: print(append_to_all(manager))

    with Traced(setup) as child:
        renames = (call for call in child.calls() if call.name == "renameat2")
        next(renames), next(renames)


def many(directory: Path) -> MemoryManager:
    """A process with so many files that it notes which of them are sound."""
    manager = MemoryManager(directory)
    manager.restore([*FILES, *MANY])
    return manager


def _append(manager: Memory) -> object:
    return manager.append("notes", "- Ada moved to Turin\n")


def _edit(manager: MemoryManager) -> object:
    return manager.edit("notes", "Ada", "Grace")


def _restore(manager: MemoryManager) -> object:
    return manager.restore(FILES)


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("first append of a process", opened, (_append,), prepare=seeded),
        Operation("append that makes the journal", lukewarm, (_append,), prepare=seeded),
        Operation("journaled appends", warm, (_append, _append), prepare=seeded),
        Operation("first edit of a process", opened, (_edit,), prepare=seeded),
        Operation("journaled edit", warm, (_edit,), prepare=seeded),
        Operation("undo", warm, (lambda manager: manager.undo("notes"),), prepare=seeded),
        Operation("redaction", busy, (lambda manager: manager.redact("notes", "Ada"),), seeded, halts=True),
        Operation("append to three files at once", opened, (append_to_all, append_to_all), prepare=seeded),
        Operation("first restore", MemoryManager, (_restore,)),
        Operation("redeploy", MemoryManager, (lambda manager: manager.restore(REDEPLOYED),), prepare=seeded),
        Operation("checkpoint", busy, (MemoryManager.checkpoint, _append), prepare=seeded),
        Operation("close", busy, (MemoryManager.close,), seeded, halts=True),
        Operation("close with a note", many, (MemoryManager.close,), seeded, halts=True),
        Operation("start after a kill", MemoryManager, (_restore,), half_done, mends=True, halts=True),
    )
}


class Keeping:
    """A process that keeps entries beside the memory files; the first save of a process makes folder and index."""

    def __init__(self, directory: Path) -> None:
        self._manager = warm(directory)
        self._entries = Entries(files_of(self._manager), rules=EntryRules(), subscribers=Subscribers())

    def save(self) -> object:
        """One new entry, and one that is there already."""
        agent = Visitor()
        return self._entries.save_many(agent, [Draft("color", "green"), Draft("place", "Turin")])

    def save_again(self) -> object:
        """Another content for one of them."""
        return self._entries.save(Visitor(), "color", "blue")

    def close(self) -> None:
        """Bring everything to rest."""
        self._entries.close()
        self._manager.close()


ENTRY_OPERATIONS = {"saves": Operation("saves", Keeping, (Keeping.save, Keeping.save_again), prepare=seeded)}
"""Of entries; what they do to the disk beside their records is derived, and is looked at in ``entry_sweep``."""


class InPlaceWriter:
    """How many write their memory: read the JSON, change it, and write it over the file."""

    def __init__(self, directory: Path) -> None:
        """``directory`` must hold the records already."""
        self._directory = directory

    def append(self, uid: str, content: str) -> None:
        """Add text to the end of a file."""
        path = self._directory / f"{uid}.json"
        record = json.loads(path.read_text("utf-8"))
        record["content"] += content
        record["sha256"] = hashlib.sha256(record["content"].encode()).hexdigest()
        with path.open("w", encoding="utf-8") as file:
            json.dump(record, file)


BAD_EXAMPLE = Operation("in-place append", InPlaceWriter, (_append,), prepare=seeded)


def contents_on_disk(directory: Path) -> Contents:
    """What any program finds in the records; ``ValueError`` if one is not whole."""
    return {uid: str(record["content"]) for uid, record in records_on_disk(directory).items()}


def records_on_disk(directory: Path) -> dict[str, dict[str, Any]]:
    """Every record as any program reads it; ``ValueError`` if one is not whole."""
    paths = [*sorted(directory.glob("*.json")), *sorted(directory.glob("entries/*/*.json"))]
    return {path.stem: json.loads(path.read_bytes()) for path in paths}


class Rehearsal:
    """An operation done undisturbed.

    ``visible`` is what the files held before it and after each of its steps, ``states`` what they may hold for
    whoever starts then.
    """

    def __init__(self, operation: Operation, directory: Path) -> None:
        """Leaves in ``directory`` what the operation starts from, and beside it where it ended."""
        self.operation = operation
        self.directory = directory
        operation.prepare(directory)
        _let_time_pass(directory)
        played = directory.with_name(directory.name + "-played")
        if directory.exists():
            copy_tree(directory, played)
        self.visible = _play(operation, played)
        self.states = self.visible if not operation.mends else [self.visible[-1]] * len(self.visible)

    def copy_to(self, directory: Path) -> Path:
        """What the operation starts from, once more."""
        if self.directory.exists():
            copy_tree(self.directory, directory)
        return directory


def _play(operation: Operation, directory: Path) -> list[Contents]:
    memory = operation.start(directory)
    states = [contents_on_disk(directory)] if directory.exists() else [{file.uid: file.content for file in FILES}]
    for step in operation.steps:
        step(memory)
        states.append(contents_on_disk(directory))
    if isinstance(memory, (MemoryManager, Keeping)):
        memory.close()
    return states


def _let_time_pass(directory: Path) -> None:
    """As if the records had been left alone for a while: fresh ones are read twice, and calls must not come and go."""
    for path in directory.glob("*.json"):
        moment = path.stat().st_mtime_ns - _WHILE_NS
        os.utime(path, ns=(moment, moment))


def copy_tree(source: Path, target: Path) -> None:
    """A copy of a memory directory; journals are small enough."""
    shutil.copytree(source, target, symlinks=True)
