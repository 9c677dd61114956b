"""Kills a process with SIGKILL before every system call of an operation and looks at what is left.

Before every single one if asked to, else before those that can change a file.

Run as a program, ``python -m tests.durability.kill_sweep WORKSPACE OPERATION`` prints one line of JSON a kill.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from memfiles.files.manager import MemoryManager
from tests.durability.examination import examine, examine_by_living, unreadable
from tests.durability.operations import BAD_EXAMPLE, FILES, OPERATIONS, Operation, Rehearsal
from tests.durability.side_by_side import in_order
from tests.durability.stops import stops
from tests.durability.tracer import Traced


@dataclass(frozen=True)
class Kill:
    """One kill: before which call it came, what was acknowledged by then, and what was wrong afterwards."""

    operation: str
    number: int
    call: str
    acknowledged: int
    problems: list[str]


_ENOUGH_ENDS = 2  # a thread that starts makes the operation a call longer or shorter


def sweep(
    operation: Operation, workspace: Path, *, every: bool = False, living: bool = False, lacking: str = ""
) -> Iterator[Kill]:
    """Do the operation again and again, killed one system call later each time, until it gets to its end.

    ``every``: also before calls that change nothing.
    ``living``: what is left is looked at by a process that ran all the while, not by a new one.
    ``lacking`` names a system call that the machine is made to lack.
    """
    rehearsal = Rehearsal(operation, workspace / "base")

    def kill(number: int) -> Kill:
        directory = rehearsal.copy_to(workspace / str(number))
        bystander = _opened(directory) if living else None
        call, acknowledged = _run(operation, directory, kill_before=number, every=every, lacking=lacking)
        problems = unreadable(directory, rehearsal.visible)
        possible = rehearsal.states[acknowledged : acknowledged + 2]
        problems += examine(directory, possible) if bystander is None else examine_by_living(bystander, possible)
        shutil.rmtree(directory)
        return Kill(operation.name, number, call, acknowledged, problems)

    ends = 0
    for done in in_order(kill):
        yield done
        ends = ends + 1 if not done.call else 0
        if ends == _ENOUGH_ENDS:
            return


def _opened(directory: Path) -> MemoryManager:
    manager = MemoryManager(directory)
    manager.restore(FILES)
    return manager


def _run(operation: Operation, directory: Path, *, kill_before: int, every: bool, lacking: str) -> tuple[str, int]:
    """The call that never happened ("" if the operation ended first), and how many steps had returned."""
    answers, answering = os.pipe()
    call_name = ""
    with Traced(lambda: acting(operation, directory, answering)) as child:
        for number, call in enumerate(stops(child.calls(), every=every)):
            if number == kill_before:
                call_name = call.name
                child.kill()
                break
            if call.name == lacking:
                child.refuse(errno.EINVAL)
    os.close(answering)
    return call_name, acknowledged_in(answers)


def acting(operation: Operation, directory: Path, answering: int) -> Callable[[], None]:
    """What a child does: everything before the operation now, its steps when called, each acknowledged."""
    memory = operation.start(directory)

    def act() -> None:
        for step in operation.steps:
            step(memory)
            os.write(answering, b".")

    return act


def acknowledged_in(answers: int) -> int:
    """How many steps had returned when the child died."""
    with os.fdopen(answers, "rb") as reader:
        return len(reader.read())


def main() -> None:
    """Sweep one operation, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("operation", choices=[*OPERATIONS, BAD_EXAMPLE.name])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--living", action="store_true")
    parser.add_argument("--lacking", default="")
    asked = parser.parse_args()
    operation = (OPERATIONS | {BAD_EXAMPLE.name: BAD_EXAMPLE})[asked.operation]
    kills = sweep(operation, asked.workspace, every=asked.every, living=asked.living, lacking=asked.lacking)
    for kill in kills:
        print(json.dumps(asdict(kill)), flush=True)


if __name__ == "__main__":
    main()
