"""Candidates: the entries worth scoring, of those that count.

FTS5 ranks within a partition; what does not count is left out, and more is fetched until there is enough or no more.
Words that stand in many entries are asked for only when the rarer ones do not suffice: while all of them together tell
less than one rarer word, no entry with only them can be better than one with that word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memfiles.index.search.bm25 import Weighed
from memfiles.index.search.scope import SearchScope
from memfiles.index.text import fts as texts
from memfiles.index.text.fts import EntryText
from memfiles.index.text.tokens import TokenizedText

ENOUGH = 50  # from each partition, whatever the limit
FARTHER = 4  # how much larger each next page is
LARGEST_PAGE = 20_000  # rows


def by_words(view: SearchScope, terms: Sequence[Weighed], *, wanted: int) -> list[TokenizedText]:
    """The entries that count and that FTS5 ranks first: at least ``wanted`` of each partition, if so many match."""
    return [reading for part in view.parts for reading in _by_words(view, part, terms, wanted=wanted)]


def by_substring(view: SearchScope, needle: str, *, wanted: int) -> list[EntryText]:
    """The entries that count and hold ``needle``, newest first in each partition."""
    return [text for part in view.parts for text in _by_substring(view, part, needle, wanted=wanted)]


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
    matches, left = 0, sum(it.weight for it in ordered)
    for count, it in enumerate(ordered, start=1):
        matches += it.matches
        left -= it.weight
        if matches >= ENOUGH and left <= it.weight:
            return ordered[:count]
    return ordered


def _by_words(view: SearchScope, part: int, terms: Sequence[Weighed], *, wanted: int) -> list[TokenizedText]:
    found: dict[int, None] = {}
    for match in expressions(terms):
        for page in _pages(view, part, match):
            found.update(dict.fromkeys(view.kept(page)))
            if len(found) >= wanted:
                return texts.readings(view.connection, part, list(found)[:wanted])
    return texts.readings(view.connection, part, found) if found else []


def _pages(view: SearchScope, part: int, match: str) -> Iterator[list[int]]:
    offset, size, more = 0, ENOUGH, True
    while more:
        page = texts.best(view.connection, part, match, limit=size, offset=offset)
        more = len(page) == size
        offset, size = offset + size, min(size * FARTHER, LARGEST_PAGE)
        yield page


def _by_substring(view: SearchScope, part: int, needle: str, *, wanted: int) -> Iterator[EntryText]:
    may_hold = view.kept(texts.containing(view.connection, part, needle, limit=LARGEST_PAGE))
    for at in range(0, len(may_hold), wanted):
        page = texts.texts(view.connection, part, may_hold[at : at + wanted])
        holding = [text for text in page if needle in text.folded]
        yield from holding
        if holding:
            return
