"""Search: the visible entries that answer a question, best first.

Order of steps: visibility (the given partitions), then the caller's filter, then rank, then the limit. FTS5 proposes
candidates from each partition; they are scored here by words counted over all given partitions. So scores, order,
counts and snippets are those of a store in which nothing else exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Literal

from memfiles.index.search import association, bm25, vectors
from memfiles.index.search.bm25 import WeightedTerm
from memfiles.index.search.embedder import Embedder
from memfiles.index.search.scope import ENOUGH, Keep, SearchScope
from memfiles.index.text.tokenizer import Term, needles_of, read_part, spans_of, terms_of
from memfiles.records.graphemes import whole_after, whole_before

Leg = Literal["words", "substring", "association", "meaning"]
"""A way in which a search finds an entry."""

SUBSTRING_SHARE = 0.5  # the weight of a part of a word, as a share of that of a whole word
MAX_SNIPPET = 240  # characters
SNIPPED = 65_536  # characters of a content in which words are looked for
MORE = "..."


@dataclass(frozen=True)
class Hit:
    """An entry found: its row, its record and content at that time, its score and the legs that found it.

    ``terms`` are those of the question, ``ordinal`` is its place in the order of saving, and ``beside`` the row of the
    hit in whose group it belongs. ``agent`` is the one that saved it.
    """

    id: int
    path: str
    revision: int
    score: float
    legs: tuple[Leg, ...]
    content: str
    terms: tuple[Term, ...]
    ordinal: int = 0
    beside: int | None = None
    key: str = ""
    level: str = ""
    agent: str | None = None

    @cached_property
    def snippet(self) -> str:
        """The part of the content with the most terms of the question; found when it is asked for."""
        return snippet(self.content, self.terms)


class RankedEntries:
    """Scores of entries, summed over the legs."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        self.legs: dict[int, tuple[Leg, ...]] = {}

    def add(self, gains: Mapping[int, float], *, leg: Leg) -> None:
        """Add what a leg gives to entries."""
        for id, gain in gains.items():
            self.scores[id] = self.scores.get(id, 0.0) + gain
            if leg not in (legs := self.legs.get(id, ())):
                self.legs[id] = (*legs, leg)

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
    grouped: bool = False,
) -> list[Hit]:
    """Return at most ``limit`` entries of the partitions, those that answer ``query`` best.

    ``grouped``: each hit says which better one it is a neighbour of, for ``arranged``.
    ``keep`` takes rows and returns those that count; None if all rows with text do. Rows that are ``shadowed`` never
    count. No text of a query raises. With an ``embedder``, contents without a vector are embedded first, which writes
    to the connection.
    """
    scope = SearchScope(connection, parts, keep=keep, shadowed=shadowed)
    ranked = RankedEntries()
    wanted = max(ENOUGH, limit)
    weighted = scope.weighted(terms_of(query))
    occurring = [it for it in weighted if it.matches]
    missing = [it.term for it in weighted if not it.matches] + _add_words(scope, occurring, ranked, wanted=wanted)
    for needle in needles_of(query, missing):
        found = scope.with_substring(needle, wanted=wanted)
        gain = SUBSTRING_SHARE * bm25.rarity(len(found), entries=scope.entries)
        ranked.add({text.id: gain for text in found}, leg="substring")
    if embedder:
        vectors.fill(connection, scope.parts, embedder)
        best = max(ranked.scores.values(), default=1.0)
        ranked.add(vectors.gains(scope, embedder, read_part(query), best=best), leg="meaning")
    if associate:
        shares = association.shares(connection, scope.texts, ranked.best(), but=scope.shadowed)
        ranked.add({id: shares[id] for id in scope.kept(list(shares))}, leg="association")
    return _hits(scope, ranked, terms=[it.term for it in occurring], limit=limit, grouped=grouped)


def _add_words(
    scope: SearchScope, weighted: Sequence[WeightedTerm], ranked: RankedEntries, *, wanted: int
) -> list[Term]:
    """Score entries by their words; returns the terms that no entry that counts holds."""
    texts = scope.with_words(weighted, wanted=wanted)
    scorer = bm25.Scorer(weighted)
    gains = {text.id: scorer.gains(text) for text in texts}
    ranked.add({id: fsum(gained.values()) for id, gained in gains.items()}, leg="words")
    ranked.add(bm25.feedback(texts, ranked.best(), terms=weighted), leg="words")
    found = {place for gained in gains.values() for place in gained}
    all_seen = len(texts) < wanted
    return [it.term for place, it in enumerate(weighted) if all_seen and place not in found]


def _hits(scope: SearchScope, ranked: RankedEntries, *, terms: Sequence[Term], limit: int, grouped: bool) -> list[Hit]:
    """The first ``limit`` hits, best first; among equals the newest first, then by key."""
    scores, legs = ranked.scores, ranked.legs
    least = sorted(scores.values(), reverse=True)[:limit][-1:]
    leading = [id for id, score in scores.items() if score >= least[0]] if least else []
    found = sorted(scope.sources(leading), key=lambda it: (-scores[it.id], -it.ordinal, it.key))[:limit]
    beside = _groups(scope, ranked, [it.id for it in found]) if grouped else {}
    return [
        Hit(it.id, it.path, it.revision, scores[it.id], legs[it.id], it.content, tuple(terms), it.ordinal,
            beside.get(it.id), it.key, it.level, it.agent)
        for it in found
    ]  # fmt: skip


def _groups(scope: SearchScope, ranked: RankedEntries, ids: Sequence[int]) -> dict[int, int]:
    """The leader of each row's group: the best hit that it is a neighbour of, or a neighbour's neighbour."""
    answering = [id for id in ids if ranked.legs[id] != ("association",)]
    near = association.neighbours(scope.connection, scope.parts, answering, but=scope.shadowed)
    leaders: dict[int, int] = {}
    for place, id in enumerate(ids):
        for other in set(near.get(id, ())).intersection(ids[place + 1 :]):
            leaders.setdefault(other, leaders.get(id, id))
    return leaders


def arranged(hits: Sequence[Hit]) -> list[Hit]:
    """The hits by groups: first the leader, if it is there, then the others in the order in which they were saved."""
    leaders = {hit.id: hit.id if hit.beside is None else hit.beside for hit in hits}
    places = {leader: place for place, leader in enumerate(dict.fromkeys(leaders.values()))}
    return sorted(hits, key=lambda it: (places[leaders[it.id]], it.beside is not None, it.ordinal, it.path))


def snippet(content: str, terms: Sequence[Term]) -> str:
    """At most ``MAX_SNIPPET`` characters of the content, around the most terms, else from its beginning."""
    if len(content) <= MAX_SNIPPET:
        return content
    room = MAX_SNIPPET - 2 * len(MORE)
    begin = _snippet_start(content[:SNIPPED], {word for term in terms for form in term.stems for word in form}, room)
    end = whole_before(content, begin + room)
    begin = min(whole_after(content, begin), end)
    return (MORE if begin else "") + content[begin:end] + (MORE if end < len(content) else "")


def _snippet_start(content: str, stems: Collection[str], room: int) -> int:
    """The start that shows the most different stems, a little before the first of them."""
    found = [(at, word) for at, word in spans_of(content) if word in stems]
    best, most, first = 0, 0, 0
    shown: list[str] = []
    for position, word in found:
        shown.append(word)
        while position - found[first][0] > room - 40:
            first += 1
            shown.pop(0)
        if len(set(shown)) > most:
            best, most = found[first][0], len(set(shown))
    begin = max(0, min(best - 20, len(content) - room))
    space = content.find(" ", begin, begin + 20)
    return space + 1 if begin and space >= 0 else begin
