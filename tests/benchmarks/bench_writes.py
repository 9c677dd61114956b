"""Durable writes against F, the bare temp + fsync + rename + directory fsync of the same bytes in the same run.

On an image of ext4 with a journal, as users have it, and on the root; with the defaults of ``memfiles.open``, with the
manager alone, and next to what people use instead. ``MEMFILES_BENCH_ROUNDS`` is how often each write is repeated.
``MEMFILES_BENCH_PAGES=1`` writes the figures to ``docs/measurements/writes.md``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from shutil import which
from statistics import median, quantiles

import pytest

from memfiles import MemoryManager
from tests.benchmarks import page, writers
from tests.benchmarks.bare import create_files, in_turns, journaled, rate_of_threads, ratios, replace_durably, seconds
from tests.benchmarks.grounds import VOLUME, Ground, grounds
from tests.benchmarks.language import contents
from tests.benchmarks.page import Figure, at_least, at_most
from tests.benchmarks.writers import DEFAULTS, LINE, NOTE_REPLACED, PARTS, TOOL, WRITERS, Append, Writer, note_of
from tests.support import ROOT

ROUNDS = int(os.environ.get("MEMFILES_BENCH_ROUNDS", "400"))
APPEND_GOALS = {2: 0.42, 16: 0.5, 64: 0.6}  # of F, by KB of the note
IN_A_BLOCK = 50  # writes of one kind on a limited device, before those of another
IN_A_ROW = 40  # appends to a note, around its size; then the next note
FEW = 20  # appends, after which the journal has its place on the disk
THREADS = 8
BATCHES = 5
BUSY_TURNS, BUSY_APPENDS = 60, 20  # of processor time, which swings: many short turns, and each begins with the other
LEAST = "the least with a journal"
SYNCS = "fsync,fdatasync,syncfs,sync,sync_file_range,msync"
INTRO = """\
F is the usual way to replace a file durably: write a temporary file, fsync it, rename it, fsync the directory. It
writes the bytes of the record and runs in turns with what is measured. A figure is the median of the ratios within a
round, with the middle half of them in brackets; {rounds} rounds. A note is a memory file with a full history of 100
changes. It gets lines of 49 bytes and has the named size halfway. "With the defaults" is `memory.manager` of
`memfiles.open(workflow)` with nothing set: watched, with an audit, durability fsync. "The manager alone" has neither
watcher nor audit. "The least with a journal" is what remains if nothing is decided, locked or encoded: a frame of 512
bytes is written and flushed, and the record is written and renamed. CPU is the processor's time of the whole process,
so the watcher's threads are in it. A flush may also write what another of the writers left to be written: on one file
system, they share that cost.

A virtual machine may flush in a tenth of a millisecond, as its host keeps what it writes. A volume in a cloud takes
longer, and is often limited to {volume:,} writes a second. So the same image is measured once more with that limit,
which the kernel enforces; longer flushes are not imitated. There, each round has {block} writes of a kind, as the
kernel lets through at once what a device did not write in the moments before."""


def test_writes(tmp_path: Path) -> None:
    """Every write on both grounds, printed, and written to the page."""
    parts: dict[str, list[Figure]] = {}
    with grounds(tmp_path) as (found, lacking):
        for ground in found:
            title = f"On {ground.name} ({ground.file_system})" if ground.disk else f"On the root ({ground.file_system})"
            print(f"\n  {title}")
            parts[title] = [figure.printed() for figure in figures(ground.folder / "writes", ground, rounds=ROUNDS)]
            if ground.disk is not None:
                title = f"On {ground.name}, limited to {VOLUME:,} writes a second"
                print(f"\n  {title}")
                parts[title] = [figure.printed() for figure in on_a_volume(ground.folder / "volume", ground)]
            print(f"\n  Next to others, on {ground.name}")
            beside = beside_others(ground.folder / "beside", WRITERS, rounds=ROUNDS)
            parts[f"Next to others, on {ground.name}"] = [figure.printed() for figure in beside]
    print(f"  {lacking}")
    intro = "\n\n".join(filter(None, [INTRO.format(rounds=ROUNDS, volume=VOLUME, block=IN_A_BLOCK), lacking]))
    page.write("writes", page.rendered("Durable writes", intro, parts))


def figures(folder: Path, ground: Ground, *, rounds: int) -> Iterator[Figure]:
    """Every figure of memfiles alone on one ground."""
    for kilobytes, goal in APPEND_GOALS.items():
        yield from _appends(folder / f"append-{kilobytes}", kilobytes, goal=goal, rounds=rounds)
    yield from _flushes(folder / "flushes", rounds=rounds)
    if ground.disk is not None:
        yield from _bytes_written(folder / "bytes", ground, rounds=rounds)
    yield from _edits(folder / "edit", rounds=rounds)
    yield from _saves(folder / "save", rounds=rounds)
    for kilobytes in (2, 16):
        yield from _threads(folder / f"threads-{kilobytes}", kilobytes, rounds=rounds)
    yield from _many(folder / "many", rounds=rounds)
    yield from _reads(folder / "read")


def on_a_volume(folder: Path, ground: Ground, *, rounds: int = max(8, ROUNDS // IN_A_BLOCK)) -> Iterator[Figure]:
    """The durable changes on a device that carries out few writes a second, if it can be limited here.

    Each is repeated for a while: the kernel lets through at once what a device did not write in the moments before.
    """
    try:
        with ground.limited(VOLUME):
            for kilobytes, goal in APPEND_GOALS.items():
                taken = appended(
                    folder / f"append-{kilobytes}", kilobytes, [DEFAULTS, PARTS], rounds=rounds, each=IN_A_BLOCK
                )
                yield against_f(f"append, {kilobytes} KB, with the defaults", taken[DEFAULTS], taken["F"], goal)
                yield against_f(f"append, {kilobytes} KB, the manager alone", taken[PARTS], taken["F"])
                yield against_f(f"append, {kilobytes} KB, {LEAST}", taken[LEAST], taken["F"])
            yield from _edits(folder / "edit", rounds=rounds, each=IN_A_BLOCK)
            yield from _saves(folder / "save", rounds=rounds, each=IN_A_BLOCK)
            yield from _threads(folder / "threads", 2, rounds=rounds * IN_A_BLOCK)
    except OSError as error:
        yield Figure("a device of few writes a second", f"not measured: it cannot be limited here ({error})")


def against_f(what: str, ours: Sequence[float], bare: Sequence[float], goal: float | None = None) -> Figure:
    """A ratio to F, with its middle half and the times."""
    low, middle, high = ratios(ours, bare)
    shown = f"{middle:.2f} F [{low:.2f} to {high:.2f}]: {median(ours) * 1e6:.0f} us, F {median(bare) * 1e6:.0f} us"
    return Figure(what, shown) if goal is None else at_most(what, middle, goal, shown=shown, unit=" F")


def notes_for(kilobytes: float, rounds: int) -> list[str]:
    """So many notes that each gets at most ``IN_A_ROW`` lines, halfway through which it has its size."""
    grown = min(IN_A_ROW, rounds) * len(LINE)
    return [note_of(int(kilobytes * 1024) - grown // 2)] * -(-rounds // IN_A_ROW)


def appended(
    folder: Path, kilobytes: float, names: Sequence[str], *, rounds: int, each: int = 1
) -> dict[str, list[float]]:
    """The seconds of each writer's appends, of the least, and of "F", which replaces the manager's record."""
    notes, ways = notes_for(kilobytes, rounds * each), dict[str, Append]()
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        for number, name in enumerate(names):
            ways[name] = stack.enter_context(WRITERS[name].opened(folder / str(number), notes))
        with writers.managed(folder / "record", notes[:1]):
            data = (folder / "record/note-0.json").read_bytes()
        ways["F"] = lambda _: replace_durably(folder / "bare", data)
        change = stack.enter_context(journaled(folder / "least", data))
        ways[LEAST] = lambda _: change()
        return in_turns({name: partial(_next_line, way) for name, way in ways.items()}, rounds=rounds, each=each)


def _next_line(append: Append, turn: int) -> None:
    append(turn // IN_A_ROW)


def _appends(folder: Path, kilobytes: int, *, goal: float, rounds: int) -> Iterator[Figure]:
    taken = appended(folder / "turns", kilobytes, [DEFAULTS, PARTS, TOOL, NOTE_REPLACED], rounds=rounds)
    what = f"append, {kilobytes} KB"
    yield against_f(f"{what}, with the defaults", taken[DEFAULTS], taken["F"], goal)
    yield against_f(f"{what}, the manager alone", taken[PARTS], taken["F"])
    yield against_f(f"{what}, {LEAST}", taken[LEAST], taken["F"])
    yield against_f(f"{what}, as a tool call of a session", taken[TOOL], taken["F"])
    yield against_f(f"{what}, F of the text alone", taken[NOTE_REPLACED], taken["F"])
    yield _busy(folder / "busy", kilobytes, what)


def _busy(folder: Path, kilobytes: int, what: str) -> Figure:
    """The processor's time for appends with the defaults, against those of the manager alone, by short turns."""
    notes, taken = notes_for(kilobytes, BUSY_TURNS * BUSY_APPENDS), {DEFAULTS: list[float](), PARTS: list[float]()}
    with WRITERS[DEFAULTS].opened(folder / "0", notes) as ours, WRITERS[PARTS].opened(folder / "1", notes) as parts:
        ways = {DEFAULTS: ours, PARTS: parts}
        for turn in range(BUSY_TURNS):
            for name in sorted(ways, reverse=turn % 2 == 0):
                begun = time.process_time()
                for _ in range(BUSY_APPENDS):
                    ways[name](turn * BUSY_APPENDS // IN_A_ROW)
                taken[name].append((time.process_time() - begun) / BUSY_APPENDS)
    low, middle, high = ratios(taken[DEFAULTS], taken[PARTS])
    ours_us, parts_us = (median(taken[name]) * 1e6 for name in (DEFAULTS, PARTS))
    shown = f"{middle:.2f} times [{low:.2f} to {high:.2f}]: {ours_us:.0f} us, {parts_us:.0f} us"
    return at_most(f"{what}, CPU with the defaults against the manager alone", middle, 1.1, shown=shown)


def _flushes(folder: Path, *, rounds: int) -> Iterator[Figure]:
    for name, what in ((DEFAULTS, "with the defaults"), (PARTS, "the manager alone")):
        each = flushes_of(name, folder / what.replace(" ", "-"), rounds)
        if each is None:
            yield Figure(f"flushes an append, {what}", "not measured: needs strace")
        else:
            yield at_most(f"flushes an append, {what}", each, 1.1, shown=f"{each:.2f} (F has 2)")


def flushes_of(name: str, folder: Path, changes: int) -> float | None:
    """The flushes of a whole process for each append, counted by the system: the later write-back is in it."""
    if which("strace") is None:
        return None
    folder.mkdir(parents=True)
    counted = []
    for appends in (0, changes):
        trace = folder / f"trace-{appends}"
        command = ["strace", "-f", "-qq", "-e", f"trace={SYNCS}", "-o", str(trace), sys.executable, "-m"]
        arguments = [writers.__name__, name, str(folder / str(appends)), str(appends)]
        subprocess.run([*command, *arguments], check=True, cwd=ROOT)
        counted.append(sum("(" in line for line in trace.read_text().splitlines()))
    return (counted[1] - counted[0]) / changes


def _bytes_written(folder: Path, ground: Ground, *, rounds: int) -> Iterator[Figure]:
    """Counted by the device until the memory is closed, all is written back, and the file system's journal is empty."""
    notes, appended = notes_for(2, rounds), rounds * len(LINE)

    def written(name: str, appends: int, after_each: Callable[[], None] = lambda: None) -> tuple[int, int]:
        with WRITERS[DEFAULTS].opened(folder / name, notes):
            pass
        bytes_before, flushes_before = ground.settled()
        with WRITERS[DEFAULTS].opened(folder / name, notes) as append:
            for turn in range(appends):
                append(turn * rounds // max(appends, 1) // IN_A_ROW)
                after_each()
        bytes_after, flushes_after = ground.settled()
        return bytes_after - bytes_before, flushes_after - flushes_before

    idle, few = written("idle", 0)[0], written("few", FEW)[0]
    total, flushes = written("many", rounds)
    apart, flushes_apart = written("apart", rounds, ground_flush(ground))
    data, begun = bytes(12 * 1024), ground.settled()
    for _ in range(rounds):
        replace_durably(folder / "bare", data)
    bare_bytes, bare_flushes = (each - before for each, before in zip(ground.settled(), begun, strict=True))
    what = "bytes on the device for a byte appended to a 2 KB note"
    each = (total - idle) / appended
    shown = f"{each:.0f}; {flushes / rounds:.1f} flushes of the device an append"
    yield at_most(f"{what}, {rounds} appends of a process", each, 60, shown=shown)
    later = (total - few) / (appended - FEW * len(LINE))
    yield Figure(f"{what}, those after the first {FEW}", f"{later:.0f}")
    shown = f"{(apart - idle) / appended:.0f}; {flushes_apart / rounds:.1f} flushes of the device an append"
    yield Figure(f"{what}, everything written back after each append", shown)
    shown = f"{bare_flushes / rounds:.1f} flushes of the device, {bare_bytes / rounds / 1024:.0f} KiB"
    yield Figure("F with 12 KiB, for comparison", shown)
    shown = f"{idle / 1024:.0f} KiB, {(few - idle) / 1024:,.0f} KiB more with {FEW} appends"
    yield Figure("written to the device by opening and closing a memory", shown)


def ground_flush(ground: Ground) -> Callable[[], None]:
    """What has everything written back."""
    assert ground.disk is not None
    return ground.disk.flush


def _edits(folder: Path, *, rounds: int, each: int = 1) -> Iterator[Figure]:
    notes = notes_for(2, rounds * each)
    with writers.opened(folder, notes) as memory:
        for number in range(len(notes)):
            memory.manager.append(f"note-{number}", "Bob is on plan 0.\n")
        data = (folder / ".memory/note-0.json").read_bytes()
        said = [0] * len(notes)

        def edit(turn: int) -> None:
            number = turn // IN_A_ROW
            before, said[number] = said[number], said[number] + 1
            memory.manager.edit(f"note-{number}", f"on plan {before}.", f"on plan {said[number]}.")

        ways: dict[str, Callable[[int], object]] = {"edit": edit, "F": lambda _: replace_durably(folder / "bare", data)}
        taken = in_turns(ways, rounds=rounds, each=each)
    yield against_f("edit, 2 KB, with the defaults", taken["edit"], taken["F"], 0.6)


def _saves(folder: Path, *, rounds: int, each: int = 1) -> Iterator[Figure]:
    texts, new = contents(random.Random(1), 1_000), count()
    with writers.opened(folder, []) as memory:
        session = memory.session("assistant", run="bench")
        memory.entries.save_many(session, [{"key": f"note-{n}", "content": text} for n, text in enumerate(texts)])
        data = next((folder / ".memory/entries/assistant").glob("*.json")).read_bytes()
        memory.entries.search(session, "settled")  # else the index is still taking these in during the first saves

        def save(key: str) -> None:
            memory.entries.save(session, key, texts[next(new) % len(texts)])

        ways: dict[str, Callable[[int], object]] = {
            "new": lambda turn: save(f"new-{turn}"),
            "known": lambda turn: save(f"note-{turn % len(texts)}"),
            "F": lambda _: replace_durably(folder / "bare", data),
        }
        taken = in_turns(ways, rounds=rounds, each=each)
        yield against_f("save of an entry under a known key, of 1,000", taken["known"], taken["F"], 0.7)
        yield against_f("save of an entry under a new key", taken["new"], taken["F"], 0.7)
        drafts = [{"key": f"batch-{n}", "content": texts[n % len(texts)]} for n in range(25 * rounds * each)]
        busy, wall = time.process_time(), time.perf_counter()
        memory.entries.save_many(session, drafts)
    cost, shown = _cost_of_each(busy, wall, len(drafts))
    what = f"save_many of {len(drafts):,} entries, each, with the close"
    yield at_most(what, cost, 100, shown=shown, unit=" us of CPU")
    busy, wall = time.process_time(), time.perf_counter()
    create_files(folder / "files", data, len(drafts))
    yield Figure("as many files, created, written and renamed, each", _cost_of_each(busy, wall, len(drafts))[1])


def _cost_of_each(busy: float, wall: float, count: int) -> tuple[float, str]:
    """The microseconds of the processor since then for each of so many changes, and with the time by the clock."""
    each, passed = (time.process_time() - busy) / count * 1e6, (time.perf_counter() - wall) / count * 1e6
    return each, f"{each:.0f} us of CPU, {passed:.0f} us by the clock"


def _threads(folder: Path, kilobytes: int, *, rounds: int) -> Iterator[Figure]:
    each, notes = max(rounds // 8, 1), [note_of(kilobytes * 1024)] * THREADS
    with ExitStack() as stack:
        memory = stack.enter_context(writers.opened(folder / "0", notes))
        manager = stack.enter_context(writers.managed(folder / "1", notes))
        data = (folder / "1/note-0.json").read_bytes()
        least = [stack.enter_context(journaled(folder / f"least-{n}", data)) for n in range(THREADS)]
        ways: dict[str, Callable[[int], object]] = {
            "F": lambda n: replace_durably(folder / f"bare-{n}", data),
            "with the defaults": lambda n: memory.manager.append(f"note-{n}", LINE),
            "the manager alone": lambda n: manager.append(f"note-{n}", LINE),
            LEAST: lambda n: least[n](),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(BATCHES):
            for name, work in ways.items():
                rates[name].append(rate_of_threads(THREADS, work, each=each))
    for name in list(ways)[1:]:
        low, middle, high = ratios(rates[name], rates["F"])
        shown = (
            f"{middle:.2f} times [{low:.2f} to {high:.2f}]: {median(rates[name]):.0f}/s, F {median(rates['F']):.0f}/s"
        )
        what = f"eight threads on eight notes of {kilobytes} KB, against F with eight threads, {name}"
        yield at_least(what, middle, 1.2, shown=shown, unit=" times") if "defaults" in name else Figure(what, shown)


def _many(folder: Path, *, rounds: int) -> Iterator[Figure]:
    notes = [note_of(1024)] * (5 * rounds // 2)
    appends = [(f"note-{number}", LINE) for number in range(len(notes))]
    what = f"append_many to {len(notes):,} notes of 1 KB, each, with the checkpoint"
    with writers.opened(folder / "full", notes) as memory, MemoryManager(folder / "new") as manager:
        manager.restore(writers.declared(notes))
        data = (folder / "full/.memory/note-0.json").read_bytes()
        bare = median(seconds(lambda: replace_durably(folder / "bare", data)) for _ in range(rounds))
        fresh, fresh_shown = _batches(manager, appends, bare)
        yield at_most(f"{what}, without a history, the manager alone", fresh, 80, shown=fresh_shown, unit=" us of CPU")
        yield Figure(f"{what}, with a full history", _batches(memory.manager, appends, bare)[1])
        one = seconds(lambda: memory.manager.append_many([("note-0", "- x\n")] * 1000)) / 1000
        yield Figure("append_many of 1,000 lines to one note, each", f"{one * 1e6:.0f} us, {one / bare:.2f} F")


def _batches(manager: MemoryManager, appends: Sequence[tuple[str, str]], bare: float) -> tuple[float, str]:
    """Microseconds of the processor for each append of some batches, with their spread and the time by the clock."""
    busy, wall = [], []
    for _ in range(BATCHES):
        begun = time.process_time()
        wall.append(seconds(lambda: _many_at_once(manager, appends)) / len(appends))
        busy.append((time.process_time() - begun) / len(appends) * 1e6)
    low, middle, high = quantiles(busy, n=4)
    return middle, f"{middle:.0f} us of CPU [{low:.0f} to {high:.0f}], {median(wall) / bare:.2f} F by the clock"


def _many_at_once(manager: MemoryManager, appends: Sequence[tuple[str, str]]) -> None:
    manager.append_many(appends)
    manager.checkpoint()


def _reads(folder: Path) -> Iterator[Figure]:
    with writers.opened(folder, [note_of(16 * 1024)]) as memory:
        each = [seconds(lambda: [memory.manager.read("note-0") for _ in range(1000)]) / 1000 for _ in range(20)]
    low, middle, high = quantiles(each, n=4)
    shown = f"{middle * 1e6:.1f} us [{low * 1e6:.1f} to {high * 1e6:.1f}]"
    yield at_most("read of a note of 16 KB, with its look at the file", middle * 1e6, 10, shown=shown, unit=" us")


def beside_others(folder: Path, compared: Mapping[str, Writer], *, rounds: int) -> Iterator[Figure]:
    """The same change, a line at the end of a note of 2 KB, by each writer in turns; memfiles alone keeps a history."""
    installed = [name for name, writer in compared.items() if writer.is_installed]
    taken = appended(folder / "turns", 2, installed, rounds=rounds)
    for number, (name, writer) in enumerate(compared.items()):
        if name not in installed:
            yield Figure(name, "not measured: not installed")
            continue
        low, middle, high = ratios(taken[name], taken[DEFAULTS])
        flushes = flushes_of(name, folder / f"flushes-{number}", rounds)
        counted = "" if flushes is None else f", {flushes:.2f} flushes"
        shown = (
            f"{median(taken[name]) * 1e6:.0f} us{counted}: {middle:.2f} times the defaults [{low:.2f} to {high:.2f}]"
        )
        yield Figure(name, f"{shown}; durable: {writer.durable}")


@pytest.mark.skipif(which("strace") is None, reason="needs strace")
def test_flushes_of_a_bare_replacement(tmp_path: Path) -> None:
    """What F does is counted in the same way, so that the counting is known to work."""
    assert flushes_of(NOTE_REPLACED, tmp_path / "bare", 10) == 2
