"""Refuses a process one system call after another and looks at how it takes it.

``python -m tests.durability.fault_sweep WORKSPACE ERROR OPERATION...`` prints a line of JSON a fault. Of the calls that
only look it begins at every second one, with MEMFILES_EVERY_CALL set at all.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from memfiles.errors import MemfilesError
from memfiles.files.manager import MemoryManager
from tests.durability.examination import examine, leftovers
from tests.durability.operations import OPERATIONS, Contents, Operation, Rehearsal, contents_on_disk
from tests.durability.side_by_side import in_order
from tests.durability.stops import EVERY_CALL, can_change_files
from tests.durability.tracer import Call, Traced

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NAMING = {"mkdir", "mkdirat", "rename", "renameat", "renameat2", "linkat"}
_FLUSHING = {"fsync", "fdatasync", "syncfs"}
_FILLING = {"write", "pwrite64"}
_LOOKING = {"openat", "read", "pread64", "stat", "fstat", "newfstatat", "getdents64", "flock", "fcntl"}
REFUSED = {
    "ENOSPC": _NAMING | _FLUSHING | _FILLING,
    "EROFS": _NAMING | {"unlinkat", "utimensat"},
    "EIO": _NAMING | _FLUSHING | _FILLING | _LOOKING | {"unlinkat", "utimensat", "ftruncate"},
    "EMFILE": {"openat", "fcntl"},
}


@dataclass(frozen=True)
class Fault:
    """One refused call, what the caller was told, and what was wrong then or later."""

    operation: str
    number: int
    call: str
    error: str | None
    problems: list[str]


@dataclass(frozen=True)
class Told:
    """What the disturbed process has to say: which step failed and how, and what it then saw and could do."""

    step: int
    error: str | None
    message: str
    read: Contents | None
    on_disk: Contents | None
    problems: list[str]

    @property
    def is_unsure(self) -> bool:
        """Whether the change may be there all the same."""
        return self.error == "OutcomeUnknown"


def sweep(operation: Operation, workspace: Path, *, error: str, lasting: bool) -> Iterator[Fault]:
    """Do the operation again and again, refused one system call later each time, until there are no more.

    ``lasting``: from that call on every such call is refused, until the caller was told.
    """
    rehearsal = Rehearsal(operation, workspace / "base")

    def refuse(number: int) -> Fault:
        directory = rehearsal.copy_to(workspace / str(number))
        call, told = _run(operation, directory, refuse=number, error=error, lasting=lasting)
        problems = judge(told, rehearsal, lasting=lasting) + told.problems
        if not problems:
            problems = examine(directory, rehearsal.states[told.step :] if told.is_unsure else rehearsal.states[-1:])
        shutil.rmtree(directory)
        return Fault(operation.name, number, call, told.error, problems)

    return takewhile(lambda fault: fault.call, in_order(refuse))


def judge(told: Told, rehearsal: Rehearsal, *, lasting: bool) -> list[str]:
    """What is wrong with what the caller was told: nothing may have changed, unless the outcome is unknown."""
    problems = [] if told.error in {None, "StorageFailed", "OutcomeUnknown"} else [f"{told.error}: {told.message}"]
    if told.error is None:
        expected = rehearsal.states[-1]
    elif rehearsal.operation.halts or (lasting and told.is_unsure):
        return problems  # settled by the next change or the next start
    else:
        expected = rehearsal.states[told.step + told.is_unsure]
    seen = {"memory": told.read, "disk": told.on_disk}
    wrong = {where: found for where, found in seen.items() if found is not None and found != expected}
    return problems + [f"after {told.error} ({told.message}) the {where} holds {wrong[where]}" for where in wrong]


def _run(operation: Operation, directory: Path, *, refuse: int, error: str, lasting: bool) -> tuple[str, Told]:
    """The refused call ("" if there were fewer), and what the process told."""
    answers, answering = os.pipe()
    refused, number, looks = "", -1, count()
    with Traced(lambda: _acting(operation, directory, answering)) as child, os.fdopen(answers) as reader:
        for call in child.calls():
            if call.name == "write" and child.place(call).startswith("pipe:"):
                break
            if _can_fail(child, call, directory, error):
                begins = EVERY_CALL or can_change_files(call) or next(looks) % 2 == 0
                number += begins
                if (number == refuse and begins) or (lasting and number >= refuse):
                    child.refuse(getattr(errno, error))
                    refused = refused or call.name
                    if not lasting:
                        break
        child.release()
        os.close(answering)
        lines = reader.read().splitlines()
        return refused, Told(**json.loads(lines[-1])) if lines else Told(0, "nothing", "it died", None, None, [])


def _can_fail(child: Traced, call: Call, directory: Path, error: str) -> bool:
    """Whether the error makes sense for a call, and the call is about the memory directory."""
    if call.name == "openat" and error in {"ENOSPC", "EROFS"}:
        makes_sense = bool(call.arguments[2] & (os.O_CREAT if error == "ENOSPC" else _WRITING))
    else:
        makes_sense = call.name in REFUSED[error]
    return makes_sense and child.place(call).startswith(str(directory))


def _acting(operation: Operation, directory: Path, answering: int) -> Callable[[], None]:
    memory = operation.start(directory)

    def act() -> None:
        told = _attempt(operation, memory, answering)
        os.write(answering, (json.dumps(asdict(told)) + "\n").encode())

    return act


def _attempt(operation: Operation, memory: Any, answering: int) -> Told:
    """Take the steps; after the first that fails look around, take it again, and the rest."""
    failed, error, message = len(operation.steps), None, ""
    for number, step in enumerate(operation.steps):
        try:
            step(memory)
        except Exception as raised:
            failed, error, message = number, type(raised).__name__, str(raised)
            break
    os.write(answering, b"\n")
    directory = memory.directory
    read = _read(memory)
    on_disk = contents_on_disk(directory) or None
    problems = [f"{error} is not one of ours: {message}"] if error and not _is_ours(error) else []
    if error is not None and not problems:
        is_unsure = error == "OutcomeUnknown"
        problems = _go_on(operation, memory, failed + is_unsure, tidy=not (is_unsure or operation.halts))
    return Told(failed, error, message, read, on_disk, problems)


def _is_ours(name: str) -> bool:
    return name in {kind.__name__ for kind in MemfilesError.__subclasses__()}


def _read(memory: MemoryManager) -> Contents | None:
    return {uid: memory.read(uid) for uid in memory.uids()} or None


def _go_on(operation: Operation, memory: MemoryManager, first: int, *, tidy: bool) -> list[str]:
    """The disk is well again: the step that failed and all that follow must work, and a clean close."""
    try:
        for step in operation.steps[first:]:
            step(memory)
        memory.close()
    except Exception as raised:
        return [f"afterwards: {raised!r}"]
    return leftovers(memory.directory) if tidy else []


def main() -> None:
    """Sweep operations with one error, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("error", choices=list(REFUSED))
    parser.add_argument("operations", choices=list(OPERATIONS), nargs="+")
    parser.add_argument("--lasting", action="store_true")
    asked = parser.parse_args()
    for number, name in enumerate(asked.operations):
        workspace = asked.workspace / f"operation-{number}"
        for fault in sweep(OPERATIONS[name], workspace, error=asked.error, lasting=asked.lasting):
            print(json.dumps(asdict(fault)), flush=True)


if __name__ == "__main__":
    main()
