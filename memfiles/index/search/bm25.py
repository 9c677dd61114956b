"""BM25 scores of visible entries, with blind relevance feedback: pure functions of texts and word counts.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields. Two
things differ, both because entries are mostly short: length counts only beyond ``SHORT`` words (a shorter entry is not
better for it), and a word of the label that an entry opens with (``Caroline: ...``) adds a fixed amount, as it names
the subject however often it occurs elsewhere.

The feedback is Rocchio's (1971), one step over the candidates: a question and its answer often share a subject but few
words, so words that the best hits have in common are looked for in the other candidates. It can change only their
order. A word's rarity is measured among the candidates: counting it in all entries would cost most for common words,
which are not wanted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from memfiles.index.text.tokenizer import STOP_WORDS, Term, TokenizedText, stems_of

K1 = 0.8  # how soon repetitions of a word add nothing
B = 0.75  # how much length beyond SHORT counts against a text
SHORT = 64  # words
KEY, CONTENT, TAGS = 2.0, 1.0, 1.5  # weights of a word, by field
LABEL = 0.7  # added for a word of the label, however common: about the weight of a word that half of the entries hold
TEACHERS = 10  # the best hits, from which words are learnt
LESSONS = 20  # stems learnt
MOST_HELD = 0.3  # of the candidates; a stem that more of them hold does not tell them apart
FEEDBACK = 0.2  # the weight of the best lesson, as a share of that of a word of the question
_STOP_STEMS = STOP_WORDS | set(stems_of(" ".join(STOP_WORDS)))


@dataclass(frozen=True, slots=True)
class WeightedTerm:
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
        for weight, stems in (CONTENT, text.content), (KEY, text.key), (TAGS, text.tags):
            if stems:
                spaced = f" {stems.replace(' ', '  ')} "  # two spaces: a stem twice in a row is counted twice
                _count(self._words, spaced, weight, counts)
                if self._phrases:
                    _count(self._phrases, f" {stems} ", weight, counts)
        for place, it in enumerate(self._terms) if text.rest else ():
            if times := sum(text.rest.count(" ".join(form)) for form in it.term.stems):
                counts[place] = counts.get(place, 0.0) + times
        return counts


def _count(wanted: Sequence[tuple[str, int]], stems: str, weight: float, counts: dict[int, float]) -> None:
    """Count the wanted stems, each for its term; searching the text is faster than splitting it into words."""
    for text, place in wanted:
        if times := stems.count(text):
            counts[place] = counts.get(place, 0.0) + weight * times


def rarity(matches: int, *, entries: int) -> float:
    """The inverse document frequency of a word that ``matches`` of the ``entries`` hold; never negative."""
    return math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5))


def feedback(
    texts: Sequence[TokenizedText], scores: Mapping[int, float], *, terms: Sequence[WeightedTerm]
) -> dict[int, float]:
    """Gains of the texts by stems that the best of them share, except for those of the terms; ``scores`` best first."""
    by_id = {text.id: text for text in texts}
    teachers = [by_id[id] for id in islice(scores, TEACHERS)]
    asked = {word for it in terms for form in it.term.stems for word in form}
    taught = Counter(chain.from_iterable(set(teacher.words) for teacher in teachers))
    shared = {word for word, count in taught.items() if count > 1 and len(word) > 2} - asked - _STOP_STEMS
    holding = {id: shared.intersection(by_id[id].words) for id in scores}
    held = Counter(chain.from_iterable(holding.values()))
    most = MOST_HELD * len(texts)
    worth = {word: rarity(count, entries=len(texts)) for word, count in held.items() if count <= most}
    lessons = _lessons([(scores[text.id], holding[text.id]) for text in teachers], worth)
    gained = {word: share * worth[word] for word, share in lessons.items()}
    return {id: math.fsum(map(gained.__getitem__, gained.keys() & words)) for id, words in holding.items()}


def _lessons(teachers: Sequence[tuple[float, set[str]]], worth: Mapping[str, float]) -> dict[str, float]:
    """The best stems with their shares, by their rarity times the scores of the teachers that hold them."""
    held: dict[str, list[float]] = defaultdict(list)
    for score, words in teachers:
        for word in words & worth.keys():
            held[word].append(score)
    taught = {word: worth[word] * sum(scores) for word, scores in held.items()}
    learnt = sorted(taught, key=lambda word: (-taught[word], word))[:LESSONS]
    most = max(taught.values(), default=0.0)
    return {word: FEEDBACK * taught[word] / most for word in learnt}
