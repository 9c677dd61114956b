"""Where the weights of a search come from: what each finds on five long conversations, leaving one out.

The candidates are the table and, one at a time, halves, doubles and values a quarter away. For each conversation, the
candidate is taken that finds most in the other four; the figures are of what it finds in the one that was left out. The
table was fitted to all five, so this shows how stable the weights are, not what unseen conversations give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import fmean
from typing import Any

import pytest

from memfiles.index.search import association, bm25
from memfiles.index.search.association import Ties
from memfiles.index.search.scope import EACH, ENOUGH, MOST, SearchScope
from memfiles.index.search.weights import WEIGHTS, Weights
from memfiles.index.text import fts
from memfiles.index.text.tokenizer import terms_of
from memfiles.index.text.traits import ASKS, TELLS_NUMBER, TELLS_WHEN, wanted_by
from tests.benchmarks.bare import show
from tests.benchmarks.conversations import Conversation, load
from tests.benchmarks.retrieval import rows_of

FACTORS = (0.5, 0.75, 1.33, 2.0)
FITTED = ("answer", "after", "before", "run", "asks", "tells_when", "tells_number")


@dataclass(frozen=True)
class Prepared:
    """A question with everything that does not depend on the weights; rows by id."""

    scores: Mapping[int, float]
    lengths: Mapping[int, int]
    traits: Mapping[int, int]
    tied: Ties
    wanted: int
    evidence: frozenset[int]
    asked_for: int


@pytest.fixture(scope="module")
def conversations() -> list[Conversation]:
    return load()


def test_weights(conversations: list[Conversation]) -> None:
    """Recall of each candidate, and of those that the other conversations choose."""
    prepared = [list(_prepared(each)) for each in conversations]
    found = {name: [_recall(questions, weights) for questions in prepared] for name, weights in candidates().items()}
    for name, each in found.items():
        show(name, f"recall@10 {100 * _mean(prepared, each, 1):.1f} %, @1 {100 * _mean(prepared, each, 0):.1f} %")
    left_out = []
    for place in range(len(prepared)):
        others = [at for at in range(len(prepared)) if at != place]
        best = max(found, key=lambda name: sum(sum(found[name][at]) * len(prepared[at]) for at in others))
        left_out.append(found[best][place])
        show(f"without {conversations[place].name}", f"{best}: recall@10 {100 * left_out[-1][1]:.1f} %")
    show("leaving one out", f"recall@10 {100 * _mean(prepared, left_out, 1):.1f} %", ">= 79")
    show("leaving one out", f"recall@1 {100 * _mean(prepared, left_out, 0):.1f} %", ">= 43")

    assert _mean(prepared, left_out, 1) >= 0.79


def candidates() -> dict[str, Weights]:
    """The table, and its neighbours."""
    found = {"the table": WEIGHTS}
    value: Any
    for name in FITTED:
        value = getattr(WEIGHTS, name)
        for factor in FACTORS:
            changed: Any = tuple(each * factor for each in value) if isinstance(value, tuple) else value * factor
            found[f"{name} {factor:g} times"] = WEIGHTS._replace(**{name: changed})
    return found


def _mean(prepared: Sequence[Sequence[Prepared]], recalls: Sequence[tuple[float, float]], at: int) -> float:
    return sum(len(each) * found[at] for each, found in zip(prepared, recalls, strict=True)) / sum(map(len, prepared))


def _prepared(conversation: Conversation) -> Iterator[Prepared]:
    rows = rows_of(conversation)
    last = date.fromisoformat(max(turn.said for turn in conversation.turns))
    ids = {turn.key: rows.id(turn.key) for turn in conversation.turns}
    traits = {text.id: text.traits for text in fts.tokens(rows.connection, ids.values())}
    for question in conversation.questions:
        scope = SearchScope(rows.connection, [1], keep=None)
        weighted = [
            it for it in scope.weighted(terms_of(question.text, today=last), moment=WEIGHTS.moment) if it.matches
        ]
        texts, _ = scope.with_words(weighted, wanted=max(ENOUGH, min(MOST, EACH * len(weighted))))
        gains = bm25.Scorer(weighted).gains(texts)
        scores = {text.id: sum(gained.values()) for text, gained in zip(texts, gains, strict=True)}
        best = sorted(scores, key=lambda id: (-scores[id], -id))
        tied = association.ties(rows.connection, scope.texts, best)
        lengths = {text.id: text.words for text in texts}
        evidence = frozenset(ids[key] for key in question.evidence if key in ids)
        yield Prepared(scores, lengths, traits, tied, wanted_by(question.text), evidence, len(question.evidence))


def _recall(questions: Sequence[Prepared], weights: Weights) -> tuple[float, float]:
    """Recall at 1 and at 10."""
    ranked = [(it, _ranked(it, weights)) for it in questions]
    at_1, at_10 = (fmean(len(it.evidence & {*ids[:cut]}) / it.asked_for for it, ids in ranked) for cut in (1, 10))
    return at_1, at_10


def _ranked(it: Prepared, weights: Weights) -> list[int]:
    """The rows as a search ranks them."""
    scores = dict(it.scores)
    most = max(scores.values(), default=0.0)
    runs = {id: near.run for id, near in it.tied.near.items()}
    bonus = association.of_runs(scores, runs, it.lengths, weights=weights)
    asking = {id for id in it.tied.near if it.traits[id] & ASKS}
    for id, gain in association.lent(scores, it.tied, asking=asking, weights=weights).items():
        scores[id] = scores.get(id, 0.0) + gain
    for after, before, run in it.tied.near.values():
        runs.update((id, run) for id in (*after, *before))
    for id in scores:
        scores[id] += bonus.get(runs.get(id, ("", "")), 0.0)
        scores[id] *= 1 - weights.asks * bool(it.traits[id] & ASKS)
        for trait, gain in (TELLS_WHEN, weights.tells_when), (TELLS_NUMBER, weights.tells_number):
            scores[id] += gain * most * bool(trait & it.wanted & it.traits[id])
    return sorted(scores, key=lambda id: (-scores[id], -id))
