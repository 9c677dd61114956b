"""Looking words up in texts, within bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memfiles.adapters.shapes.scan import Bounds, search

WIDE = Bounds(matches=10, texts=10, shown=500, looked_at=1000)
TEXTS = [("u/ada.md", "Ada likes Oslo."), ("u/bob.md", "Bob: oslo, OSLO, Oslo!"), ("u/oslo.md", "A city.")]


def keys(query: str, bounds: Bounds = WIDE) -> list[str]:
    return [match.key for match in search(TEXTS, query, prefix="u/", bounds=bounds).matches]


def test_what_holds_most_of_the_words_comes_first() -> None:
    """A word in the name counts twice; equal ones stand in the order of their keys; upper case does not matter."""
    assert ["u/bob.md", "u/oslo.md", "u/ada.md"] == keys("oSLO")
    assert ["u/ada.md", "u/oslo.md"] == keys("likes city")


def test_the_prefix_is_no_part_of_a_name() -> None:
    """Or everything would be found by it."""
    assert [] == keys("u/")


@pytest.mark.parametrize("query", ["", "  \n", "nothing"])
def test_nothing_is_found_by_no_word(query: str) -> None:
    """And nothing was left out."""
    found = search(TEXTS, query, prefix="u/", bounds=WIDE)

    assert ([], False) == (found.matches, found.truncated)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (replace(WIDE, matches=1), (["u/bob.md"], 3)),
        (replace(WIDE, texts=1), (["u/ada.md"], 1)),
        (replace(WIDE, looked_at=4), (["u/oslo.md"], 3)),
        (replace(WIDE, shown=20), (["u/bob.md"], 3)),
        (replace(WIDE, shown=3), ([], 3)),
    ],
)
def test_a_bound_is_kept_and_said(bounds: Bounds, expected: tuple[list[str], int]) -> None:
    """How many matches, texts, characters of a text, and characters in all."""
    found = search(TEXTS, "oslo", prefix="u/", bounds=bounds)

    assert expected == ([match.key for match in found.matches], found.scanned)
    assert found.truncated
    assert sum(len(match.snippet) + len(match.key.removeprefix("u/")) for match in found.matches) <= bounds.shown


@pytest.mark.parametrize("bound", ["matches", "texts", "shown", "looked_at"])
def test_a_bound_of_nothing_finds_nothing(bound: str) -> None:
    """Nothing is looked at."""
    found = search(TEXTS, "oslo", prefix="u/", bounds=replace(WIDE, **{bound: 0}))

    assert ([], 0, False) == (found.matches, found.scanned, found.truncated)


@pytest.mark.parametrize("size", range(1, 60))
def test_a_snippet_is_cut_around_the_word(size: int) -> None:
    """Dots stand where it is cut, and it is never longer than there is room."""
    text = "a" * 50 + " needle " + "b" * 50
    bounds = replace(WIDE, shown=size + len("x"))
    (match,) = search([("u/x", text)], "needle", prefix="u/", bounds=bounds).matches

    assert size == len(match.snippet)
    assert "needle" in match.snippet or size < 24
    assert (match.snippet.startswith("..."), match.snippet.endswith("...")) == (size > 6, size > 6)
