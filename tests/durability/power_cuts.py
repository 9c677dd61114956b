"""Cuts the power at random moments while threads write, and counts what is there at the next start.

Run as a program, ``python -m tests.durability.power_cuts WORKSPACE KIND SECONDS SEED`` prints one line of JSON a cut.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from memfiles.errors import MemfilesError
from memfiles.files.manager import MemoryManager
from memfiles.workflow.workflow import MemoryFile
from tests.durability.disks import KINDS, Disk, disk
from tests.durability.examination import leftovers

TOGETHER = tuple(f"together-{number}" for number in range(50))
WRITERS = ("together", "lines", "counter")
FILES = [MemoryFile(uid=uid, name=uid, max_size_bytes=1 << 20) for uid in (*TOGETHER, "lines")]
FILES.append(MemoryFile(uid="counter", name="counter", content="0"))
_LONGEST_LIFE = 0.12  # seconds
_LONGEST_OVERTIME = 120.0


@dataclass(frozen=True)
class Cut:
    """One power cut: how many changes of each writer had been acknowledged, and what was wrong afterwards."""

    number: int
    acknowledged: dict[str, int]
    problems: list[str]


def cuts(ground: Disk, *, seconds: float, chance: random.Random) -> Iterator[Cut]:
    """Write and cut, again and again, on one directory that grows.

    On a machine so busy that a writer got to nothing, the last lives are longer.
    """
    directory = ground.path / "memory"
    acknowledged = done = dict.fromkeys(WRITERS, 0)
    end = time.monotonic() + seconds
    longest = _LONGEST_LIFE
    for number in count():
        overtime = time.monotonic() - end
        if overtime >= 0 and (all(acknowledged.values()) or overtime > _LONGEST_OVERTIME):
            return
        longest *= 1 if overtime < 0 else 2
        acknowledged = _write_until_cut(directory, done, ground, after=chance.random() * longest)
        problems, done = _found(directory, acknowledged)
        if ground.reuses_blocks:
            torn = _torn_copies(directory)
            problems = [
                each for each in problems if not each.startswith(tuple(f"left behind: {path}" for path in torn))
            ]
        yield Cut(number, acknowledged, problems)


def _torn_copies(directory: Path) -> list[str]:
    """The paths of quarantined files that are no JSON: of replaced versions whose blocks were used again.

    The cut brought their names back. What replaced them came from the journal.
    """
    return [f"quarantine/{path.name}" for path in directory.glob("quarantine/*") if not _is_json(path.read_bytes())]


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _write_until_cut(directory: Path, done: dict[str, int], ground: Disk, *, after: float) -> dict[str, int]:
    answers, answering = os.pipe()
    pid = os.fork()
    if pid == 0:
        _write(directory, done, answering)
    os.close(answering)
    with os.fdopen(answers, "rb") as reader:
        reader.readline()  # it is about to start
        time.sleep(after)
        ground.cut_power()
        time.sleep(0.002)  # what is on its way comes back as an error
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ground.power_up()
        said = reader.read().decode().split()
    return {writer: done[writer] + said.count(writer) for writer in WRITERS}


def _write(directory: Path, done: dict[str, int], answering: int) -> None:
    """What the child does until the power goes: three threads, each acknowledging what came back."""
    os.write(answering, b"ready\n")
    try:
        manager = MemoryManager(directory)
        manager.restore(FILES)
        changes: dict[str, Callable[[int], object]] = {
            "together": lambda n: manager.append_many([(uid, f"{n}\n") for uid in TOGETHER]),
            "lines": lambda n: manager.append("lines", f"{n}\n"),
            "counter": lambda n: manager.edit("counter", str(n - 1), str(n)),
        }

        def go_on(writer: str) -> None:
            try:
                for number in count(done[writer] + 1):
                    changes[writer](number)
                    os.write(answering, f"{writer}\n".encode())
            except MemfilesError:
                return

        threads = [threading.Thread(target=go_on, args=(writer,)) for writer in WRITERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os._exit(0)


def _found(directory: Path, acknowledged: dict[str, int]) -> tuple[list[str], dict[str, int]]:
    """What is wrong at the next start, and how many changes of each writer there are."""
    with MemoryManager(directory) as manager:
        report = manager.restore(FILES)
        problems = [f"{row.uid} was {row.status}: {row.detail}" for row in report.files if row.status == "quarantined"]
        statuses = {row.status for row in report.files}
        if len(statuses) > 1:
            problems.append(f"a restore was done in part: {sorted(statuses)}")
        together = {manager.read(uid) for uid in TOGETHER}
        found = {
            "together": len(min(together).splitlines()),
            "lines": len(manager.read("lines").splitlines()),
            "counter": int(manager.read("counter")),
        }
        problems += [] if len(together) == 1 else [f"of 50 records {len(together)} different versions are there"]
        whole = "".join(f"{number + 1}\n" for number in range(found["lines"]))
        problems += [] if manager.read("lines") == whole else ["the lines are not the lines that were written"]
    for writer in WRITERS:
        if not acknowledged[writer] <= found[writer] <= acknowledged[writer] + 1:
            problems.append(f"{writer}: {acknowledged[writer]} acknowledged, {found[writer]} there")
    return problems + leftovers(directory), found


def main() -> None:
    """Cut the power of one kind of file system for some seconds, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    asked = parser.parse_args()
    with disk(asked.kind, asked.workspace / asked.kind) as ground:
        for cut in cuts(ground, seconds=asked.seconds, chance=random.Random(asked.seed)):
            print(json.dumps(asdict(cut)), flush=True)


if __name__ == "__main__":
    main()
