"""What this process has changed that the database does not hold yet: rows in memory, announced in the change log.

The rules this file guards: a change is announced before it is made and its row is kept before it is called done; and
nothing here waits for the database, because every save comes through here.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memfiles.errors import StorageFailed
from memfiles.index.change_log import ChangeLog, Line, done_line, intent_line
from memfiles.index.rows import Row
from memfiles.index.totals import CountKey, CountPlace, Sum, Sums, Totals, count, totals_of

MOST_ROWS = 512
MOST_BYTES = 4 * 1024 * 1024
HEAVY = 32  # times as much is kept while it is being written; then saves wait for it
_MOST_READS = 4096


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """What is to go into the database in one transaction.

    ``reads`` tells how many there were and the last; ``doubtful`` are records that may have changed, ``intents`` are
    this process's own that are not over; ``lines`` are of other processes alone.
    """

    rows: dict[str, Row]
    reads: dict[str, tuple[int, str]]
    doubtful: set[str]
    intents: dict[str, tuple[str, ...]]
    lines: list[Line]
    end: int
    is_whole: bool  # every line was understood


class PendingWrites:
    """The log and the rows of one process; threads may share it."""

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor."""
        self._directory = directory
        self.log: ChangeLog | None = None
        self.is_behind = False  # a log was lost: the database may lack changes of anyone
        self._start()

    def _start(self) -> None:
        self._turn = threading.RLock()
        self.name = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._end = -1  # of the log as far as it was read, with what was written here since
        self._open_intents: dict[str, tuple[str, ...]] = {}
        self._doubtful: set[str] = set()
        self._rows: dict[str, Row] = {}
        self._leaving: dict[str, Row] = {}  # taken, and not landed yet
        self._before: dict[str, Row] = {}  # what the database has in place of a row here
        self._bytes = 0
        self._reads: dict[str, tuple[int, str]] = {}
        self._loaded: dict[CountPlace, Sums] = {}
        self._changes: dict[CountPlace, Sums] = {}  # what the rows here add to those

    def open(self) -> ChangeLog:
        """The log that all processes write now; the caller shares it if it is alone with it."""
        with self._turn:
            if self.log is None:
                self.log = ChangeLog(self._directory)
            size = self.log.size()
            return self._current() if size is not None and size >= self._end else self._reopened()

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records; the token under which it is called over."""
        with self._turn:
            token = f"{self.name}:{next(self._numbers):x}"
            self._current()
            self._append(intent_line(token, paths))
            self._open_intents[token] = tuple(paths)
            return token

    def put(self, rows: Iterable[Row], token: str, *, before: Iterable[Row]) -> bool:
        """Keep these rows and call the change over; whether there are so many that they should go."""
        earlier = {row.path: row for row in before}
        with self._turn:
            for row in rows:
                self._keep(row, earlier.get(row.path))
            self._finish(token)
            return len(self._rows) >= MOST_ROWS or self._bytes >= MOST_BYTES

    def settle(self, token: str) -> None:
        """Call a change over of which it is not known what it did; the records are looked at."""
        with self._turn:
            self._doubtful.update(self._finish(token))

    def doubt(self, paths: Iterable[str]) -> None:
        """Have this process look at these records."""
        with self._turn:
            self._doubtful.update(paths)

    @property
    def is_heavy(self) -> bool:
        """Whether there is so much here that nothing may be added before it is written."""
        return len(self._rows) >= HEAVY * MOST_ROWS or self._bytes >= HEAVY * MOST_BYTES

    def read(self, path: str, *, at: str) -> bool:
        """Note that the entry was read; whether so many were that they should go."""
        with self._turn:
            if path in self._reads or len(self._reads) < _MOST_READS:
                self._reads[path] = (self._reads.get(path, (0, ""))[0] + 1, at)
            return len(self._reads) >= MOST_ROWS

    @property
    def has_reads(self) -> bool:
        """Whether reads are noted here that the database does not have."""
        return bool(self._reads)

    def is_empty(self) -> bool:
        """Whether there is neither a row here nor a line of another process in the log since the last ``take``."""
        with self._turn:
            return not self._rows and not self._doubtful and self.log is not None and self.log.size() == self._end

    def take(self, log: ChangeLog, offset: int) -> WriteBatch:
        """All that is to go into the database, with the lines of the log from ``offset`` on; ``land`` comes next."""
        with self._turn:
            lines, end, is_whole = log.read(offset, but=self.name)
            taken = WriteBatch(self._rows, self._reads, self._doubtful, dict(self._open_intents), lines, end, is_whole)
            self._leaving, self._bytes = self._rows, 0
            self._rows, self._reads, self._doubtful = {}, {}, set()
            self._end = end
            return taken

    def land(self) -> None:
        """What was taken is in the database, or lost: the totals that were loaded before do not count any more."""
        with self._turn:
            self._leaving, self._loaded, self._changes = {}, {}, {}
            for row in self._rows.values():
                self._count(row, self._before.get(row.path))
            self._before = {path: row for path, row in self._before.items() if path in self._rows}

    def totals(self, place: CountPlace, *, loaded: Sums | None = None) -> Totals | None:
        """The totals of a partition, with the rows here; None if those in the database are to be loaded."""
        with self._turn:
            if loaded is not None:
                self._loaded[place] = loaded
            if (known := self._loaded.get(place)) is None:
                return None
            return totals_of(_together(known, self._changes.get(place, {})))

    def close(self) -> None:
        """Let go of the log and of the rows."""
        with self._turn:
            if self.log is not None:
                self.log.close()
                self.log = None

    def leave_to_parent(self) -> None:
        """In the child of a fork: the rows are the parent's to write."""
        log, self.log = self.log, None
        if log is not None:
            log.close()
        self._start()

    def _keep(self, row: Row, before: Row | None) -> None:
        path = row.path
        earlier = self._rows.get(path)
        if earlier is None:
            before = self._leaving.get(path, before)
            if before is not None:
                self._before[path] = before._replace(content="")
            self._count(row, before)
        else:
            self._bytes -= len(earlier.content)
            self._count(row, earlier)
        self._rows[path] = row
        self._bytes += len(row.content)

    def _count(self, row: Row, before: Row | None) -> None:
        changes = self._changes.setdefault((row.scope, row.level, row.run), {})
        count(changes, row)
        count(changes, before, times=-1)

    def _current(self) -> ChangeLog:
        """The log that all processes write now; if it is another than before, what is under way is announced there."""
        log = self.log
        if log is not None and log.is_linked():
            return log
        return self._reopened()

    def _reopened(self) -> ChangeLog:
        if self.log is not None:
            self.log.close()
            self.log, self.is_behind = None, True
        self.log = log = ChangeLog(self._directory)
        log.share()
        self._end = -1
        for token, paths in self._open_intents.items():
            self._append(intent_line(token, paths))
        return log

    def _finish(self, token: str) -> tuple[str, ...]:
        """Call a change over, which happened or not: where that cannot be written, a look at all records makes up."""
        paths = self._open_intents.pop(token, ())
        try:
            self._current()
            self._append(done_line(token))
        except StorageFailed:
            self.is_behind = True
        return paths

    def _append(self, line: bytes) -> None:
        if self.log is not None:
            self.log.append(line)
            self._end += len(line)


def _together(one: Sums, other: Sums) -> Iterator[tuple[CountKey, Sum]]:
    yield from one.items()
    yield from other.items()
