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


def end_run(db: EntryDatabase, caller: Caller, *, levels: Iterable[str]) -> int:
    """Remove the entries of the caller's run alone at these levels; returns how many there were."""
    partitions = [own_level(caller, level)["run"] for level in levels] if caller.provenance.run else []
    if not partitions:
        return 0
    db.index.catch_up()
    paths = [row.path for row in db.rows(partitions)]
    stamp = Stamp(db.now(), caller.actor(None))
    for start in range(0, len(paths), _AT_ONCE):
        _remove(db, paths[start : start + _AT_ONCE], stamp)
    return len(paths)


def thin_out(db: EntryDatabase, caller: Caller) -> None:
    """Replace the oldest retired entries by marks if there are too many.

    A failure is only logged: the caller's own change is done already, and a later change tries again.
    """
    try:
        for partition in own_level(caller).values():
            _bury_surplus(db, partition, caller)
    except MemfilesError as error:
        _log.warning("more deleted entries are kept than there should be: %s", error)


@contextmanager
def thinning_out(db: EntryDatabase, caller: Caller) -> Iterator[None]:
    """Call ``thin_out`` after a block that may hide entries, if the block succeeds."""
    yield
    thin_out(db, caller)


def _bury_surplus(db: EntryDatabase, partition: Partition, caller: Caller) -> None:
    most = db.rules.budget.max_entries
    if most is None or (found := db.index.totals(partition).retired[0]) <= most + _SPARE_RETIRED:
        return
    db.index.catch_up()
    limit = min(found - most, _AT_ONCE)
    rows = db.index.ask(lambda connection: queries.retired(connection, partition, limit=limit))
    _vacate(db, [row.path for row in rows], Stamp(db.now(), caller.actor(None)), only_retired=True)


def _remove(db: EntryDatabase, paths: Sequence[str], stamp: Stamp) -> None:
    """Replace the entries by marks first, so that no journal brings them back; then remove the files."""
    _vacate(db, paths, stamp, only_retired=False)
    with db.store.hold(paths):
        found = ((path, db.repository.look(path)) for path in paths)
        marks = {path: it.signature for path, it in found if isinstance(it.record, Mark) and it.signature is not None}
        intent = db.index.intend(paths)
        try:
            db.store.discard(marks)
        finally:
            db.index.settle(intent)
    db.repository.drop_cached(paths)


def _vacate(db: EntryDatabase, paths: Sequence[str], stamp: Stamp, *, only_retired: bool) -> None:
    """Replace entries by marks. A copy from elsewhere with a change that was not known here wins over such a mark."""

    def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
        return None, [
            replace(vacated(record, stamp.at, by=stamp.by, is_private=True), cleared=True)
            for record in records.values()
            if isinstance(record, Entry) and (record.retired is not None or not only_retired)
        ]

    db.repository.change(paths, decide)
