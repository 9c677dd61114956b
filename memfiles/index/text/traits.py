"""Traits of texts and of the answers that a question wants, read from a few words; they move a score a little.

A text asks if it ends with a question mark, and a note on a picture in brackets may follow. It tells when if it names a
moment, and how many if it has a number.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from memfiles.index.text.moments import DAYS, NUMBERS, tells_when

ASKS, TELLS_WHEN, TELLS_NUMBER = 1, 2, 4
READ = 2_000  # characters of a text, from its beginning
_ASKS = re.compile(r"[?\uff1f\u061f\u037e]['\"\u2019\u201d)\u300d\u300f]*\s*(?:\[[^\[\]]{0,500}\]\s*)?\Z")
_WEEKDAYS = [name + end for name in (*DAYS, "weekend") for end in ("", "s")]
_NUMBERS = [*(name for name in NUMBERS if len(name) > 2), *"once twice several dozen first second third".split()]
_DIGIT = re.compile(r"\d")
_WEEKDAY, _NUMBER = (re.compile(rf"\b(?=[c-fm-w])(?:{'|'.join(words)})\b", re.I) for words in (_WEEKDAYS, _NUMBERS))
_WEEKDAY_WORDS, _NUMBER_WORDS = frozenset(_WEEKDAYS), frozenset(_NUMBERS)
_ASK_WHEN = [
    *"when wann quand quando wanneer kiedy".split(),
    *(f"{which} {unit}" for which in ("what", "which") for unit in "date day month year time".split()),
]
_ASK_HOW_MANY = [*(f"how {much}" for much in "many much often old long".split()), *"wie combien quant".split()]
_WHEN = re.compile(
    rf"(?:^|[\s\u00bf,;:])(?:{'|'.join(_ASK_WHEN)}|cu\u00e1ndo|"
    r"\u043a\u043e\u0433\u0434\u0430|\u0645\u062a\u0649|n\u00e4r)\b"
    r"|\u4ec0\u4e48\u65f6\u5019|\u4f55\u65f6|\u54ea\u4e00?\u5e74|\u3044\u3064|\uc5b8\uc81c|\u0e40\u0e21\u0e37\u0e48\u0e2d\u0e44\u0e23",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    r"\bhow (?:many|much|often|old|long)\b|\bwie ?viele?\b|\bcombien\b|\bcu\u00e1nt[oa]s?\b|\bquant[eio]\b|"
    r"\b\u0441\u043a\u043e\u043b\u044c\u043a\u043e\b|\b\u0643\u0645\b|\u591a\u5c11|\u51e0\u4e2a|\u0e01\u0e35\u0e48",
    re.IGNORECASE,
)


def traits_of(content: str, words: Collection[str] | None = None) -> int:
    """The traits of a text, as bits; ``words`` are those of one of at most ``READ`` characters of ASCII, folded."""
    begin = content[:READ]
    may_name_day = words is None or not _WEEKDAY_WORDS.isdisjoint(words)
    may_count = words is None or not _NUMBER_WORDS.isdisjoint(words)
    end = content[-READ:]
    asks = ASKS if ("?" in end or not end.isascii()) and _ASKS.search(end) else 0
    when = TELLS_WHEN if tells_when(begin, words) or (may_name_day and _WEEKDAY.search(begin)) else 0
    has_number = _DIGIT.search(begin) or (may_count and _NUMBER.search(begin))
    return asks | when | (TELLS_NUMBER if has_number else 0)


def wanted_by(query: str) -> int:
    """The traits that an answer to a question should have: ``TELLS_WHEN`` and ``TELLS_NUMBER``, if any."""
    read = query[:READ]
    when = TELLS_WHEN if _may_have(_ASK_WHEN, read) and _WHEN.search(read) else 0
    return when | (TELLS_NUMBER if _may_have(_ASK_HOW_MANY, read) and _HOW_MANY.search(read) else 0)


def _may_have(words: list[str], query: str) -> bool:
    """Whether an expression has to look for one of these words; those of ASCII alone are found faster without one."""
    lower = query.lower()
    return not query.isascii() or any(word in lower for word in words)
