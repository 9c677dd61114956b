"""Tokenizer: how texts and questions become words and stems, so that each finds what the other means.

Texts are folded here (case, diacritics, compatibility forms) and cut and stemmed by FTS5, at the speed of C; questions
are folded, cut and stemmed here. Only letters and digits of a question reach FTS5, each word in quotes.

Scripts without spaces are cut into characters and pairs of characters, and a question about them into pairs, so that
one or two characters are found anywhere. Of names made of parts (``node.js``, ``snake_case``, ``src/app/main.py``) the
parts are words and the whole is a phrase. FTS5 would not split ``camelCase`` and would confuse ``C++`` with ``c`` and
``20%`` with ``20``: the indexed text contains these a second time, spelled out. Emoji and signs such as arrows are
spelled out as well, as the Unicode tables of FTS5 are those of 2012: a flag is one word, and a skin colour is no word.

FTS5 gets stems, not words, and is asked for stems: a word on which the index and the scores disagreed would be found
but not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from unicodedata import normalize

from msgspec import Struct

from memfiles.index.text.languages import ENGLISH, SnowballStemmers, language_of
from memfiles.index.text.moments import moments_asked, moments_in, words_of_day
from memfiles.index.text.traits import READ, traits_of

MAX_QUERY = 65_536  # characters of a question that are read: of a longer one, half of them from each end
MIN_NEEDLE = 2  # characters of a part of a word
MAX_NEEDLES = 64  # of more, the longest
MAX_LABEL = 40  # characters
TOKENIZED = 16_384  # characters of a content that are tokenized; in the rest, stems are counted as parts of words
# Marks are letters of Indic and Thai words; everything else has been cut and stemmed before FTS5 gets it.
CUT = "tokenize=\"unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'\""
_SHORT_QUERY = 4096  # characters; the terms of longer ones are not cached
_EDGES = "\"'()[]{}<>.,:;!?"

# Scripts written without spaces: Thai to Myanmar, kana, Han, and everything on the ideographic planes.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
# Accents, the vowel points of Hebrew and Arabic, and the vowels and tones above and below Thai and Lao letters.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece]"
)
# Scripts of which the marks are parts of words: Devanagari to Sinhala, Thai, Lao, Myanmar, Khmer.
_LETTER = "\u0900-\u0963\u0966-\u0dff\u0e00-\u0e3a\u0e40-\u0e4e\u0e50-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3"
_WORD = re.compile(rf"(?:[^\W_]|[{_LETTER}])+")
_CONTRACTION = re.compile(r"(?<=\w)['\u2019](?=(?:s|t|d|m|re|ve|ll)\b)", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CAMEL = re.compile(r"(?<![A-Za-z])[A-Za-z]*[a-z][A-Z]\w*")  # begun once a word, so that a long one takes no longer
_SIGNED = re.compile(r"\b([a-z]\w?)(\+\+|#)|\b(\d+(?:[.,]\d+)?)\s?%", re.IGNORECASE)
_HUMPED = re.compile("[a-z][A-Z]")
# Flags, and signs with a meaning of their own: currencies, arrows, mathematics, pictures, but no bullets or frames.
_SIGN = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[\u00a2-\u00a7\u00a9\u00ac\u00ae\u00b0\u00b1\u00b6\u00d7\u00f7\u2020\u2021\u2030\u20a0-\u20cf"
    "\u2190-\u245f\u25b6\u25c0\u2600-\u2bff\U0001f000-\U0001f0ff\U0001f170-\U0001f19a\U0001f200-\U0001f3fa"
    "\U0001f400-\U0001faff]"
)
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


class Term(Struct, frozen=True, dict=True):
    """One thing that a question asks for: a word in all its forms, or a phrase of several words.

    ``forms`` are alternatives, each a tuple of folded words; ``stems`` are their stems. ``is_moment``: see ``moments``.
    """

    forms: tuple[tuple[str, ...], ...]
    stems: tuple[tuple[str, ...], ...]
    text: str
    is_moment: bool = False

    @property
    def match(self) -> str:
        """The term as an FTS5 expression; its words are letters and digits, so none of them is an operator."""
        return " OR ".join(f'"{" ".join(form)}"' for form in self.stems)

    @property
    def is_phrase(self) -> bool:
        """Whether it has several words, which must be next to each other."""
        return len(self.forms[0]) > 1


class TokenizedText(Struct, frozen=True):
    """The stems of an entry, by field, and of the label that its content opens with; ``rest`` is folded text.

    ``moments`` are the words of the day on which it was said, and of the moments in it; ``traits`` are the content's.
    Tokenized once, when the entry is indexed: stemming fifty candidates again took a third of a search. The stems of a
    field are one string with a space between them, as most are never looked at one by one.
    """

    id: int
    content: str
    key: str
    tags: str
    label: str
    moments: str = ""
    traits: int = 0
    rest: str = ""

    @property
    def words(self) -> int:
        """The number of words of the content, without those of the rest."""
        return self.content.count(" ") + 1

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """What FTS5 gets: the stems of the key, the whole content and the tags, and the moments."""
        rest = " ".join(("", *_stems(words_of(indexed(self.rest))))) if self.rest else ""
        return self.key, self.content + rest, self.tags, self.moments

    @property
    def stems(self) -> frozenset[str]:
        """The stems of all fields, and the moments."""
        return frozenset(" ".join(self.columns).split())

    @property
    def packed(self) -> str:
        """The tokens as one text; no stem holds a space or a line break."""
        return "\n".join((self.content, self.key, self.tags, self.label, self.moments, str(self.traits), self.rest))


def tokenized(texts: Iterable[tuple[int, str, str, str, str]]) -> list[TokenizedText]:
    """Tokenize entries, each given as its id, key, content and tags, and the moment at which it was said, if known."""
    found = []
    for id, key, content, tags, said in texts:
        day = date.fromisoformat(said[:10]) if said else None
        begin = content[:TOKENIZED]
        read = [words_of(indexed(text)) for text in (begin, key, tags)]
        known = read[0] if len(content) <= READ and content.isascii() else None
        told = moments_in(begin, said=day, words=known)
        moments = " ".join(dict.fromkeys([*(words_of_day(day) if day else ()), *told]))
        body, named, tagged = (" ".join(_stems(words)) if words else "" for words in read)
        label, rest = _label_of(content), fold(content[TOKENIZED:])
        found.append(TokenizedText(id, body, named, tagged, label, moments, traits_of(content, known), rest))
    return found


def _stems(words: list[str]) -> list[str]:
    """The stems of a text; in another language than English, followed by those of that language that differ."""
    stems = _STEMMER.stems(words)
    if (language := language_of(words)) != ENGLISH:
        others = _STEMMER.stems(words, language=language)
        stems = stems + [other for stem, other in zip(stems, others, strict=True) if stem != other]
    return stems


def _label_of(content: str) -> str:
    """The stems of the label that a content opens with, as of ``TokenizedText``."""
    colon = content.find(":", 1, MAX_LABEL)
    is_label = colon > 0 and content[colon + 1 : colon + 2].isspace()
    return " ".join(stems_of(fold(content[:colon]))) if is_label else ""


def unpacked(id: int, packed: str) -> TokenizedText:
    """The tokens that were ``packed``; ``ValueError`` if these were not."""
    content, key, tags, label, moments, traits, rest = packed.split("\n", 6)
    return TokenizedText(id, content, key, tags, label, moments, int(traits), rest)


def fold(text: str) -> str:
    """The text without case, diacritics and compatibility forms (``École`` becomes ``ecole``); never fails."""
    if text.isascii():
        return text.lower()
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is not a character
    return normalize("NFC", _MARKS.sub("", normalize("NFKD", text))).casefold()


def indexed(text: str) -> str:
    """The text as it is given to FTS5."""
    return f"{as_written(text)} {_spelled_out(text)}" if _may_be_special(text) else as_written(text)


def as_written(text: str) -> str:
    """The text folded, with its scripts without spaces cut, and nothing spelled out."""
    folded = fold(text)
    return folded if folded.isascii() else _UNSPACED_RUN.sub(_cut, folded)


def _may_be_special(text: str) -> bool:
    """Whether a name in the text may be in camel case or end in a sign, or there is an emoji; False if none is."""
    if not text.isascii() and _SIGN.search(text):
        return True
    return "%" in text or "+" in text or "#" in text or not (text.islower() or _HUMPED.search(text) is None)


def _cut(run: re.Match[str]) -> str:
    """A run of a script without spaces as its characters, each but the last followed by the pair that it begins."""
    found = run[0]
    pairs = (f"{found[at]} {found[at : at + 2]}" for at in range(len(found) - 1))
    return f" {' '.join(pairs)} {found[-1]} "


def _spelled_out(text: str) -> str:
    """The parts of names in camel case, names that end in signs, and emoji and other signs, as words."""
    humps = (fold(part) for name in _CAMEL.findall(text) for part in _HUMP.split(name))
    signs = () if text.isascii() else map(_word_of_sign, _SIGN.findall(text))
    return " ".join([*humps, *(_spelled(found) for found in _SIGNED.finditer(text)), *signs])


def _word_of_sign(sign: str) -> str:
    """A word that ends in a digit, so that no stemmer shortens it."""
    return "sign" + "x".join(str(ord(each)) for each in sign)


def _spelled(found: re.Match[str]) -> str:
    name, sign, number = found.groups()
    if number:
        return "".join(words_of(number)) + "percent"
    return fold(name) + ("plusplus" if sign == "++" else "sharp")


def _is_unspaced(word: str) -> bool:
    return not word.isascii() and _UNSPACED_RUN.fullmatch(word) is not None


def words_of(folded: str) -> list[str]:
    """The words of a folded text, in order."""
    return folded.translate(_SPACES).split() if folded.isascii() else _WORD.findall(folded)


def spans_of(text: str) -> Iterator[tuple[int, str]]:
    """Position and stem of each word of a text, and then of each sign."""
    for found in _WORD.finditer(text):
        word = fold(found[0])
        yield found.start(), stem(word)
        for run in () if word.isascii() else _UNSPACED_RUN.finditer(found[0]):
            begin = found.start() + run.start()
            yield from ((begin + at, fold(run[0][at : at + 2])) for at in range(len(run[0]) - 1))
    for found in () if text.isascii() else _SIGN.finditer(text):
        yield found.start(), _word_of_sign(found[0])


def stems_of(folded: str) -> list[str]:
    """The stems of the words of a folded text, in order."""
    return _STEMMER.stems(words_of(folded))


def read_part(query: str) -> str:
    """The part of a question that is read: all of it, but for one of more than ``MAX_QUERY`` characters."""
    half = MAX_QUERY // 2
    return query if len(query) <= MAX_QUERY else f"{query[:half]} {query[-half:]}"


def terms_of(query: str, *, today: date | None = None) -> tuple[Term, ...]:
    """The terms of a question, in order and without repetition; no stop words unless there is nothing else.

    With ``today``, also the moments that it names.
    """
    return (_cached_terms if len(query) <= _SHORT_QUERY else _terms)(query, today)


def _terms(query: str, today: date | None) -> tuple[Term, ...]:
    chunks = _chunks(query)
    folded = fold(" ".join(chunks))
    words = words_of(folded)
    language = language_of(words)
    found = tuple(dict.fromkeys(term for chunk in chunks for term in _terms_of_chunk(chunk, language)))
    terms = tuple(term for term in found if term.text not in STOP_WORDS) or found
    moments: Sequence[str] = (
        () if today is None else moments_in(read_part(query), said=today, words=words if query.isascii() else None)
    )
    if today is not None:
        moments = list(dict.fromkeys([*moments_asked(folded, words, today=today, language=language), *moments]))
    return (*terms, *(Term(((word,),), ((word,),), word, is_moment=True) for word in moments))


_cached_terms = lru_cache(maxsize=256)(_terms)


def forget_queries() -> None:
    """Empty the cache of questions, as one may contain a text that is to be forgotten."""
    _cached_terms.cache_clear()


def needles_of(query: str, missing: Iterable[Term]) -> list[str]:
    """The folded texts to look for as parts of words, for the terms that no entry has as a word.

    A name of which all words are missing is looked for as it is written, with its signs.
    """
    words = {term.text for term in missing if not term.is_moment}
    if not words:
        return []
    needles: dict[str, None] = {}
    for chunk in dict.fromkeys(_chunks(query)):
        terms = terms_of(chunk)
        lacking = [term for term in terms if term.text in words]
        if len(lacking) == len(terms) > 1:
            needles.update({whole: None} if not _is_unspaced(whole := fold(chunk).strip(_EDGES)) else {})
        else:
            needles.update((term.text, None) for term in lacking if not (term.is_phrase or _is_unspaced(term.text)))
    found = [needle for needle in needles if len(needle) >= MIN_NEEDLE]
    return found if len(found) <= MAX_NEEDLES else sorted(found, key=len, reverse=True)[:MAX_NEEDLES]


def _chunks(query: str) -> list[str]:
    read = read_part(query).replace(" %", "%")
    return (_CONTRACTION.sub(" ", read) if "'" in read or "\u2019" in read else read).split()


def _terms_of_chunk(chunk: str, language: str = ENGLISH) -> Iterator[Term]:
    """The whole of a name first, then its parts."""
    folded = fold(chunk)
    is_ascii = folded.isascii()
    words = words_of(folded if is_ascii else _UNSPACED_RUN.sub(" ", folded))
    if len(words) > 1:
        yield _term([tuple(words)])
    for word in dict.fromkeys([*words, *(words_of(_spelled_out(chunk)) if _may_be_special(chunk) else ())]):
        yield _term([(form,) for form in dict.fromkeys([word, *FORMS.get(word, ())])], language)
    for run in () if is_ascii else _UNSPACED_RUN.findall(folded):
        characters = "".join(words_of(run))
        pairs = [characters[at : at + 2] for at in range(len(characters) - 1)]
        yield from (_term([(pair,)]) for pair in pairs or characters)


def _term(forms: list[tuple[str, ...]], language: str = ENGLISH) -> Term:
    stems = [tuple(_STEMMER.stems(form)) for form in forms]
    if language != ENGLISH:
        stems += [tuple(_STEMMER.stems(form, language=language)) for form in forms]
    return Term(tuple(forms), tuple(dict.fromkeys(stems)), " ".join(forms[0]))


_STEMMER = SnowballStemmers()


def stem(word: str) -> str:
    """The stem of a folded word."""
    return _STEMMER.stems([word])[0]
