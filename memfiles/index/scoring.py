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

from memfiles.index.wording import Reading
from memfiles.index.words import Term

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
            (place, f" {' '.join(it.term.stems[0])} ") for place, it in enumerate(terms) if it.term.is_phrase
        ]
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, it in enumerate(terms):
            for form, *_ in () if it.term.is_phrase else it.term.stems:
                self._places[form].append(place)

    def gains(self, reading: Reading) -> Mapping[int, float]:
        """What each term, by its place among them, adds to the text's score; what it does not hold is left out."""
        counts = self._counts(reading)
        norm = K1 * _length_norm(len(reading.content) + len(reading.rest) // 6)
        terms = self._terms
        gains = {place: terms[place].weight * count * (K1 + 1) / (count + norm) for place, count in counts.items()}
        if reading.label:
            for found in self._places.keys() & reading.label:
                gains[self._places[found][0]] += LABEL
        return gains

    def _counts(self, reading: Reading) -> dict[int, float]:
        """How often each term stands in the text, each time with the weight of its field."""
        counts: dict[int, float] = defaultdict(float)
        places = self._places
        for weight, stems in _fields(reading):
            for found in places.keys() & stems:
                times = weight * stems.count(found)
                for place in places[found]:
                    counts[place] += times
        if self._phrases:
            self._count_phrases(reading, counts)
        if reading.rest:
            self._count_rest(reading.rest, counts)
        return counts

    def _count_phrases(self, reading: Reading, counts: dict[int, float]) -> None:
        for weight, stems in _fields(reading):
            row = f" {' '.join(stems)} "
            for place, phrase in self._phrases:
                if times := row.count(phrase):
                    counts[place] += weight * times

    def _count_rest(self, rest: str, counts: dict[int, float]) -> None:
        for place, it in enumerate(self._terms):
            if times := sum(rest.count(" ".join(form)) for form in it.term.stems):
                counts[place] += times


def _fields(reading: Reading) -> tuple[tuple[float, list[str]], ...]:
    return (CONTENT, reading.content), (KEY, reading.key), (TAGS, reading.tags)


def weigh(term: Term, *, matches: int, entries: int) -> Weighed:
    """The rarer a term among the entries, the more it tells; never negative."""
    return Weighed(term, matches, rarity(matches, entries=entries))


def rarity(matches: int, *, entries: int) -> float:
    """The inverse document frequency: how much it tells that a word of ``matches`` of the ``entries`` is there."""
    return math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5))


def _length_norm(words: int) -> float:
    return 1 - B + B * max(1.0, words / SHORT)
