"""BM25 scores of visible entries: pure functions of texts and word counts.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields. Two
things differ, both because entries are mostly short: length counts only beyond ``SHORT`` words (a shorter entry is not
better for it), and a word of the label that an entry opens with (``Caroline: ...``) adds a fixed amount, as it names
the subject however often it occurs elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from memfiles.index.search.weights import WEIGHTS
from memfiles.index.text.tokenizer import Term, TokenizedText

K1 = 0.8  # how soon repetitions of a word add nothing
B = 0.75  # how much length beyond SHORT counts against a text
SHORT = 64  # words
MANY = 12  # stems of a question
FIELDS = (1.0, 2.0, 1.5, 1.0)  # weights of a word of the content, the key, the tags and the moments
_BETWEEN, _NEXT = " \n ", "  "  # fields of a text, and texts: no phrase continues from one to the next
Fields = tuple[str, str, str, str]
"""The stems of a text, by field."""


class WeightedTerm(Struct, frozen=True):
    """A term, the number of visible entries that match it, and its weight.

    ``is_near``: the question does not have it, but another word of nearly the same meaning.
    """

    term: Term
    matches: int
    weight: float
    is_near: bool = False


class Scorer:
    """Scores texts for one question: all of them together, as to look for a word in one long text costs the least."""

    def __init__(self, terms: Sequence[WeightedTerm], *, label: float = WEIGHTS.label) -> None:
        self._terms = terms
        self._label = label
        self._words: dict[str, list[int]] = defaultdict(list)  # the places of the terms, by each of their stems
        self._phrases: dict[str, list[int]] = defaultdict(list)
        for place, it in enumerate(terms):
            if it.term.is_phrase:
                self._phrases[" ".join(it.term.stems[0])].append(place)
            for form, *_ in () if it.term.is_phrase else it.term.stems:
                self._words[form].append(place)

    def gains(self, texts: Sequence[TokenizedText]) -> list[dict[int, float]]:
        """The score of each term in each text, by the term's place; terms that the text does not hold are left out."""
        found = []
        weighted = [it.weight for it in self._terms]
        for text, counts in zip(texts, self._counts(texts), strict=True):
            norm = K1
            if text.rest or len(text.content) >= 2 * SHORT:  # characters, which may be SHORT words
                norm *= 1 - B + B * max(1.0, (text.words + len(text.rest) // 6) / SHORT)
            gains = {place: weighted[place] * count * (K1 + 1) / (count + norm) for place, count in counts.items()}
            for place in self.named(text) if text.label else ():
                gains[place] += self._label
            found.append(gains)
        return found

    def named(self, text: TokenizedText) -> list[int]:
        """The places of the terms that the label of a text holds; a name is not meant by a word that is near."""
        places = (self._words[word][0] for word in self._words.keys() & text.label.split())
        return [place for place in places if not self._terms[place].is_near]

    def _counts(self, texts: Sequence[TokenizedText]) -> list[dict[int, float]]:
        """How often each term occurs in each text, weighted by field."""
        counts: list[dict[int, float]] = [{} for _ in texts]
        fields = [(text.content, text.key, text.tags, text.moments) for text in texts]
        _count(self._phrases if len(self._words) > MANY else self._phrases | self._words, fields, counts)
        if len(self._words) > MANY:
            self._tally(fields, counts)
        for text, counted in zip(texts, counts, strict=True):
            for place, it in enumerate(self._terms) if text.rest else ():
                if times := sum(text.rest.count(" ".join(form)) for form in it.term.stems):
                    counted[place] = counted.get(place, 0.0) + times
        return counts

    def _tally(self, texts: Sequence[Fields], counts: Sequence[dict[int, float]]) -> None:
        """Count the wanted stems after splitting the texts, which is faster for many of them."""
        for fields, counted in zip(texts, counts, strict=True):
            for weight, stems in zip(FIELDS, fields, strict=True):
                for place in (place for word in stems.split() for place in self._words.get(word, ())):
                    counted[place] = counted.get(place, 0.0) + weight


def _count(wanted: Mapping[str, Sequence[int]], texts: Sequence[Fields], counts: Sequence[dict[int, float]]) -> None:
    """Count the wanted words and phrases, each for its terms, without splitting the texts into words."""
    spaced = [_BETWEEN.join(fields) for fields in texts]
    joined = f" {_NEXT.join(spaced)} "
    starts = list(accumulate([len(text) + len(_NEXT) for text in spaced], initial=0))
    for word, places in wanted.items():
        asked, step = f" {word} ", len(word) + 1  # the space after it may be the one before the next one
        at = joined.find(asked)
        while at >= 0:
            text = bisect_right(starts, at) - 1
            weight, counted = FIELDS[joined.count("\n", starts[text], at)], counts[text]
            for place in places:
                counted[place] = counted.get(place, 0.0) + weight
            at = joined.find(asked, at + step)


def rarity(matches: int, *, entries: int) -> float:
    """The inverse document frequency of a word that ``matches`` of the ``entries`` hold; never negative."""
    return math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5))
