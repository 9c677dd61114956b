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
from dataclasses import dataclass, replace
from typing import TypeVar

from memfiles.ancestry import with_origins
from memfiles.atomic import Signature, is_settled
from memfiles.changes import absorb
from memfiles.entry import Entry, EntryRecord, Tombstone
from memfiles.entry_format import decode_entry, encode_entry
from memfiles.errors import LockTimeout, RecordCorrupt
from memfiles.events import Origin, RecordChanged, Subscribers
from memfiles.forking import renew_in_child
from memfiles.index.indexing import Index
from memfiles.index.rows import row_of
from memfiles.store import Store
from memfiles.transaction import LeftBehind, NewVersion

KNOWN_MAX = 65536
"""How many entries are remembered as they were last seen, so that a repeated read costs one look at the file."""

_ATTEMPTS = 50
_log = logging.getLogger("memfiles")
T = TypeVar("T")

Records = Mapping[str, EntryRecord | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it was last seen; ``state`` and ``settled`` as in ``live_files``."""

    record: EntryRecord | None
    signature: Signature | None
    by_hand: bool = False
    problem: str | None = None
    settled: bool = True


class Shelf:
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
        self._seen: dict[str, Seen] = {}
        self._remembering = threading.Lock()
        renew_in_child(self, Shelf._renew)

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

    def look(self, path: str) -> Seen:
        """What lies at ``path`` now."""
        seen = self._seen.get(path)
        signature = self._store.signature(path)
        if seen is not None and seen.settled and seen.signature == signature:
            return seen
        if signature is None:
            return self._gone(path, seen)
        found = self._read(path, seen, signature)
        self._remember(path, found)
        return found

    def change(
        self,
        paths: Iterable[str],
        decide: Callable[[Records], T],
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

    def notice(self, path: str) -> None:
        """Something outside may have changed a record: make a hand edit a revision, and have the index look."""

        def run() -> list[RecordChanged]:
            seen = self.look(path)
            if seen.by_hand and seen.record is not None:
                return self._commit({path: seen}, [seen.record], is_own=True, origin="external")
            self._index.settle(self._index.intend([path]))
            return []

        self._subscribers.tell(self._attempt([path], run))

    def suspect(self, path: str) -> None:
        """The index says something else of a record than the disk: have it look before the next question."""
        self._index.settle(self._index.intend([path]))

    def forget(self, paths: Iterable[str]) -> None:
        """Remember nothing of these records."""
        with self._remembering:
            for path in paths:
                self._seen.pop(path, None)

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
        self, before: Mapping[str, Seen], records: Sequence[EntryRecord], *, is_own: bool, origin: Origin
    ) -> list[RecordChanged]:
        """Write records over what was seen of them, tell the index and remember them; the locks are held."""
        if not records:
            return []
        for record in records:
            seen = before[record.path]
            if seen.problem is not None and seen.signature is not None:
                self._store.keep_aside(record.path, why=seen.problem)
        final = [self._stamped(record) if is_own else record for record in records]
        versions = [
            NewVersion(record.path, record.revision, encode_entry(record), replaces=before[record.path].signature)
            for record in final
        ]
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
            self._remember(record.path, Seen(record, signatures[record.path]))
        return [_event(record, origin) for record in final]

    def _stamped(self, record: EntryRecord) -> EntryRecord:
        """The record as a change of this directory; what is never mirrored needs no stamp."""
        if self._origin is None or (isinstance(record, Entry) and record.run):
            return record
        origins = {**record.origins, self._origin: record.revision}
        if isinstance(record, Tombstone):
            return replace(record, origins=origins)
        return replace(record, text=with_origins(record.text, origins, own=self._origin))

    def _gone(self, path: str, before: Seen | None) -> Seen:
        """There is no file: what was there was removed by hand, and nothing is made of it."""
        if before is not None and before.signature is not None:
            self.forget([path])
        return _NOTHING

    def _read(self, path: str, before: Seen | None, signature: Signature) -> Seen:
        """Read a file that had ``signature`` a moment ago, which is not the known one, and tell what it is now."""
        try:
            found = self._store.find(path)
            if found is None:
                return _NOTHING
            return _judged(decode_entry(found[0], path=path), found[1], before=before, at=self._now())
        except RecordCorrupt as error:
            last = before.record if before is not None else None
            if before is None or before.problem != str(error):
                _log.warning("%s; %s", error, "the last good version is used" if last else "it is left out")
            return Seen(last, signature, problem=str(error), settled=is_settled(signature))

    def _remember(self, path: str, seen: Seen) -> None:
        with self._remembering:
            if path not in self._seen and len(self._seen) >= KNOWN_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[path] = seen


_NOTHING = Seen(None, None)


def _judged(found: EntryRecord, signature: Signature, *, before: Seen | None, at: str) -> Seen:
    """Tell a version written by memfiles from one changed by hand."""
    settled = is_settled(signature)
    known = before.record if before is not None and not before.by_hand and before.problem is None else None
    if not isinstance(found, Entry):
        return Seen(found, signature, settled=settled)
    last = known.text if isinstance(known, Entry) else None
    if found.text.is_intact and (last is None or found.revision > last.revision or found == known):
        return Seen(found, signature, settled=settled)
    text = absorb(found.text, known=last, at=at)
    return Seen(replace(found, text=text), signature, by_hand=True, settled=settled)


def _event(record: EntryRecord, origin: Origin) -> RecordChanged:
    if isinstance(record, Tombstone):
        return RecordChanged(
            record.uid, "", record.revision, "forget", origin, None, record.path, record.level, record.by
        )
    newest = record.text.history[-1]
    return RecordChanged(
        record.uid, record.key, record.revision, newest.op, origin, None, record.path, record.level, newest.by
    )
