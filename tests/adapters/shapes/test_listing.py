"""Folders and texts are shown as a model that works with files knows them."""

from __future__ import annotations

import pytest

from memfiles.adapters.shapes.listing import children, lines_with, listing, numbered, readable


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1536, "1.5K"),
        (1024**2, "1M"),
        (5 * 1024**3, "5G"),
        (1024**4, "1024G"),
    ],
)
def test_a_size_is_readable(size: int, shown: str) -> None:
    """In the largest unit that leaves it at 1 or more."""

    assert shown == readable(size)


def test_lines_are_numbered_from_the_first() -> None:
    """Six wide, as the vendor's own tool does."""

    assert "     9\ta\n    10\t" == numbered(["a", ""], first=9)


def test_a_listing_counts_what_lies_below_once() -> None:
    """A folder's bytes are those of its texts."""
    sizes = {"a.md": 1, "b/": 5, "b/c": 2, "b/d/": 3}

    assert "6B\t/m\n1B\t/m/a.md\n5B\t/m/b/\n2B\t/m/b/c\n3B\t/m/b/d/" == listing(sizes, path="/m")


@pytest.mark.parametrize(
    ("text", "wanted", "lines"),
    [
        ("a\nb\na", "a", [1, 3]),
        ("aa", "a", [1, 1]),
        ("aaa", "aa", [1, 1]),
        ("\n\n\n", "\n\n", [1, 2]),
        ("a\na\nb", "a\n", [1, 2]),
        ("x", "a", []),
        ("\n\nab\n", "b\n", [3]),
    ],
)
def test_the_lines_in_which_a_text_begins(text: str, wanted: str, lines: list[int]) -> None:
    """Counted from 1, once for each occurrence."""

    assert lines == list(lines_with(text, wanted))


def test_the_children_of_a_folder_are_told_apart_from_what_lies_below() -> None:
    """A folder among them ends in a slash, and is no text; a text and a folder may have one name."""
    texts = {"a": 1, "a/b": 2, "a/c/d": 3, "e": 4}

    assert {"a": 1, "a/": None, "e": 4} == children(texts, prefix="")
    assert {"a/b": 2, "a/c/": None} == children({name: texts[name] for name in ("a/b", "a/c/d")}, prefix="a/")
    assert {} == children({}, prefix="x/")
