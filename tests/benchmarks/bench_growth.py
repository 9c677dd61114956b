"""How a prompt, recall, list, search and save grow with the number of entries, and an append with the size of a note.

``MEMFILES_BENCH_ENTRIES`` are the numbers of entries, ``1000,10000,100000`` if it is not set.
``MEMFILES_BENCH_PAGES=1`` writes ``docs/measurements/growth.md`` and its charts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from memfiles import Memory
from memfiles.tools.session import Session
from tests.benchmarks import page
from tests.benchmarks.bare import in_turns, ratios, replace_durably, seconds
from tests.benchmarks.bench_writes import against_f, appended
from tests.benchmarks.chart import Points, svg
from tests.benchmarks.grounds import grounds
from tests.benchmarks.language import contents, questions, short_questions
from tests.benchmarks.page import Figure, at_most
from tests.benchmarks.writers import DEFAULTS, PARTS, opened

ENTRIES = [int(each) for each in os.environ.get("MEMFILES_BENCH_ENTRIES", "1000,10000,100000").split(",")]
KILOBYTES = [2, 4, 8, 16, 32, 64, 128, 256]
READ_GOALS = {1_000: 2.0, 10_000: 3.0, 100_000: 5.0}  # ms, of a prompt, a recall and a list, by number of entries
FIRST_SEARCH_GOAL = 300.0  # ms, at 100,000
FIRST_PROMPT, FIRST_SEARCH = "the first prompt after opening", "the first search after opening"
UNSET = "the prompt with a block of 256 KiB"
ROUNDS = 60
IN_A_BATCH = 5_000
CHARTS = ("prompts-by-entries.svg", "searches-by-entries.svg", "appends-by-size.svg")
INTRO = f"""\
Measured with `memfiles.open(workflow)` and its defaults: watched, with an audit, durability fsync. Entries have 8 to
30 words each and belong to one agent. A figure is the median of {ROUNDS}, with the middle half of them in brackets. A
prompt is a session that opens, renders its system prompt and closes; its block of entries has 16 KiB, as in the
workflow that `memfiles init` writes. A workflow that does not set `hydrate_bytes` has 256 KiB. Questions have three
to six words; short ones have one to three, as in "plan?". F is the durable replacement of the same bytes, in turns
with the save or the append."""


def test_growth(tmp_path: Path) -> None:
    """Every figure, printed, and written to the page and its charts."""
    lines: dict[str, list[tuple[float, float]]] = {}
    with grounds(tmp_path, megabytes=1536) as (found, lacking):
        ground = found[0]
        parts: dict[str, list[Figure]] = {}
        for size in ENTRIES:
            print(f"\n  {size:,} entries, on {ground.file_system}")
            measured = measure(ground.folder / str(size), size)
            parts[f"{size:,} entries"] = [figure.printed() for figure in figures(size, measured)]
            for what, taken in measured.items():
                if what != "F":
                    lines.setdefault(what, []).append((size, median(taken) * 1e3))
        print(f"\n  Appends, on {ground.file_system}")
        sizes = {
            each: appended(ground.folder / f"{each}-kb", each, [DEFAULTS, PARTS], rounds=ROUNDS) for each in KILOBYTES
        }
        parts["Appends"] = [
            against_f(f"append, {each} KB, with the defaults", taken[DEFAULTS], taken["F"]).printed()
            for each, taken in sizes.items()
        ]
    print(f"  {lacking}")
    intro = "\n\n".join(filter(None, [f"{INTRO} File system: {ground.file_system}.", lacking]))
    text = page.rendered("Growth", intro, parts, charts=CHARTS)
    prompts = {what: points for what, points in lines.items() if "prompt" in what or "recall" in what}
    others = {what: points for what, points in lines.items() if what not in prompts}
    drawn = (by_entries("Prompts and recall", prompts), by_entries("Searches, lists and saves", others), by_size(sizes))
    page.write("growth", text, charts=dict(zip(CHARTS, drawn, strict=True)))


def measure(folder: Path, size: int, *, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """The seconds of everything that is done in a memory with so many entries."""
    texts = contents(random.Random(size), size)
    with opened(folder, []) as memory:
        session = memory.session("assistant", run="filled", ends_run=False)
        for start in range(0, size, IN_A_BATCH):
            batch = enumerate(texts[start : start + IN_A_BATCH], start)
            memory.entries.save_many(session, [{"key": f"note-{n}", "content": text} for n, text in batch])
    first: dict[str, list[float]] = {}
    ways: dict[str, Callable[[Memory], object]] = {
        FIRST_PROMPT: _prompt,
        FIRST_SEARCH: partial(_search, question=texts[0]),
    }
    for what, work in ways.items():
        with opened(folder, []) as memory:
            first[what] = [seconds(partial(work, memory))]
    with opened(folder, []) as memory:
        return first | dict(_measured(memory, folder, texts, rounds=rounds))


def _measured(memory: Memory, folder: Path, texts: Sequence[str], *, rounds: int) -> Iterator[tuple[str, list[float]]]:
    session = memory.session("assistant", run="asked", ends_run=False)
    _prompt(memory)
    _search(memory, texts[0])
    yield "a prompt", [seconds(lambda: _prompt(memory)) for _ in range(rounds)]
    yield UNSET, [seconds(lambda: _prompt(memory, 256 * 1024)) for _ in range(rounds)]
    yield "a prompt after a save", [_prompt_after_a_save(memory, session, texts) for _ in range(rounds)]
    asked = [" ".join(words) for words in questions(random.Random(1), texts, rounds)]
    short = short_questions(random.Random(2), texts, rounds)
    yield "a recall", _each(session.recall, asked)
    yield "a recall of a short question", _each(session.recall, short)
    yield "a search", _each(lambda question: memory.entries.search(session, question), asked)
    yield "a search of a short question", _each(lambda question: memory.entries.search(session, question), short)
    yield "a list of the first 50 keys", [seconds(lambda: memory.entries.list(session)) for _ in range(rounds)]
    yield "a list of the last 50 changed", _each(lambda _: memory.entries.list(session, order="updated"), asked)
    yield from _saves(memory, session, folder, texts, rounds=rounds).items()


def _each(work: Callable[[str], object], asked: Sequence[str]) -> list[float]:
    return [seconds(lambda: work(question)) for question in asked]


def _search(memory: Memory, question: str) -> None:
    with closing(memory.session("assistant", run="turn", ends_run=False)) as session:
        memory.entries.search(session, question)


def _prompt(memory: Memory, budget_bytes: int | None = None) -> None:
    with closing(memory.session("assistant", run="turn", ends_run=False)) as session:
        assert "note-" in session.system_prompt(budget_bytes=budget_bytes)


def _prompt_after_a_save(memory: Memory, session: Session, texts: Sequence[str]) -> float:
    memory.entries.save(session, "the last", random.choice(texts))
    return seconds(lambda: _prompt(memory))


def _saves(
    memory: Memory, session: Session, folder: Path, texts: Sequence[str], *, rounds: int
) -> dict[str, list[float]]:
    data = next((folder / ".memory/entries/assistant").glob("*.json")).read_bytes()
    numbers = count()
    ways: dict[str, Callable[[int], object]] = {
        "a save": lambda turn: memory.entries.save(session, f"note-{next(numbers)}", texts[-1 - turn]),
        "F": lambda _: replace_durably(folder / "bare", data),
    }
    return in_turns(ways, rounds=rounds)


def figures(size: int, measured: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    """The figures of one number of entries, with their goals."""
    for what, taken in measured.items():
        if what == "F":
            continue
        value = median(taken) * 1e3
        spread = f" [{' to '.join(f'{each * 1e3:.2f}' for each in quantiles(taken, n=4)[::2])}]" if taken[1:] else ""
        shown = f"{value:.2f} ms{spread}"
        if what == "a save":
            low, middle, high = ratios(taken, measured["F"])
            yield at_most(what, middle, 0.7, shown=f"{middle:.2f} F [{low:.2f} to {high:.2f}], {shown}", unit=" F")
        elif what.startswith(("a prompt", "a recall", "a list")) and size in READ_GOALS:
            yield at_most(what, value, READ_GOALS[size], shown=shown, unit=" ms")
        elif what == FIRST_SEARCH and size == max(READ_GOALS):
            yield at_most(what, value, FIRST_SEARCH_GOAL, shown=shown, unit=" ms")
        else:
            yield Figure(what, shown)


def by_entries(title: str, lines: Mapping[str, Points]) -> str:
    """A chart of milliseconds by number of entries."""
    return svg(title, lines, x="entries", y="ms")


def by_size(sizes: Mapping[int, Mapping[str, Sequence[float]]]) -> str:
    """The chart of milliseconds by size of the note."""
    names = {DEFAULTS: "with the defaults", PARTS: "the manager alone", "F": "F"}
    lines = {
        shown: [(size, median(taken[name]) * 1e3) for size, taken in sizes.items()] for name, shown in names.items()
    }
    return svg("An append, by the size of the note", lines, x="KB", y="ms")
