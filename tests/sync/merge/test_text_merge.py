"""Merging texts by lines: nothing of either writer is lost, and only the same lines changed differently clash."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.sync.merge.text_merge import (
    MergedText,
    lines_of,
    merge_text,
    shared_beginning,
    shared_text,
    unite_text,
    with_lines,
)
from tests.support.records import many_times

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
    """Where they differ, a marker stands, or nothing where one has no line at all."""

    assert "a\n*\nc\n" == shared_text("a\nx\nc\n", "a\ny\nc\nz\n", marker="*")
    assert "a\n" == shared_beginning("a\nxx\n", "a\nxy\n")


def test_lines_that_are_missing_can_be_put_back() -> None:
    """As often as the other text has them, and not those that it does not have."""

    assert "a\nx\nx\ny\n" == with_lines("a\nx\n", ["x\n", "y\n", "x\n", "z\n"], of="x\ny\nx\n")
    assert "a\nx\n" == with_lines("a", ["x\n"], of="x\n")


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
