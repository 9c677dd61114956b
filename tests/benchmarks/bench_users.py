"""Many users: what the first and the later sessions of one cost, and what those cost who are not active.

``MEMFILES_BENCH_USERS`` is the number of users, 10,000 if it is not set. ``python -m tests.benchmarks.bench_users``
writes the figures to ``docs/measurements/users.md``, with the date and the commit.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import memfiles
from memfiles.memory import Memory
from tests.benchmarks.bare import seconds, show
from tests.benchmarks.language import contents

USERS = int(os.environ.get("MEMFILES_BENCH_USERS", "10000"))
EACH = 20  # entries
ASKED = 200  # users, of whom each figure is the median
ACTIVE = 1_000  # users that come and go while the memory of the process is watched
WORKFLOW = """
name: support-desk
memory:
  directory: .memory
  durability: {durability}
  secrets: block
  entries: {{}}
agents:
  support: {{level: INTERNAL}}
"""
PAGE = Path("docs/measurements/users.md")
Figure = tuple[str, str, str]


class Taken(NamedTuple):
    """Seconds by the clock, and of the processor for this thread."""

    wall: float
    busy: float


def test_many_users(tmp_path: Path) -> None:
    """Every figure, printed."""
    for figure in figures(tmp_path):
        show(*figure)


def figures(directory: Path) -> Iterator[Figure]:
    """What was measured, the figure, and the goal."""
    users = [f"user-{number}@example.com" for number in range(USERS)]
    taken = seconds(lambda: _fill(directory, users))
    count = f"{USERS:,} users with {EACH} entries each"
    yield f"saving {count}", f"{taken / USERS / EACH * 1e6:.0f} us an entry, {taken:.0f} s", ""
    index = directory / ".memory/.state/index.sqlite"
    yield "the index file", f"{index.stat().st_size / 2**20:.0f} MiB", ""
    random.Random(1).shuffle(users)
    opened, first = zip(*(_opened(directory, user) for user in users[:7]), strict=True)
    yield "open", *_spread(opened)
    yield "the first session of a process, with its prompt", *_spread(first)
    with _memory(directory, "fsync") as memory:
        _prompt(memory, users.pop())
        asked = users[:ASKED]
        yield "the first session of a user, with its prompt", *_spread([_prompt(memory, user) for user in asked], 20)
        yield "a later session, with its prompt", *_spread([_prompt(memory, user) for user in asked], 3)
        yield "the first search of a user", *_spread([_search(memory, user) for user in users[ASKED : 2 * ASKED]])
        yield "a later search", *_spread([_search(memory, user) for user in users[ASKED : 2 * ASKED]])
        yield "a save", *_spread([_save(memory, user) for user in users[:ASKED]])
        yield "a session with its prompt after a save", *_spread([_prompt(memory, user) for user in asked], 3)
        yield "the search after a save", *_spread([(_save(memory, user), _search(memory, user))[1] for user in asked])
    yield from _growth(directory, users)


def _growth(directory: Path, users: list[str]) -> Iterator[Figure]:
    """What a process keeps of users that were active once and are gone: little, and no more the more there were."""
    with _memory(directory, "fsync") as memory:
        sizes = []
        for begin in range(0, len(users), ACTIVE):
            for user in users[begin : begin + ACTIVE]:
                _prompt(memory, user)
                _search(memory, user)
            gc.collect()
            sizes.append(_resident() / 2**20)
    shown = ", ".join(f"{size:.0f}" for size in sizes)
    yield f"resident MiB after each {ACTIVE:,} users that were active", shown, "no growth at the end"


def _fill(directory: Path, users: list[str]) -> None:
    texts = contents(random.Random(EACH), 5_000)
    with _memory(directory, "os") as memory:
        for number, user in enumerate(users):
            chosen = [texts[(number * EACH + each) % len(texts)] for each in range(EACH)]
            drafts = [{"key": f"note-{each}", "content": text} for each, text in enumerate(chosen)]
            memory.entries.save_many(memory.session("support", user=user), drafts)


def _memory(directory: Path, durability: str) -> Memory:
    path = directory / "workflow.yaml"
    path.write_text(WORKFLOW.format(durability=durability))
    return memfiles.open(path, watch=False)


def _timed(work: Callable[[], object]) -> Taken:
    begun, busy = time.perf_counter(), time.thread_time()
    work()
    return Taken(time.perf_counter() - begun, time.thread_time() - busy)


def _opened(directory: Path, user: str) -> tuple[Taken, Taken]:
    opened: list[Memory] = []
    taken = _timed(lambda: opened.append(_memory(directory, "fsync")))
    with opened[0] as memory:
        return taken, _prompt(memory, user)


def _prompt(memory: Memory, user: str) -> Taken:
    prompts: list[str] = []

    def asked() -> None:
        with closing(memory.session("support", user=user)) as session:
            prompts.append(session.system_prompt())

    taken = _timed(asked)
    assert prompts[0].count("### ") >= EACH
    return taken


def _search(memory: Memory, user: str) -> Taken:
    session = memory.session("support", user=user)
    found = memory.entries.get(session, "note-7")
    word = found.content.split()[0] if found else ""
    return _timed(lambda: memory.entries.search(session, f"{word} and more"))


def _save(memory: Memory, user: str) -> Taken:
    session = memory.session("support", user=user)
    return _timed(lambda: memory.entries.save(session, "the last", f"said at {time.time()}"))


def _spread(taken: Sequence[Taken], goal: float | None = None) -> tuple[str, str]:
    """The median wall time, the highest of 95 %, and the median of the processor's time."""
    wall, busy = (sorted(times) for times in zip(*taken, strict=True))
    most = wall[int(len(wall) * 0.95)] * 1e3
    return (
        f"{median(wall) * 1e3:.2f} ms (95 %: {most:.2f}; CPU {median(busy) * 1e3:.2f})",
        f"at most {goal} ms" if goal else "",
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _machine() -> str:
    return f"{os.cpu_count()} cores, shared; load {os.getloadavg()[0]:.0f} at the end."


def main() -> None:
    """Measure, and write the page."""
    commit = subprocess.run(["git", "log", "-1", "--format=%h %cs"], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="bench-users-") as folder:
        rows = [f"| {' | '.join(figure)} |" for figure in figures(Path(folder))]
    made = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.strip()}, Python {platform.python_version()}"
    head = f"# {USERS:,} users with {EACH} entries each\n\nMade by `python -m {__spec__.name}` on {made}."
    note = f"Medians over {ASKED} users; in parentheses the 95th percentile and the processor's time. {_machine()}"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([head, "", note, "", "| what | measured | goal |", "|---|---|---|", *rows, ""]))
    sys.stdout.write(PAGE.read_text())


if __name__ == "__main__":
    main()
