"""A store of entries that consists of its search index alone: rows and texts."""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from memfiles.index.database import create_tables
from memfiles.index.search.association import RunOrders
from memfiles.index.search.embedder import Embedder
from memfiles.index.search.scope import Keep, SearchScope, WordCounts
from memfiles.index.search.search import Hit, search
from memfiles.index.search.vectors import Matrices
from memfiles.index.search.weights import WEIGHTS, Weights
from memfiles.index.text import fts as texts

COLUMNS = "id, path, part, key, tags, links, source_run, thread, ordinal, state, digest"


def everything(ids: Sequence[int]) -> Collection[int]:
    """Keep all."""
    return ids


@dataclass(frozen=True)
class Row:
    """What a test says of an entry."""

    key: str
    content: str = ""
    part: int = 1
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    run: str = ""
    thread: str | None = None
    said: str = ""


class Rows:
    """Entries in a database, saved in the order given."""

    def __init__(self, path: str = ":memory:") -> None:
        self.connection = sqlite3.connect(path, check_same_thread=False)  # a collection in any thread may close it
        weakref.finalize(self, self.connection.close)
        self._last = 0
        self.orders, self.counts = RunOrders(), WordCounts()
        create_tables(self.connection)

    def save(self, *rows: Row) -> None:
        """Add entries."""
        self.save_many(rows)

    def save_many(self, rows: Iterable[Row]) -> None:
        """Add many entries."""
        by_part: dict[int, list[tuple[int, str, str, Sequence[str], str]]] = {}
        values = []
        for id, row in enumerate(rows, start=self._last + 1):
            lists = json.dumps(row.tags), json.dumps(row.links)
            values.append((id, str(id), row.part, row.key, *lists, row.run, row.thread, id, "live", "d"))
            by_part.setdefault(row.part, []).append((id, row.key, row.content, row.tags, row.said))
            self._last = id
        marks = ",".join("?" * len(COLUMNS.split(",")))
        self.connection.executemany(f"INSERT INTO entry ({COLUMNS}) VALUES ({marks})", values)
        for part, entries in by_part.items():
            texts.replace_texts(self.connection, {}, {part: entries})

    def grow(self, *parts: int) -> None:
        """Give partitions tables of their own, as if they had once had many entries."""
        passing = [(10**9 + number, f"passing {number}", "a passing tea", ["tag"]) for number in range(texts.SMALL + 1)]
        for part in parts:
            texts.replace_texts(self.connection, {}, {part: passing})
            for id, *_ in passing:
                texts.replace_texts(self.connection, {part: [id]}, {})

    def id(self, key: str) -> int:
        """The row of a key."""
        ((id,),) = self.connection.execute("SELECT id FROM entry WHERE key = ?", (key,))
        return int(id)

    def key(self, id: int) -> str:
        """The key of a row."""
        ((key,),) = self.connection.execute("SELECT key FROM entry WHERE id = ?", (id,))
        return str(key)

    def remove(self, key: str) -> None:
        """Take an entry out."""
        ((id, part),) = self.connection.execute("SELECT id, part FROM entry WHERE key = ?", (key,))
        texts.replace_texts(self.connection, {part: [id]}, {})
        self.connection.execute("DELETE FROM entry WHERE id = ?", (id,))

    def search(
        self,
        query: str,
        *,
        parts: Sequence[int] = (1,),
        keep: Keep = everything,
        limit: int = 10,
        associate: bool = True,
        embedder: Embedder | None = None,
        grouped: bool = False,
        shadowed: Collection[int] = frozenset(),
        today: date | None = None,
        weights: Weights = WEIGHTS,
        matrices: Matrices | None = None,
        counted: bool = True,
    ) -> list[Hit]:
        """Search all of a partition, unless told otherwise; with ``counted``, the words counted before are known."""
        counts = self.counts if counted else None
        scope = SearchScope(self.connection, parts, keep=keep, shadowed=shadowed, counts=counts)
        options: Any = {"associate": associate, "embedder": embedder, "grouped": grouped, "today": today}
        options |= {"weights": weights, "matrices": matrices, "orders": self.orders}
        return search(scope, query, limit=limit, **options)

    def keys(self, query: str, *, parts: Sequence[int] = (1,), limit: int = 10, associate: bool = False) -> list[str]:
        """The keys that a search finds, best first."""
        return [self.key(hit.id) for hit in self.search(query, parts=parts, limit=limit, associate=associate)]

    def said(self, query: str, **options: object) -> list[tuple[str, float, tuple[str, ...], str]]:
        """All that a caller sees of a search: key, score, legs and snippet."""
        hits = self.search(query, **options)  # type: ignore[arg-type]
        return [(self.key(hit.id), hit.score, hit.legs, hit.snippet) for hit in hits]
