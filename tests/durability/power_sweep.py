"""Cuts the power of a file system before every system call of an operation that can change it, and starts again.

``python -m tests.durability.power_sweep WORKSPACE OPERATION... --on KIND...`` prints a line of JSON a cut.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, product
from pathlib import Path

from tests.durability.disks import KINDS, Disk, disk
from tests.durability.examination import examine
from tests.durability.kill_sweep import acting
from tests.durability.operations import ENTRY_OPERATIONS, OPERATIONS, Operation, Rehearsal
from tests.durability.side_by_side import in_order
from tests.durability.stops import EVERY_CALL, stops
from tests.durability.sweep import acknowledge_on, acknowledged_in
from tests.durability.tracer import Traced

ALL = {**OPERATIONS, **ENTRY_OPERATIONS}
NUMBERS = {"ext4-writeback": (0, 2), "xfs": (1, 2)}
"""The first call and the step, unless every call is asked for: one has the odd ones, the other one the even ones."""


@dataclass(frozen=True)
class Cut:
    """One power cut: before which call it came, what was acknowledged by then, and what was wrong afterwards."""

    kind: str
    operation: str
    number: int
    call: str
    acknowledged: int
    problems: list[str]


def sweep(
    kind: str, operation: Operation, workspace: Path, *, without: str = "", numbers: Iterable[int] | None = None
) -> Iterator[Cut]:
    """Do the operation again and again, the power cut one changing call later each time, until it gets to its end.

    ``numbers`` are those of the calls, if not all are asked for. All on one file system of this kind, made for it.
    ``without`` names a system call that only pretends to do its work: to see that the sweep would find it missing.
    """
    rehearsal = Rehearsal(operation, workspace / "base")
    call = "none yet"
    with disk(kind, workspace / kind) as ground:
        for number in numbers or count():
            if not call:
                return
            directory = rehearsal.copy_to(ground.path / str(number))
            ground.flush()
            call, acknowledged = _run(operation, directory, ground, cut_before=number, without=without)
            possible = rehearsal.states[acknowledged : acknowledged + 2]
            yield Cut(kind, operation.name, number, call, acknowledged, examine(directory, possible))


def _run(operation: Operation, directory: Path, ground: Disk, *, cut_before: int, without: str) -> tuple[str, int]:
    """The call before which the power went ("" if the operation ended first), and how many steps had returned."""
    answers, answering = os.pipe()
    call_name = ""
    with Traced(lambda: acting(operation, directory, acknowledge_on(answering))) as child:
        for number, call in enumerate(stops(child.calls())):
            if number == cut_before:
                call_name = call.name
                break
            if call.name == without:
                child.refuse(0)
        ground.cut_power()
        child.kill()
    os.close(answering)
    ground.power_up()
    return call_name, acknowledged_in(answers)


def main() -> None:
    """Sweep each of some operations on each of some kinds of file systems, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("operations", choices=list(ALL), nargs="+")
    parser.add_argument("--on", choices=list(KINDS), nargs="+", required=True)
    parser.add_argument("--without", default="")
    asked = parser.parse_args()
    pairs = list(product(asked.on, asked.operations))

    def sweep_pair(number: int) -> list[Cut]:
        kind, name = pairs[number]
        some = None if EVERY_CALL else count(*NUMBERS.get(kind, (0, 1)))
        return list(sweep(kind, ALL[name], asked.workspace / str(number), without=asked.without, numbers=some))

    for cuts in in_order(sweep_pair, times=len(pairs)):
        for cut in cuts:
            print(json.dumps(asdict(cut)), flush=True)


if __name__ == "__main__":
    main()
