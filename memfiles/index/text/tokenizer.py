"""Tokenizer: how texts and questions become words and stems, so that each finds what the other means.

Texts are folded here (case, diacritics, compatibility forms) and cut and stemmed by FTS5, at the speed of C; questions
are folded, cut and stemmed here. Only letters and digits of a question reach FTS5, each word in quotes.

Scripts without spaces are cut into characters, and a question about them into pairs, so that one or two characters
are found anywhere. Of names made of parts (``node.js``, ``snake_case``, ``src/app/main.py``) the parts are words and
the whole is a phrase. FTS5 would not split ``camelCase`` and would confuse ``C++`` with ``c`` and ``20%`` with ``20``:
the indexed text contains these a second time, spelled out.

Stems are those of FTS5's ``porter`` tokenizer, which is asked for them: a word on which the index and the scores
disagreed would be found but not counted.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast
from unicodedata import normalize

MAX_QUERY = 65_536  # characters of a question that are read: of a longer one, half of them from each end
MIN_NEEDLE = 2  # characters of a part of a word
MAX_NEEDLES = 64  # of more, the longest
MAX_LABEL = 40  # characters
TOKENIZED = 16_384  # characters of a content that are tokenized; in the rest, stems are counted as parts of words
STEMMED = 'tokenize="porter unicode61 remove_diacritics 0"'
_MAX_CACHED = 100_000  # stems
_SHORT_QUERY = 4096  # characters; the terms of longer ones are not cached
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
_CAMEL = re.compile(r"(?<![A-Za-z])[A-Za-z]*[a-z][A-Z]\w*")  # begun once a word, so that a long one takes no longer
_SIGNED = re.compile(r"\b([a-z]\w?)(\+\+|#)|\b(\d+(?:[.,]\d+)?)\s?%", re.IGNORECASE)
_HUMPED = re.compile("[a-z][A-Z]")
_SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}  # for ASCII, translating is faster than _WORD

# These words are in nearly every question and in nearly every text.
STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could d did do does doing don down during each few for from further had has have having he her here hers herself
    him himself his how i if in into is it its itself just ll m may me might more most must my myself no nor not of off
    on once only or other our ours ourselves out over own re s same shall she should so some such t than that the their
    theirs them themselves then there these they this those through to too under until up ve very was we were what when
    where which while who whom whose why will with would you your yours yourself yourselves
    """.split()
)

# Irregular verbs and plurals: the forms of one word between two commas.
_GROUPS = """
    become became, begin began begun, bend bent, bind bound, bite bit bitten, blow blew blown,
    break broke broken, bring brought, build built, buy bought, catch caught, child children,
    choose chose chosen, come came, cling clung, deal dealt, dig dug, draw drew drawn, dream dreamt,
    drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt,
    fight fought, find found, flee fled, fly flew flown, foot feet, forbid forbade forbidden,
    forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, get got gotten,
    give gave given, go goes going went gone, good better best, bad worse worst, grow grew grown,
    half halves, hang hung, have has had, hear heard, hide hid hidden, hold held, keep kept,
    knife knives, know knew known, lay laid, lead led, leaf leaves, learn learnt, leave left, lend lent,
    life lives, lose lost, make made, man men, mean meant, meet met, mouse mice, pay paid,
    person people, ride rode ridden, ring rang rung, rise rose risen, run ran, say said, see saw seen,
    seek sought, sell sold, send sent, shake shook shaken, shine shone, shoot shot, show shown,
    shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid,
    speak spoke spoken, spend spent, spin spun, stand stood, steal stole stolen, stick stuck,
    strike struck stricken, swear swore sworn, sweep swept, swim swam swum, swing swung,
    take took taken, teach taught, tear tore torn, tell told, think thought, throw threw thrown,
    tooth teeth, understand understood, wake woke woken, wear wore worn, weave wove woven, weep wept,
    wife wives, win won, wolf wolves, woman women, write wrote written
"""

# Every irregular form, with all forms of its word.
FORMS: dict[str, tuple[str, ...]] = {
    form: tuple(group.split()) for group in _GROUPS.split(",") for form in group.split()
}


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


def tokenized(texts: Sequence[tuple[int, str, str, str]]) -> list[TokenizedText]:
    """Tokenize entries as FTS5 does, each given as its id, key, content and tags.

    The words of all of them are stemmed at once, as each question to the stemmer takes as long as a hundred words.
    """
    fields = [[words_of(indexed(text)) for text in (content[:TOKENIZED], key, tags)] for _, key, content, tags in texts]
    _STEMMER.stems([*{word for words in fields for field in words for word in field}])
    found = []
    for (id, _, content, _), words in zip(texts, fields, strict=True):
        stems, key, tags = (" ".join(_STEMMER.stems(field)) for field in words)
        found.append(TokenizedText(id, stems, key, tags, _label_of(content), fold(content[TOKENIZED:])))
    return found


def _label_of(content: str) -> str:
    """The stems of the label that a content opens with, as of ``TokenizedText``."""
    colon = content.find(":", 1, MAX_LABEL)
    is_label = colon > 0 and content[colon + 1 : colon + 2].isspace()
    return " ".join(stems_of(fold(content[:colon]))) if is_label else ""


def unpacked(id: int, packed: str) -> TokenizedText:
    """The tokens that were ``packed``; ``ValueError`` if these were not."""
    content, key, tags, label, rest = packed.split("\n", 4)
    return TokenizedText(id, content, key, tags, label, rest)


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
    return _STEMMER.stems(words_of(folded))


def read_part(query: str) -> str:
    """The part of a question that is read: all of it, but for one of more than ``MAX_QUERY`` characters."""
    half = MAX_QUERY // 2
    return query if len(query) <= MAX_QUERY else f"{query[:half]} {query[-half:]}"


def terms_of(query: str) -> tuple[Term, ...]:
    """The terms of a question, in order and without repetition; no stop words unless there is nothing else."""
    return _cached_terms(query) if len(query) <= _SHORT_QUERY else _terms(query)


def _terms(query: str) -> tuple[Term, ...]:
    chunks = _chunks(query)
    stems_of(fold(" ".join(chunks)))  # all at once, as each question to the stemmer takes as long as a hundred words
    terms = tuple(dict.fromkeys(term for chunk in chunks for term in _terms_of_chunk(chunk)))
    return tuple(term for term in terms if term.text not in STOP_WORDS) or terms


_cached_terms = lru_cache(maxsize=256)(_terms)


def forget_queries() -> None:
    """Empty the cache of questions, as one may contain a text that is to be forgotten."""
    _cached_terms.cache_clear()


def needles_of(query: str, missing: Iterable[Term]) -> list[str]:
    """The folded texts to look for as parts of words, for the terms that no entry has as a word.

    A name of which all words are missing is looked for as it is written, with its signs.
    """
    words = {term.text for term in missing}
    if not words:
        return []
    needles: dict[str, None] = {}
    for chunk in dict.fromkeys(_chunks(query)):
        terms = terms_of(chunk)
        lacking = [term for term in terms if term.text in words]
        if len(lacking) == len(terms) > 1:
            needles[fold(chunk).strip(_EDGES)] = None
        else:
            needles.update((term.text, None) for term in lacking if not term.is_phrase)
    found = [needle for needle in needles if len(needle) >= MIN_NEEDLE]
    return found if len(found) <= MAX_NEEDLES else sorted(found, key=len, reverse=True)[:MAX_NEEDLES]


def _chunks(query: str) -> list[str]:
    return _CONTRACTION.sub(" ", read_part(query).replace(" %", "%")).split()


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


class Stemmer:
    """Stems of words, by FTS5's own tokenizer; threads may share it.

    Known stems are kept: looking one up takes a hundredth of the time to compute it.
    """

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._idle: list[sqlite3.Connection] = []  # databases in memory; one in use is in no list

    def stems(self, words: Sequence[str]) -> list[str]:
        """The stems of these words, in order."""
        found = list(map(self._stems.get, words))
        if None not in found:
            return cast("list[str]", found)
        new = self._stemmed({word for word, stem in zip(words, found, strict=True) if stem is None})
        if len(self._stems) + len(new) > _MAX_CACHED:
            self._stems.clear()
        self._stems.update(new)
        return [new[word] if stem is None else stem for word, stem in zip(words, found, strict=True)]

    def _stemmed(self, words: Collection[str]) -> dict[str, str]:
        plain = [word for word in words if word.isascii() and word.isalnum()]  # all others are stems as they are
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.execute(f"CREATE VIRTUAL TABLE words USING fts5(text, content='', {STEMMED})")
            connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(words, instance)")
        connection.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", (" ".join(plain),))
        stems = [stem for (stem,) in connection.execute("SELECT term FROM stems ORDER BY offset")]
        connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        self._idle.append(connection)
        return dict(zip(words, words, strict=True)) | dict(zip(plain, stems, strict=True))


_STEMMER = Stemmer()


def stem(word: str) -> str:
    """The stem of a folded word."""
    return _STEMMER.stems([word])[0]
