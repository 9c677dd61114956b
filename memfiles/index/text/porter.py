"""English stems as FTS5's ``porter`` makes them, for counting in Python what the index found.

The algorithm is M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. A test holds it against the
tokenizer in SQLite: where both disagree on a word, a match of that word would be found but not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 3
LONGEST = 64  # bytes; SQLite leaves longer tokens alone
MOST_KEPT = 100_000  # stems kept for the next time

SuffixRules = tuple[tuple[str, str], ...]

STEP_2: SuffixRules = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log")),
    *(("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize")),
    *(("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful")),
    *(("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
STEP_3: SuffixRules = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")),
)
STEP_4 = (
    "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou".split()  # longest first
)


class _Stems(dict[str, str]):
    """Stems found before: looking one up costs a twentieth of finding it."""

    def __missing__(self, word: str) -> str:
        if len(self) >= MOST_KEPT:
            self.clear()
        self[word] = stem = _stem(word)
        return stem


_STEMS = _Stems()


def stem(word: str) -> str:
    """The stem of a folded word."""
    return _STEMS[word]


def stems(words: Iterable[str]) -> list[str]:
    """The stems of folded words, in order."""
    return list(map(_STEMS.__getitem__, words))


def _stem(word: str) -> str:
    if not SHORTEST <= len(word) <= LONGEST or not word.isascii():
        return word
    word = _past(_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(_replace(word, STEP_2), STEP_3)
    return _tidy(_strip(word))


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return _mended(left) if _has_vowel(left) else word
    return word


def _mended(word: str) -> str:
    """What is left of ``hopping``, ``filing``, ``sized`` after their ending, as a word again."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _is_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _replace(word: str, rules: SuffixRules) -> str:
    for suffix, other in rules:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return left + other if _measure(left) else word
    return word


def _strip(word: str) -> str:
    for suffix in STEP_4:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            fits = _measure(left) > 1 and (suffix != "ion" or left.endswith(("s", "t")))
            return left if fits else word
    return word


def _tidy(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _shape(word: str) -> str:
    """The word as a row of ``v`` and ``c``; a ``y`` after a consonant is a vowel."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape[-1:] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How often vowels are followed by consonants."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _is_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant other than w, x, y."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
