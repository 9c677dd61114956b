"""What reaches the YAML parser, and how it is put back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import WorkflowError
from memfiles.workflow.yaml_text import checked_text, mark_after, plain_value


@given(st.text(st.sampled_from("a\\u dD83\u2028\x85\ufeff\U000f0000\U000f0001\"'"), max_size=40))
def test_stand_ins_are_put_back(text: str) -> None:
    """A text that is not double-quoted comes back as it was, and no position in it moves."""
    safe = checked_text("x" + text, source="w")

    assert len("x" + text) == len(safe.text)
    assert "x" + text == safe.original(safe.text, double_quoted=False)


@given(st.text(st.sampled_from("ab\u2028\x85\ufeff\U000f0000"), max_size=20))
def test_nothing_misread_is_left(text: str) -> None:
    """No character that YAML 1.1 reads otherwise than YAML 1.2 reaches the parser."""

    assert set() == set("\x85\u2028\u2029\ufeff") & set(checked_text("x" + text, source="w").text)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("\\ud83d\\ude00", "😀"),
        ("\\uD83D\\uDE00!", "😀!"),
        ("\\ud83d", "\ud83d"),
        ("\\ude00\\ud83d", "\ude00\ud83d"),
    ],
)
def test_surrogate_escapes(scalar: str, expected: str) -> None:
    """In a double-quoted text, two escaped halves are one character; a lone half stays one, to be refused."""
    safe = checked_text(scalar, source="w")

    assert expected == safe.original(safe.text, double_quoted=True)


def test_an_escaped_backslash_escapes_nothing() -> None:
    """A backslash before the letters of an escape is left to the parser when it is itself escaped."""

    assert "\\\\ud83d" == checked_text("\\\\ud83d", source="w").text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n\t"a": 1}', '{\n "a": 1}'),
        ("{\n\ta: 1}", "{\n\ta: 1}"),
        ("a:\t1", "a:\t1"),
        ("[" * 200_000 + "\t", "[" * 200_000 + "\t"),
    ],
)
def test_tabs_of_json(text: str, expected: str) -> None:
    """Tabs between the tokens of valid JSON become blanks; in other text they stay."""

    assert expected == checked_text(text, source="w").text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", (1, 1)), ("ab", (1, 3)), ("a\n", (2, 1)), ("a\r\nb\rc\n\nd", (5, 2)), ("é\u2028", (1, 3))],
)
def test_mark_after(text: str, expected: tuple[int, int]) -> None:
    """Lines end at LF, CR or both; columns count characters."""

    assert expected == mark_after(text)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("\ufeffa\n \x07".encode(), "w:2:2: the character U+0007 is not allowed in a workflow; remove it"),
        (b"\xef\xbb\xbfab\xff", "w:1:3: this is not UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\x00", "w:1:1: this is UTF-16 or UTF-32; save it as UTF-8"),
        ("a: b\r%TAG ! x\r---\n", "w:2:1: %TAG is not supported; remove it"),
    ],
)
def test_refused_text(data: bytes | str, expected: str) -> None:
    """What is no text, or text YAML forbids, is refused where it stands."""

    with pytest.raises(WorkflowError) as caught:
        checked_text(data, source="w")
    assert expected == str(caught.value)


def test_a_name_cannot_forge_a_line() -> None:
    """A file's name with a line break or an escape sequence is shown on one line."""

    with pytest.raises(WorkflowError) as caught:
        checked_text("\0", source="a\nb\x1b")
    assert str(caught.value).startswith("a\\nb\\x1b:1:1: ")


TEXTS = ["NO", "no", "yes", "on", "off", "y", "12:30", "1:30:00", "1_000", "0b11", "0o8", "0xg", "+0x1", "2026-11-21",
         "-", "nul", "tRUE", "+", ".", "e5", "1e", "1.2.3", "..inf", ".Infinity", "=", "<<", "0 1", "١"]  # fmt: skip
VALUES = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "0": 0, "-0": 0, "+12": 12, "017": 17, "0o17": 15, "0x1F": 31, "-42": -42, "1" * 30: int("1" * 30),
    "1.5": 1.5, "-.5": -0.5, "1.": 1.0, "1e3": 1000.0, "1E-2": 0.01, "6.02e+23": 6.02e23,
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text(text: str) -> None:
    """Words that YAML 1.1 reads as something else are text."""

    assert text == plain_value(text)


@pytest.mark.parametrize(("text", "expected"), VALUES.items())
def test_values(text: str, expected: object) -> None:
    """Nulls, truth values and numbers have their value and type."""

    actual = plain_value(text)
    assert (expected, type(expected)) == (actual, type(actual))


@pytest.mark.parametrize("text", [".inf", "-.Inf", "+.INF", ".nan", ".NaN", "1e400", "1" * 101, "0x" + "f" * 99])
def test_refused(text: str) -> None:
    """Numbers that JSON cannot hold, and endless ones, are refused."""

    with pytest.raises(ValueError, match="quotes"):
        plain_value(text)
