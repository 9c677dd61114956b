"""Plain YAML words mean what the core schema of YAML 1.2 says."""

from __future__ import annotations

import pytest

from memfiles.workflow.yaml_scalars import plain_value

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
