"""The records of entries on disk: each read fresh, and changed under its lock.

The rules this file guards: nothing is returned that is not the newest version on disk or, where that is broken, the
last good one; a change made by hand becomes a revision before anything is put on top of it; what is replaced because
it is broken is kept in quarantine; and the index hears of every change, before it and after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from memfiles.entries.observed import ObservedEntry, broken, events_of, gone, judged, told_of
from memfiles.errors import LockTimeout, MemfilesError, RecordCorrupt
from memfiles.index.index import Index
from memfiles.index.rows import row_of
from memfiles.records.entry import Entry, EntryRecord, Tombstone
from memfiles.records.entry_codec import decode_entry
from memfiles.records.lineage import with_origins
from memfiles.storage.atomic import Signature
from memfiles.storage.events import Origin, RecordChanged, Subscribers
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.store import Store
from memfiles.storage.transaction import LeftBehind, version_of_entry

KNOWN_MAX = 65536
"""How many entries are remembered as they were last seen, so that a repeated read costs one look at the file."""

_ATTEMPTS = 50
_log = logging.getLogger("memfiles")
T = TypeVar("T")

RecordsByPath = Mapping[str, EntryRecord | None]


class EntryRepository:
    """The entry records of one open store. Threads may share it; processes may share the directory."""

    def __init__(
        self,
        store: Store,
        *,
        index: Index,
        now: Callable[[], str],
        subscribers: Subscribers,
        origin: str | None = None,
    ) -> None:
        """``origin`` is the id of this directory, if it is mirrored."""
        self._store = store
        self._index = index
        self._now = now
        self._subscribers = subscribers
        self._origin = origin
        self._seen: dict[str, ObservedEntry] = {}
        self._untold: set[str] = set()
        self._remembering = threading.Lock()
        renew_in_child(self, EntryRepository._renew)

    def _renew(self) -> None:
        """In the child of a fork: another thread may have held this lock when it was made."""
        self._remembering = threading.Lock()

    def find(self, path: str) -> EntryRecord | None:
        """The newest version of a record, None if there is none that can be read; one stat if nothing changed."""
        return self.look(path).record

    def entry(self, path: str) -> Entry | None:
        """The entry at ``path``, hidden or not; None if there is none, or a tombstone."""
        record = self.look(path).record
        return record if isinstance(record, Entry) else None

    def look(self, path: str) -> ObservedEntry:
        """What lies at ``path`` now."""
        seen = self._seen.get(path)
        signature = self._store.signature(path)
        if seen is not None and seen.settled and seen.signature == signature:
            return seen
        found = self._read(path, seen, signature) if signature is not None else gone(seen)
        if found.signature is not None or found.stored is not None:
            self._keep(path, found, before=seen)
        return found

    def untold(self) -> list[str]:
        """The records of which this process knows that someone changed them, and about which nothing was done yet."""
        with self._remembering:
            return sorted(self._untold)

    def change(
        self,
        paths: Iterable[str],
        decide: Callable[[RecordsByPath], T],
        *,
        record_of: Callable[[T], Sequence[EntryRecord]],
        is_own: bool = True,
        origin: Origin = "local",
    ) -> T:
        """Apply one decision over several records at once: all that it changes is committed, or nothing.

        ``is_own`` False: what is written was made elsewhere, and stays as it is, byte for byte.
        """
        wanted = sorted(set(paths))

        def run() -> tuple[T, list[RecordChanged]]:
            before = {path: self.look(path) for path in wanted}
            decision = decide({path: seen.record for path, seen in before.items()})
            return decision, self._commit(before, record_of(decision), is_own=is_own, origin=origin)

        decision, told = self._attempt(wanted, run)
        self._subscribers.tell(told)
        return decision

    def notice(self, path: str, *, at_once: bool = False) -> bool:
        """Something outside may have changed a record: make a hand edit a revision, mend what is broken.

        What is broken goes to quarantine, and the last good version is put back if this process knows one. False: it
        is so fresh that someone may still be saving it; look again in a moment. ``at_once`` mends it nevertheless. A
        file that was removed is an entry that is gone.
        """
        is_known, seen = path in self._seen, self.look(path)
        if seen.is_told and is_known and not seen.is_first:
            return True

        def run() -> tuple[bool, list[RecordChanged]]:
            seen = self.look(path)
            if seen.problem is not None:
                return (True, self._mend(path, seen)) if at_once or seen.is_saved else (False, [])
            if seen.by_hand and seen.record is not None:
                return True, self._commit({path: seen}, [seen.record], is_own=True, origin="external")
            is_news = seen.is_first or not (is_known or seen.is_ours)
            told = told_of(replace(seen, news="process") if is_news else seen)
            self._keep(path, replace(seen, news=None, is_first=False), before=seen)
            self._index.doubt([path])
            return True, told

        is_done, told = self._attempt([path], run)
        self._subscribers.tell(told)
        return is_done

    def suspect(self, path: str) -> None:
        """The index says something else of a record than the disk: have it look before the next question."""
        self._index.doubt([path])

    def sweep(self) -> None:
        """Remove the temp files that dead writers left; where that cannot be done, it is logged."""
        try:
            self._store.recover()
        except MemfilesError as error:
            _log.warning("what dead writers left among the entries stays there for now: %s", error)

    def forget(self, paths: Iterable[str]) -> None:
        """Remember nothing that these records held; that they are tombstones may be known."""
        with self._remembering:
            for path in paths:
                if (seen := self._seen.get(path)) is not None and not isinstance(seen.record, Tombstone):
                    del self._seen[path]
                    self._untold.discard(path)

    def hold(self, paths: Iterable[str]) -> AbstractContextManager[None]:
        """Be the only one, among all threads and processes, who may change these records."""
        return self._store.hold(paths)

    def _attempt(self, paths: Sequence[str], run: Callable[[], T]) -> T:
        """Run under the locks; when a dead writer's traces are in the way, mend them and run again."""
        for _ in range(_ATTEMPTS):
            try:
                with self._store.hold(paths):
                    return run()
            except LeftBehind:
                self._store.recover()
        raise LockTimeout(f"{', '.join(paths[:3])}: a dead writer's temp file cannot be removed: run memfiles doctor")

    def _commit(
        self, before: Mapping[str, ObservedEntry], records: Sequence[EntryRecord], *, is_own: bool, origin: Origin
    ) -> list[RecordChanged]:
        """Write records over what was seen of them, tell the index and remember them; the locks are held."""
        if not records:
            return []
        for record in records:
            seen = before[record.path]
            if seen.problem is not None and seen.signature is not None:
                self._store.keep_aside(record.path, why=seen.problem)
        final = [self._stamped(record) if is_own else record for record in records]
        versions = [version_of_entry(record, replaces=before[record.path].signature) for record in final]
        self._store.make_folders(record.path for record in final)
        intent = self._index.intend([record.path for record in final])
        try:
            signatures = self._store.commit(versions)
        except BaseException:
            self._index.settle(intent)
            raise
        earlier = (before[record.path].record for record in final)
        rows = [row_of(record, signatures[record.path]) for record in final]
        self._index.put(rows, intent, before=[row_of(record, None) for record in earlier if record is not None])
        for record in final:
            self._remember(record.path, ObservedEntry(record, signatures[record.path], is_ours=True))
        pairs = zip(records, final, strict=True)
        told = [(before[each.path], each if each is before[each.path].record else stored) for each, stored in pairs]
        return [event for seen, record in told for event in events_of(seen, record, origin)]

    def _mend(self, path: str, seen: ObservedEntry) -> list[RecordChanged]:
        """Put the last good version in place of a broken file, which is kept; without one, there is no entry."""
        if seen.record is not None:
            return self._commit({path: seen}, [seen.record], is_own=False, origin="restored")
        kept = self._store.set_aside(path, why=seen.problem or "unreadable")
        _log.warning("%s; it is in quarantine now: %s", seen.problem, kept)
        self.forget([path])
        self._index.doubt([path])
        return []

    def _stamped(self, record: EntryRecord) -> EntryRecord:
        """The record as a change of this directory; what is never mirrored needs no stamp."""
        if self._origin is None or (isinstance(record, Entry) and record.run):
            return record
        origins = {**record.origins, self._origin: record.revision}
        if isinstance(record, Tombstone):
            return replace(record, origins=origins)
        return replace(record, text=with_origins(record.text, origins, own=self._origin))

    def _read(self, path: str, before: ObservedEntry | None, signature: Signature) -> ObservedEntry:
        """Read a file that had ``signature`` a moment ago, which is not the known one, and tell what it is now."""
        try:
            found = self._store.find(path)
            if found is None:
                return gone(before)
            return judged(decode_entry(found[0], path=path), found[1], before=before, at=self._now())
        except RecordCorrupt as error:
            seen = broken(signature, before=before, problem=str(error))
            if before is None or before.problem != str(error):
                _log.warning("%s; %s", error, "the last good version is used" if seen.record else "it is left out")
            return seen

    def _keep(self, path: str, found: ObservedEntry, *, before: ObservedEntry | None) -> None:
        """Remember what was found, unless something else was remembered since ``before``: that is as new."""
        with self._remembering:
            if self._seen.get(path) is before:
                self._note(path, found)

    def _remember(self, path: str, seen: ObservedEntry) -> None:
        with self._remembering:
            self._note(path, seen)

    def _note(self, path: str, seen: ObservedEntry) -> None:
        if path not in self._seen and len(self._seen) >= KNOWN_MAX:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._untold.discard(oldest)
        self._seen[path] = seen
        (self._untold.discard if seen.is_told else self._untold.add)(path)
