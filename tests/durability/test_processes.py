"""Many processes on one memory file: every acknowledged change is there once, and nobody sees half of one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from durability.conftest import Program, environment
from durability.crowd import UID, WRITERS, restored

TIMES = 500
CHILDREN, TURNS = 6, 40
LONGEST_SECONDS = 240


class Member:
    """One process of the crowd."""

    def __init__(self, directory: Path, role: str, number: int = 0) -> None:
        """It waits until it is told to go."""
        command = [sys.executable, "-m", "durability.crowd", str(directory), role, str(number), str(TIMES)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def wait_until_ready(self) -> None:
        """Until it has restored the files."""
        assert self._process.stdout is not None
        assert "ready\n" == self._process.stdout.readline(), self._process.communicate()[1]

    def tell(self) -> None:
        """Start a writer; start a reader the first time and stop it the second."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def report(self) -> dict[str, Any]:
        """What it did or saw."""
        printed, complaints = self._process.communicate(timeout=LONGEST_SECONDS)
        assert 0 == self._process.returncode, complaints
        found: dict[str, Any] = json.loads(printed)
        return found

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def _crowd(directory: Path, role: str) -> Iterator[tuple[list[Member], list[Member]]]:
    """Eight writers in one role, a reader through the manager and one that opens the files, all at work."""
    writers = [Member(directory, role, number) for number in range(WRITERS)]
    readers = [Member(directory, "watch"), Member(directory, "peek")]
    try:
        for member in [*writers, *readers]:
            member.wait_until_ready()
        for member in [*readers, *writers]:
            member.tell()
        yield writers, readers
    finally:
        for member in [*writers, *readers]:
            member.kill()


def _watched(directory: Path, role: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the writers did and the readers saw."""
    restored(directory).close()
    with _crowd(directory, role) as (writers, readers):
        done = [writer.report() for writer in writers]
        for reader in readers:
            reader.tell()
        return done, [reader.report() for reader in readers]


def test_eight_processes_append_and_no_line_is_lost(scratch: Path) -> None:
    """Eight processes append 500 lines each: all 4,000 are there, each once, and readers see only whole records."""
    done, seen = _watched(scratch / "memory", "append")
    with restored(scratch / "memory") as manager:
        lines = Counter(manager.read(UID).splitlines())
        revision = manager.snapshot(UID).revision

    assert [{"appended": TIMES}] * WRITERS == done
    assert {f"{number}.{turn}": 1 for number in range(WRITERS) for turn in range(TIMES)} == lines
    assert 1 + WRITERS * TIMES == revision
    assert [] == [problem for reader in seen for problem in reader["problems"]]
    assert all(reader["reads"] > TIMES for reader in seen)


def test_eight_processes_edit_what_they_read(scratch: Path) -> None:
    """Eight processes make 500 edits each, all guarded by the revision they read: every acknowledged one is there."""
    done, seen = _watched(scratch / "memory", "edit")
    with restored(scratch / "memory") as manager:
        tallies = manager.read("tallies")
        revision = manager.snapshot("tallies").revision

    assert [TIMES] * WRITERS == [report["edited"] for report in done]
    assert "".join(f"writer {number}: {TIMES};\n" for number in range(WRITERS)) == tallies
    assert 1 + WRITERS * TIMES == revision
    assert sum(report["conflicts"] for report in done) > 0
    assert [] == [problem for reader in seen for problem in reader["problems"]]


def test_children_of_a_fork_write_with_their_parent_s_manager(program: Program, scratch: Path) -> None:
    """A parent forks while its threads write: each child goes on with the manager it inherited, and nothing is lost."""
    (family,) = program("durability.family", scratch / "memory", CHILDREN, TURNS)
    with restored(scratch / "memory") as manager:
        lines = Counter(manager.read(UID).splitlines())
    writers = [f"child-{number}" for number in range(CHILDREN)] + ["parent-0", "parent-1"]

    assert [0] * CHILDREN == family["exits"]
    assert {f"{writer}.{turn}": 1 for writer in writers for turn in range(TURNS)} == lines
    assert [] == list((scratch / "memory" / ".journal").iterdir())


def test_a_child_keeps_nothing_of_a_parent_that_was_killed(scratch: Path) -> None:
    """While a forked child lives on, the locks and the journal of its dead parent are free."""
    for number in range(5):
        directory = scratch / str(number)
        command = [sys.executable, "-m", "durability.family", str(directory), "0", "0", "--orphan"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe) as parent:
            assert parent.stdout is not None
            parent.stdout.readline()
            parent.wait(LONGEST_SECONDS)
            with restored(directory) as manager:  # the child lives until its input ends
                manager.append(UID, "afterwards\n")

                assert "afterwards" == manager.read(UID).splitlines()[-1]
                assert [] == list((directory / ".journal").iterdir())
