"""Search: which visible entries answer a question, best first.

Visibility comes first (the partitions given), then what the caller keeps, then rank, then the limit. FTS5 proposes
candidates from each partition; they are scored here by words counted over all partitions given. So scores, order,
counts and snippets are those of a store in which nothing else exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from memfiles.index.search import association, vectors
from memfiles.index.search import relevance_feedback as feedback
from memfiles.index.search.bm25 import Scorer, Weighed, rarity
from memfiles.index.search.candidates import ENOUGH, by_substring, by_words
from memfiles.index.search.embedder import Embedder
from memfiles.index.search.scope import Keep, SearchScope
from memfiles.index.search.snippets import snippet
from memfiles.index.text.tokenizer import Term, needles_of, terms_of
from memfiles.index.text.tokens import TokenizedText

WORDS, SUBSTRING, ASSOCIATION, MEANING = "words", "substring", "association", "meaning"
PART_OF_A_WORD = 0.5  # what a part of a word counts beside a whole one


@dataclass(frozen=True)
class Hit:
    """An entry found: its row, its record as of then, its score, the legs that found it and what to show of it.

    ``legs`` are some of ``words``, ``substring``, ``association`` and ``meaning``.
    """

    id: int
    path: str
    revision: int
    score: float
    legs: tuple[str, ...]
    snippet: str


class RankedEntries:
    """How the entries stand: what each leg gave to each of them so far."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        self.legs: dict[int, tuple[str, ...]] = {}

    def add(self, gains: Mapping[int, float], *, leg: str) -> None:
        """Give entries more, by a leg."""
        scores, found_by = self.scores, self.legs
        for id, gain in gains.items():
            if id not in scores:
                scores[id], found_by[id] = gain, (leg,)
            else:
                scores[id] += gain
                if leg not in found_by[id]:
                    found_by[id] += (leg,)

    def best(self) -> dict[int, float]:
        """Entries and scores, best first, newest row first among equals."""
        return dict(sorted(self.scores.items(), key=lambda item: (-item[1], -item[0])))


def search(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    query: str,
    *,
    keep: Keep | None,
    limit: int,
    associate: bool = True,
    embedder: Embedder | None = None,
    shadowed: Collection[int] = frozenset(),
) -> list[Hit]:
    """The at most ``limit`` entries of the partitions that answer ``query`` best, of those that ``keep`` keeps.

    ``keep`` is given rows and returns those that count; None if all that have text do. No text of a query raises. With
    an ``embedder``, contents that have no vector yet are embedded first, which writes to the connection. The rows
    ``shadowed`` count in nothing.
    """
    view = SearchScope(connection, parts, keep=keep, shadowed=shadowed)
    terms = terms_of(query)
    standing = RankedEntries()
    missing = _add_words(view, terms, standing, wanted=max(ENOUGH, limit))
    for needle in needles_of(query, missing):
        standing.add(_substring_gains(view, needle, wanted=max(ENOUGH, limit)), leg=SUBSTRING)
    if embedder:
        vectors.fill(connection, view.parts, embedder)
        best = max(standing.scores.values(), default=1.0)
        standing.add(vectors.gains(view, embedder, query, best=best), leg=MEANING)
    if associate:
        shares = association.lent(connection, view.parts, standing.best(), but=view.shadowed)
        standing.add({id: shares[id] for id in view.kept(list(shares))}, leg=ASSOCIATION)
    return _hits(view, standing, terms=terms, limit=limit)


def _add_words(view: SearchScope, terms: Sequence[Term], standing: RankedEntries, *, wanted: int) -> list[Term]:
    """Score what has words of the question; returns the terms that nothing has that counts."""
    weighed = view.weighed(terms)
    readings = by_words(view, weighed, wanted=wanted)
    scorer = Scorer(weighed)
    gains = {reading.id: scorer.gains(reading) for reading in readings}
    standing.add({id: fsum(gained.values()) for id, gained in gains.items()}, leg=WORDS)
    standing.add(_feedback(weighed, readings, standing), leg=WORDS)
    found = {place for gained in gains.values() for place in gained}
    all_seen = len(readings) < wanted
    return [it.term for n, it in enumerate(weighed) if not it.matches or (all_seen and n not in found)]


def _feedback(
    weighed: Sequence[Weighed], readings: Sequence[TokenizedText], standing: RankedEntries
) -> dict[int, float]:
    by_id = {reading.id: reading for reading in readings}
    best = standing.best()
    return feedback.gains(
        [by_id[id] for id in best],
        best,
        asked=frozenset(word for it in weighed for form in it.term.stems for word in form),
    )


def _substring_gains(view: SearchScope, needle: str, *, wanted: int) -> dict[int, float]:
    """What entries gain by a part of a word, for a term that no whole word answers."""
    found = by_substring(view, needle, wanted=wanted)
    gain = PART_OF_A_WORD * rarity(len(found), entries=view.entries)
    return {text.id: gain for text in found}


def _hits(view: SearchScope, standing: RankedEntries, *, terms: Sequence[Term], limit: int) -> list[Hit]:
    """The first ``limit``, best first; among equals the newest, then by key."""
    scores, legs = standing.scores, standing.legs
    least = sorted(scores.values(), reverse=True)[:limit][-1:]
    leading = [id for id, score in scores.items() if score >= least[0]] if least else []
    found = sorted(view.sources(leading), key=lambda it: (-scores[it.id], -it.ordinal, it.key))[:limit]
    return [Hit(it.id, it.path, it.revision, scores[it.id], legs[it.id], snippet(it.content, terms)) for it in found]
