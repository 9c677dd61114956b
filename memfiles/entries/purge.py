"""What is not kept for ever: what belonged to a run that is over, and the oldest of what is hidden anyway.

The rules this file guards: an entry of a run is gone when its session ends, its file included; and of retired entries,
which can be restored, as many are kept as there may be live ones, the rest leave a tombstone, so that a directory does
not grow without end and no other copy brings them back.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from memfiles.entries import decisions as saving
from memfiles.entries.eviction import Room
from memfiles.entries.partitions import Caller, Partition, own_level
from memfiles.entries.repository import EntryRepository, RecordsByPath
from memfiles.errors import MemfilesError
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.index.rows import Row
from memfiles.records.entry import Entry, EntryRecord, Tombstone
from memfiles.records.levels import Levels
from memfiles.records.record import Stamp
from memfiles.storage.store import Store

_OVER = "its run is over"
_TOO_MANY = "retired long ago"
_AT_ONCE = 1000
_log = logging.getLogger("memfiles")


class Purger:
    """Removes from one open memory what nobody can want back."""

    def __init__(
        self, store: Store, shelf: EntryRepository, index: Index, *, room: Room, levels: Levels, now: Callable[[], str]
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._index = index
        self._room = room
        self._levels = levels
        self._now = now

    def end_run(self, caller: Caller) -> int:
        """Remove what belongs to the caller's run alone, at every level; how many entries that were."""
        if not caller.provenance.run:
            return 0
        places = [own_level(caller, level)[0] for level in self._levels.names]
        self._index.catch_up()
        paths = [row.path for row in self._index.ask(lambda connection: _all_in(connection, places))]
        stamp = Stamp(self._now(), caller.actor(None))
        for start in range(0, len(paths), _AT_ONCE):
            self._remove(paths[start : start + _AT_ONCE], stamp)
        return len(paths)

    def thin_out(self, caller: Caller) -> None:
        """Leave tombstones of the oldest retired entries where there are too many of them.

        What cannot be done now is done after a later change; what the caller asked for is done already.
        """
        try:
            self._bury_surplus(caller)
        except MemfilesError as error:
            _log.warning("more of what was deleted is kept than there should be: %s", error)

    @contextmanager
    def thinning_out(self, caller: Caller) -> Iterator[None]:
        """Do in the block what may hide entries, and ``thin_out`` when that is done."""
        yield
        self.thin_out(caller)

    def _bury_surplus(self, caller: Caller) -> None:
        for place in own_level(caller):
            if surplus := self._room.surplus(place):
                self._bury_oldest(place, surplus, Stamp(self._now(), caller.actor(None)))

    def _remove(self, paths: Sequence[str], stamp: Stamp) -> None:
        """Tombstones first, which no journal undoes; then their files, which nothing else has a copy of."""
        self._bury(paths, stamp, why=_OVER, only_retired=False)
        with self._shelf.hold(paths):
            found = {path: self._shelf.look(path) for path in paths}
            intent = self._index.intend(paths)
            try:
                self._store.discard(
                    {
                        path: seen.signature
                        for path, seen in found.items()
                        if isinstance(seen.record, Tombstone) and seen.signature is not None
                    }
                )
            finally:
                self._index.settle(intent)
        self._shelf.forget(paths)

    def _bury_oldest(self, place: Partition, count: int, stamp: Stamp) -> None:
        self._index.catch_up()
        rows = self._index.ask(lambda connection: reading.retired(connection, place, limit=min(count, _AT_ONCE)))
        self._bury([row.path for row in rows], stamp, why=_TOO_MANY, only_retired=True)

    def _bury(self, paths: Sequence[str], stamp: Stamp, *, why: str, only_retired: bool) -> None:
        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            return None, [
                saving.bury(record, stamp, id=secrets.token_hex(6), why=why, cleared=True)
                for record in records.values()
                if isinstance(record, Entry) and (record.retired is not None or not only_retired)
            ]

        self._shelf.change(paths, decide)


def _all_in(connection: sqlite3.Connection, places: Sequence[Partition]) -> list[Row]:
    return reading.matching(connection, reading.parts(connection, places), reading.RowFilter())
