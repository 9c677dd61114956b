"""Entries that only the mirror has: brought here many at a time, through the pack where there is one.

The rules this file guards: what is not what its path says is left where it is; a record that is here already is never
written over, but brought together with its copy like any other; and what was brought is noted only once it is here,
and before anyone looks for what is to be pushed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from memfiles.errors import LockTimeout, MirrorUnavailable, RecordCorrupt
from memfiles.records.entry import EntryRecord
from memfiles.records.keys import entry_place
from memfiles.records.record import digest
from memfiles.sync.bulk_reads import get_many
from memfiles.sync.fetching import FAILURES_IN_A_ROW, FEW
from memfiles.sync.ledger import Acknowledged, Bookkeeping
from memfiles.sync.merge.record_types import copies_of
from memfiles.sync.mirror import Mirror, Stored
from memfiles.sync.pack import read_pack
from memfiles.sync.replica import Replica
from memfiles.sync.reports import Outcome

_AT_ONCE = 500
_BYTES_AT_ONCE = 16 * 1024 * 1024  # far below what a commit may have
_log = logging.getLogger("memfiles.sync")


class Newcomers:
    """Brings the entries here that are in the mirror alone."""

    def __init__(self, replica: Replica, *, mirror: Mirror, book: Bookkeeping) -> None:
        self._replica = replica
        self._mirror = mirror
        self._book = book
        self._writing = threading.Lock()

    def settled(self) -> AbstractContextManager[object]:
        """Meanwhile nothing is here that was brought and not noted yet."""
        return self._writing

    def missing(self, listed: Mapping[str, str]) -> list[str]:
        """The entries that the mirror lists and that are not here."""
        if not self._replica.entries.is_kept:
            return []
        there = [path for path in listed if entry_place(path) is not None]
        here = set(self._replica.entries.paths()) if there else set()
        return [path for path in there if path not in here]

    def bring(self, paths: Iterable[str], *, listed: Mapping[str, str]) -> Iterator[str]:
        """Fetch these entries and write them, some hundred in a commit; the paths of those that were written.

        ``MirrorUnavailable`` if some were not given; the others are here then.
        """
        batch: dict[str, Stored] = {}
        size = 0
        for path, stored in self._fetched(set(paths), listed):
            batch[path] = stored
            size += len(stored.body)
            if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                yield from self._take(batch)
                batch, size = {}, 0
        yield from self._take(batch)

    def bring_one(self, path: str) -> Outcome:
        """Fetch the entry at ``path``, where nothing that can be read lies; ``LockTimeout`` for a memory file."""
        if entry_place(path) is None:
            raise LockTimeout(f"{path} cannot be read just now: someone is in the middle of changing it")
        stored = self._mirror.get(path) if self._replica.entries.is_kept else None
        return "pulled" if stored is not None and self._take({path: stored}) else "equal"

    def _fetched(self, wanted: set[str], listed: Mapping[str, str]) -> Iterator[tuple[str, Stored]]:
        """Each object, from the pack or by a call; in the end the first error, if there was one."""
        failure: MirrorUnavailable | None = None
        if len(wanted) > FEW:
            for path, stored in read_pack(self._mirror, listed=listed):
                if path in wanted:
                    wanted.remove(path)
                    yield path, stored
        in_a_row = 0
        for path, answer in get_many(self._mirror, sorted(wanted)):
            in_a_row = in_a_row + 1 if isinstance(answer, MirrorUnavailable) else 0
            if isinstance(answer, MirrorUnavailable):
                failure = failure or answer
            elif answer is not None:
                yield path, answer
            if in_a_row == FAILURES_IN_A_ROW:
                break
        if failure is not None:
            raise failure

    def _take(self, batch: Mapping[str, Stored]) -> list[str]:
        """Write what can be used of these; where each was written."""
        records: dict[str, EntryRecord] = {}
        for path, stored in batch.items():
            try:
                records[path] = copies_of(path).decode(stored.body, path=path)
            except RecordCorrupt as error:
                _log.warning("the mirror's copy is left where it is: %s", error)
        if not records:
            return []
        with self._writing:
            written = self._replica.adopt(records)
            self._book.acknowledge(*[self._noted(record, batch[record.path]) for record in written])
        dead = [record.path for record in written if copies_of(record.path).is_dead(record)]
        if dead:
            self._replica.remove_copies(dead)
        return [record.path for record in written]

    def _noted(self, record: EntryRecord, stored: Stored) -> Acknowledged:
        body = copies_of(record.path).encode(record)
        return Acknowledged(record.path, stored.version, stored.body, record.revision, digest(body))
