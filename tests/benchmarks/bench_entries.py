"""Entries against the bare operations in the same run: save, get, search, open, and what goes over a budget."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from shutil import copytree, which
from statistics import median

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from tests.benchmarks import peers
from tests.benchmarks.bare import paired, replace_durably, seconds, show
from tests.benchmarks.language import contents, questions
from tests.support.saved import Visitor, entries_in

SIZES = [1_000, 10_000, 100_000]
IN_A_RUN = 500  # entries that are saved in one run
COUNTED = 200
QUERIES = 60
ROUNDS = 3


@cache
def _texts(size: int) -> list[str]:
    return contents(random.Random(size), size)


@pytest.fixture(scope="module")
def memory_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A closed memory directory with that many entries, made once."""

    @cache
    def made(size: int) -> Path:
        directory = tmp_path_factory.mktemp("memory") / str(size)
        with entries_in(directory) as entries:
            for start in range(0, size, IN_A_RUN):
                texts = _texts(size)[start : start + IN_A_RUN]
                drafts = [Draft(f"note-{start + n}", text, tags=["notes"]) for n, text in enumerate(texts)]
                entries.save_many(Visitor(run=f"run-{start}", thread="t"), drafts)
        return directory

    return made


def _bare_bytes(directory: Path) -> bytes:
    """What one entry of that memory is on disk."""
    return next((directory / "entries/support").glob("*.json")).read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_save(memory_of: Callable[[int], Path], tmp_path: Path, size: int) -> None:
    """One save under a new key, one over an old one, and the first search after it."""
    data = _bare_bytes(memory_of(size))
    texts, numbers = _texts(size), iter(range(10**6))
    visitor = Visitor(run="now", thread="t")
    with entries_in(_copy(memory_of(size), tmp_path / "memory"), durability="fsync") as entries:
        for what, key in (("a new key", "new-{}"), ("a known key", "note-{}")):

            def save() -> None:
                number = next(numbers)
                entries.save(visitor, key.format(number), texts[-1 - number % len(texts)], tags=["notes"])

            begun = time.process_time()
            for _ in range(300):
                save()
            busy = (time.process_time() - begun) / 300
            one, bare, ratio = paired(save, lambda: replace_durably(tmp_path / "bare", data), rounds=400)
            figure = f"{one * 1e6:.0f} us ({busy * 1e6:.0f} CPU), F {bare * 1e6:.0f} us: {ratio:.2f} F"
            show(f"save of {what} at {size:,}", figure, "goal 1.0 F")
        entries.save(visitor, "last", "xylophones are searchable at once")
        taken = seconds(lambda: entries.search(visitor, "xylophones"))
        assert entries.search(visitor, "xylophones").matches[0].found.key == "last"
        show(f"the search after a save at {size:,}", f"{taken * 1e3:.2f} ms")


def test_save_many(tmp_path: Path) -> None:
    """One commit of 10,000 new entries, all or nothing."""
    texts = _texts(10_000)
    with entries_in(tmp_path / "memory", durability="fsync") as entries:
        drafts = [Draft(f"note-{n}", text, tags=["notes"]) for n, text in enumerate(texts)]
        entries.save(Visitor(), "first", texts[0])
        data = _bare_bytes(tmp_path / "memory")
        bare = median(seconds(lambda: replace_durably(tmp_path / "bare", data)) for _ in range(200))
        each = seconds(lambda: entries.save_many(Visitor(run="now"), drafts)) / len(drafts)
        show(
            "save_many of 10,000",
            f"{each * 1e6:.0f} us each, F {bare * 1e6:.0f} us: {each / bare:.2f} F",
            "goal 0.15 F",
        )


@pytest.mark.parametrize("size", SIZES)
def test_get(memory_of: Callable[[int], Path], size: int) -> None:
    """A get with its look at the file, of keys that were read before and of keys that were not."""
    visitor = Visitor(run="now", thread="t")
    keys = [f"note-{random.Random(n).randrange(size)}" for n in range(500)]
    with entries_in(memory_of(size)) as entries:
        first = seconds(lambda: [entries.get(visitor, key) for key in keys]) / len(keys)
        each = [seconds(lambda: [entries.get(visitor, key) for key in keys]) / len(keys) for _ in range(9)]
        show(f"get at {size:,}", f"{median(each) * 1e6:.1f} us, the first time {first * 1e6:.0f} us", "goal 20 us")


def _bare_tables(texts: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE bare USING fts5(content, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO bare (content) VALUES (?)", [(text,) for text in texts])
    return connection


@pytest.mark.parametrize("size", SIZES)
def test_search(memory_of: Callable[[int], Path], size: int) -> None:
    """The median of all questions, ours and the bare query in turns; with the peers up to 10,000."""
    texts, visitor = _texts(size), Visitor(run="now", thread="t")
    bare = _bare_tables(texts)

    def query(words: Sequence[str]) -> object:
        match = " OR ".join(f'"{word}"' for word in words)
        found = "SELECT content FROM bare WHERE bare MATCH ? ORDER BY bm25(bare) LIMIT 10"
        return bare.execute(found, (match,)).fetchall()

    times = []
    with entries_in(memory_of(size)) as entries:
        first = seconds(lambda: entries.search(visitor, texts[0]))
        for words in questions(random.Random(size), texts, QUERIES):
            text = " ".join(words)
            ours = min(seconds(lambda: entries.search(visitor, text)) for _ in range(ROUNDS))
            times.append((ours, min(seconds(lambda: query(words)) for _ in range(ROUNDS))))
    ours, raw = median(a for a, _ in times), median(b for _, b in times)
    figure = f"{ours * 1e3:.2f} ms, bare {raw * 1e3:.2f} ms: {ours / raw:.2f} times"
    show(f"search at {size:,}", figure, "goal 1.5")
    show(f"the first search of a process at {size:,}", f"{first * 1e3:.1f} ms")


@pytest.mark.parametrize("name", peers.NAMES)
def test_search_of_peers(tmp_path: Path, name: str) -> None:
    """The same questions asked of others who answer offline, at 10,000."""
    texts = _texts(10_000)
    ask = peers.opened(name, tmp_path, texts)
    asked = [" ".join(words) for words in questions(random.Random(10_000), texts, QUERIES)]
    taken = [seconds(lambda: ask(text)) for text in asked]
    show(f"search at 10,000 with {name}", f"{median(taken) * 1e3:.2f} ms")


@pytest.mark.parametrize("size", SIZES)
def test_open(memory_of: Callable[[int], Path], size: int) -> None:
    """Opening a directory that was closed, up to the first answer by key and the first out of the index."""
    visitor = Visitor(run="now", thread="t")

    def opened() -> tuple[float, float]:
        begun = time.perf_counter()
        with entries_in(memory_of(size)) as entries:
            entries.get(visitor, "note-1")
            got = time.perf_counter() - begun
            entries._index.catch_up()
            return got, time.perf_counter() - begun

    found = [opened() for _ in range(9)]
    got, known = (median(times) * 1e3 for times in zip(*found, strict=True))
    show(f"open at {size:,}", f"{got:.1f} ms with a get, {known:.1f} ms with the index", "goal 10 ms")


@pytest.mark.parametrize("size", SIZES)
def test_save_over_budget(memory_of: Callable[[int], Path], tmp_path: Path, size: int) -> None:
    """Saves of which each evicts another entry."""
    directory = _copy(memory_of(size), tmp_path / "memory")
    visitor = Visitor(run="now", thread="t")
    with entries_in(directory, rules=EntryRules(budget=Budget(max_entries=size)), durability="fsync") as entries:
        entries.save(visitor, "first", "over the budget")
        taken = [seconds(lambda: entries.save(visitor, f"new-{n}", "over the budget")) for n in range(200)]
        assert len(entries.save(visitor, "last", "over the budget").evicted) == 1
        show(f"save over budget at {size:,}", f"{median(taken) * 1e6:.0f} us", "the same at any size")


def _copy(directory: Path, target: Path) -> Path:
    """A directory of one's own; records are replaced, never written, so links to them are as good as copies."""
    return Path(copytree(directory, target, copy_function=_linked))


def _linked(source: str, target: str) -> None:
    if source.endswith(".json"):
        Path(target).hardlink_to(source)
    else:
        Path(target).write_bytes(Path(source).read_bytes())


def test_evict_half(memory_of: Callable[[int], Path], tmp_path: Path) -> None:
    """One save that evicts a thousand of two thousand entries."""
    visitor = Visitor(run="now", thread="t")
    with entries_in(tmp_path / "memory") as entries:
        entries.save_many(visitor, [Draft(f"note-{n}", text) for n, text in enumerate(_texts(10_000)[:2_000])])
    with entries_in(
        tmp_path / "memory", rules=EntryRules(budget=Budget(max_entries=1_000)), durability="fsync"
    ) as entries:
        begun = time.perf_counter()
        saved = entries.save(visitor, "last", "over the budget")
        taken = time.perf_counter() - begun
        show(f"evicting {len(saved.evicted):,} of 2,000", f"{taken * 1e3:.0f} ms", "goal 1,000 ms")


SAVER = """
import sys
from pathlib import Path
from tests.support.saved import Visitor, entries_in
with entries_in(Path(sys.argv[1]), durability="fsync") as entries:
    for number in range(int(sys.argv[2])):
        entries.save(Visitor(run="now"), f"key {number}", f"content {number}")
"""


@pytest.mark.skipif(which("strace") is None, reason="needs strace")
def test_flushes(tmp_path: Path) -> None:
    """The flushes of a whole process that saves, counted by the system: start and close included."""
    counts = {}
    for saves in (0, COUNTED):
        trace = tmp_path / f"trace-{saves}"
        command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range", "-o", str(trace)]
        subprocess.run([*command, sys.executable, "-c", SAVER, str(tmp_path / f"m{saves}"), str(saves)], check=True)
        calls = Counter(line.split("(")[0].split()[-1] for line in trace.read_text().splitlines() if "(" in line)
        counts[saves] = sum(calls.values())
    show("flushes a save", f"{(counts[COUNTED] - counts[0]) / COUNTED:.2f}", "goal 1.1")
