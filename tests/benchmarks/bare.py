"""The bare operations that the figures are ratios of, written as plainly as the system allows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles

_JOURNAL_BYTES = 4 * 2**20
_FRAME = bytes(512)


def replace_durably(path: Path, data: bytes) -> None:
    """F: a temp file, fsync, rename, fsync of the directory."""
    temp = f"{path}.tmp"
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temp, path)
    os.fsync(directory)
    os.close(directory)


@contextmanager
def journaled(folder: Path, data: bytes) -> Iterator[Callable[[], None]]:
    """The least that a change costs with a journal: a frame of it is flushed, and the record written and renamed.

    Nothing is decided, locked, encoded or looked at.
    """
    folder.mkdir()
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    journal = os.open("journal", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=directory)
    os.pwrite(journal, bytes(_JOURNAL_BYTES), 0)
    os.fsync(journal)
    places = cycle(range(0, _JOURNAL_BYTES, len(_FRAME)))

    def change() -> None:
        descriptor = os.open("temp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        os.write(descriptor, data)
        os.close(descriptor)
        os.pwrite(journal, _FRAME, next(places))
        os.fdatasync(journal)
        os.rename("temp", "record", src_dir_fd=directory, dst_dir_fd=directory)

    try:
        yield change
    finally:
        os.close(journal)
        os.close(directory)


def create_files(folder: Path, data: bytes, count: int) -> None:
    """The least that a file for each record costs: it is created, written and renamed, and nothing is flushed."""
    folder.mkdir()
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        temp = f".{number}.json.tmp"
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        os.write(descriptor, data)
        os.close(descriptor)
        os.rename(temp, f"{number}.json", src_dir_fd=directory, dst_dir_fd=directory)
    os.close(directory)


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def paired(one: Callable[[], object], other: Callable[[], object], *, rounds: int) -> tuple[float, float, float]:
    """The median seconds of two operations run in turns, and the median of their ratios (one / other)."""
    pairs = [(seconds(one), seconds(other)) for _ in range(rounds)]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a / b for a, b in pairs)


def in_turns(
    operations: Mapping[str, Callable[[int], object]], *, rounds: int, each: int = 1
) -> dict[str, list[float]]:
    """The seconds of each operation in each round, in which it is repeated so often, on consecutive numbers.

    They run in turns, and each round begins with another one.
    """
    names, taken = list(operations), {name: [0.0] * rounds for name in operations}

    def repeated(work: Callable[[int], object], begin: int) -> None:
        for number in range(begin, begin + each):
            work(number)

    for turn in range(rounds):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            taken[name][turn] = seconds(partial(repeated, operations[name], turn * each)) / each
    return taken


def ratios(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile of what one took against the other in the same round."""
    lower, middle, upper = quantiles([one / other for one, other in zip(ones, others, strict=True)], n=4)
    return lower, middle, upper


def rate_of_threads(count: int, work: Callable[[int], object], *, each: int) -> float:
    """Operations a second of ``count`` threads, each calling ``work`` with its number ``each`` times."""

    def run(number: int) -> None:
        for _ in range(each):
            work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]

    def start_and_join() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return count * each / seconds(start_and_join)


def show(what: str, figure: str, goal: str = "") -> None:
    """Print one line of figures."""
    print(f"  {what:<58} {figure:<44} {goal}")
