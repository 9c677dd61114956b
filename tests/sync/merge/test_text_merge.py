"""Merging texts by lines: nothing of either writer is lost, and only the same lines changed differently clash."""

from __future__ import annotations

import json
import subprocess
import time
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.sync.merge.text_merge import (
    MergedText,
    Side,
    lines_of,
    lost_parts,
    merge_text,
    shared_beginning,
    unite_text,
    with_lines,
)
from tests.support.records import many_times

SIDES: tuple[Side, ...] = ("first", "second")
GIT_CONFLICTS_MAX = 127  # the exit code of ``git merge-file`` counts them up to here; more is an error

texts = st.text("ab\n", max_size=12)
lines = st.lists(st.sampled_from("abc"), max_size=6).map(lambda names: "".join(f"{name}\n" for name in names))

CLEAN: dict[str, tuple[str, str, str, str]] = {
    # base, first, second, merged
    "both appended": ("a\n", "a\nx\n", "a\ny\n", "a\nx\ny\n"),
    "both put something into nothing": ("", "x\n", "y\n", "x\ny\n"),
    "both appended the same": ("a\n", "a\nx\n", "a\nx\n", "a\nx\n"),
    "neighbouring lines": ("a\nb\n", "A\nb\n", "a\nB\n", "A\nB\n"),
    "one edited the last line, the other appended": ("a\nb\n", "a\nB\n", "a\nb\nx\n", "a\nB\nx\n"),
    "one appended, the other edited the last line": ("a\nb\n", "a\nb\nx\n", "a\nB\n", "a\nB\nx\n"),
    "one did both, the other appended": ("a\nb\n", "a\nB\nx\n", "a\nb\ny\n", "a\nB\nx\ny\n"),
    "one edited and appended, the other edited elsewhere": ("a\nb\nc\n", "a\nb\nC\nx\n", "A\nb\nc\n", "A\nb\nC\nx\n"),
    "both inserted at one place": ("a\nz\n", "a\nx\nz\n", "a\ny\nz\n", "a\nx\ny\nz\n"),
    "both inserted, alike at first": ("a\nz\n", "a\nx\n1\nz\n", "a\nx\n2\nz\n", "a\nx\n1\n2\nz\n"),
    "one deleted, the other appended": ("a\nb\n", "a\n", "a\nb\nx\n", "a\nx\n"),
    "both deleted the same": ("a\nb\nc\n", "a\nc\n", "a\nc\nx\n", "a\nc\nx\n"),
    "both made the same edit, and more": ("a\nb\nc\n", "A\nb\nc\nx\n", "A\nb\nC\n", "A\nb\nC\nx\n"),
    "a line without an end got one": ("a\nb", "a\nb\nx\n", "A\nb", "A\nb\nx\n"),
    "the last line got an end and was edited": ("a", "a\nx\n", "A", "A\nx\n"),
    "a line in the middle without an end gets one": ("a\nz\n", "a\nz\nx", "A\nz\ny\n", "A\nz\nx\ny\n"),
    "other separators are text": ("a\rb\nc\n", "a\rB\nc\n", "a\rb\nC\u2028d\n", "a\rB\nC\u2028d\n"),
}


@pytest.mark.parametrize("what", CLEAN)
def test_what_does_not_clash_is_kept_of_both(what: str) -> None:
    """Whoever would win; where both put text in one place, the first writer's comes first."""
    base, first, second, merged = CLEAN[what]

    assert [MergedText(merged)] * 2 == [
        merge_text(base, first, second, winner="first"),
        merge_text(base, first, second, winner="second"),
    ]


CLASHING: dict[str, tuple[str, str, str, str, str]] = {
    # base, first, second, merged if the first wins, if the second wins
    "the same line": ("a\n", "x\n", "y\n", "x\n", "y\n"),
    "one deleted what the other edited": ("a\nb\n", "b\n", "A\nb\n", "b\n", "A\nb\n"),
    "the rest is kept of both": ("a\nb\nc\n", "A\nx\nc\n", "a\ny\nC\n", "A\nx\nC\n", "A\ny\nC\n"),
    "what the loser added is kept": ("a\n", "x\nmore\n", "y\n", "x\nmore\n", "y\nmore\n"),
    "a line without an end": ("a", "ab", "ac", "ab", "ac"),
}


@pytest.mark.parametrize("what", CLASHING)
def test_lines_that_both_changed_differently_are_the_winner_s(what: str) -> None:
    """Only those lines, and it is said that something was lost."""
    base, first, second, with_first, with_second = CLASHING[what]

    assert [MergedText(with_first, is_clean=False), MergedText(with_second, is_clean=False)] == [
        merge_text(base, first, second, winner="first"),
        merge_text(base, first, second, winner="second"),
    ]


@many_times
@given(texts, texts)
def test_what_one_did_alone_is_the_result(base: str, text: str) -> None:
    """Or what both did alike."""

    assert {MergedText(text)} == {
        merge_text(base, base, text, winner="first"),
        merge_text(base, text, base, winner="second"),
        merge_text(base, text, text, winner="first"),
    }


@many_times
@given(lines, lines, lines)
def test_a_clean_merge_does_not_depend_on_the_winner(base: str, first: str, second: str) -> None:
    """The winner matters where something is lost, and only there."""
    merged = [merge_text(base, first, second, winner="first"), merge_text(base, first, second, winner="second")]

    assert merged[0].is_clean == merged[1].is_clean
    assert merged[0] == merged[1] or not merged[0].is_clean


@many_times
@given(lines, lines, lines)
def test_a_clean_merge_invents_no_line(base: str, first: str, second: str) -> None:
    """Every line of it is in one of the texts."""
    merged = merge_text(base, first, second, winner="first").text

    assert set() == set(lines_of(merged)) - {*lines_of(base), *lines_of(first), *lines_of(second)}


RECORDED = json.loads(Path(__file__).with_name("three_way_merges.json").read_text("utf-8"))


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: ascii(case["base"])[:20])
def test_merges_are_as_they_always_were(case: dict[str, Any]) -> None:
    """Records were merged so by earlier versions (with another algorithm for regions), and machines must agree."""
    merged = [merge_text(case["base"], case["first"], case["second"], winner=winner) for winner in SIDES]

    assert [MergedText(text, case["clean"]) for text in (case["merged"] * 2)[:2]] == merged


@st.composite
def edited(draw: st.DrawFn, base: list[str], *, tag: str) -> str:
    """A text made of the base, whose lines differ: some deleted, some replaced and some added, all of them new."""
    lines: list[str] = []
    for number, line in enumerate([*base, None]):
        for extra in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
            lines.append(draw(st.sampled_from([f"{tag}{number}.{extra}", f"both{number}.{extra}"])))
        change = draw(st.sampled_from(["keep", "keep", "keep", "keep", "delete", "edit", "edit alike"]))
        if line is not None and change != "delete":
            lines.append({"keep": line, "edit": f"{tag}{number}", "edit alike": f"edited{number}"}[change])
    return "".join(f"{line}\n" for line in lines)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A base whose lines all differ, so that there is one way only to compare by lines, and two texts made of it."""
    base = [f"line{number}" for number in range(draw(st.integers(1, 12)))]
    first, second = draw(edited(base, tag="first")), draw(edited(base, tag="second"))
    return "".join(f"{line}\n" for line in base), first, second


def by_git(base: str, first: str, second: str, *, folder: Path) -> str | None:
    """What ``git merge-file`` makes of the texts, None where it reports a conflict."""
    for name, text in (("base", base), ("first", first), ("second", second)):
        (folder / name).write_text(text, "utf-8")
    command = ["git", "merge-file", "-p", "--diff3", "first", "base", "second"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 <= ran.returncode <= GIT_CONFLICTS_MAX, ran.stderr
    return ran.stdout if ran.returncode == 0 else None


def touching(base: str, first: str, second: str) -> bool:
    """Whether no unchanged line is between some change of the one side and some change of the other."""
    ours, theirs = (
        [
            (start, end)
            for kind, start, end, _, _ in SequenceMatcher(None, lines_of(base), lines_of(text)).get_opcodes()
            if kind != "equal"
        ]
        for text in (first, second)
    )
    return any(start <= other_end and other <= end for start, end in ours for other, other_end in theirs)


@pytest.mark.slow
@many_times
@given(edits())
def test_what_git_merges_is_merged_in_the_same_way(texts: tuple[str, str, str]) -> None:
    """Where git reports a conflict, touching changes may still be kept of both: see the rules of the module."""
    base, first, second = texts
    with TemporaryDirectory() as folder:
        expected = by_git(base, first, second, folder=Path(folder))
    merged = merge_text(base, first, second, winner="first")

    if expected is not None:
        assert MergedText(expected) == merged
    else:
        assert touching(base, first, second)


@pytest.mark.slow
@many_times
@given(edits())
def test_a_clean_merge_has_every_line_that_one_side_added(texts: tuple[str, str, str]) -> None:
    """And no line of the base that one side deleted or changed."""
    base, first, second = (set(lines_of(text)) for text in texts)
    merged = merge_text(*texts, winner="first")
    has = set(lines_of(merged.text))

    assert not merged.is_clean or (first - base) | (second - base) <= has
    assert not merged.is_clean or not (base - (first & second)) & has


@many_times
@given(edits())
def test_the_order_of_the_sides_does_not_decide_whether_a_merge_is_clean(texts: tuple[str, str, str]) -> None:
    """Only the order of lines that both added in one place depends on it, and whether lines at the end are repeated."""
    base, first, second = texts
    merged = merge_text(base, first, second, winner="first")
    turned = merge_text(base, second, first, winner="second")

    assert merged.is_clean == turned.is_clean
    assert set(lines_of(merged.text)) == set(lines_of(turned.text))


@given(texts)
def test_lines_make_up_the_text(text: str) -> None:
    r"""Only ``\n`` ends one; the last may have no end."""

    assert text == "".join(lines_of(text))
    assert text.count("\n") + (not text.endswith("\n") and text != "") == len(lines_of(text))


UNITED: dict[str, tuple[str, str, str, bool]] = {
    # first, second, united, clean
    "both went on from one beginning": ("a\nx\n", "a\ny\n", "a\nx\ny\n", True),
    "one is the other's beginning": ("a\n", "a\ny\n", "a\ny\n", True),
    "nothing in common": ("x\n", "y\n", "x\ny\n", False),
    "lines in common further on": ("a\nx\nb\n", "a\ny\nb\nz\n", "a\nx\ny\nb\nz\n", False),
}


@pytest.mark.parametrize("what", UNITED)
def test_without_a_base_every_line_is_kept(what: str) -> None:
    """A deletion cannot be told from an addition then, so it is no clean merge unless only the ends differ."""
    first, second, united, is_clean = UNITED[what]

    assert MergedText(united, is_clean) == unite_text(first, second)


def test_what_two_texts_share_is_told_by_lines() -> None:
    """Half a line is not shared."""

    assert "a\n" == shared_beginning("a\nxx\n", "a\nxy\n")


def test_lines_that_are_missing_can_be_put_back() -> None:
    """As often as the other text has them, and not those that it does not have."""

    assert "a\nx\nx\ny\n" == with_lines("a\nx\n", ["x\n", "y\n", "x\n", "z\n"], of="x\ny\nx\n", won="a\nx\n")
    assert "ax\n" == with_lines("ax\n", ["x\n"], of="x\n", won="a")
    assert "a\nx\n" == with_lines("a", ["x\n"], of="x\n", won="a")
    assert "bx\nx\n" == with_lines("bx\n", ["x\n", "x\n"], of="x\nx\nb", won="b")
    assert "boxx\nx\n" == with_lines("boxx\n", ["x\n"], of="box\nx\n", won="bixx\n")
    assert "x\ny" == with_lines("x\ny", ["x"], of="x", won="y")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["x\n", "{}\n"])
def test_a_large_text_is_merged_in_seconds(line: str) -> None:
    """100,000 lines, all alike or all different, changed far apart."""
    base = [line.format(number) for number in range(100_000)]
    first, second = [*base], [*base]
    first[10], second[-10] = "first\n", "second\n"
    both = [*first[:-10], "second\n", *first[-9:]]
    begun = time.process_time()
    merged = merge_text("".join(base), "".join(first), "".join(second), winner="first")

    assert "".join(both) == merged.text
    assert time.process_time() - begun < 20


@pytest.mark.slow
def test_frequent_lines_cost_seconds_at_most() -> None:
    """600,000 lines of 200 kinds, of which difflib alone would compare two thousand million pairs."""
    base = [f"item {number * number % 211}\n" for number in range(600_000)]
    first, second = [*base], [*base]
    first[10:10], first[20] = ["new\n"], "first\n"
    second[-10] = "second\n"
    expected = [*first[:-10], "second\n", *first[-9:]]
    begun = time.process_time()
    merged = merge_text("".join(base), "".join(first), "".join(second), winner="first")

    assert MergedText("".join(expected)) == merged
    assert time.process_time() - begun < 20


LOST: dict[str, tuple[str, str, list[str], list[str]]] = {
    "a word": ("the word is hunt\n", "the word is [redacted]\n", ["hunt"], []),
    "a part of a word": ("xhunty\n", "x[redacted]y\n", ["hunt"], []),
    "lines": ("é\none\ntwo\nthree\n", "é\n[redacted]three\n", ["one\ntwo\n"], []),
    "a part without a marker": ("one two three\n", "one three\n", ["two "], []),
    "two parts": ("a-hunt-b-fish-c", "a-[redacted]-b-[redacted]-c", ["hunt", "fish"], []),
    "two parts of one word": ("ahuntbfishc", "a[redacted]b[redacted]c", ["hunt", "fish"], []),
    "a part on each side": ("hunt\nand\n[redacted]\n", "[redacted]\nand\nfish\n", ["hunt"], ["fish"]),
    "a bracket at its end": ("[hunt] it", "[redacted] it", ["[hunt]"], []),
    "characters of two bytes that begin alike": ("\u00e0\u00e9", "\u00e9", ["\u00e0"], []),
    "characters of three bytes that begin alike": ("\u4e00\u4e09\n", "\u4e09\n", ["\u4e00"], []),
    "an earlier marker": ("[redacted] hunt\n", "[redacted] [redacted]\n", ["hunt"], []),
    "other words": ("the word is hunt\n", "a phrase is fish\n", [], []),
    "other words next to a marker": ("one hunt two\n", "one [redacted]fish two\n", [], []),
}


@pytest.mark.parametrize("what", LOST)
def test_what_only_the_other_version_lost_is_told_from_where_it_stood(what: str) -> None:
    """Where it was there is a marker, or nothing; what differs in another way was not redacted."""
    one, other, *expected = LOST[what]

    for texts, there in (((one, other), expected), ((other, one), expected[::-1])):
        found = [
            [text.encode()[start:end].decode() for each in part for start, end in each.spans]
            for text, part in zip(texts, lost_parts(*texts), strict=True)
        ]
        assert there == found
