"""Feedback: what the best hits have in common is looked for in the others, too.

A question and its answer often share a subject but few words; the words that come with the subject are learnt from
the entries that match best. Blind feedback after J. J. Rocchio (1971): one step, over the candidates only, so it can
change their order and nothing else. How much a word tells is judged by the candidates, too: to count it in all entries
would cost most for common words, and those are the ones that are not wanted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import fsum

from memfiles.index.search.bm25 import rarity
from memfiles.index.text.porter import stem
from memfiles.index.text.tokens import TokenizedText
from memfiles.index.text.vocabulary import STOP_WORDS

TEACHERS = 10  # the best hits
LESSONS = 20  # stems learnt
MOST_HELD = 0.3  # of the candidates; what more of them hold tells none of them apart
SHARE = 0.2  # of what a word of the question adds

STOP_STEMS = STOP_WORDS | {stem(word) for word in STOP_WORDS}


def gains(readings: Sequence[TokenizedText], scores: Mapping[int, float], *, asked: frozenset[str]) -> dict[int, float]:
    """What the readings, best first, gain by the words that the first of them share, other than those asked for."""
    shared = _shared(readings[:TEACHERS]) - asked - STOP_STEMS
    holding = {reading.id: shared.intersection(reading.words) for reading in readings}
    held = Counter(chain.from_iterable(holding.values()))
    most = MOST_HELD * len(readings)
    worth = {word: rarity(count, entries=len(readings)) for word, count in held.items() if count <= most}
    lessons = _lessons([(scores[reading.id], holding[reading.id]) for reading in readings[:TEACHERS]], worth)
    gained = {word: share * worth[word] for word, share in lessons.items()}
    return {id: fsum(map(gained.__getitem__, gained.keys() & words)) for id, words in holding.items()}


def _shared(teachers: Sequence[TokenizedText]) -> set[str]:
    """The stems that at least two of the teachers hold."""
    held = Counter(chain.from_iterable(set(teacher.words) for teacher in teachers))
    return {shared for shared, count in held.items() if count > 1 and len(shared) > 2}


def _lessons(teachers: Sequence[tuple[float, set[str]]], worth: Mapping[str, float]) -> dict[str, float]:
    """The stems worth most, by how much they tell and how much the teachers score that hold them, with their share."""
    held: dict[str, list[float]] = defaultdict(list)
    for score, words in teachers:
        for word in words & worth.keys():
            held[word].append(score)
    taught = {word: worth[word] * sum(scores) for word, scores in held.items()}
    learnt = sorted(taught, key=lambda word: (-taught[word], word))[:LESSONS]
    most = max(taught.values(), default=0.0)
    return {word: SHARE * taught[word] / most for word in learnt}
