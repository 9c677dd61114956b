"""The benchmarks run, measure every goal, and say what they missed and where they could not measure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from memfiles.index.search.weights import WEIGHTS
from tests.benchmarks import bench_growth, bench_writes, fitting, retrieval
from tests.benchmarks.bare import in_turns, ratios
from tests.benchmarks.chart import COLORS, svg
from tests.benchmarks.conversations import Conversation, Question, Turn
from tests.benchmarks.grounds import Ground, file_system
from tests.benchmarks.page import Figure, at_least, at_most, rendered, where
from tests.benchmarks.writers import DEFAULTS, HISTORY, LINE, WRITERS, Writer, note_of, opened

_SVG = "{http://www.w3.org/2000/svg}"


def goals(figures: Sequence[Figure]) -> set[str]:
    return {figure.goal for figure in figures if figure.goal}


@pytest.mark.slow
def test_every_goal_of_a_write_is_measured(tmp_path: Path) -> None:
    """Appends of three sizes, flushes, edits, saves, threads and batches each have a figure with their goal."""
    figures = list(bench_writes.figures(tmp_path / "writes", Ground("root", tmp_path, "here"), rounds=4))

    wanted = {"0.42 F", "0.5 F", "0.6 F", "0.7 F", "1.1", "100 us of CPU", "80 us of CPU", "10 us"}
    assert {f"at most {goal}" for goal in wanted} | {"at least 1.2 times"} == goals(figures)


@pytest.mark.slow
def test_others_are_measured_in_the_same_run(tmp_path: Path) -> None:
    """Each that is installed has a figure, and one that is not says so."""
    some = {name: writer for name, writer in WRITERS.items() if name == DEFAULTS or name.startswith("SQLite")}
    absent = {"a store that nobody has": Writer(WRITERS[DEFAULTS].opened, "yes", "no_such_module")}
    figures = list(bench_writes.beside_others(tmp_path / "beside", some | absent, rounds=2))

    assert [*some, *absent] == [figure.what for figure in figures]
    assert ["times the defaults" in figure.shown for figure in figures] == [True, True, False]
    assert "not measured: not installed" == figures[-1].shown


@pytest.mark.slow
def test_growth_is_measured(tmp_path: Path) -> None:
    """A prompt, a recall and a list have their goals at 1,000 entries, and every operation has a figure."""
    measured = bench_growth.measure(tmp_path / "memory", 1_000, rounds=3)
    figures = list(bench_growth.figures(1_000, measured))

    assert {"at most 2 ms", "at most 0.7 F"} == goals(figures)
    assert set(measured) - {"F"} == {figure.what for figure in figures}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, writer in WRITERS.items() if writer.is_installed])
def test_a_writer_keeps_its_lines(name: str, tmp_path: Path) -> None:
    """Every writer has on the disk each line that it appended."""
    with WRITERS[name].opened(tmp_path / "notes", ["x\n" * 400, "y\n" * 300]) as append:
        for number in (0, 1, 1):
            append(number)

    kept = b"".join(path.read_bytes() for path in (tmp_path / "notes").rglob("*") if path.is_file())
    assert 3 <= kept.count(LINE.strip().encode())


def test_a_note_is_full_of_changes(tmp_path: Path) -> None:
    """What is measured has the declared size and as many changes as a record keeps."""
    with opened(tmp_path, [note_of(2048)]) as memory:
        snapshot = memory.manager.snapshot("note-0")

    assert (2048, HISTORY) == (len(snapshot.content), len(snapshot.history))
    assert {"append"} == {change.op for change in snapshot.history}


def test_turns() -> None:
    """Operations run in turns, and another one begins each round."""
    done: list[str] = []

    def note(name: str, _: int) -> None:
        done.append(name)

    taken = in_turns({name: partial(note, name) for name in "abc"}, rounds=3)

    assert list("abcbcacab") == done
    assert {"a": 3, "b": 3, "c": 3} == {name: len(times) for name, times in taken.items()}
    assert (0.5, 0.5, 0.5) == ratios([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])


def test_a_page_says_what_was_missed() -> None:
    """It counts the goals, marks those that were missed, and names the commit, the machine and the date."""
    figures = [
        at_most("an append", 0.5, 0.42, shown="0.50 F", unit=" F"),
        at_most("an edit", 0.6, 0.6, shown="0.60 F", unit=" F"),
        at_least("threads", 1.1, 1.2, shown="1.1 times", unit=" times"),
        Figure("a read", "3 us"),
    ]
    text = rendered("Title", "What F is.", {"Here": figures}, charts=["growth.svg"])

    assert "Goals missed in this run: 2 of 3." in text
    assert "| an append | 0.50 F | at most 0.42 F: missed |\n| an edit | 0.60 F | at most 0.6 F |\n" in text
    assert "| threads | 1.1 times | at least 1.2 times: missed |\n| a read | 3 us |  |\n" in text
    assert text.endswith("![growth](growth.svg)\n")
    assert all(word in where() for word in ("commit ", "cores", "Linux", "Python", "load"))


def test_weights_are_fitted_to_what_a_search_does() -> None:
    """The arrays rank as a search does, with the weights of the table and with those that a fit begins with."""
    said = [
        *(
            "Ann: Where did you move?",
            "Bob: To Oslo, in May.",
            "Ann: Is it cold there?",
            "Bob: Five degrees, on Monday.",
        ),
        *("Ann: Eve moved to Oslo last year.", "Bob: Who is Eve?", "Ann: My sister.", "Bob: I like Oslo."),
    ]
    days = ("2026-05-04", "2026-06-01")
    turns = [Turn(f"t{n}", text, f"session {n // 4}", days[n // 4]) for n, text in enumerate(said)]
    asked = ("When did Bob move?", "Where did Eve move to?", "How many degrees has Oslo?", "Who is the sister of Ann?")
    questions = [Question(text, ("t1",), 1) for text in asked]
    conversation = Conversation("made up", tuple(turns), tuple(questions))
    arrays = fitting.arrays_of(conversation)

    for weights in WEIGHTS, fitting.weights_at(fitting.START):
        find = retrieval.searching(conversation, weights=weights)
        ranked = fitting.ranked(arrays, weights)
        orders = [sorted(range(8), key=lambda place: (-row[place], -place)) for row in ranked]  # noqa: B023
        assert [find(text) for text in asked] == [
            [f"t{place}" for place in order if row[place] >= 0] for order, row in zip(orders, ranked, strict=True)
        ]


def test_a_chart() -> None:
    """Each line has its points in order, and its name; more is further right and higher up."""
    lines = {
        "a < b": [(1_000.0, 2.0), (100_000.0, 200.0), (10_000.0, 20.0)],
        "flat": [(1_000.0, 5.0), (100_000.0, 5.0)],
    }
    drawn = ElementTree.fromstring(svg("Title & more", lines, x="entries", y="ms"))

    paths = [line.get("points", "") for line in drawn.iter(f"{_SVG}polyline")]
    points = [[tuple(map(float, point.split(","))) for point in path.split()] for path in paths]
    assert [3, 2] == [len(line) for line in points]
    assert points[0] == sorted(points[0]) == sorted(points[0], key=lambda point: -point[1])
    assert points[1][0][1] == points[1][1][1]
    texts = [text.text for text in drawn.iter(f"{_SVG}text")]
    assert {"Title & more", "entries", "ms", "a < b", "flat", "1,000", "100,000", "100"} <= set(texts)


def test_lines_of_a_chart_can_be_told_apart() -> None:
    """Two lines never share a color: more of them than there are colors are refused."""
    with pytest.raises(ValueError, match="zip"):
        svg("Title", {str(number): [(1.0, 1.0)] for number in range(len(COLORS) + 1)}, x="x", y="y")


def test_the_file_system_of_a_path(tmp_path: Path) -> None:
    """It is that of the mount that the path is on, not of the root."""
    assert file_system(Path("/proc/self")).startswith("proc on ")
    assert " on " in file_system(tmp_path)
