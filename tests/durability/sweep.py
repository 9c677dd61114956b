"""Kill sweep: SIGKILL before every system call of an operation, and an examination of what is left.

The engine of all kill sweeps. Each room has a module with a table of scenarios and runs it as a program:
``python -m tests.durability.kill_sweep WORKSPACE NAME...`` prints a line of JSON for each kill.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from tests.durability.side_by_side import in_order
from tests.durability.stops import stops
from tests.durability.tracer import Traced

ENOUGH_ENDS = 2  # a thread that starts makes the operation a call longer or shorter
Acknowledge = Callable[[], None]


@dataclass(frozen=True)
class Kill:
    """One kill: the call it came before ("" if the operation ended first), the steps acknowledged, the damage."""

    name: str
    number: int
    call: str
    acknowledged: int
    problems: list[str]


class Scenario(Protocol):
    """An operation to be killed, on a copy of a prepared folder."""

    @property
    def name(self) -> str:
        """The name that the command line takes."""
        ...

    def prepare(self, base: Path) -> None:
        """Fill the folder that every run gets a copy of; called once."""
        ...

    def act(self, place: Path, acknowledge: Acknowledge) -> Callable[[], None]:
        """Set up undisturbed; the returned function is killed. It calls ``acknowledge`` after each step."""
        ...

    def observe(self, place: Path) -> Callable[[int], list[str]]:
        """Called before the run. The returned function takes the acknowledged steps and lists the damage."""
        ...


def sweep(
    scenario: Scenario, workspace: Path, *, every: bool = False, lacking: str = "", stride: int = 1
) -> Iterator[Kill]:
    """Run the scenario again and again, killed ``stride`` system calls later each time, until it ends by itself twice.

    ``every``: also before calls that change no file. ``lacking`` names system calls that always fail.
    """
    base = workspace / "base"
    scenario.prepare(base)

    def kill(number: int) -> Kill:
        place = workspace / str(number)
        if base.exists():
            shutil.copytree(base, place, symlinks=True)
        examine = scenario.observe(place)
        call, acknowledged = _run(scenario, place, kill_before=number * stride, every=every, lacking=lacking)
        problems = examine(acknowledged)
        shutil.rmtree(place)
        return Kill(scenario.name, number, call, acknowledged, problems)

    ends = 0
    for done in in_order(kill):
        yield done
        ends = ends + 1 if not done.call else 0
        if ends == ENOUGH_ENDS:
            return


def _run(scenario: Scenario, place: Path, *, kill_before: int, every: bool, lacking: str) -> tuple[str, int]:
    """The call that never happened ("" if the operation ended first), and the number of acknowledged steps."""
    answers, answering = os.pipe()
    call_name = ""
    with Traced(lambda: scenario.act(place, acknowledge_on(answering))) as child:
        for number, call in enumerate(stops(child.calls(), every=every, flushes=False)):
            if number == kill_before:
                call_name = call.name
                child.kill()
                break
            if call.name in lacking.split(","):
                child.refuse(errno.EPERM if call.name == "linkat" else errno.EINVAL)
    os.close(answering)
    return call_name, acknowledged_in(answers)


def acknowledge_on(descriptor: int) -> Acknowledge:
    """An ``Acknowledge`` that writes a byte for each step, which ``acknowledged_in`` counts."""

    def acknowledge() -> None:
        os.write(descriptor, b".")

    return acknowledge


def acknowledged_in(answers: int) -> int:
    """The number of steps that had returned when the child died; closes the descriptor."""
    with os.fdopen(answers, "rb") as reader:
        return len(reader.read())


def run_sweeps(scenarios: Mapping[str, Scenario]) -> None:
    """Sweep the scenarios that the command line names, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--every", action="store_true", help="kill also before calls that change no file")
    parser.add_argument("--lacking", default="", help="system calls that always fail")
    parser.add_argument("--stride", type=int, default=1, help="kill before only before one call in so many")
    asked = parser.parse_args()
    for number, name in enumerate(asked.names or scenarios):
        workspace = asked.workspace / f"scenario-{number}"
        for kill in sweep(scenarios[name], workspace, every=asked.every, lacking=asked.lacking, stride=asked.stride):
            print(json.dumps(asdict(kill)), flush=True)
