"""Durable writes against F, the bare temp + fsync + rename + directory fsync of the same bytes in the same run."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from statistics import median

import pytest

from memfiles import MemoryFile, MemoryManager
from tests.benchmarks.bare import paired, rate_of_threads, replace_durably, seconds, show

CAP = 4 * 1024 * 1024
LINE = "- a line that an agent would append to its notes\n"
COUNTED_APPENDS = 200


def declared(count: int, size: int) -> list[MemoryFile]:
    content = (LINE * (size // len(LINE) + 1))[:size]
    return [
        MemoryFile(uid=f"file-{n}", name=f"file-{n}", description="notes", max_size_bytes=CAP, content=content)
        for n in range(count)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bare").mkdir()
    return tmp_path


def opened(place: Path, files: list[MemoryFile]) -> Iterator[MemoryManager]:
    with MemoryManager(place / "memory") as manager:
        manager.restore(files)
        manager.append(files[0].uid, LINE)
        yield manager


@pytest.mark.parametrize("size", [1024, 4096, 16384, 65536])
def test_append(place: Path, size: int) -> None:
    """One append to one file."""
    for manager in opened(place, declared(1, size)):
        data = (place / "memory/file-0.json").read_bytes()
        one, bare, ratio = paired(
            lambda: manager.append("file-0", LINE),
            lambda: replace_durably(place / "bare/file", data),
            rounds=300,
        )
        show(f"append, {size // 1024} KiB", f"{one * 1e6:.0f} us, F {bare * 1e6:.0f} us: {ratio:.2f} F", "goal 0.90 F")


@pytest.mark.parametrize("size", [1024, 16384, 65536])
def test_eight_threads(place: Path, size: int) -> None:
    """Eight threads, each on a file of its own."""
    files = declared(8, size)
    for manager in opened(place, files):
        data = (place / "memory/file-0.json").read_bytes()
        ratios, rates = [], []
        for _ in range(5):
            bare = rate_of_threads(8, lambda n: replace_durably(place / f"bare/{n}", data), each=50)
            ours = rate_of_threads(8, lambda n: manager.append(files[n].uid, LINE), each=100)
            rates.append((ours, bare))
            ratios.append(ours / bare)
        ours, bare = median(a for a, _ in rates), median(b for _, b in rates)
        show(
            f"eight threads, {size // 1024} KiB",
            f"{ours:.0f}/s, F {bare:.0f}/s: {median(ratios):.2f} times",
            "goal 2.5",
        )


@pytest.mark.parametrize("size", [1024, 16384])
def test_thousand_at_once(place: Path, size: int) -> None:
    """One commit that appends to 1,000 files, all or nothing."""
    files = declared(1000, size)
    for manager in opened(place, files):
        data = (place / "memory/file-0.json").read_bytes()
        bare = median(seconds(lambda: replace_durably(place / "bare/file", data)) for _ in range(200))
        each = []
        for _ in range(5):
            each.append(seconds(lambda: manager.append_many([(file.uid, LINE) for file in files])) / len(files))
            manager.checkpoint()
        figure = f"{median(each) * 1e6:.0f} us each, F {bare * 1e6:.0f} us: {median(each) / bare:.2f} F"
        show(f"append_many to 1,000 files, {size // 1024} KiB", figure, "goal 0.15 F")


def test_thousand_to_one_file(place: Path) -> None:
    """One commit of 1,000 appends to one file."""
    for manager in opened(place, declared(1, 1024)):
        data = (place / "memory/file-0.json").read_bytes()
        bare = median(seconds(lambda: replace_durably(place / "bare/file", data)) for _ in range(200))
        each = seconds(lambda: manager.append_many([("file-0", "- x\n")] * 1000)) / 1000
        show("append_many, 1,000 to one file", f"{each * 1e6:.0f} us each: {each / bare:.2f} F", "goal 0.15 F")


def test_read(place: Path) -> None:
    """A read with its freshness check."""
    for manager in opened(place, declared(1, 16384)):
        manager.read("file-0")
        each = median(seconds(lambda: [manager.read("file-0") for _ in range(1000)]) / 1000 for _ in range(20))
        show("read, 16 KiB", f"{each * 1e6:.1f} us", "goal 10 us")


APPENDER = """
import sys
from memfiles import MemoryFile, MemoryManager
manager = MemoryManager(sys.argv[1])
size, count = int(sys.argv[2]), int(sys.argv[3])
manager.restore([MemoryFile(uid="f", name="f", max_size_bytes=1 << 22, content="x" * size)])
for number in range(count):
    manager.append("f", f"- line {number}\\n")
manager.close()
"""


@pytest.mark.parametrize("size", [1024, 65536])
@pytest.mark.skipif(which("strace") is None, reason="needs strace")
def test_flushes(place: Path, size: int) -> None:
    """The flushes of a whole process that appends, counted by the system: start and close included."""
    counts = {}
    for appends in (0, COUNTED_APPENDS):
        trace = place / f"trace-{appends}"
        command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range", "-o", str(trace)]
        arguments = [sys.executable, "-c", APPENDER, str(place / f"memory-{appends}"), str(size), str(appends)]
        subprocess.run([*command, *arguments], check=True)
        calls = Counter(line.split("(")[0].split()[-1] for line in trace.read_text().splitlines() if "(" in line)
        counts[appends] = sum(calls.values())
    each = (counts[COUNTED_APPENDS] - counts[0]) / COUNTED_APPENDS
    show(f"flushes an append, {size // 1024} KiB", f"{each:.2f}", "goal 1.1")


def test_beside_others(place: Path) -> None:
    """The same change kept by what people use instead: one row of SQLite, and a JSON file written in place."""
    database = sqlite3.connect(place / "peer.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE memory (uid TEXT PRIMARY KEY, record BLOB)")
    for manager in opened(place, declared(1, 4096)):
        data = (place / "memory/file-0.json").read_bytes()

        def upsert() -> None:
            database.execute("INSERT OR REPLACE INTO memory VALUES ('file-0', ?)", (data,))

        def append() -> None:
            manager.append("file-0", LINE)

        ours, theirs, ratio = paired(append, upsert, rounds=300)
        show("append beside a SQLite upsert, 4 KiB", f"{ours * 1e6:.0f} us, SQLite {theirs * 1e6:.0f} us: {ratio:.2f}")
        in_place = place / "peer.json"
        ours, theirs, ratio = paired(append, lambda: in_place.write_bytes(data), rounds=300)
        figure = f"{ours * 1e6:.0f} us, {theirs * 1e6:.0f} us: {ratio:.1f}"
        show("append beside an undurable write in place, 4 KiB", figure)
    database.close()
