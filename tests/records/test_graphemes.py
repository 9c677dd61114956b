"""No text is cut within what is read as one character."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.entries.consolidation.plan import cut
from memfiles.index.search.search import snippet
from memfiles.index.text.tokenizer import terms_of
from memfiles.records.graphemes import LONGEST, as_word, first_bytes, last_bytes, may_cut, whole_after, whole_before

WHOLE = (
    *("a", " ", "ä", "鍵", "\r\n", "\n", "e\u0301", "e\u0301\u0323", "👍", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "1️⃣"),
    *(
        "🇩🇪",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "각",
        "\u1112\u1161\u11ab",
        "न\u093f",
        "ש\u05b8",
    ),
)
CHARACTERS = st.lists(st.sampled_from(WHOLE), max_size=400)


def is_whole(part: str, characters: list[str]) -> bool:
    """Whether the part is made of some of the characters, one after another."""
    ends = [0]
    for character in characters:
        ends.append(ends[-1] + len(character))
    text = "".join(characters)
    return not part or any(text.startswith(part, at) and at + len(part) in set(ends) for at in ends)


@pytest.mark.parametrize("character", WHOLE)
def test_a_character_is_whole(character: str) -> None:
    """It may be cut before and after it, and nowhere within."""
    text = f"x{character}x"

    assert [1, 1 + len(character)] == [at for at in range(1, len(text)) if may_cut(text, at)]


@given(CHARACTERS, st.integers(-1, 900))
def test_what_is_cut_stays_whole(characters: list[str], limit: int) -> None:
    """From the front and from the end, in at most so many bytes, and never shorter than it must be."""
    text = "".join(characters)
    first, last = first_bytes(text, limit), last_bytes(text, limit)
    for part in (first, last):
        assert len(part.encode()) <= max(limit, 0)
        assert is_whole(part, characters)
    assert text.startswith(first)
    assert text.endswith(last)
    assert first == text or len(first.encode()) > limit - 4 * LONGEST


@given(CHARACTERS, st.integers(0, 300), st.sampled_from(["", "a", "鍵", "a ä"]))
def test_what_is_shown_of_an_entry_is_whole(characters: list[str], limit: int, query: str) -> None:
    """Snippets, shortened contents, and the lines of a note."""
    text = "".join(characters)
    for part in (
        snippet(text, terms_of(query)).removeprefix("...").removesuffix("..."),
        first_bytes(text, limit),
    ):
        assert is_whole(part, characters)
    line = cut(text, limit)
    assert line == text or is_whole(line.removesuffix("…"), characters) or line.endswith("…")
    assert len(line.encode()) <= limit or line == text


def test_what_has_no_end_is_cut_all_the_same() -> None:
    """A letter with thousands of accents does not make a cut slow or the rest vanish."""
    text = "x" * 100 + "e" + "\u0301" * 10_000

    assert 5000 == whole_before(text, 5000)
    assert 5000 == whole_after(text, 5000)


NAMES = (
    *(
        "ada",
        "ada ",
        " ada",
        "ada\u200b",
        "ada\\u200b",
        "'ada'",
        "$'ada'",
        "Bob's",
        "it's  ",
        "a  b",
        "a b",
        "a\u00a0b",
    ),
    *("caf\u00e9", "cafe\u0301", "\u5317\u4eac", "\U0001f600", "\U000e0041x", "C:\\notes", "a\\'b\u2003", "-"),
)


def test_names_are_shown_apart_and_as_a_shell_reads_them() -> None:
    """No two look alike, those that cannot be mistaken are as they are, and one that is quoted can be copied."""
    shown = {name: as_word(name) for name in NAMES}
    quoted = {name: word for name, word in shown.items() if word != name}
    words = " ".join(quoted.values())
    read = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {words}"], env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True
    ).stdout.decode()

    assert len(NAMES) == len(set(shown.values()))
    assert ["ada", "Bob's", "a b", "caf\u00e9", "\u5317\u4eac", "\U0001f600", "-"] == [
        it for it in NAMES if it not in quoted
    ]
    assert [*quoted] == read.removesuffix("\n").split("\n")
    assert ["'ada '", "$'ada\\u200b'", "$'cafe\\u0301'"] == [shown[it] for it in ("ada ", "ada\u200b", "cafe\u0301")]
