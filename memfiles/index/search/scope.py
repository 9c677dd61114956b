"""Search scope: the partitions and rows that count in a search, and the candidates among them.

Everything is counted as if nothing outside the scope existed. FTS5 ranks within a partition; rows that do not count are
dropped, and further pages are fetched until there are enough. Words that many entries hold are looked up only when the
rarer ones do not suffice: while all of them together weigh less than one rarer word, no entry with only them can be
better than one with that word.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from memfiles.index.rows import SELECTED
from memfiles.index.search.bm25 import WeightedTerm, rarity
from memfiles.index.text import fts
from memfiles.index.text.fts import PartState, PartTexts, StoredText
from memfiles.index.text.tokenizer import Term, TokenizedText, stems_of
from memfiles.records import NamedTuple

MAX_TERMS = 512  # of a question, the rarest that occur; more would only cost time
MAX_WORK = 2_000_000  # places of words that are read to count the phrases of a question, those of rare words first
ENOUGH = 50  # candidates from each partition, whatever the limit, if only the telling words of a question match so many
MOST, EACH = 200, 30  # candidates from each partition, and for each word of a question, if more match
MAX_PAGE = 20_000  # rows
MOST_BYTES, COUNTED_BYTES = 4 * 2**20, 120  # of the words that are counted, and of each besides its letters; measured
PARTITION_BYTES = 600  # of a partition besides its words
MOST_ADDED = 64  # texts whose words are counted one by one
RARE = 3  # entries; a word of a question that more of them hold finds enough by itself
MOST_RARE = 3  # words of a question, the rarest, which lend to words near in meaning
NEAREST = 3  # such words of each
LONGEST = 32  # characters of a word that is looked up
_LOOKUP = 100  # a lookup takes as long as reading so many places
_GROWTH = 4  # factor by which each page is larger than the one before
_SOURCES = f"""
    SELECT text.id, ordinal, e.key, content, said, lineage, {SELECTED}
    FROM json_each(?) AS asked CROSS JOIN text ON text.id = asked.value
    CROSS JOIN entry AS e ON e.id = text.id LEFT JOIN part AS p ON p.id = e.part
"""
Keep = Callable[[Sequence[int]], Collection[int]]
"""Takes rows and returns the ones that count."""
NearWords = Callable[[Sequence[str]], Iterable[Sequence[tuple[str, float]]]]
"""Takes folded words and returns words near each in meaning, the nearest first, with their nearness of 0 to 1."""


class HitSource(NamedTuple):
    """The content of an entry, when it was said, its id for life, and its row, as ``row_from`` takes it."""

    id: int
    ordinal: int
    key: str
    content: str
    said: str
    entry_id: str
    row: tuple[Any, ...]


class WordCounts:
    """How many entries hold the words that were asked for, of the partitions searched last, on one connection.

    Counting a common word takes a millisecond among 100,000 entries. One thread at a time uses this.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._known: dict[int, tuple[PartState, dict[str, int]]] = {}
        self._bytes = 0

    def of(self, connection: sqlite3.Connection, texts: PartTexts, stems: Sequence[str]) -> Mapping[str, int]:
        """The counts of ``PartTexts.counts``, with 0 for stems of no entry; looked up only where something changed."""
        if connection is not self._connection:  # its tables may be others
            self.forget()
            self._connection = connection
        since, counts = self._known.get(texts.part, (texts.state, dict[str, int]()))
        if since != texts.state and not _counted(connection, texts, since, counts):
            counts = {}
        if texts.part not in self._known:
            self._bytes += PARTITION_BYTES
        self._known[texts.part] = texts.state, counts
        missing = [stem for stem in stems if stem not in counts]
        if missing:
            counts |= dict.fromkeys(missing, 0) | texts.counts(missing)
            self._bytes += sum(COUNTED_BYTES + 4 * len(stem) for stem in missing)
        if self._bytes > MOST_BYTES:
            self.forget()
        return counts

    def forget(self) -> None:
        """Start from nothing."""
        self._known.clear()
        self._bytes = 0


class SearchScope:
    """The rows of some partitions that count in one search, on one connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        parts: Sequence[int],
        *,
        keep: Keep | None,
        shadowed: Collection[int] = frozenset(),
        counts: WordCounts | None = None,
    ) -> None:
        """``keep`` takes rows and returns the ones that count; None: all with text do. The ``shadowed`` ones never do.

        ``counts`` are those of words that earlier searches counted.
        """
        self.connection = connection
        self._counted = WordCounts() if counts is None else counts
        self.texts = fts.open_texts(connection, parts)
        self.shadowed = frozenset(shadowed)
        self._hidden = fts.tokens_of(connection, shadowed) if shadowed else []
        self.entries = sum(texts.size for texts in self.texts) - len(self._hidden)
        self._keep = keep
        self._kept: dict[int, bool] = {}

    @property
    def parts(self) -> list[int]:
        """The partitions that have text."""
        return [texts.part for texts in self.texts]

    def kept(self, ids: Sequence[int]) -> list[int]:
        """The rows that count, in the order given; ``keep`` is asked once for each row."""
        if self._keep is None:
            return list(ids)
        unknown = [id for id in dict.fromkeys(ids) if id not in self._kept]
        if unknown:
            kept = frozenset(self._keep(unknown))
            self._kept.update((id, id in kept) for id in unknown)
        return [id for id in ids if self._kept[id]]

    def weighted(self, terms: Sequence[Term], *, moment: float = 1.0) -> list[WeightedTerm]:
        """The terms with their weights in this scope; of very many, the rarest that occur and all that do not.

        A moment has the share ``moment`` of the weight of a word.
        """
        counts = self._counts(list({word for term in terms for form in term.stems for word in form}))
        found: dict[Term, int] = {}
        work = 0
        for term in sorted(terms, key=lambda term: _most_matches(term, counts)):
            most = _most_matches(term, counts)
            if term.is_phrase and most:
                work += _LOOKUP + sum(counts[word] for word in term.stems[0])
                if work > MAX_WORK:
                    continue
            found[term] = self._matches(term, most)
        occurring = sorted((term for term in found if found[term]), key=found.__getitem__)
        left_out = set(occurring[MAX_TERMS:])
        return [
            WeightedTerm(
                term, found[term], rarity(found[term], entries=self.entries) * (moment if term.is_moment else 1)
            )
            for term in terms
            if term in found and term not in left_out
        ]

    def near(self, terms: Sequence[WeightedTerm], near_words: NearWords, *, share: float) -> list[WeightedTerm]:
        """The words of these entries that are near in meaning to the terms that hardly any of them holds.

        They have that share of the term's weight or of their own, whichever is less, and less the farther they are.
        """
        asked = {form[0] for it in terms for form in it.term.stems}
        words = [it for it in terms if it.matches <= RARE and len(it.term.text) <= LONGEST]
        words = [it for it in words if not (it.term.is_phrase or it.term.is_moment)]
        found: dict[str, WeightedTerm] = {}
        words = sorted(words, key=lambda it: it.matches)[:MOST_RARE]
        for rare, beside in zip(words, near_words([it.term.text for it in words]), strict=True):
            near = [(stem, each) for word, each in beside for stem in stems_of(word)]
            nearness = {stem: each for stem, each in reversed(near) if stem not in asked}
            nearness = dict(sorted(nearness.items(), key=lambda item: -item[1]))
            counts = self._counts(list(nearness)) if nearness else {}
            for word in [word for word in nearness if counts[word] > 0][:NEAREST]:
                weight = share * nearness[word] * min(rare.weight, rarity(counts[word], entries=self.entries))
                if word not in found or found[word].weight < weight:
                    term = Term(((word,),), ((word,),), word)
                    found[word] = WeightedTerm(term, counts[word], weight, is_near=True)
        return list(found.values())

    def sources(self, ids: Sequence[int]) -> list[HitSource]:
        """The contents and rows of these entries, in any order."""
        rows, own = self.connection.execute(_SOURCES, (fts.as_json(ids),)) if ids else (), len(HitSource._fields) - 1
        return [HitSource._make((*row[:own], row[own:])) for row in rows]

    def turns(self, ids: Sequence[int]) -> dict[int, tuple[int, str]]:
        """The places of these entries in the order of saving, and their keys."""
        wanted = "SELECT id, ordinal, key FROM entry WHERE id IN (SELECT value FROM json_each(?))"
        return {id: (ordinal, key) for id, ordinal, key in self.connection.execute(wanted, (fts.as_json(ids),))}

    def with_words(self, terms: Sequence[WeightedTerm], *, wanted: int) -> tuple[list[TokenizedText], bool]:
        """The entries that count and that FTS5 ranks first, and whether these are all that match.

        ``wanted`` from each partition, if so many match; words that many entries hold are left out if ``ENOUGH`` match
        the others.
        """
        found: list[int] = []
        are_all = True
        for texts in self.texts:
            more, is_all = self._with_words(texts, terms, wanted=wanted)
            found += more
            are_all &= is_all
        return fts.tokens_of(self.connection, found) if found else [], are_all

    def traits(self, ids: Collection[int]) -> dict[int, int]:
        """The traits of these entries."""
        return {text.id: text.traits for text in fts.tokens_of(self.connection, ids)} if ids else {}

    def with_substring(self, needle: str, *, wanted: int) -> list[StoredText]:
        """The entries that count and contain ``needle``, newest first in each partition."""
        return [text for texts in self.texts for text in self._with_substring(texts, needle, wanted=wanted)]

    def _counts(self, stems: Sequence[str]) -> Counter[str]:
        """How many entries hold each stem."""
        total: Counter[str] = Counter()
        for texts in self.texts:
            counts = self._counted.of(self.connection, texts, stems)
            total.update({stem: counts[stem] for stem in stems})
        wanted = frozenset(stems)
        for tokens in self._hidden:
            total.subtract(wanted & tokens.stems)
        return total

    def _matches(self, term: Term, most: int) -> int:
        if not term.is_phrase or not most:
            return min(self.entries, most)
        return sum(texts.matches(term.match, but=self.shadowed) for texts in self.texts)

    def _with_words(self, texts: PartTexts, terms: Sequence[WeightedTerm], *, wanted: int) -> tuple[list[int], bool]:
        found: dict[int, None] = {}
        for match, most, is_last in _expressions(terms):
            has_room = most + len(self.shadowed) < wanted  # then all are taken, in any order
            for page in [texts.all(match)] if has_room else _pages(texts, match, size=wanted):
                found.update(dict.fromkeys(self.kept(page)))
                if len(found) >= wanted:
                    return list(found)[:wanted], False
            if len(found) >= ENOUGH and not is_last:
                return list(found), False
        return list(found), True

    def _with_substring(self, texts: PartTexts, needle: str, *, wanted: int) -> Iterator[StoredText]:
        may_hold = self.kept(texts.containing(needle, limit=MAX_PAGE))
        for at in range(0, len(may_hold), wanted):
            page = fts.texts(self.connection, may_hold[at : at + wanted])
            holding = [text for text in page if needle in text.folded]
            yield from holding
            if holding:
                return


def _counted(connection: sqlite3.Connection, texts: PartTexts, since: PartState, counts: dict[str, int]) -> bool:
    """Count the words of the texts that were added since a state; False if some were removed, or very many added."""
    if fts.removed_rows(connection, texts.part, since=since, now=texts.state) != set():
        return False
    new = "SELECT id FROM text WHERE part = ? AND stamp > ? LIMIT ?"
    ids = [id for (id,) in connection.execute(new, (texts.part, since.stamp, MOST_ADDED + 1))]
    if len(ids) > MOST_ADDED:
        return False
    for tokens in fts.tokens_of(connection, ids) if ids else ():
        for stem in counts.keys() & tokens.stems:
            counts[stem] += 1
    return True


def _pages(texts: PartTexts, match: str, *, size: int) -> Iterator[list[int]]:
    """The entries that match, as FTS5 ranks them, in pages that grow."""
    offset, more = 0, True
    while more:
        page = texts.best(match, limit=size, offset=offset)
        more = len(page) == size
        offset, size = offset + size, min(size * _GROWTH, MAX_PAGE)
        yield page


def _most_matches(term: Term, counts: Counter[str]) -> int:
    """The most entries that can match: those with any of its words, or, of a phrase, with its rarest one."""
    return sum(min(counts[word] for word in form) for form in term.stems)


def _expressions(terms: Sequence[WeightedTerm]) -> Iterator[tuple[str, int, bool]]:
    """FTS5 expressions to try in turn: first for the telling words, then for all.

    With each comes how many entries match it at most, and whether it is the last.
    """
    ordered = sorted((it for it in terms if it.matches), key=lambda it: (it.matches, it.term.text))
    telling = _telling(ordered)
    for chosen in [telling, ordered] if len(telling) < len(ordered) else [ordered]:
        if chosen:
            match = " OR ".join(f"({it.term.match})" for it in chosen)
            yield match, sum(it.matches for it in chosen), len(chosen) == len(ordered)


def _telling(ordered: Sequence[WeightedTerm]) -> Sequence[WeightedTerm]:
    """The rarest terms that match enough entries, up to where all others together weigh less than the last of them."""
    matches, left = 0, sum(it.weight for it in ordered)
    for count, it in enumerate(ordered, start=1):
        matches += it.matches
        left -= it.weight
        if matches >= ENOUGH and left <= it.weight:
            return ordered[:count]
    return ordered
