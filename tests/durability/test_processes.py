"""Many processes on one memory file: every acknowledged change is there once, and nobody sees half of one."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from tests.durability.conftest import Program
from tests.durability.crowd import UID, WRITERS, restored
from tests.support.programs import start

pytestmark = pytest.mark.slow

CROWD = "tests.durability.crowd"
TIMES = 500
CHILDREN, TURNS = 6, 40
LONGEST_SECONDS = 240


class Member:
    """One process of the crowd."""

    def __init__(self, module: str, *arguments: object) -> None:
        """It waits until it is told to go."""
        with ExitStack() as ending:
            self._complaints = TemporaryFile("w+")  # noqa: SIM115 (closed by ``kill``)
            self._input, input_there = _pipe(os.O_WRONLY)
            self._output, output_there = _pipe(os.O_RDONLY)
            ending.callback(os.close, input_there)
            ending.callback(os.close, output_there)
            streams = (input_there, output_there, self._complaints.fileno())
            self._process = start(module, *arguments, streams=streams)

    def wait_until_ready(self) -> None:
        """Until it has restored the files."""
        assert "ready\n" == self._output.readline(), self._said()

    def tell(self) -> None:
        """Start a writer; start a reader the first time and stop it the second."""
        self._input.write("\n")
        self._input.flush()

    def report(self) -> dict[str, Any]:
        """What it did or saw."""
        assert 0 == self.end(), self._said()
        found: dict[str, Any] = json.loads(self._output.read())
        return found

    def end(self) -> int:
        """Wait until it has ended; how."""
        return self._process.wait(LONGEST_SECONDS)

    def kill(self) -> None:
        """End it, whatever it is doing, and its input."""
        self._process.kill()
        for stream in (self._input, self._output, self._complaints):
            stream.close()

    def _said(self) -> str:
        self._process.kill()
        self._complaints.seek(0)
        return self._complaints.read()


def _pipe(mine: int) -> tuple[IO[str], int]:
    """One end of a pipe to write to or to read from, and the other."""
    reading, writing = os.pipe()
    if mine == os.O_WRONLY:
        return open(writing, "w", encoding="utf-8"), reading
    return open(reading, encoding="utf-8"), writing


@contextmanager
def _crowd(directory: Path, role: str) -> Iterator[tuple[list[Member], list[Member]]]:
    """Eight writers in one role, a reader through the manager and one that opens the files, all at work."""
    writers = [Member(CROWD, directory, role, number, TIMES) for number in range(WRITERS)]
    readers = [Member(CROWD, directory, role, 0, TIMES) for role in ("watch", "peek")]
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
    (family,) = program("tests.durability.family", scratch / "memory", CHILDREN, TURNS)
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
        parent = Member("tests.durability.family", directory, 0, 0, "--orphan")
        try:
            parent.wait_until_ready()
            assert -signal.SIGKILL == parent.end()
            with restored(directory) as manager:  # the child lives until its input ends
                manager.append(UID, "afterwards\n")

                assert "afterwards" == manager.read(UID).splitlines()[-1]
                assert [] == list((directory / ".journal").iterdir())
        finally:
            parent.kill()
