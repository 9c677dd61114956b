"""How a text and a question become words, so that each finds what the other means.

Texts are folded here (case, diacritics, compatibility forms) and cut and stemmed by FTS5, at the speed of C; questions
are folded and cut here. Whatever bytes a question holds, only its letters and digits reach FTS5, each word in quotes.

Scripts without spaces are cut into characters, and a question about them into pairs, so that one or two characters
are found anywhere. Of names made of parts (``node.js``, ``snake_case``, ``src/app/main.py``) the parts are words and
the whole is a phrase; ``camelCase``, ``C++`` and ``20%``, which FTS5 would not take apart or would confuse with ``c``
and ``20``, are written into the indexed text a second time, spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize

from memfiles.index.text.porter import stem, stems
from memfiles.index.text.vocabulary import FORMS, STOP_WORDS

LONGEST_QUERY = 4096  # characters; what follows is not looked for
MOST_TERMS = 64
SHORTEST_NEEDLE = 2  # characters of a part of a word
MOST_NEEDLES = 8

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
_SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}  # in ASCII, this cuts faster than _WORD


@dataclass(frozen=True)
class Term:
    """What a question asks for once: a word in all its forms, or several words in a row.

    ``forms`` are alternatives, each a tuple of folded words; ``stems`` the same as the index keeps them.
    """

    forms: tuple[tuple[str, ...], ...]
    stems: tuple[tuple[str, ...], ...]
    text: str

    @property
    def match(self) -> str:
        """The term as FTS5 reads it; words hold letters and digits only, so nothing in it can be an operator."""
        return " OR ".join(f'"{" ".join(form)}"' for form in self.forms)

    @property
    def is_phrase(self) -> bool:
        """Whether its words must stand in a row."""
        return len(self.forms[0]) > 1


def fold(text: str) -> str:
    """The text without case, diacritics and compatibility forms (``École`` is ``ecole``); never fails."""
    if text.isascii():
        return text.lower()
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is no character
    return normalize("NFC", _MARKS.sub("", normalize("NFKD", text))).casefold()


def indexed(text: str) -> str:
    """The text as it is given to FTS5."""
    folded = fold(text)
    if not folded.isascii():
        folded = _UNSPACED_CHARACTER.sub(r" \1 ", folded)
    may_be_special = "%" in text or "+" in text or "#" in text or _HUMPED.search(text)
    return f"{folded} {spelled_out(text)}" if may_be_special else folded


def spelled_out(text: str) -> str:
    """The parts of names in camel case, and names that end in signs, as words."""
    humps = (fold(part) for name in _CAMEL.findall(text) for part in _HUMP.split(name))
    return " ".join([*humps, *(_spelled(found) for found in _SIGNED.finditer(text))])


def words_of(text: str) -> list[str]:
    """The words of a folded text, in order."""
    return text.translate(_SPACES).split() if text.isascii() else _WORD.findall(text)


def stems_of(folded: str) -> list[str]:
    """The stems of the words of a folded text, in order."""
    return stems(words_of(folded))


def forget_texts() -> None:
    """Remember no question from here on: for when some text must not be left anywhere."""
    terms_of.cache_clear()


@lru_cache(maxsize=256)
def terms_of(query: str) -> tuple[Term, ...]:
    """What a question asks for, in its order and without repetition; no stop words unless there is nothing else."""
    return _without_stop_words(query[:LONGEST_QUERY])[:MOST_TERMS]


def _without_stop_words(query: str) -> tuple[Term, ...]:
    terms = tuple(dict.fromkeys(_terms(query)))
    telling = tuple(term for term in terms if term.text not in STOP_WORDS)
    return telling or terms


def _terms(query: str) -> Iterator[Term]:
    for chunk in _chunks(query):
        yield from _terms_of_chunk(chunk)


def _chunks(query: str) -> list[str]:
    return _CONTRACTION.sub(" ", query.replace(" %", "%")).split()


def _terms_of_chunk(chunk: str) -> Iterator[Term]:
    """The whole of a name first, then its parts."""
    folded = fold(chunk)
    words = words_of(_UNSPACED_RUN.sub(" ", folded))
    if len(words) > 1:
        yield _term([tuple(words)])
    yield from (_word(word) for word in dict.fromkeys([*words, *words_of(spelled_out(chunk))]))
    for run in _UNSPACED_RUN.findall(folded):
        yield from _pairs("".join(words_of(run)))


def _pairs(run: str) -> Iterator[Term]:
    if len(run) == 1:
        yield _term([(run,)])
    yield from (_term([tuple(run[at : at + 2])]) for at in range(len(run) - 1))


def _word(word: str) -> Term:
    return _term([(form,) for form in dict.fromkeys([word, *FORMS.get(word, ())])])


def _term(forms: Iterable[tuple[str, ...]]) -> Term:
    forms = tuple(forms)
    stems = tuple(dict.fromkeys(tuple(map(stem, form)) for form in forms))
    return Term(forms, stems, " ".join(forms[0]))


def _spelled(found: re.Match[str]) -> str:
    name, sign, number = found.groups()
    if number:
        return "".join(words_of(number)) + "percent"
    return fold(name) + ("plusplus" if sign == "++" else "sharp")


def needles_of(query: str, missing: Iterable[Term]) -> list[str]:
    """The folded texts to look for as parts of words, for the terms that no word answers.

    A name whose words are all missing is looked for as it is written, with its signs.
    """
    words = {term.text for term in missing}
    if not words:
        return []
    needles: dict[str, None] = {}
    for chunk in _chunks(query[:LONGEST_QUERY]):
        terms = [term for term in terms_of(chunk) if term.text in words]
        whole = fold(chunk).strip(_EDGES)
        if len(terms) > 1 and len(terms) == len(terms_of(chunk)):
            needles[whole] = None
        else:
            needles.update((term.text, None) for term in terms if not term.is_phrase)
    return [needle for needle in needles if len(needle) >= SHORTEST_NEEDLE][:MOST_NEEDLES]
