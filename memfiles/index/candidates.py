"""Candidates: the entries worth scoring, of those that the caller keeps.

FTS5 ranks within a partition; what the caller refuses is left out, and more is fetched until there is enough or no
more. Words that stand in many entries are asked for only when the rarer ones do not suffice: while all of them
together tell less than one rarer word, no entry with only them can be better than one with that word.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence

from memfiles.index import texts
from memfiles.index.scoring import Weighed
from memfiles.index.texts import Text

ENOUGH = 50  # kept candidates, whatever the limit
FARTHER = 4  # how much larger each next page is
LARGEST_PAGE = 20_000

Keep = Callable[[Sequence[int]], Collection[int]]


class Sieve:
    """Lets each row pass once, if the caller keeps it."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._seen: set[int] = set()

    def sift(self, ids: Sequence[int]) -> list[int]:
        """Those of the rows that are new and kept, in the order given."""
        fresh = [id for id in dict.fromkeys(ids) if id not in self._seen]
        self._seen.update(fresh)
        kept = frozenset(self._keep(fresh)) if fresh else frozenset()
        return [id for id in fresh if id in kept]


def by_words(
    connection: sqlite3.Connection, part: int, terms: Sequence[Weighed], *, sieve: Sieve, wanted: int
) -> list[Text]:
    """The kept entries of a partition that FTS5 ranks first: at least ``wanted`` of them, if so many match."""
    found: list[int] = []
    for match in expressions(terms):
        for page in _pages(connection, part, match):
            found += sieve.sift(page)
            if len(found) >= wanted:
                return _texts(connection, part, found[:wanted])
    return _texts(connection, part, found)


def by_substring(
    connection: sqlite3.Connection, part: int, needle: str, *, sieve: Sieve, wanted: int
) -> list[Text]:
    """The kept entries of a partition that hold ``needle`` in a word, newest first."""
    found = sieve.sift(texts.containing(connection, part, needle, limit=LARGEST_PAGE))
    return [text for text in _texts(connection, part, found[:wanted]) if needle in text.folded]


def expressions(terms: Sequence[Weighed]) -> Iterator[str]:
    """What to ask FTS5: first for the telling words, then for all."""
    ordered = sorted((it for it in terms if it.matches), key=lambda it: (it.matches, it.term.text))
    telling = _telling(ordered)
    if telling:
        yield " OR ".join(f"({it.term.match})" for it in telling)
    if len(telling) < len(ordered):
        yield " OR ".join(f"({it.term.match})" for it in ordered)


def _telling(ordered: Sequence[Weighed]) -> Sequence[Weighed]:
    """The rarest terms that match enough, up to where all others together tell less than the last of them."""
    matches = 0
    for count, it in enumerate(ordered, start=1):
        matches += it.matches
        if matches >= ENOUGH and sum(other.weight for other in ordered[count:]) <= it.weight:
            return ordered[:count]
    return ordered


def _pages(connection: sqlite3.Connection, part: int, match: str) -> Iterator[list[int]]:
    offset, size = 0, ENOUGH
    while page := texts.best(connection, part, match, limit=size, offset=offset):
        yield page
        offset, size = offset + len(page), min(size * FARTHER, LARGEST_PAGE)


def _texts(connection: sqlite3.Connection, part: int, ids: Sequence[int]) -> list[Text]:
    return texts.texts(connection, part, ids) if ids else []
