"""Grapheme boundaries, at which a text may be cut; an estimate of its tokens; and names and texts made safe to show.

A short form of the boundary rules in Unicode Standard Annex 29. A sequence longer than any real character, such as a
letter with a hundred accents, is cut at the limit.

The estimate of tokens needs no tokenizer: every vendor has a vocabulary of its own, and most publish none. The weights
were fitted to OpenAI's o200k_base and Mistral's Tekken, on prose, code, YAML, JSON, notes and ten languages;
``docs/measurements.md`` has the errors.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from math import ceil

from memfiles.records import late_pattern
from memfiles.records.record import check_text

LONGEST = 64  # code points to look at for one grapheme
_JOINER = "\u200d"
_MARKS = frozenset({"Mn", "Mc", "Me"})
_LONG, _OVER_LONG = 8, 0.37  # letters of a word that is one token, and what each letter more costs
_DIGIT, _MARK, _NEXT_MARK, _LINE, _SIGN = 0.85, 0.9, 0.25, 0.35, 1.0
_LETTER, _IDEOGRAPH, _SYLLABLE, _EMOJI = 0.33, 0.8, 0.65, 2.0  # beyond Latin letters, each
_SIGNS_ASCII = late_pattern(b"!+")
_NOT_LATIN = late_pattern("[^\x00-\xff]+")
_IDEOGRAPHS = late_pattern("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SYLLABLES = late_pattern("[\u1100-\u11ff\uac00-\ud7af]")
_EMOJIS = late_pattern("[\U0001f000-\U0001faff\u200d\ufe0f]")
_SIGNS = late_pattern("[\u2000-\u200c\u200e-\u2bff\u3000-\u303f\uff00-\uff65]")

# Controls, and what Unicode calls default ignorable: marks of direction, zero-width characters, fillers, tags and
# variation selectors, with which text can hide from whoever reads it. The two selectors that choose between text and
# emoji hide nothing.
_UNSEEN = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


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


def _class_of(character: str) -> str:
    """``a`` for a letter, ``0`` for a digit, ``!`` for other ASCII marks, ``+`` for others; white space is itself."""
    if character.isalpha():
        return "a"
    if character.isdecimal():
        return "0"
    return character if character <= " " or "\x7f" <= character <= "\xa0" else "!" if character < "\x7f" else "+"


_CLASSES = bytes(ord(_class_of(chr(code))) for code in range(256))
_LETTERS_ONLY = bytes(ord("a") if code == ord("a") else ord(" ") for code in range(256))


def estimate_tokens(text: str) -> int:
    """About how many tokens ``text`` is to a current model; as a rule within a fifth of the true number.

    Text in a rare script, hexadecimal digits and older models' tokenizers can be further off. Use it to plan a budget,
    not to stay below a limit.
    """
    check_text(text)
    other = "".join(_NOT_LATIN.findall(text))
    classes = _NOT_LATIN.sub(" ", text).encode("latin-1").translate(_CLASSES)
    words = classes.translate(_LETTERS_ONLY).split()
    latin = len(words) + _OVER_LONG * sum(len(word) - _LONG for word in words if len(word) > _LONG)
    marks, groups = classes.count(b"!"), len(_SIGNS_ASCII.findall(classes))
    latin += (
        _DIGIT * classes.count(b"0") + _MARK * groups + _NEXT_MARK * (marks - groups) + _LINE * classes.count(b"\n")
    )
    return ceil(latin + _SIGN * classes.count(b"+") + (_beyond_latin(other) if other else 0))


def _beyond_latin(text: str) -> float:
    kinds = ((_IDEOGRAPHS, _IDEOGRAPH), (_SYLLABLES, _SYLLABLE), (_EMOJIS, _EMOJI), (_SIGNS, _SIGN))
    counts = [(len(pattern.findall(text)), weight) for pattern, weight in kinds]
    letters = len(text) - sum(count for count, _ in counts)
    return letters * _LETTER + sum(count * weight for count, weight in counts)


def harmless(text: str) -> str:
    """The text with every character that could control a terminal, or that nobody would see, shown as its escape."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def as_word(name: str) -> str:
    """The name as people tell it from others: as it is, or in quotes that bash reads.

    Quotes are for blanks or quotes at its ends, two blanks in a row and backslashes. Escapes are for characters that
    nobody sees, blanks of other kinds and accents apart from their letters.
    """
    if all(map(_is_seen, name)) and unicodedata.is_normalized("NFC", name):
        is_plain = name == name.strip(" '") and "  " not in name and "\\" not in name and not name.startswith("$'")
        return name if is_plain and name else "'" + name.replace("'", "'\\''") + "'"
    is_seen = str.isascii if not unicodedata.is_normalized("NFC", name) else _is_seen
    shown = (each.replace("\\", "\\\\").replace("'", "\\'") if _is_seen(each) and is_seen(each)
             else f"\\U{ord(each):08x}" if ord(each) > 0xFFFF else f"\\u{ord(each):04x}" for each in name)  # fmt: skip
    return "$'" + "".join(shown) + "'"


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first names, with commas, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _is_seen(character: str) -> bool:
    return character == " " or not (character.isspace() or _UNSEEN.search(character))
