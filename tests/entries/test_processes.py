"""Entries and real processes: killed at every step, many at once, and with the index taken away meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.durability.conftest import scratch
from tests.durability.stops import LONGEST_SECONDS
from tests.durability.tracer import can_trace
from tests.entries.sweep import OPERATIONS
from tests.support.another_process import another_process
from tests.support.programs import run
from tests.support.records import wait_until
from tests.support.saved import Visitor, entries_in, saved

pytestmark = pytest.mark.slow

__all__ = ["scratch"]

PROCESSES = 8
SAVES = 12
SHARED = 3
INDEX = ".state/index.sqlite"
LOG = ".state/entries.log"

WRITER = """
import json, sys
from pathlib import Path
from tests.support.saved import Visitor, entries_in
directory, number, saves, shared = Path(sys.argv[1]), *map(int, sys.argv[2:])
visitor, acknowledged, problems = Visitor(), [], []
with entries_in(directory, durability="fsync") as entries:
    print("ready", flush=True)
    input()
    for turn in range(saves):
        for key in (f"own-{number}-{turn}", f"shared-{turn % shared}"):
            saved = entries.save(visitor, key, f"word from {number} in turn {turn}")
            acknowledged.append((key, saved.revision, f"word from {number} in turn {turn}"))
        try:
            found = entries.search(visitor, f"word {number} turn {turn}", max_results=20).matches
            if not found:
                problems.append(f"nothing found in turn {turn}")
            if entries.get(visitor, f"own-{number}-{turn}") is None:
                problems.append(f"own key of turn {turn} is gone")
        except Exception as error:
            problems.append(repr(error))
    print(json.dumps({"acknowledged": acknowledged, "problems": problems}), flush=True)
    input()
"""


@pytest.fixture
def kills(scratch: Path) -> list[dict[str, Any]]:
    """Every kill of every operation."""
    if not can_trace():
        unavailable("this machine does not let a process trace its child")
    done = run("tests.entries.sweep", scratch, seconds=LONGEST_SECONDS)
    assert 0 == done.code, done.complaints[-4000:]
    return [json.loads(line) for line in done.output.splitlines()]


@pytest.mark.directory("the calls to the system are those on files")
@pytest.mark.kill
def test_a_kill_at_any_step_does_no_harm(kills: list[dict[str, Any]]) -> None:
    """The next process finds the old state or the new one, whole, the same by key, list and search.

    What was acknowledged is there, what was forgotten is in no file once it is forgotten again, nothing is left over.
    """
    ends = {kill["name"] for kill in kills if not kill["call"] and kill["acknowledged"]}

    assert [] == [kill for kill in kills if kill["problems"]]
    assert set(OPERATIONS) == ends
    assert len(kills) > 15 * len(OPERATIONS)


def run_writers(directory: Path, *, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
    """Eight processes that save their own keys and common ones; what each was told."""
    with ExitStack() as running:
        arguments = (SAVES, SHARED)
        writers = [
            running.enter_context(another_process(WRITER, directory, number, *arguments)) for number in range(PROCESSES)
        ]
        assert ["ready"] * PROCESSES == [writer.hear() for writer in writers]
        for writer in writers:
            writer.tell()
        meanwhile()
        heard = [json.loads(writer.hear()) for writer in writers]
        for writer in writers:
            writer.tell()
        return heard


def lost(directory: Path, heard: list[dict[str, Any]]) -> list[str]:
    """What was acknowledged and is not there: by key, in the history, in the list, by a search."""
    said = [tuple(each) for one in heard for each in one["acknowledged"]]
    problems = [problem for one in heard for problem in one["problems"]]
    with entries_in(directory) as entries:
        listed, cursor = set[str](), None
        while True:
            page = entries.list(Visitor(), limit=100, cursor=cursor)
            listed |= {found.key for found in page.memories}
            if (cursor := page.next) is None:
                break
        for key in {key for key, _, _ in said}:
            found = entries.get(Visitor(), key)
            newest = max(revision for other, revision, _ in said if other == key)
            if found is None or key not in listed:
                problems.append(f"{key} is gone")
            elif found.revision != newest or (key, newest, found.content) not in said:
                problems.append(f"{key} is at {found.revision}, not {newest}")
        for number in range(PROCESSES):
            query = f"own-{number}-{SAVES - 1}"
            if query not in [match.found.key for match in entries.search(Visitor(), query, max_results=50).matches]:
                problems.append(f"{query} is not found")
    return problems


def test_eight_processes_lose_nothing(tmp_path: Path) -> None:
    """Saving different keys and the same ones, with searches meanwhile that never raise."""
    heard = run_writers(tmp_path)
    revisions = [(key, revision) for one in heard for key, revision, _ in one["acknowledged"]]

    assert [] == lost(tmp_path, heard)
    assert len(revisions) == len(set(revisions))


def overwrite_index(directory: Path) -> None:
    """Put garbage into the file, which stays the file that it is."""
    with (directory / INDEX).open("r+b") as file:
        file.write(os.urandom(8192))


SPOILERS: list[Callable[[Path], object]] = [
    lambda directory: (directory / INDEX).unlink(),
    overwrite_index,
    lambda directory: (directory / LOG).unlink(),
]


def has_entries(directory: Path, wanted: int) -> bool:
    """Whether so many were saved."""
    return len(list(directory.glob("entries/support/*.json"))) > wanted


@pytest.mark.directory("only there processes share an index")
def test_the_index_may_be_spoilt_while_processes_run(tmp_path: Path) -> None:
    """Deleted, overwritten with garbage, and robbed of its log: it is built anew, and nothing is lost."""

    def spoil() -> None:
        for number in range(6):
            wanted = 12 * (number + 1)
            wait_until(partial(has_entries, tmp_path, wanted))
            with suppress(FileNotFoundError):
                SPOILERS[number % len(SPOILERS)](tmp_path)

    assert [] == lost(tmp_path, run_writers(tmp_path, meanwhile=spoil))


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.saved import Visitor, entries_in
from memfiles.storage import atomic
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
with entries_in(Path(sys.argv[1])) as entries:
    entries.save(Visitor(), "color", "azure")
    atomic.publish = die
    entries.save(Visitor(), "color", "crimson")
"""


@pytest.mark.directory("only it has temp files")
def test_a_killed_writer_s_temp_file_is_removed_by_the_next_search(tmp_path: Path) -> None:
    """Where it had no journal that speaks of it, too."""
    with another_process(KILLED, tmp_path) as other:
        other.process.wait()
    left = list(tmp_path.rglob("*.tmp"))
    with entries_in(tmp_path) as entries:
        found = [match.found.content for match in entries.search(Visitor(), "azure crimson").matches]

    assert (1, ["azure"], []) == (len(left), found, list(tmp_path.rglob("*.tmp")))
    assert saved("color").path in str(left[0]).replace("/.", "/")
