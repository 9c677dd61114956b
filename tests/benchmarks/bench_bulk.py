"""Many entries: 10,000 in one save next to SQLite with FTS5 in the same run, and a store of 300,000 of 1,000 agents.

Figures are processor time where all is work and not waiting.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from memfiles.entries.drafts import Draft
from tests.benchmarks.bare import show
from tests.benchmarks.language import contents
from tests.support.saved import Visitor, entries_in

ROUNDS = 3
AGENTS, OF_AN_AGENT = 1_000, 300
FIRST_SEARCH = """
import sys, time
from pathlib import Path
from tests.support.saved import Visitor, entries_in
with entries_in(Path(sys.argv[1])) as entries:
    visitor, begun = Visitor(sys.argv[2], run="now"), (time.process_time(), time.perf_counter())
    entries.search(visitor, sys.argv[3])
    print(time.process_time() - begun[0], time.perf_counter() - begun[1])
"""


def busy(run: Callable[[], object]) -> float:
    """The processor time that one call takes, in all threads."""
    begun = time.process_time()
    run()
    return time.process_time() - begun


def drafts(texts: Sequence[str]) -> list[Draft]:
    return [Draft(f"note-{number}", text, tags=["notes"]) for number, text in enumerate(texts)]


def sqlite_saved(path: Path, texts: Sequence[str]) -> None:
    """One transaction, flushed, of rows and a full-text index."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE entry (key TEXT PRIMARY KEY, content TEXT, tags TEXT)")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(key, content, tags, tokenize='porter unicode61')")
    rows = [(f"note-{number}", text, "notes") for number, text in enumerate(texts)]
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
    connection.executemany("INSERT INTO words VALUES (?, ?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()


def test_save_many(tmp_path: Path) -> None:
    """10,000 new entries in one commit, with the close of the memory, in which the index is written."""
    texts, called, closed, bare = contents(random.Random(10_000), 10_000), [], [], []
    for number in range(ROUNDS):
        with entries_in(tmp_path / f"memory-{number}", durability="fsync") as entries:
            entries.save(Visitor(), "first", texts[0])
            called.append(busy(lambda: entries.save_many(Visitor(run="now"), drafts(texts))))
            begun = time.process_time()
        closed.append(time.process_time() - begun)
        bare.append(busy(lambda: sqlite_saved(tmp_path / f"{number}.sqlite", texts)))
    each = [median(times) / len(texts) * 1e6 for times in (called, closed, bare)]
    show(
        "save_many of 10,000",
        f"{each[0]:.0f} + {each[1]:.0f} us CPU each, SQLite with FTS5 {each[2]:.0f}",
        "goal 100 us",
    )


def first_search(directory: Path, agent: str, query: str) -> tuple[float, float]:
    """The processor time and the time of the first search in a process of its own, in milliseconds: medians."""
    command = [sys.executable, "-c", FIRST_SEARCH, str(directory), agent, query]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(5)]
    cpu, wall = (median(float(run[at]) for run in runs) * 1e3 for at in (0, 1))
    return cpu, wall


def test_three_hundred_thousand_entries_of_a_thousand_agents(tmp_path: Path) -> None:
    """What it takes to save, hold, open and search them."""
    texts = contents(random.Random(7), OF_AN_AGENT * 20)
    directory, begun = tmp_path / "memory", time.process_time()
    with entries_in(directory) as entries:
        for agent in range(AGENTS):
            start = agent % 20 * OF_AN_AGENT
            entries.save_many(Visitor(f"agent-{agent}"), drafts(texts[start : start + OF_AN_AGENT]))
    each = (time.process_time() - begun) / AGENTS / OF_AN_AGENT
    show("300,000 entries of 1,000 agents, saved", f"{each * 1e6:.0f} us CPU each, with the close")
    sizes = [(path.stat().st_size, path.stat().st_blocks * 512) for path in (directory / "entries").rglob("*.json")]
    index = (directory / ".state/index.sqlite").stat().st_size
    held = (
        f"{sum(size for size, _ in sizes) / 1e6:.0f} MB in files, {sum(on for _, on in sizes) / 1e6:.0f} MB of the disk"
    )
    show("the same on the disk", f"{held}; index {index / 1e6:.0f} MB")
    cpu, wall = first_search(directory, "agent-500", texts[0])
    show("the same, first search of an agent in a process", f"{cpu:.1f} ms CPU, {wall:.1f} ms")
    begun = time.perf_counter()
    with entries_in(directory, durability="fsync") as entries:
        entries.get(Visitor("agent-1"), "note-1")
        opened = time.perf_counter() - begun
        visitor = Visitor("agent-2")
        entries.search(visitor, texts[0])
        warm = median(busy(lambda: entries.search(visitor, " ".join(text.split()[:4]))) for text in texts[:100])
        saved = median(busy(lambda: entries.save(visitor, f"new-{n}", texts[n])) for n in range(200))
        all_files = busy(entries.counts)
    show("the same, opened", f"{opened * 1e3:.0f} ms with a get")
    show("the same, warm", f"search {warm * 1e3:.2f} ms CPU, save {saved * 1e6:.0f} us CPU")
    show("the same, a look at every file", f"{all_files * 1e3:.0f} ms CPU")
    show(
        "the same, memory of this process",
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most",
    )
