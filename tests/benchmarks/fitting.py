"""Weights of a search, fitted to conversations: the ranking of a search on arrays, and a search for better weights.

The arrays hold what does not depend on the weights, by question and turn. ``rank`` is what ``memfiles.index.search``
does with them, so fast that thousands of weights can be tried; the figures that are shown come from real searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import numpy
from numpy.typing import NDArray

from memfiles.index.search import bm25
from memfiles.index.search.scope import EACH, ENOUGH, MOST, SearchScope
from memfiles.index.search.weights import BRIEF, DENSE, LENDERS, WEIGHTS, Weights
from memfiles.index.text import fts
from memfiles.index.text.tokenizer import terms_of
from memfiles.index.text.traits import ASKS, TELLS_NUMBER, TELLS_WHEN, wanted_by
from tests.benchmarks.conversations import Conversation
from tests.benchmarks.retrieval import rows_of, tokens_of

Numbers = NDArray[numpy.float32]
Point = Mapping[str, float]
"""Weights by name, those of a pair with their place: ``after.0``."""

# Where a fit begins, and what it is drawn back to: round values. Those of the second line were named by someone who
# knew an earlier fit.
START: Point = {
    **{"answer": 0.55, "after.0": 0.2, "after.1": 0.2, "before.0": 0.15, "before.1": 0.1, "run": 0.7},
    **{"label": 0.5, "moment": 1.0, "asks": 0.05, "tells_when": 0.1, "tells_number": 0.1},
}
STEPS: Point = {
    **{"answer": 0.05, "after.0": 0.05, "after.1": 0.05, "before.0": 0.05, "before.1": 0.05, "run": 0.1},
    **{"label": 0.1, "moment": 0.1, "asks": 0.025, "tells_when": 0.05, "tells_number": 0.05},
}
FAR = 4  # steps away from the start, which cost ``PULL`` points
PULL = 0.15


@dataclass(frozen=True)
class Arrays:
    """A conversation and its questions: scores by question and turn, and what is known of turns and of questions."""

    words: Numbers
    labels: Numbers
    moments: Numbers
    hits: NDArray[numpy.bool_]
    evidence: NDArray[numpy.bool_]
    asked_for: Numbers
    asks: NDArray[numpy.bool_]
    tells: Sequence[NDArray[numpy.bool_]]  # question and turn: a moment or a number that is wanted, and told
    lengths: Numbers
    sessions: NDArray[numpy.int64]
    tokens: NDArray[numpy.int64]


def arrays_of(conversation: Conversation) -> Arrays:
    """Ask every question of a conversation, as a search does before it weighs anything."""
    rows = rows_of(conversation)
    last = date.fromisoformat(max(turn.said for turn in conversation.turns))
    ids = [rows.id(turn.key) for turn in conversation.turns]
    places = {id: place for place, id in enumerate(ids)}
    keys = {turn.key: place for place, turn in enumerate(conversation.turns)}
    texts = {text.id: text for text in fts.tokens_of(rows.connection, ids)}
    shape = len(conversation.questions), len(ids)
    words, labels, moments = (numpy.zeros(shape, numpy.float32) for _ in range(3))
    hits, evidence = (numpy.zeros(shape, bool) for _ in range(2))
    for at, question in enumerate(conversation.questions):
        evidence[at, [keys[key] for key in question.evidence if key in keys]] = True
        scope = SearchScope(rows.connection, [1], keep=None)
        terms = [it for it in scope.weighted(terms_of(question.text, today=last)) if it.matches]
        scorer = bm25.Scorer(terms, label=0.0)
        found, _ = scope.with_words(terms, wanted=max(ENOUGH, min(MOST, EACH * len(terms))))
        for text, gains in zip(found, scorer.gains(found), strict=True):
            place = places[text.id]
            moments[at, place] = sum(gain for each, gain in gains.items() if terms[each].term.is_moment)
            words[at, place] = sum(gains.values()) - moments[at, place]
            labels[at, place] = len(scorer.named(text))
            hits[at, place] = True
    traits = numpy.array([texts[id].traits for id in ids])
    wanted = numpy.array([wanted_by(question.text) for question in conversation.questions])
    sessions: dict[str, int] = {}
    sizes = tokens_of(conversation)
    return Arrays(
        *(words, labels, moments, hits, evidence),
        asked_for=numpy.array([len(question.evidence) for question in conversation.questions], numpy.float32),
        asks=(traits & ASKS) > 0,
        tells=[((wanted & it) > 0)[:, None] & ((traits & it) > 0)[None, :] for it in (TELLS_WHEN, TELLS_NUMBER)],
        lengths=numpy.array([texts[id].words for id in ids], numpy.float32),
        sessions=numpy.array([sessions.setdefault(turn.session, len(sessions)) for turn in conversation.turns]),
        tokens=numpy.array([sizes[turn.key] for turn in conversation.turns]),
    )


def weights_at(point: Point) -> Weights:
    """The weights of a point; what it does not name is as in the table."""
    given: dict[str, Any] = {name: (point[f"{name}.0"], point[f"{name}.1"]) for name in ("after", "before")}
    given |= {name: value for name, value in point.items() if "." not in name}
    return WEIGHTS._replace(**given)


def ranked(it: Arrays, weights: Weights) -> Numbers:
    """The scores that a search gives; below 0 where it finds nothing."""
    scores = it.words + weights.label * it.labels + weights.moment * it.moments
    most = scores.max(1, keepdims=True)
    gains = _lent(it, scores, weights)
    bonus = numpy.zeros_like(scores)
    for session in range(it.sessions.max() + 1):
        bonus[:, it.sessions == session] = _of_run(it, scores, weights, it.sessions == session)[:, None]
    found = it.hits | (gains > 0)
    scores = (scores + gains + bonus) * (1 - weights.asks * it.asks[None, :])
    for gain, told in zip((weights.tells_when, weights.tells_number), it.tells, strict=True):
        scores = scores + gain * most * told
    return cast(Numbers, numpy.where(found, scores, -1))


def _lent(it: Arrays, scores: Numbers, weights: Weights) -> Numbers:
    lenders = min(LENDERS, scores.shape[1]) - 1
    least = -numpy.partition(-scores, lenders, axis=1)[:, lenders : lenders + 1]
    best = numpy.where(it.hits & (scores >= least), scores, 0)
    asked = _shifted(it, numpy.where(it.asks, scores, 0), 1)
    loans = [_shifted(it, numpy.where(it.asks, 0, scores), 1), _shifted(it, scores, 2)]
    loans += [_shifted(it, best, -1), _shifted(it, best, -2)]
    total = sum(share * loan for share, loan in zip((*weights.after, *weights.before), loans, strict=True))
    lender = numpy.maximum.reduce(loans)
    gain = weights.answer * asked
    ahead = lender - scores - gain
    gain = gain + numpy.where(ahead > 0, numpy.minimum(total, weights.most * ahead), 0)
    return cast(Numbers, numpy.minimum(gain, weights.most * numpy.maximum(asked, lender)))


def _shifted(it: Arrays, scores: Numbers, by: int) -> Numbers:
    """The score of the turn so many before, in the same session."""
    found = numpy.zeros_like(scores)
    if by > 0:
        found[:, by:] = scores[:, :-by] * (it.sessions[by:] == it.sessions[:-by])
    else:
        found[:, :by] = scores[:, -by:] * (it.sessions[:by] == it.sessions[-by:])
    return found


def _of_run(it: Arrays, scores: Numbers, weights: Weights, of: NDArray[numpy.bool_]) -> Numbers:
    count = it.hits[:, of].sum(1)
    length = (it.hits[:, of] * it.lengths[of]).sum(1) / numpy.maximum(count, 1)
    best = numpy.sort(scores[:, of], axis=1)[:, -3:].sum(1) / 3
    share = numpy.minimum(1, numpy.minimum(DENSE / numpy.maximum(count, 1), BRIEF / numpy.maximum(length, 1)))
    return cast(Numbers, numpy.where(count > 1, weights.run * share * best, 0))


def figures_of(it: Arrays, scores: Numbers) -> Numbers:
    """What is fitted for: recall at 1, 5, 10 and 25, MRR, and whether all evidence is within 1,000 tokens.

    A row for each question. Recall at 25 and MRR make the sum smoother, as few questions change at each single cut.
    """
    order = scores.shape[1] - 1 - numpy.argsort(-scores[:, ::-1], axis=1, kind="stable")  # newest first among equals
    found = numpy.take_along_axis(it.evidence, order, 1).cumsum(1)
    recalls = [found[:, cut - 1] / it.asked_for for cut in (1, 5, 10, 25)]
    first = numpy.where(found[:, :50] > 0, 1 / numpy.arange(1, 51), 0).max(axis=1)
    fitting = numpy.minimum((it.tokens[order].cumsum(1) <= 1_000).sum(1), 50)
    within = found[numpy.arange(len(found)), numpy.maximum(fitting - 1, 0)] >= it.asked_for
    return numpy.stack([*recalls, first, within & (fitting > 0)], axis=1).astype(numpy.float32)


def _least(name: str) -> float:
    return 0.1 if "." in name else 0.0


def _most(name: str) -> float:
    """The share that a neighbour lends has bounds, beyond which a good answer is hidden by what stands around it."""
    return 0.35 if "." in name else 1.0


class Fit:
    """A search for better weights, one step of one weight at a time; what was computed once is kept."""

    def __init__(self, conversations: Sequence[Arrays]) -> None:
        self._conversations = conversations
        self._known: dict[tuple[int, Weights], tuple[float, int]] = {}

    def best(self, places: Sequence[int]) -> Point:
        """The weights that do best in these conversations, drawn back to ``START``."""
        best, value = dict(START), self._value(START, places)
        for _ in range(4):
            before = value
            for name, step in STEPS.items():
                for point in [best | {name: round(best[name] + by * step, 4)} for by in (-2, -1, 1, 2)]:
                    if (
                        _least(name) <= point[name] <= _most(name)
                        and (found := self._value(point, places)) > value + 1e-6
                    ):
                        best, value = point, found
            if value - before < 0.01:
                break
        return best

    def _value(self, point: Point, places: Sequence[int]) -> float:
        """The mean of the figures, less what the distance from the start costs."""
        away = sum(((point[name] - START[name]) / (FAR * STEPS[name])) ** 2 for name in START)
        return self._mean(weights_at(point), places) - PULL * away

    def _mean(self, weights: Weights, places: Sequence[int]) -> float:
        found = [self._figures(place, weights) for place in places]
        return 100 * sum(total for total, _ in found) / sum(count for _, count in found)

    def _figures(self, place: int, weights: Weights) -> tuple[float, int]:
        if (place, weights) not in self._known:
            it = self._conversations[place]
            found = figures_of(it, ranked(it, weights))
            self._known[place, weights] = float(found.mean(axis=1).sum()), len(found)
        return self._known[place, weights]
