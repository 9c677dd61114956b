"""Feedback: what the best hits have in common is looked for in the others, too.

A question and its answer often share a subject but few words; the words that come with the subject are learnt from
the entries that match best. Blind feedback after J. J. Rocchio (1971): one step, over the candidates only, so it can
change their order and nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import fsum

from memfiles.index.porter import stem
from memfiles.index.scoring import Reading, rarity
from memfiles.index.vocabulary import STOP_WORDS

TEACHERS = 10  # the best hits
LESSONS = 20  # stems learnt
CONSIDERED = 24  # stems whose counts are looked up
SHARE = 0.2  # of what a word of the question adds

STOP_STEMS = STOP_WORDS | {stem(word) for word in STOP_WORDS}

Counts = Callable[[Sequence[str]], Mapping[str, int]]


def gains(
    readings: Sequence[Reading], scores: Mapping[int, float], *, asked: frozenset[str], counts: Counts, entries: int
) -> dict[int, float]:
    """What the readings, best first, gain by the words that the first of them share; ``counts`` tells how many entries
    hold each stem, of ``entries`` that there are.
    """
    teachers = readings[:TEACHERS]
    common = _common(readings, scores, asked)[:CONSIDERED]
    known = counts(common) if common else {}
    worth = {stem: rarity(known.get(stem, 0), entries=entries) for stem in common}
    lessons = _lessons(teachers, scores, worth)
    return {
        reading.id: fsum(lessons[stem] * worth[stem] for stem in lessons.keys() & set(reading.content))
        for reading in readings
    }


def _common(readings: Sequence[Reading], scores: Mapping[int, float], asked: frozenset[str]) -> list[str]:
    """The stems that at least two of the best hits hold, by how much those score and how few of all candidates hold it.

    None that was asked for. The candidates stand for all entries here: to count everywhere is dear for common words,
    and those are the ones that are not wanted.
    """
    held = Counter(stem for reading in readings for stem in set(reading.content))
    holding: dict[str, list[float]] = defaultdict(list)
    for teacher in readings[:TEACHERS]:
        for stem in set(teacher.content):
            holding[stem].append(scores[teacher.id])
    unwanted = asked | STOP_STEMS
    promise = {
        stem: sum(taught) * rarity(held[stem], entries=len(readings))
        for stem, taught in holding.items()
        if len(taught) > 1 and len(stem) > 2 and stem not in unwanted
    }
    return sorted(promise, key=lambda stem: (-promise[stem], stem))


def _lessons(teachers: Sequence[Reading], scores: Mapping[int, float], worth: Mapping[str, float]) -> dict[str, float]:
    """The stems learnt, with the share that each lends."""
    taught = {
        stem: worth[stem] * sum(scores[teacher.id] for teacher in teachers if stem in teacher.content) for stem in worth
    }
    learnt = sorted(taught, key=lambda stem: (-taught[stem], stem))[:LESSONS]
    most = max(taught.values(), default=0.0)
    return {stem: SHARE * taught[stem] / most for stem in learnt} if most else {}
