"""What a plain YAML word means: the core schema of YAML 1.2, and nothing of 1.1.

So ``NO``, ``on``, ``12:30``, ``2026-11-21`` and ``1_000`` are text, ``0o17`` is 15 and ``017`` is 17.
Source: https://yaml.org/spec/1.2.2/#103-core-schema
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_STARTS_NUMBER = frozenset("+-.0123456789")
_BASES = {"0o": 8, "0x": 16}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DIGITS_MAX = 100


def plain_value(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar; a number that JSON could not hold is a ``ValueError``."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_NUMBER:
        return text
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("infinity and not-a-number are not allowed here; use a number, or put the text in quotes")
    return text


def _whole(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"a number may have at most {_DIGITS_MAX} digits; put it in quotes if it is text")
    return int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("this number is too large; put it in quotes if it is text")
    return value
