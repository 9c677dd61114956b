"""Languages: stems of words by Snowball's stemmers, chosen by script, and in Latin script by the words around them.

English words have the stems of Porter's first stemmer. A text in another language that is written in Latin letters has
both: those, and those of its language. So a question of one word, of which nobody can tell the language, still finds
what it did before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, cast
from unicodedata import unidata_version
from zlib import crc32

from Stemmer import Stemmer, version

ENGLISH = "porter"
_MAX_CACHED = 100_000  # stems
# The first code point of each script and its language; "" if there is none.
_SCRIPTS = (
    (0x0000, ENGLISH), (0x0370, "greek"), (0x0400, "russian"), (0x0530, "armenian"), (0x0590, ""),
    (0x0600, "arabic"), (0x0700, ""), (0x0900, "hindi"), (0x0980, ""), (0x0B80, "tamil"), (0x0C00, ""),
    (0x1F00, "greek"), (0x2000, ""),
)  # fmt: skip
_STARTS = [start for start, _ in _SCRIPTS]

# Words that are common in one language and rare in others, folded. A text in Latin letters is in the language of which
# it holds most; English wins a draw.
_TELLING = {
    ENGLISH: "the of and to is was that it for with as what which who when where how does did are were his her by",
    "german": "der das und ist nicht ein eine einen einem dem den mit fur auf von zu wie wer wo wann welche welcher "
    "welches wurde wurden werden ich sich auch viele hat aus bei nach uber",
    "dutch": "het een niet van zijn voor wie wat waar wanneer welke werd worden ook ik hoe naar bij deze hebben heeft",
    "french": "le les des est une et pas pour dans qui quel quelle quels quand avec sur ete je vous combien comment ou "
    "aux cette sont par plus",
    "spanish": "el los las es y por para cual cuando donde quien como fue del cuantos cuantas una muy esta son mas",
    "italian": "il lo gli che per quale quando dove chi come sono della nel stato stata quanti quante di non una alla",
    "portuguese": "os um uma nao para qual quando onde quem foi do dos das em com quantos quantas ao pela pelo mais",
    "romanian": "si este nu care cand unde cine din pentru cu fost cate cati ce cum au sunt la prin",
    "swedish": "och att det som ett ar inte med vem vad nar var vilken har hur av till den fran",
    "danish": "og det som ikke til med hvem hvad hvor hvornar hvilken har blev af fra der den",
    "norwegian": "og det som ikke til med hvem hva hvor hvordan hvilken har ble av fra der jeg",
    "finnish": "ja ei se mika missa milloin kuka oli joka ovat kuinka mita etta",
    "hungarian": "es az egy nem hogy mi hol mikor ki volt melyik mennyi milyen meg",
    "turkish": "ve bir bu icin ile hangi kim nerede nasil degil cok ne kac olarak ne",
    "polish": "nie jest sie co kto gdzie kiedy jak ktory byl do ile oraz przez",
    "indonesian": "yang dan di apa siapa kapan dengan untuk tidak dari berapa mana",
}
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _TELLING.items():
    for _word in set(_words.split()):
        _LANGUAGES_OF.setdefault(_word, []).append(_language)


def language_of(words: Collection[str]) -> str:
    """The language of a text of these folded words: that of a stemmer, for those in Latin letters."""
    counts: dict[str, int] = {}
    for word in words:
        for language in _LANGUAGES_OF.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    best = max(counts, key=counts.__getitem__, default=ENGLISH)
    return best if counts and counts[best] > counts.get(ENGLISH, 0) else ENGLISH


def made_with(unicode: str = unidata_version, stemmer: str = version()) -> int:
    """A number for the versions of what cuts and stems words: with others, a text may have other words."""
    return crc32(f"{unicode} {stemmer}".encode())


class SnowballStemmers:
    """Stems of words; threads may share it. Known stems are kept, as most words come again."""

    def __init__(self) -> None:
        self._stems: dict[str, dict[str, str]] = {}  # by language of the words in Latin letters
        self._idle: dict[str, list[Any]] = {}  # stemmers; one in use is in no list

    def stems(self, words: Sequence[str], *, language: str = ENGLISH) -> list[str]:
        """The stems of these folded words, in order; ``language`` is that of words in Latin letters."""
        known = self._stems.setdefault(language, {})
        found = list(map(known.get, words))
        if None not in found:
            return cast("list[str]", found)
        lacking = {word for word, stem in zip(words, found, strict=True) if stem is None}
        new = {word: self._stem(word, language) for word in lacking}
        if len(known) + len(new) > _MAX_CACHED:
            known.clear()
        known.update(new)
        return [new[word] if stem is None else stem for word, stem in zip(words, found, strict=True)]

    def _stem(self, word: str, latin: str) -> str:
        language = _SCRIPTS[bisect_right(_STARTS, ord(word[0])) - 1][1]
        if language == ENGLISH:
            language = latin if latin != ENGLISH or word.isascii() else ""
        if not language or len(word) > 64:
            return word
        idle = self._idle.setdefault(language, [])
        try:
            stemmer = idle.pop()
        except IndexError:
            stemmer = Stemmer(language, 0)
        stem = stemmer.stemWord(word)
        idle.append(stemmer)
        return cast("str", stem) or word
