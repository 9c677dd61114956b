"""Where the weights of a search come from: fitted to four conversations each, and measured on the fifth.

Every fit begins from round values, some of them named knowing an earlier fit, and is drawn back to them. The
conversation that is left out has no part in it; the figures are those of real searches in it. The table that memfiles
has is the fit to all five, rounded. What was not fitted anew each time is the form: which weights there are, and the
constants beside the table. They were chosen with all five in view, so other conversations may give a little less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

from memfiles.index.search.weights import WEIGHTS
from tests.benchmarks import retrieval
from tests.benchmarks.bare import show
from tests.benchmarks.conversations import Conversation, load
from tests.benchmarks.fitting import Fit, Point, arrays_of, weights_at
from tests.benchmarks.page import Figure, at_least
from tests.benchmarks.retrieval import Remembering, averaged, measured, tokens_of

BY_MEANING: Mapping[str, Sequence[float]] = {
    "near_word": (0.0, 0.25, 0.5, 0.75, 1.0),
    "meaning": (0.25, 0.5, 0.75, 1.0),
}
FITTED = ("R@1", "R@5", "R@10", "R@25", "MRR", "all in 1,000")
SHOWN = ("R@1", "R@5", "R@10", "all in 1,000")
GOALS: Mapping[str, Mapping[str, float]] = {
    "by words": {"R@1": 43, "R@10": 79, "all in 1,000": 77},
    "with meaning": {"R@10": 81},
}


@pytest.fixture(scope="module")
def conversations() -> list[Conversation]:
    return load()


def test_weights(conversations: list[Conversation]) -> None:
    """What is found in each conversation with the weights of the others; and the table is the fit to all of them."""
    figures = [each.printed() for each in left_out(tuple(conversations))]
    fitted = _fitted(tuple(conversations))[-1]
    if (encoder := retrieval.encoder()) is not None:
        fitted = {**fitted, **_by_meaning(tuple(conversations), encoder)[-1]}
    table = {name: _of_table(name) for name in fitted}
    for name, value in fitted.items():
        show(name, f"fitted to all {value:g}", f"in the table {table[name]:g}")

    assert table == pytest.approx(dict(fitted), abs=1e-6)
    assert [] == [each.what for each in figures if each.is_missed and not each.what.endswith("R@1")]


@cache
def left_out(conversations: tuple[Conversation, ...]) -> Sequence[Figure]:
    """What real searches find in each conversation with weights that were fitted without it."""
    return list(_left_out(conversations))


def _left_out(conversations: tuple[Conversation, ...]) -> Iterator[Figure]:
    encoder = retrieval.encoder()
    found: dict[str, list[dict[str, float]]] = {}
    more = _by_meaning(conversations, encoder) if encoder is not None else [{}] * len(conversations)
    for conversation, point, also in zip(conversations, _fitted(conversations), more, strict=False):
        weights, tokens = weights_at({**point, **also}), tokens_of(conversation)
        last = max(turn.said for turn in conversation.turns)
        unsaid = replace(conversation, turns=tuple(replace(turn, said=last) for turn in conversation.turns))
        for what, given in ("", conversation), (", without said_at", unsaid):
            finds = {"by words": retrieval.searching(given, weights=weights)}
            if encoder is not None:
                finds["with meaning"] = retrieval.searching(given, weights=weights, embedder=encoder)
                without = weights._replace(near_word=0.0)
                finds["with meaning, without near words"] = retrieval.searching(
                    given, weights=without, embedder=encoder
                )
            for how, find in finds.items():
                each = [measured(it.evidence, find(it.text), tokens) for it in conversation.questions]
                found.setdefault(how + what, []).extend(each)
    for how, every in found.items():
        figures = averaged(every)
        for what in SHOWN:
            goal, shown = GOALS.get(how, {}).get(what), f"{figures[what]:.1f}"
            name = f"{how}: {what}"
            yield at_least(name, figures[what], goal, shown=shown) if goal else Figure(name, shown)


@cache
def _fitted(conversations: tuple[Conversation, ...]) -> Sequence[Point]:
    """The weights fitted without each conversation in turn, and then to all."""
    fit = Fit([arrays_of(each) for each in conversations])
    every = range(len(conversations))
    return [fit.best([place for place in every if place != without]) for without in (*every, None)]


@cache
def _by_meaning(conversations: tuple[Conversation, ...], encoder: Remembering) -> Sequence[Point]:
    """The weights of meaning that do best without each conversation in turn, and then in all.

    By real searches, with the other weights of the table: each conversation adds what it finds with each value.
    """
    asked = [len(it.questions) for it in conversations]
    left = [
        [place for place in range(len(conversations)) if place != without] for without in (*range(len(asked)), None)
    ]
    found: list[dict[str, float]] = [{} for _ in left]
    for name, values in BY_MEANING.items():
        each = {value: [_mean_found(it, encoder, **{name: value}) for it in conversations] for value in values}
        for places, best in zip(left, found, strict=True):
            best[name] = max(values, key=lambda value: sum(each[value][at] * asked[at] for at in places))  # noqa: B023
    return found


@cache
def _mean_found(conversation: Conversation, encoder: Remembering, **weights: float) -> float:
    """The mean of what is fitted for, with these weights."""
    find = retrieval.searching(conversation, embedder=encoder, weights=WEIGHTS._replace(**weights))  # type: ignore[arg-type]
    tokens = tokens_of(conversation)
    figures = averaged(measured(it.evidence, find(it.text), tokens) for it in conversation.questions)
    return sum(figures[name] for name in FITTED) / len(FITTED)


def _of_table(name: str) -> float:
    name, _, place = name.partition(".")
    value = getattr(WEIGHTS, name)
    return float(value[int(place)] if place else value)
