"""BM25 over what is visible: how well a text answers a question, as a pure function of both and of word counts.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields. Two
things differ, both because entries are mostly short: length counts only beyond ``SHORT`` words (a shorter entry is not
better for it), and a word of the label that an entry opens with (``Caroline: ...``) adds a fixed amount, for it names
the subject however often it stands elsewhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memfiles.index.text.tokenizer import Term
from memfiles.index.text.tokens import TokenizedText

K1 = 0.8  # how soon more of the same word adds nothing
B = 0.75  # how much of its length beyond SHORT counts against a text
SHORT = 64  # words
KEY, CONTENT, TAGS = 2.0, 1.0, 1.5  # what a word counts, by where it stands
LABEL = 0.7  # what a word of the label adds, however common: what a word tells that half of the entries hold


@dataclass(frozen=True, slots=True)
class Weighed:
    """A term, how many of the visible entries it matches, and how much that tells."""

    term: Term
    matches: int
    weight: float


class Scorer:
    """Scores readings for one question."""

    def __init__(self, terms: Sequence[Weighed]) -> None:
        self._terms = terms
        self._phrases = [
            (f" {' '.join(it.term.stems[0])} ", place) for place, it in enumerate(terms) if it.term.is_phrase
        ]
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, it in enumerate(terms):
            for form, *_ in () if it.term.is_phrase else it.term.stems:
                self._places[form].append(place)
        self._words = [(f" {word} ", place) for word, places in self._places.items() for place in places]

    def gains(self, reading: TokenizedText) -> Mapping[int, float]:
        """What each term, by its place among them, adds to the text's score; what it does not hold is left out."""
        counts = self._counts(reading)
        words = reading.content.count(" ") + 1 if reading.content else 0
        norm = K1 * _length_norm(words + len(reading.rest) // 6)
        terms = self._terms
        gains = {place: terms[place].weight * count * (K1 + 1) / (count + norm) for place, count in counts.items()}
        if reading.label:
            for found in self._places.keys() & reading.label.split():
                gains[self._places[found][0]] += LABEL
        return gains

    def _counts(self, reading: TokenizedText) -> dict[int, float]:
        """How often each term stands in the text, each time with the weight of its field."""
        counts: dict[int, float] = {}
        for weight, stems in (CONTENT, reading.content), (KEY, reading.key), (TAGS, reading.tags):
            if stems:
                _count(self._words, _spaced(stems), weight, counts)
                if self._phrases:
                    _count(self._phrases, f" {stems} ", weight, counts)
        if reading.rest:
            self._count_rest(reading.rest, counts)
        return counts

    def _count_rest(self, rest: str, counts: dict[int, float]) -> None:
        for place, it in enumerate(self._terms):
            if times := sum(rest.count(" ".join(form)) for form in it.term.stems):
                counts[place] = counts.get(place, 0.0) + times


def _spaced(stems: str) -> str:
    """The stems with two spaces between them, so that the same one twice in a row is counted twice."""
    return f" {stems.replace(' ', '  ')} "


def _count(wanted: Sequence[tuple[str, int]], stems: str, weight: float, counts: dict[int, float]) -> None:
    """Count what is wanted, each for its term; to look for it in the text takes less than to cut that into words."""
    for text, place in wanted:
        if times := stems.count(text):
            counts[place] = counts.get(place, 0.0) + weight * times


def weigh(term: Term, *, matches: int, entries: int) -> Weighed:
    """The rarer a term among the entries, the more it tells; never negative."""
    return Weighed(term, matches, rarity(matches, entries=entries))


def rarity(matches: int, *, entries: int) -> float:
    """The inverse document frequency: how much it tells that a word of ``matches`` of the ``entries`` is there."""
    return math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5))


def _length_norm(words: int) -> float:
    return 1 - B + B * max(1.0, words / SHORT)
