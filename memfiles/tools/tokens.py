"""An estimate of how many tokens a text is to a model, without its tokenizer.

Every vendor has a vocabulary of its own, and most publish none. The weights were fitted to OpenAI's o200k_base and
Mistral's Tekken, on prose, code, YAML, JSON, notes and ten languages; ``docs/measurements.md`` has the errors.
"""

from __future__ import annotations

import re
from math import ceil

from memfiles.records.record import check_text

_LONG, _OVER_LONG = 8, 0.37  # letters of a word that is one token, and what each letter more costs
_DIGIT, _MARK, _NEXT_MARK, _LINE, _SIGN = 0.85, 0.9, 0.25, 0.35, 1.0
_LETTER, _IDEOGRAPH, _SYLLABLE, _EMOJI = 0.33, 0.8, 0.65, 2.0  # beyond Latin letters, each
_MARKS = re.compile(b"!+")
_NOT_LATIN = re.compile("[^\x00-\xff]+")
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SYLLABLES = re.compile("[\u1100-\u11ff\uac00-\ud7af]")
_EMOJIS = re.compile("[\U0001f000-\U0001faff\u200d\ufe0f]")
_SIGNS = re.compile("[\u2000-\u200c\u200e-\u2bff\u3000-\u303f\uff00-\uff65]")


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
    marks, groups = classes.count(b"!"), len(_MARKS.findall(classes))
    latin += (
        _DIGIT * classes.count(b"0") + _MARK * groups + _NEXT_MARK * (marks - groups) + _LINE * classes.count(b"\n")
    )
    return ceil(latin + _SIGN * classes.count(b"+") + (_beyond_latin(other) if other else 0))


def _beyond_latin(text: str) -> float:
    kinds = ((_IDEOGRAPHS, _IDEOGRAPH), (_SYLLABLES, _SYLLABLE), (_EMOJIS, _EMOJI), (_SIGNS, _SIGN))
    counts = [(len(pattern.findall(text)), weight) for pattern, weight in kinds]
    letters = len(text) - sum(count for count, _ in counts)
    return letters * _LETTER + sum(count * weight for count, weight in counts)
