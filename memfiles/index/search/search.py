"""Search: the visible entries that answer a question, best first.

Order of steps: visibility (the scope's partitions), then the caller's filter, then rank, then the limit. FTS5 proposes
candidates from each partition; they are scored here by words counted over the whole scope. So scores, order, counts and
snippets are those of a store in which nothing else exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from math import fsum
from typing import Literal

from msgspec import Struct

from memfiles.index.rows import Row, row_from
from memfiles.index.search import association, bm25, vectors
from memfiles.index.search.association import Near, RunOrders
from memfiles.index.search.bm25 import WeightedTerm
from memfiles.index.search.embedder import Embedder
from memfiles.index.search.scope import EACH, ENOUGH, MOST, HitSource, NearWords, SearchScope
from memfiles.index.search.vectors import Matrices
from memfiles.index.search.weights import WEIGHTS, Weights
from memfiles.index.text.tokenizer import Term, needles_of, read_part, spans_of, terms_of
from memfiles.index.text.traits import ASKS, TELLS_NUMBER, TELLS_WHEN, wanted_by
from memfiles.records import cached_property
from memfiles.records.graphemes import whole_after, whole_before

Leg = Literal["words", "substring", "association", "meaning"]
"""A way in which a search finds an entry."""

SUBSTRING_SHARE = 0.5  # the weight of a part of a word, as a share of that of a whole word
MAX_SNIPPET = 240  # characters
SNIPPED = 65_536  # characters of a content in which words are looked for
MORE = "..."


class Hit(Struct, frozen=True, dict=True):
    """An entry found: its row and what the index holds of it, its score and the legs that found it.

    ``terms`` are those of the question, and ``beside`` is the row of the hit that leads its group.
    """

    id: int
    path: str
    content: str
    source: HitSource
    score: float
    legs: tuple[Leg, ...]
    terms: tuple[Term, ...]
    beside: int | None = None

    @cached_property
    def row(self) -> Row:
        """Its row, without the content; read when it is asked for."""
        return row_from(self.source.row)

    @cached_property
    def snippet(self) -> str:
        """The part of the content with the most terms of the question; found when it is asked for."""
        return snippet(self.content, self.terms)


class RankedEntries:
    """Scores of entries, summed over the legs; and, where known, their traits and lengths in words."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        self.legs: dict[int, tuple[Leg, ...]] = {}
        self.traits: dict[int, int] = {}
        self.lengths: dict[int, int] = {}

    def add(self, gains: Mapping[int, float], *, leg: Leg) -> None:
        """Add what a leg gives to entries."""
        scores, legs, alone = self.scores, self.legs, (leg,)
        for id, gain in gains.items():
            if id not in scores:
                scores[id], legs[id] = gain, alone
                continue
            scores[id] += gain
            if leg not in legs[id]:
                legs[id] += alone

    def best(self) -> list[int]:
        """The entries, best first, newest row first among equals."""
        return sorted(self.scores, key=lambda id: (-self.scores[id], -id))


def search(
    scope: SearchScope,
    query: str,
    *,
    limit: int,
    associate: bool = True,
    embedder: Embedder | None = None,
    grouped: bool = False,
    today: date | None = None,
    weights: Weights = WEIGHTS,
    matrices: Matrices | None = None,
    orders: RunOrders | None = None,
) -> list[Hit]:
    """Return at most ``limit`` entries of the scope, the best answers to ``query``. No text of a query raises.

    ``grouped``: each hit says which better one it is a neighbour of, for ``arranged``. With an ``embedder``, contents
    without a vector are embedded first, which writes to the connection. ``today`` is the day from which "last week" in
    the question is seen; without it no moment counts. ``matrices`` and ``orders`` are what earlier searches computed.
    """
    ranked, orders = RankedEntries(), RunOrders() if orders is None else orders
    weighted = scope.weighted(terms_of(query, today=today), moment=weights.moment)
    if (near_words := _near_words_of(embedder)) is not None and weights.near_word:
        weighted += scope.near(weighted, near_words, share=weights.near_word)
    occurring = [it for it in weighted if it.matches]
    wanted = max(ENOUGH, limit, min(MOST, EACH * len(occurring)))
    scorer = bm25.Scorer(occurring, label=weights.label)
    missing = [it.term for it in weighted if not it.matches] + _add_words(scope, occurring, scorer, ranked, wanted)
    _add_substrings(scope, needles_of(query, missing), ranked, wanted=max(ENOUGH, limit))
    if embedder:
        matrices = Matrices() if matrices is None else matrices
        vectors.embed_missing(scope.connection, scope.parts, embedder, matrices)
        share = weights.meaning * max(ranked.scores.values(), default=1.0)
        near = vectors.gains(scope, embedder, read_part(query), share=share, matrices=matrices, associate=associate)
        ranked.add(near, leg="meaning")
    wished = _wished_traits(query, ranked, weights)
    neighbours: Mapping[int, Near] | None = None
    if associate and ranked.scores:
        neighbours = _associate(scope, ranked, weights, orders, limit=limit, wished=sum(gain for _, gain in wished))
    _weigh_traits(scope, ranked, wished, limit=limit, weights=weights)
    first = _first(scope, ranked, limit=limit)
    beside = _groups(scope, ranked, [it.id for it in first], orders, neighbours) if grouped else {}
    terms = tuple(it.term for it in occurring)
    scores, legs = ranked.scores, ranked.legs
    return [Hit(it.id, it.row[0], it.content, it, scores[it.id], legs[it.id], terms, beside.get(it.id)) for it in first]


def _near_words_of(embedder: Embedder | None) -> NearWords | None:
    """The embedder's function for words of nearly the same meaning; None if it has none. A guarded one takes many."""
    many: NearWords | None = getattr(embedder, "near_words_of", None)
    one = getattr(embedder, "near_words", None)
    return many if many is not None or one is None else partial(map, one)


def _add_substrings(scope: SearchScope, needles: Iterable[str], ranked: RankedEntries, *, wanted: int) -> None:
    """Score entries by the parts of words in them."""
    for needle in needles:
        found = scope.with_substring(needle, wanted=wanted)
        gain = SUBSTRING_SHARE * bm25.rarity(len(found), entries=scope.entries)
        ranked.add({text.id: gain for text in found}, leg="substring")


def _wished_traits(query: str, ranked: RankedEntries, weights: Weights) -> list[tuple[int, float]]:
    """The traits that the query asks for, each with what an entry gains by it."""
    most, wanted = max(ranked.scores.values(), default=0.0), wanted_by(query)
    shares = (TELLS_WHEN, weights.tells_when), (TELLS_NUMBER, weights.tells_number)
    return [(trait, share * most) for trait, share in shares if trait & wanted]


def _add_words(
    scope: SearchScope, weighted: Sequence[WeightedTerm], scorer: bm25.Scorer, ranked: RankedEntries, wanted: int
) -> list[Term]:
    """Score entries by their words; returns the terms of the question that no entry that counts holds."""
    texts, are_all = scope.with_words(weighted, wanted=wanted)
    gains = scorer.gains(texts)
    by_leg: dict[Leg, dict[int, float]] = {"words": {}, "meaning": {}}
    near = {place for place, it in enumerate(weighted) if it.is_near}
    for text, gained in zip(texts, gains, strict=True):
        by_leg["meaning" if near and gained.keys() <= near else "words"][text.id] = fsum(gained.values())
    for leg, sums in by_leg.items():
        ranked.add(sums, leg=leg)
    ranked.traits.update((text.id, text.traits) for text in texts)
    ranked.lengths.update((text.id, text.words) for text in texts)
    if not are_all:
        return []
    found = {place for gained in gains for place in gained}
    return [it.term for place, it in enumerate(weighted) if place not in found and not it.is_near]


def _associate(
    scope: SearchScope, ranked: RankedEntries, weights: Weights, orders: RunOrders, *, limit: int, wished: float
) -> Mapping[int, Near]:
    """Add what hits lend to related entries, and what each run adds to its own; returns the neighbours of the hits.

    Left out are entries that cannot be among the first ``limit``, not even if they gain what is ``wished`` for.
    """
    scores, connection = ranked.scores, scope.connection
    tied = association.ties(connection, scope.texts, ranked.best(), but=scope.shadowed, weights=weights, orders=orders)
    near, traits = tied.near, ranked.traits
    _learn_traits(scope, ranked, near)
    asking = {id for id in near if traits[id] & ASKS}
    bonus = association.run_bonuses(scores, {id: it.run for id, it in near.items()}, ranked.lengths, weights=weights)
    raised = {id: bonus[it.run] for id, it in near.items() if it.run in bonus}
    sums = sorted([score + raised.get(id, 0.0) for id, score in scores.items()], reverse=True)
    enough = sums[limit - 1] * (1 - weights.asks) - wished if len(sums) >= limit else 0.0
    gains = association.lent_scores(scores, tied, asking=asking, bonus=bonus, enough=enough, weights=weights)
    for id, it in near.items() if raised else ():
        for other in (*it.after, *(it.before if id in tied.leading else ())) if id in raised else ():
            if other in gains:
                raised[other] = raised[id]
    ranked.add({id: gains[id] for id in scope.kept(list(gains))}, leg="association")
    for id, more in raised.items():
        if id in scores:
            scores[id] += more
    return near


def _learn_traits(scope: SearchScope, ranked: RankedEntries, ids: Collection[int]) -> None:
    ranked.traits.update(scope.traits([id for id in ids if id not in ranked.traits]))


def _weigh_traits(
    scope: SearchScope, ranked: RankedEntries, wished: Sequence[tuple[int, float]], *, limit: int, weights: Weights
) -> None:
    """Change the scores of the best entries a little by what they are; the others cannot become one of them."""
    scores = ranked.scores
    if not scores:
        return
    least = sorted(scores.values(), reverse=True)[:limit][-1] * (1 - weights.asks) - sum(gain for _, gain in wished)
    leading = [id for id, score in scores.items() if score >= least]
    _learn_traits(scope, ranked, leading)
    for id in leading:
        traits = ranked.traits[id]
        if traits & ASKS:
            scores[id] *= 1 - weights.asks
        scores[id] += sum(gain for trait, gain in wished if trait & traits)


def _first(scope: SearchScope, ranked: RankedEntries, *, limit: int) -> list[HitSource]:
    """The first ``limit`` entries, best first; among equals the newest first, then by key."""
    scores = ranked.scores
    least = sorted(scores.values(), reverse=True)[:limit][-1:]
    leading = [id for id, score in scores.items() if score >= least[0]] if least else []
    if len(leading) > 2 * limit:  # then not all contents are read
        turns = scope.turns(leading)
        leading = sorted(turns, key=lambda id: (-scores[id], -turns[id][0], turns[id][1]))[:limit]
    return sorted(scope.sources(leading), key=lambda it: (-scores[it.id], -it.ordinal, it.key))[:limit]


def _groups(
    scope: SearchScope, ranked: RankedEntries, ids: Sequence[int], orders: RunOrders, near: Mapping[int, Near] | None
) -> dict[int, int]:
    """The leader of each row's group: the best hit that it is a neighbour of, or a neighbour's neighbour.

    ``near`` are the neighbours, if they are known, of all hits that have a score of their own.
    """
    if near is None:
        near = orders.neighbours(scope.connection, scope.texts, ids, but=scope.shadowed)
    leaders: dict[int, int] = {}
    places = {id: place for place, id in enumerate(ids)}
    for place, id in enumerate(ids):
        beside = near.get(id)
        for other in (*beside.after, *beside.before) if beside else ():
            if places.get(other, 0) > place:
                leaders.setdefault(other, leaders.get(id, id))
    return leaders


def arranged(hits: Sequence[Hit]) -> list[Hit]:
    """The hits by groups: first the leader, if it is there, then the others in the order in which they were saved."""
    leaders = {hit.id: hit.id if hit.beside is None else hit.beside for hit in hits}
    places = {leader: place for place, leader in enumerate(dict.fromkeys(leaders.values()))}
    return sorted(hits, key=lambda it: (places[leaders[it.id]], it.beside is not None, it.source.ordinal, it.path))


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
    found = sorted((at, word) for at, word in spans_of(content) if word in stems)
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
