"""Search: which visible entries answer a question, best first.

Visibility comes first (the partitions given), then what the caller keeps, then rank, then the limit. FTS5 proposes
candidates from each partition; they are scored here by words counted over all partitions given. So scores, order,
counts and snippets are those of a store in which nothing else exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memfiles.index import association, texts
from memfiles.index.candidates import ENOUGH, Keep, Sieve, by_substring, by_words
from memfiles.index.scoring import Weighed, score, weigh
from memfiles.index.snippets import snippet
from memfiles.index.texts import Text
from memfiles.index.words import Term, needles_of, terms_of

SUBSTRING = 0.5  # what a part of a word counts beside a whole one

WORDS, PART_OF_WORD, TIED = "words", "substring", "association"


@dataclass(frozen=True)
class Hit:
    """An entry found: its row, its score, the legs that found it and what to show of it.

    ``legs`` are some of ``words``, ``substring``, ``association`` and ``meaning``.
    """

    id: int
    score: float
    legs: tuple[str, ...]
    snippet: str


@dataclass
class Standing:
    """The scores so far: what each leg gave to each entry."""

    scores: dict[int, float] = field(default_factory=dict)
    legs: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def add(self, id: int, amount: float, *, leg: str) -> None:
        """Give an entry more, by a leg."""
        self.scores[id] = self.scores.get(id, 0.0) + amount
        legs = self.legs.get(id, ())
        self.legs[id] = legs if leg in legs else (*legs, leg)

    def best(self) -> dict[int, float]:
        """Entries and scores, best first, newest row first among equals."""
        return dict(sorted(self.scores.items(), key=lambda item: (-item[1], -item[0])))


def search(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    query: str,
    *,
    keep: Keep,
    limit: int,
    associate: bool = True,
    embedder: object = None,
) -> list[Hit]:
    """The at most ``limit`` entries of the partitions that answer ``query`` best, of those that ``keep`` keeps.

    ``keep`` is given rows and returns those that count. No text of a query raises.
    """
    visible = texts.present(connection, parts)
    terms = terms_of(query)
    weighed = _weighed(connection, visible, terms)
    standing = Standing()
    matched = _add_words(connection, visible, weighed, keep=keep, wanted=max(ENOUGH, limit), standing=standing)
    for needle in needles_of(query, [term for term in terms if term not in matched]):
        _add_substring(connection, visible, needle, keep=keep, wanted=max(ENOUGH, limit), standing=standing)
    if associate:
        _add_association(connection, visible, standing, keep=keep)
    return _hits(connection, visible, standing, terms=terms, limit=limit)


def _weighed(connection: sqlite3.Connection, parts: Sequence[int], terms: Sequence[Term]) -> list[Weighed]:
    entries = sum(texts.size(connection, part) for part in parts)
    return [
        weigh(term, matches=sum(texts.matches(connection, part, term.match) for part in parts), entries=entries)
        for term in terms
    ]


def _add_words(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    weighed: Sequence[Weighed],
    *,
    keep: Keep,
    wanted: int,
    standing: Standing,
) -> set[Term]:
    """Score what has the words of the question; returns the terms that were found."""
    matched: set[Term] = set()
    for part in parts:
        for text in by_words(connection, part, weighed, sieve=Sieve(keep), wanted=wanted):
            gains = score(text, weighed)
            matched.update(gains)
            standing.add(text.id, sum(gains.values()), leg=WORDS)
    return matched


def _add_substring(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    needle: str,
    *,
    keep: Keep,
    wanted: int,
    standing: Standing,
) -> None:
    """Score what has a part of a word, for a term that no whole word answers."""
    found: list[Text] = []
    for part in parts:
        found += by_substring(connection, part, needle, sieve=Sieve(keep), wanted=wanted)
    entries = sum(texts.size(connection, part) for part in parts)
    gain = SUBSTRING * weigh(terms_of(needle)[0], matches=len(found), entries=entries).weight
    for text in found:
        standing.add(text.id, gain, leg=PART_OF_WORD)


def _add_association(
    connection: sqlite3.Connection, parts: Sequence[int], standing: Standing, *, keep: Keep
) -> None:
    shares = association.lent(connection, parts, standing.best())
    unknown = [id for id in shares if id not in standing.scores]
    kept = {*standing.scores, *(keep(unknown) if unknown else ())}
    for id, share in shares.items():
        if id in kept:
            standing.add(id, share, leg=TIED)


def _hits(
    connection: sqlite3.Connection, parts: Sequence[int], standing: Standing, *, terms: Sequence[Term], limit: int
) -> list[Hit]:
    order = _in_order(connection, standing)[:limit]
    content = {text.id: text.content for part in parts for text in texts.texts(connection, part, order)}
    return [Hit(id, standing.scores[id], standing.legs[id], snippet(content[id], terms)) for id in order]


def _in_order(connection: sqlite3.Connection, standing: Standing) -> list[int]:
    """Best first; among equals the newest, then by key."""
    ids = ",".join(map(str, standing.scores))
    ages = {id: (-ordinal, key) for id, ordinal, key in _ages(connection, ids)}
    return sorted(ages, key=lambda id: (-standing.scores[id], ages[id]))


def _ages(connection: sqlite3.Connection, ids: str) -> Iterable[tuple[int, int, str]]:
    return connection.execute(f"SELECT id, ordinal, key FROM entry WHERE id IN ({ids})").fetchall()
