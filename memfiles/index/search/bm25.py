"""BM25 scores of visible entries: pure functions of texts and word counts.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields. Two
things differ, both because entries are mostly short: length counts only beyond ``SHORT`` words (a shorter entry is not
better for it), and a word of the label that an entry opens with (``Caroline: ...``) adds a fixed amount, as it names
the subject however often it occurs elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from memfiles.index.text.tokenizer import Term, TokenizedText

K1 = 0.8  # how soon repetitions of a word add nothing
B = 0.75  # how much length beyond SHORT counts against a text
SHORT = 64  # words
MANY = 12  # stems of a question
KEY, CONTENT, TAGS, MOMENT = 2.0, 1.0, 1.5, 1.0  # weights of a word, by field
LABEL = 0.7  # added for a word of the label, however common: about the weight of a word that half of the entries hold


class WeightedTerm(Struct, frozen=True):
    """A term, the number of visible entries that match it, and its weight."""

    term: Term
    matches: int
    weight: float


class Scorer:
    """Scores texts for one question."""

    def __init__(self, terms: Sequence[WeightedTerm]) -> None:
        self._terms = terms
        self._phrases = [
            (f" {' '.join(it.term.stems[0])} ", place) for place, it in enumerate(terms) if it.term.is_phrase
        ]
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, it in enumerate(terms):
            for form, *_ in () if it.term.is_phrase else it.term.stems:
                self._places[form].append(place)
        self._words = [(f" {word} ", place) for word, places in self._places.items() for place in places]
        self._are_many = len(self._words) > MANY

    def gains(self, text: TokenizedText) -> Mapping[int, float]:
        """The score of each term in the text, by the term's place; terms that the text does not hold are left out."""
        counts = self._counts(text)
        words = text.content.count(" ") + 1 if text.content else 0
        norm = K1 * (1 - B + B * max(1.0, (words + len(text.rest) // 6) / SHORT))
        terms = self._terms
        gains = {place: terms[place].weight * count * (K1 + 1) / (count + norm) for place, count in counts.items()}
        if text.label:
            for found in self._places.keys() & text.label.split():
                gains[self._places[found][0]] += LABEL
        return gains

    def _counts(self, text: TokenizedText) -> dict[int, float]:
        """How often each term occurs in the text, weighted by field."""
        counts: dict[int, float] = {}
        for weight, stems in (CONTENT, text.content), (KEY, text.key), (TAGS, text.tags), (MOMENT, text.moments):
            if stems and self._are_many:
                self._tally(stems, weight, counts)
            elif stems:
                spaced = f" {stems.replace(' ', '  ')} "  # two spaces: a stem twice in a row is counted twice
                _count(self._words, spaced, weight, counts)
            if stems and self._phrases:
                _count(self._phrases, f" {stems} ", weight, counts)
        for place, it in enumerate(self._terms) if text.rest else ():
            if times := sum(text.rest.count(" ".join(form)) for form in it.term.stems):
                counts[place] = counts.get(place, 0.0) + times
        return counts

    def _tally(self, stems: str, weight: float, counts: dict[int, float]) -> None:
        """Count the wanted stems after splitting the text, which is faster for many of them."""
        found = Counter(stems.split())
        for word in found.keys() & self._places.keys():
            for place in self._places[word]:
                counts[place] = counts.get(place, 0.0) + weight * found[word]


def _count(wanted: Sequence[tuple[str, int]], stems: str, weight: float, counts: dict[int, float]) -> None:
    """Count the wanted stems, each for its term; searching the text is faster than splitting it into words."""
    for text, place in wanted:
        if times := stems.count(text):
            counts[place] = counts.get(place, 0.0) + weight * times


def rarity(matches: int, *, entries: int) -> float:
    """The inverse document frequency of a word that ``matches`` of the ``entries`` hold; never negative."""
    return math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5))
