"""Tokenizer: how texts and questions become words and stems, so that each finds what the other means.

Texts are folded here (case, diacritics, compatibility forms) and cut and stemmed by FTS5, at the speed of C; questions
are folded, cut and stemmed here. Only letters and digits of a question reach FTS5, each word in quotes.

Scripts without spaces are cut into characters, and a question about them into pairs, so that one or two characters
are found anywhere. Of names made of parts (``node.js``, ``snake_case``, ``src/app/main.py``) the parts are words and
the whole is a phrase. FTS5 would not split ``camelCase`` and would confuse ``C++`` with ``c`` and ``20%`` with ``20``:
the indexed text contains these a second time, spelled out.

Stems are those of FTS5's ``porter`` tokenizer: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980.
A test compares both: a word on which they disagree would be found by FTS5 but not counted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from memfiles.index.text.vocabulary import FORMS, STOP_WORDS

MAX_QUERY = 4096  # characters of a question that are read
MAX_TERMS = 64
MIN_NEEDLE = 2  # characters of a part of a word
MAX_NEEDLES = 8
MAX_LABEL = 40  # characters
TOKENIZED = 16_384  # characters of a content that are tokenized; in the rest, stems are counted as parts of words
_EDGES = "\"'()[]{}<>.,:;!?"

# Scripts written without spaces: Thai to Myanmar, kana, Han, and everything on the ideographic planes.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_UNSPACED_CHARACTER = re.compile(f"([{_UNSPACED}])")
_MARKS = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[^\W_]+")
_CONTRACTION = re.compile(r"(?<=\w)['\u2019](?=(?:s|t|d|m|re|ve|ll)\b)", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CAMEL = re.compile(r"[A-Za-z]*[a-z][A-Z]\w*")
_SIGNED = re.compile(r"\b([a-z]\w?)(\+\+|#)|\b(\d+(?:[.,]\d+)?)\s?%", re.IGNORECASE)
_HUMPED = re.compile("[a-z][A-Z]")
_SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}  # for ASCII, translating is faster than _WORD


@dataclass(frozen=True)
class Term:
    """One thing that a question asks for: a word in all its forms, or a phrase of several words.

    ``forms`` are alternatives, each a tuple of folded words; ``stems`` are their stems.
    """

    forms: tuple[tuple[str, ...], ...]
    stems: tuple[tuple[str, ...], ...]
    text: str

    @property
    def match(self) -> str:
        """The term as an FTS5 expression; its words are letters and digits, so none of them is an operator."""
        return " OR ".join(f'"{" ".join(form)}"' for form in self.forms)

    @property
    def is_phrase(self) -> bool:
        """Whether it has several words, which must be next to each other."""
        return len(self.forms[0]) > 1


class TokenizedText(NamedTuple):
    """The stems of an entry, by field, and of the label that its content opens with; ``rest`` is folded text.

    Tokenized once, when the entry is indexed: stemming fifty candidates again took a third of a search. The stems of a
    field are one string with a space between them, as most are never looked at one by one.
    """

    id: int
    content: str
    key: str
    tags: str
    label: str
    rest: str = ""

    @property
    def words(self) -> list[str]:
        """The stems of the content, in order."""
        return self.content.split()

    @property
    def stems(self) -> frozenset[str]:
        """The stems of all fields."""
        rest = stems_of(indexed(self.rest)) if self.rest else ()
        return frozenset((*self.words, *self.key.split(), *self.tags.split(), *rest))

    @property
    def packed(self) -> str:
        """The tokens as one text; no stem holds a space or a line break."""
        return "\n".join((self.content, self.key, self.tags, self.label, self.rest))


def tokenized(id: int, *, key: str, content: str, tags: str) -> TokenizedText:
    """Tokenize an entry as FTS5 does."""
    first, rest = content[:TOKENIZED], fold(content[TOKENIZED:])
    words = [" ".join(stems_of(indexed(text))) for text in (first, key, tags)]
    return TokenizedText(id, words[0], words[1], words[2], " ".join(_label(first)), rest)


def unpacked(id: int, packed: str) -> TokenizedText:
    """The tokens that were ``packed``; ``ValueError`` if these were not."""
    content, key, tags, label, rest = packed.split("\n", 4)
    return TokenizedText(id, content, key, tags, label, rest)


def _label(content: str) -> list[str]:
    colon = content.find(":", 1, MAX_LABEL)
    return stems_of(fold(content[:colon])) if colon > 0 and content[colon + 1 : colon + 2].isspace() else []


def fold(text: str) -> str:
    """The text without case, diacritics and compatibility forms (``École`` becomes ``ecole``); never fails."""
    if text.isascii():
        return text.lower()
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is not a character
    return normalize("NFC", _MARKS.sub("", normalize("NFKD", text))).casefold()


def indexed(text: str) -> str:
    """The text as it is given to FTS5."""
    folded = fold(text)
    if not folded.isascii():
        folded = _UNSPACED_CHARACTER.sub(r" \1 ", folded)
    may_be_special = "%" in text or "+" in text or "#" in text or _HUMPED.search(text)
    return f"{folded} {_spelled_out(text)}" if may_be_special else folded


def _spelled_out(text: str) -> str:
    """The parts of names in camel case, and names that end in signs, as words."""
    humps = (fold(part) for name in _CAMEL.findall(text) for part in _HUMP.split(name))
    return " ".join([*humps, *(_spelled(found) for found in _SIGNED.finditer(text))])


def _spelled(found: re.Match[str]) -> str:
    name, sign, number = found.groups()
    if number:
        return "".join(words_of(number)) + "percent"
    return fold(name) + ("plusplus" if sign == "++" else "sharp")


def words_of(folded: str) -> list[str]:
    """The words of a folded text, in order."""
    return folded.translate(_SPACES).split() if folded.isascii() else _WORD.findall(folded)


def spans_of(text: str) -> Iterator[tuple[int, str]]:
    """Position and stem of each word of a text."""
    return ((found.start(), stem(fold(found[0]))) for found in _WORD.finditer(text))


def stems_of(folded: str) -> list[str]:
    """The stems of the words of a folded text, in order."""
    return list(map(_STEMS.__getitem__, words_of(folded)))


@lru_cache(maxsize=256)
def terms_of(query: str) -> tuple[Term, ...]:
    """The terms of a question, in order and without repetition; no stop words unless there is nothing else."""
    terms = tuple(dict.fromkeys(term for chunk in _chunks(query[:MAX_QUERY]) for term in _terms_of_chunk(chunk)))
    return (tuple(term for term in terms if term.text not in STOP_WORDS) or terms)[:MAX_TERMS]


def forget_queries() -> None:
    """Empty the cache of questions, as one may contain a text that is to be forgotten."""
    terms_of.cache_clear()


def needles_of(query: str, missing: Iterable[Term]) -> list[str]:
    """The folded texts to look for as parts of words, for the terms that no entry has as a word.

    A name of which all words are missing is looked for as it is written, with its signs.
    """
    words = {term.text for term in missing}
    if not words:
        return []
    needles: dict[str, None] = {}
    for chunk in _chunks(query[:MAX_QUERY]):
        terms = [term for term in terms_of(chunk) if term.text in words]
        whole = fold(chunk).strip(_EDGES)
        if len(terms) > 1 and len(terms) == len(terms_of(chunk)):
            needles[whole] = None
        else:
            needles.update((term.text, None) for term in terms if not term.is_phrase)
    return [needle for needle in needles if len(needle) >= MIN_NEEDLE][:MAX_NEEDLES]


def _chunks(query: str) -> list[str]:
    return _CONTRACTION.sub(" ", query.replace(" %", "%")).split()


def _terms_of_chunk(chunk: str) -> Iterator[Term]:
    """The whole of a name first, then its parts."""
    folded = fold(chunk)
    words = words_of(_UNSPACED_RUN.sub(" ", folded))
    if len(words) > 1:
        yield _term([tuple(words)])
    for word in dict.fromkeys([*words, *words_of(_spelled_out(chunk))]):
        yield _term([(form,) for form in dict.fromkeys([word, *FORMS.get(word, ())])])
    for run in _UNSPACED_RUN.findall(folded):
        characters = "".join(words_of(run))
        pairs = [characters[at : at + 2] for at in range(len(characters) - 1)]
        yield from (_term([tuple(pair)]) for pair in pairs or characters)


def _term(forms: list[tuple[str, ...]]) -> Term:
    stems = tuple(dict.fromkeys(tuple(map(stem, form)) for form in forms))
    return Term(tuple(forms), stems, " ".join(forms[0]))


_MIN_STEMMED, _MAX_STEMMED = 3, 64  # characters; SQLite leaves other words alone
_MAX_CACHED = 100_000  # stems
_SuffixRules = tuple[tuple[str, str], ...]

_STEP_2: _SuffixRules = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log")),
    *(("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize")),
    *(("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful")),
    *(("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
_STEP_3: _SuffixRules = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")),
)
_STEP_4 = (
    "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou".split()  # longest first
)


class _StemCache(dict[str, str]):
    """A cache of stems: looking one up takes a twentieth of the time to compute it."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_CACHED:
            self.clear()
        self[word] = stem = _stem(word)
        return stem


_STEMS = _StemCache()


def stem(word: str) -> str:
    """The stem of a folded word."""
    return _STEMS[word]


def _stem(word: str) -> str:
    if not _MIN_STEMMED <= len(word) <= _MAX_STEMMED or not word.isascii():
        return word
    word = _past(_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(_replace(word, _STEP_2), _STEP_3)
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
            return _restored(left) if _has_vowel(left) else word
    return word


def _restored(word: str) -> str:
    """The word without its ending: ``hopp(ing)`` becomes ``hop``, ``fil(ing)`` ``file``, ``siz(ed)`` ``size``."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _replace(word: str, rules: _SuffixRules) -> str:
    for suffix, other in rules:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return left + other if _measure(left) else word
    return word


def _strip(word: str) -> str:
    for suffix in _STEP_4:
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
    """The word as vowels ``v`` and consonants ``c``; a ``y`` after a consonant is a vowel."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape[-1:] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """The number of vowels followed by a consonant: Porter's m."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_short(word: str) -> bool:
    """Whether it ends in consonant, vowel, consonant other than w, x, y: Porter's *o."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
