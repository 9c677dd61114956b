"""Write-behind buffer: changes of this process that the database does not hold yet.

The rules this file guards: a change is announced before it is made, and its row is kept before it is reported done; and
nothing here waits for the database, as every save comes through here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from memfiles.index.change_log import Announcements, ChangeLog, LinesRead
from memfiles.index.rows import PartitionKey, Row, Sums, Totals, add_row, totals_of

MAX_ROWS = 512
MAX_BYTES = 4 * 1024 * 1024
MAX_FACTOR = 32  # times as many may wait while a batch is being written; beyond that, saves wait for it
_MAX_READS = 4096
_READ_SECONDS = 60.0  # a read may wait: written at once, the twenty of a recall made the next prompt a tenth slower
_MAX_LOADED = 1024  # partitions


class WriteBatch(Struct, frozen=True):
    """Changes to write in one transaction.

    ``reads`` are the number of reads and the time of the last one, by path; ``doubtful`` records may have changed;
    ``intents`` are this process's open ones; ``news`` are the lines of other processes.
    """

    rows: dict[str, Row]
    reads: dict[str, tuple[int, str]]
    doubtful: set[str]
    intents: dict[str, tuple[str, ...]]
    news: LinesRead


class PendingRows:
    """Rows that wait for the database, and the rows that they replace."""

    def __init__(self) -> None:
        self.waiting: dict[str, Row] = {}
        self.bytes = 0  # of the contents that wait
        self._leaving: dict[str, Row] = {}  # taken, but not known to be written
        self._replaced: dict[str, Row] = {}  # the database's row in place of a waiting one

    def put(self, row: Row, before: Row | None) -> Row | None:
        """Keep a row; returns the row that it replaces: of an earlier change here, or ``before``, the database's."""
        path = row.path
        earlier = self.waiting.get(path)
        if earlier is None:
            earlier = self._leaving.get(path, before)
            if earlier is not None:
                self._replaced[path] = earlier._replace(content="")
        else:
            self.bytes -= len(earlier.content)
        self.waiting[path] = row
        self.bytes += len(row.content)
        return earlier

    def take(self) -> dict[str, Row]:
        """All waiting rows; ``land`` comes next."""
        self._leaving, self.waiting, self.bytes = self.waiting, {}, 0
        return self._leaving

    def land(self) -> Iterator[tuple[Row, Row | None]]:
        """The rows taken are written or lost: returns the rows that came meanwhile, each with what it replaces."""
        self._leaving = {}
        self._replaced = {path: row for path, row in self._replaced.items() if path in self.waiting}
        return self.uncounted()

    def uncounted(self) -> Iterator[tuple[Row, Row | None]]:
        """The waiting rows, each with what it replaces."""
        return ((row, self._replaced.get(path)) for path, row in self.waiting.items())

    def exceed(self, factor: int = 1) -> bool:
        """Whether ``factor`` times as many rows wait as fit in a batch."""
        return len(self.waiting) >= factor * MAX_ROWS or self.bytes >= factor * MAX_BYTES


class RunningTotals:
    """Totals of partitions: those loaded from the database, with the changes by waiting rows."""

    def __init__(self) -> None:
        self._loaded: dict[PartitionKey, Sums] = {}
        self._changes: dict[PartitionKey, Sums] = {}

    def change(self, row: Row, before: Row | None) -> None:
        """Count a row in place of an earlier one of the same entry."""
        changes = self._changes.setdefault((row.scope, row.level, row.run), {})
        add_row(changes, row)
        add_row(changes, before, times=-1)

    def load(self, partition: PartitionKey, sums: Sums) -> None:
        """Set a partition's sums in the database, unless they are known."""
        self._loaded.setdefault(partition, sums)

    def of(self, partition: PartitionKey) -> Totals | None:
        """The totals of a partition; None if its sums in the database are not loaded."""
        if (loaded := self._loaded.get(partition)) is None:
            return None
        return totals_of(chain(loaded.items(), self._changes.get(partition, {}).items()))

    def after(self, waiting: RunningTotals) -> RunningTotals:
        """The totals once all changes but those of ``waiting`` rows are in the database.

        Of very many partitions they are loaded again: most of them are of users that are not active any more.
        """
        if len(self._loaded) > _MAX_LOADED:
            return waiting
        waiting._loaded = self._loaded
        waiting._changes |= {each: self._changes[each] for each in self._loaded.keys() & self._changes.keys()}
        return waiting


class PendingWrites:
    """Announcements, waiting rows and totals of one process; threads may share it."""

    def __init__(self, directory: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``directory`` is the memory directory's descriptor; ``monotonic`` must not jump with the clock."""
        self._monotonic = monotonic
        self.announcements = Announcements(directory)
        self._reset()

    def _reset(self) -> None:
        self._turn = threading.RLock()
        self.rows = PendingRows()
        self._totals = RunningTotals()
        self._doubtful: set[str] = set()
        self.reads: dict[str, tuple[int, str]] = {}
        self._read_by = 0.0  # the time at which the reads that wait are due

    def open(self) -> ChangeLog:
        """The log that all processes write now; if this process is alone with it, the caller must share it."""
        with self._turn:
            return self.announcements.open()

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records; returns its token."""
        with self._turn:
            return self.announcements.intend(paths)

    def put(self, rows: Iterable[Row], token: str, *, before: Iterable[Row]) -> bool:
        """Keep these rows and end the change; returns whether enough wait to be written."""
        earlier = {row.path: row for row in before}
        with self._turn:
            for row in rows:
                self._totals.change(row, self.rows.put(row, earlier.get(row.path)))
                if row.state == "forgotten":
                    self.reads.pop(row.path, None)
            self.announcements.finish(token)
            return self.rows.exceed()

    def settle(self, token: str) -> None:
        """End a change of unknown outcome; the next transaction reads its records."""
        with self._turn:
            self._doubtful.update(self.announcements.finish(token))

    def doubt(self, paths: Iterable[str]) -> None:
        """Have the next transaction read these records."""
        with self._turn:
            self._doubtful.update(paths)

    def read(self, path: str, *, at: str) -> bool:
        """Note a read of an entry; returns whether enough reads wait to be written, or one has waited for a minute."""
        with self._turn:
            if not self.reads:
                self._read_by = self._monotonic() + _READ_SECONDS
            if path in self.reads or len(self.reads) < _MAX_READS:
                self.reads[path] = (self.reads.get(path, (0, ""))[0] + 1, at)
            return self._are_reads_due()

    def _are_reads_due(self) -> bool:
        return len(self.reads) >= MAX_ROWS or self._monotonic() >= self._read_by

    def is_empty(self) -> bool:
        """Whether nothing waits here, and no other process has written a line since the last ``take``."""
        with self._turn:
            return not self.rows.waiting and not self._doubtful and not self.announcements.has_news()

    def take(
        self, log: ChangeLog, offset: int, *, intents: Mapping[str, tuple[str, ...]] | None, reads: bool = False
    ) -> WriteBatch:
        """What to write, with what ``Announcements.read`` returns; all ``reads``, or those due. ``land`` comes next."""
        with self._turn:
            news, own = self.announcements.read(log, offset, intents=intents), dict(self.announcements.open_intents)
            read, self.reads = (self.reads, {}) if reads or self._are_reads_due() else ({}, self.reads)
            doubtful, self._doubtful = self._doubtful, set()
            return WriteBatch(self.rows.take(), read, doubtful, own, news)

    def land(self, *, is_exact: bool = False) -> None:
        """End a batch that was written or lost.

        ``is_exact``: the database took its rows and nothing else, so loaded totals stay valid; a save after a batch
        then asks the database nothing. Otherwise they are loaded again.
        """
        with self._turn:
            waiting = RunningTotals()
            for row, before in self.rows.land():
                waiting.change(row, before)
            self._totals = self._totals.after(waiting) if is_exact else waiting

    def totals(self, partition: PartitionKey, *, loaded: Sums | None = None, recount: bool = False) -> Totals | None:
        """The totals of a partition with the rows here; None if its sums must be ``loaded`` from the database.

        ``recount``: load all of them again, as other processes may have written rows that still waited here.
        """
        with self._turn:
            if recount:
                self._totals = RunningTotals()
                for row, before in self.rows.uncounted():
                    self._totals.change(row, before)
            if loaded is not None:
                self._totals.load(partition, loaded)
            return self._totals.of(partition)

    def close(self) -> None:
        """Close the log."""
        with self._turn:
            self.announcements.close()

    def leave_to_parent(self) -> None:
        """In a forked child: the rows are the parent's to write."""
        self.announcements.leave_to_parent()
        self._reset()
