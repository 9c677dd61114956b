"""A view: the partitions that a search may see and the rows that count in them, as if there were nothing else."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from memfiles.index.search.bm25 import Weighed, weigh
from memfiles.index.text import fts as texts
from memfiles.index.text.fts import TextSource
from memfiles.index.text.tokenizer import Term

Keep = Callable[[Sequence[int]], Collection[int]]


class SearchScope:
    """Partitions of one connection; ``keep`` is given rows and returns those that count; None: all that have text.

    ``shadowed`` are rows that are not there for whoever asks: they count in nothing.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        parts: Sequence[int],
        *,
        keep: Keep | None,
        shadowed: Collection[int] = frozenset(),
    ) -> None:
        self.connection = connection
        self.parts = texts.present(connection, dict.fromkeys(parts))
        self.shadowed = frozenset(shadowed)
        self._hidden = {part: texts.readings(connection, part, shadowed) for part in self.parts} if shadowed else {}
        hidden = sum(map(len, self._hidden.values()))
        self.entries = sum(texts.size(connection, part) for part in self.parts) - hidden
        self._keep = keep
        self._kept: dict[int, bool] = {}

    def kept(self, ids: Sequence[int]) -> list[int]:
        """Those of the rows that count, in the order given; each row is asked for once."""
        if self._keep is None:
            return list(ids)
        unknown = [id for id in dict.fromkeys(ids) if id not in self._kept]
        if unknown:
            kept = frozenset(self._keep(unknown))
            self._kept.update((id, id in kept) for id in unknown)
        return [id for id in ids if self._kept[id]]

    def counts(self, stems: Sequence[str]) -> Counter[str]:
        """How many entries hold each stem."""
        total: Counter[str] = Counter()
        for part in self.parts:
            total.update(texts.counts(self.connection, part, stems))
        wanted = frozenset(stems)
        for reading in chain.from_iterable(self._hidden.values()):
            total.subtract(wanted & reading.stems)
        return total

    def weighed(self, terms: Sequence[Term]) -> list[Weighed]:
        """The terms with what each tells here."""
        counts = self.counts(list({form[0] for term in terms if not term.is_phrase for form in term.stems}))
        return [weigh(term, matches=self._matches(term, counts), entries=self.entries) for term in terms]

    def sources(self, ids: Sequence[int]) -> list[TextSource]:
        """The entries' contents and where they are kept, wherever in the view they are, in any order."""
        return [source for part in self.parts for source in texts.sources(self.connection, part, ids)] if ids else []

    def _matches(self, term: Term, counts: Counter[str]) -> int:
        if term.is_phrase:
            return sum(texts.matches(self.connection, part, term.match, but=self.shadowed) for part in self.parts)
        return min(self.entries, sum(counts[form] for (form,) in term.stems))
