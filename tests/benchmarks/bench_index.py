"""The index of entries: what a save pays for it, how fast it opens, catches up and is verified."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from memfiles.index import groups
from tests.benchmarks.bare import seconds, show
from tests.index.indexed import SUPPORT, Memory, many

ROUNDS = 9
SAVES = 2000


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_an_index_of(tmp_path: Path, size: int) -> None:
    """Everything that must not grow with the number of entries, and what may."""
    memory = Memory(tmp_path / "memory")
    records = list(many(size))
    for record in records:
        memory.write(record)
    show(f"{size:,} entries: built anew", f"{seconds(memory.index.verify) / size * 1e6:.0f} us each")
    memory.close()
    show(f"{size:,} entries: open", f"{median(_open(memory.directory) for _ in range(ROUNDS)) * 1e3:.1f} ms", "goal 10")
    memory = Memory(memory.directory)
    show(f"{size:,} entries: a look at all files", f"{seconds(memory.index.verify) * 1e3:.0f} ms")
    _save(memory, size)
    idle = median(seconds(memory.index.catch_up) for _ in range(1000))
    show(f"{size:,} entries: catching up with nothing", f"{idle * 1e6:.1f} us")
    worst = median(seconds(lambda: _victims(memory)) for _ in range(ROUNDS))
    show(f"{size:,} entries: ten to evict", f"{worst * 1e6:.0f} us", "the same at any size")
    show(f"{size:,} entries: forget one", f"{seconds(lambda: memory.index.forget([records[0].path])) * 1e3:.0f} ms")
    show(f"{size:,} entries: close", f"{seconds(memory.close) * 1e3:.0f} ms")


def _open(directory: Path) -> float:
    memory = Memory(directory)
    taken = seconds(lambda: memory.index.totals(SUPPORT))
    memory.close()
    return taken


def _save(memory: Memory, size: int) -> None:
    written = [(record, memory.write(record)) for record in many(SAVES, start=size)]

    def announce_and_put(number: int) -> None:
        token = memory.index.intend([written[number][0].path])
        memory.index.put([written[number]], token)

    each = [seconds(lambda: announce_and_put(number)) for number in range(SAVES)]
    rest = seconds(memory.index.catch_up)
    show(f"{size:,} entries: announce and put one", f"{median(each) * 1e6:.1f} us", "goal 12")
    show(f"{size:,} entries: with the database in batches", f"{(sum(each) + rest) / SAVES * 1e6:.1f} us each")


def _victims(memory: Memory) -> None:
    memory.index.ask(lambda connection: groups.least_worthy(connection, SUPPORT, limit=10))
