"""What the model is shown of the entries at the start of a run, and why an entry is shown or not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from memfiles.entries.hydration import window as hydrating
from memfiles.entries.hydration.explanation import Explanation
from memfiles.entries.hydration.window import Hydration, Window
from memfiles.entries.partitions import Caller, View, view_of
from memfiles.entries.reader import EntryReader
from memfiles.entries.repository import EntryRepository, entry_at
from memfiles.entries.stood import standing_in
from memfiles.entries.summary import EntrySummary, standing_of
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.records.entry import Entry
from memfiles.records.keys import check_key, check_whole
from memfiles.records.levels import Levels


class Showing:
    """Hydration of one open memory."""

    def __init__(
        self,
        shelf: EntryRepository,
        index: Index,
        finder: EntryReader,
        *,
        levels: Levels,
        budget_bytes: int,
        now: Callable[[], str],
    ) -> None:
        """``budget_bytes`` is what the whole block may take, in UTF-8 bytes; ``now`` says what has expired."""
        self._shelf = shelf
        self._index = index
        self._finder = finder
        self._levels = levels
        self._budget_bytes = budget_bytes
        self._now = now

    def hydrate(self, caller: Caller, *, budget_bytes: int | None = None) -> Hydration:
        """The block of what the caller sees; the same state and budget give the same bytes."""
        window = Window(self._checked_budget(budget_bytes), now=self._now())
        view = view_of(caller, self._levels)
        self._finder.refresh()

        def fill(connection: sqlite3.Connection) -> Hydration:
            fresh = Window(window.budget_bytes, now=window.now)
            offered = _Offered(connection, view, self._shelf, now=window.now)
            return fresh.fill(offered.standings(), offered.words)

        return self._index.ask(fill)

    def explain(self, caller: Caller, key: str, *, budget_bytes: int | None = None) -> Explanation:
        """Why the entry of ``key`` is in that block or out of it, in numbers; a hidden key is an unknown one."""
        check_key(key)
        budget, now = self._checked_budget(budget_bytes), self._now()
        view = view_of(caller, self._levels)
        self._finder.refresh()
        records = [entry_at(self._shelf, partition.path(key)) for partition in view]
        under_key = [standing_of(entry) for entry in records if entry is not None]

        def explained(connection: sqlite3.Connection) -> Explanation:
            offered = _Offered(connection, view, self._shelf, now=now)
            offered.know(entry for entry in records if entry is not None)
            window = Window(budget, now=now)
            return hydrating.explain(
                key, window, under_key=under_key, standings=offered.standings(), words=offered.words
            )

        return self._index.ask(explained)

    def _checked_budget(self, budget_bytes: int | None) -> int:
        if budget_bytes is None:
            return self._budget_bytes
        return check_whole(budget_bytes, what="budget_bytes", least=0)


class _Offered:
    """The entries that a view shows, in their order: the held ones first, then the newest."""

    def __init__(self, connection: sqlite3.Connection, view: View, shelf: EntryRepository, *, now: str) -> None:
        self._connection = connection
        self._parts = reading.parts(connection, view)
        self._shelf = shelf
        self._now = now
        self._paths: dict[str, str] = {}

    def know(self, entries: Iterable[Entry]) -> None:
        """Know where these lie, also if the walk ends before it comes to them."""
        self._paths.update((entry.uid, entry.path) for entry in entries)

    def standings(self) -> Iterator[EntrySummary]:
        """How each stands, read from the index some at a time."""
        held = reading.recent(self._connection, self._parts, now=self._now, pinned=True)
        rest = reading.recent(self._connection, self._parts, now=self._now, pinned=False)
        for row in chain(held, rest):
            standing = standing_in(row)
            self._paths[standing.uid] = row.path
            yield standing

    def words(self, uid: str) -> Entry | None:
        """What the entry says now; None if it is hidden or gone meanwhile."""
        path = self._paths.get(uid)
        entry = entry_at(self._shelf, path) if path is not None else None
        return entry if entry is not None and entry.retired is None else None
