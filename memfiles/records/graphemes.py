"""Grapheme boundaries: cut a text without splitting emoji sequences, flags, accents or Hangul syllables.

A short form of the boundary rules in Unicode Standard Annex 29. A sequence longer than any real character, such as a
letter with a hundred accents, is cut at the limit.
"""

from __future__ import annotations

import unicodedata

LONGEST = 64  # code points to look at for one grapheme
_JOINER = "\u200d"
_MARKS = frozenset({"Mn", "Mc", "Me"})


def whole_before(text: str, at: int) -> int:
    """The last index at or before ``at`` where ``text`` may be cut."""
    if not 0 < at < len(text) or text[at - 1 : at + 1].isascii():
        return at - 1 if text[max(at - 1, 0) : at + 1] == "\r\n" else at
    return next((place for place in range(at, max(at - LONGEST, 0), -1) if may_cut(text, place)),
                0 if at <= LONGEST else at)  # fmt: skip


def whole_after(text: str, at: int) -> int:
    """The first index at or after ``at`` where ``text`` may be cut."""
    return next((place for place in range(max(at, 0), min(at + LONGEST, len(text))) if may_cut(text, place)),
                len(text) if at + LONGEST >= len(text) else at)  # fmt: skip


def first_bytes(text: str, limit: int) -> str:
    """The start of ``text`` in at most ``limit`` bytes of UTF-8, cut between graphemes."""
    if len(text) * 4 <= limit or len(data := text.encode()) <= limit:
        return text
    return text[: whole_before(text, len(data[: max(limit, 0)].decode(errors="ignore")))]


def last_bytes(text: str, limit: int) -> str:
    """The end of ``text`` in at most ``limit`` bytes of UTF-8, cut between graphemes."""
    if len(text) * 4 <= limit or len(data := text.encode()) <= limit:
        return text
    kept = len(data[len(data) - max(limit, 0) :].decode(errors="ignore"))
    return text[whole_after(text, len(text) - kept) :]


def may_cut(text: str, at: int) -> bool:
    """Whether a grapheme ends just before this index and another one begins there."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before == "\r" and after == "\n":
        return False
    if after.isascii():
        return True
    if after == _JOINER or before == _JOINER or _goes_on(after):
        return False
    if _is_flag_half(before) and _is_flag_half(after):
        return _flag_halves_before(text, at) % 2 == 0
    return not (_is_jamo(before) and _is_jamo(after) and not "\u1100" <= after <= "\u115f")


def _goes_on(character: str) -> bool:
    """Whether it extends the character before it: an accent, a variant, a skin tone, a tag."""
    is_tint = "\U0001f3fb" <= character <= "\U0001f3ff"
    return is_tint or "\U000e0020" <= character <= "\U000e007f" or unicodedata.category(character) in _MARKS


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, at: int) -> int:
    count = 0
    while count < min(at, LONGEST) and _is_flag_half(text[at - 1 - count]):
        count += 1
    return count


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff"
