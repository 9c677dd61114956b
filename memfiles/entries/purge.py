"""Purging: removes entries of runs that are over, and the oldest of too many retired entries.

The rules this file guards: the entries of a run are gone when its last session ends, files included. Retired
entries can be restored; as many are kept as live ones are allowed. Older ones leave a mark, so that the directory stays
bounded and an old copy cannot bring them back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from memfiles.entries.callers import Caller, Partition, own_level
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.reader import EntryDatabase
from memfiles.errors import MemfilesError
from memfiles.index import queries
from memfiles.records.entry import Entry
from memfiles.records.marks import EntryRecord, Mark, vacated
from memfiles.records.record import Stamp

_AT_ONCE = 1000
_SPARE_RETIRED = 64  # more than allowed before any is purged, so that not every delete purges one
_log = logging.getLogger("memfiles")


class Purger:
    """Removes entries from one open memory that nobody can want back."""

    def __init__(self, db: EntryDatabase) -> None:
        self._db = db

    def end_run(self, caller: Caller, *, levels: Iterable[str]) -> int:
        """Remove the entries of the caller's run alone at these levels; returns how many there were."""
        partitions = [own_level(caller, level)[0] for level in levels] if caller.provenance.run else []
        if not partitions:
            return 0
        self._db.index.catch_up()
        paths = [row.path for row in self._db.rows(partitions)]
        stamp = Stamp(self._db.now(), caller.actor(None))
        for start in range(0, len(paths), _AT_ONCE):
            self._remove(paths[start : start + _AT_ONCE], stamp)
        return len(paths)

    def thin_out(self, caller: Caller) -> None:
        """Replace the oldest retired entries by marks if there are too many.

        A failure is only logged: the caller's own change is done already, and a later change tries again.
        """
        try:
            for partition in own_level(caller):
                if surplus := self._surplus(partition):
                    self._bury_oldest(partition, surplus, Stamp(self._db.now(), caller.actor(None)))
        except MemfilesError as error:
            _log.warning("more deleted entries are kept than there should be: %s", error)

    @contextmanager
    def thinning_out(self, caller: Caller) -> Iterator[None]:
        """Call ``thin_out`` after a block that may hide entries, if the block succeeds."""
        yield
        self.thin_out(caller)

    def _surplus(self, partition: Partition) -> int:
        most = self._db.rules.budget.max_entries
        if most is None:
            return 0
        found = self._db.index.totals(partition).retired[0]
        return found - most if found > most + _SPARE_RETIRED else 0

    def _remove(self, paths: Sequence[str], stamp: Stamp) -> None:
        """Replace the entries by marks first, so that no journal brings them back; then remove the files."""
        self._vacate(paths, stamp, only_retired=False)
        with self._db.store.hold(paths):
            found = {path: self._db.repository.look(path) for path in paths}
            intent = self._db.index.intend(paths)
            try:
                self._db.store.discard(
                    {
                        path: seen.signature
                        for path, seen in found.items()
                        if isinstance(seen.record, Mark) and seen.signature is not None
                    }
                )
            finally:
                self._db.index.settle(intent)
        self._db.repository.forget(paths)

    def _bury_oldest(self, partition: Partition, count: int, stamp: Stamp) -> None:
        self._db.index.catch_up()
        rows = self._db.index.ask(lambda connection: queries.retired(connection, partition, limit=min(count, _AT_ONCE)))
        self._vacate([row.path for row in rows], stamp, only_retired=True)

    def _vacate(self, paths: Sequence[str], stamp: Stamp, *, only_retired: bool) -> None:
        """Replace entries by marks, which yield to a copy with a change that was not known here."""

        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            return None, [
                replace(vacated(record, stamp.at, by=stamp.by, is_private=True), cleared=True)
                for record in records.values()
                if isinstance(record, Entry) and (record.retired is not None or not only_retired)
            ]

        self._db.repository.change(paths, decide)
