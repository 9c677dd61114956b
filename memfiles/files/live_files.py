"""The live set: the declared memory files of this process, each read fresh and changed under its lock.

The rules this file guards: nothing is returned that is not the newest version on disk or, where that is
broken, the last good one; a change made by hand becomes a revision before anything is put on top of it;
what is replaced because it is broken is kept in quarantine; and whoever subscribed is told of every change
once, when no lock is held.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from memfiles.errors import FileNotDeclared, LockTimeout, RecordCorrupt
from memfiles.records.file_changes import Decision, absorb
from memfiles.records.keys import record_path
from memfiles.records.lineage import stamped
from memfiles.records.record import NOBODY, Record, decode
from memfiles.storage.atomic import Signature, is_settled
from memfiles.storage.events import Origin, RecordChanged, Subscribers
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.store import Store
from memfiles.storage.transaction import LeftBehind, version_of

_ATTEMPTS = 50
_SAVED_NS = 500_000_000  # a file this long untouched is not in the middle of being saved
_log = logging.getLogger("memfiles")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """A record as last seen, and how it relates to the file on disk.

    ``state``: stored (the file is this record), by_hand (someone changed the file; the record is what that
    makes, not yet written), broken (the file is gone, unreadable or refused: the record is the last good one).
    ``settled``: no change within the same tick of the kernel's clock can have the same signature.
    ``stored``: the last version known to have been on disk, if that is not the record itself.
    ``news``: where a change came from that the subscribers have not been told of yet.
    """

    record: Record
    signature: Signature | None
    state: Literal["stored", "by_hand", "broken"] = "stored"
    problem: str | None = None
    settled: bool = True
    stored: Record | None = None
    news: Origin | None = None

    @property
    def last_stored(self) -> Record | None:
        """The version that the next one is compared with."""
        return self.record if self.state == "stored" else self.stored


class FileRepository:
    """The records of the declared files, by uid."""

    def __init__(
        self, store: Store, *, now: Callable[[], str], subscribers: Subscribers, origin: str | None = None
    ) -> None:
        """No file is live before ``declare``. ``origin`` is the id of this directory, if it is mirrored."""
        self._store = store
        self._now = now
        self._subscribers = subscribers
        self._origin = origin
        self._seen: dict[str, ObservedFile | None] = {}
        self._remembering = threading.Lock()
        renew_in_child(self, FileRepository._renew)

    def _renew(self) -> None:
        """In the child of a fork: another thread may have held these locks when it was made."""
        self._remembering = threading.Lock()
        self._subscribers.renew()

    def declare(self, files: dict[str, ObservedFile | None]) -> None:
        """Make exactly these files live, with what is known of each (None: nothing new)."""
        with self._remembering:
            self._seen = {uid: seen or self._seen.get(uid) for uid, seen in files.items()}

    def uids(self) -> list[str]:
        """The uids of the live files, sorted."""
        return sorted(self._seen)

    def is_live(self, uid: str) -> bool:
        """Whether the file is declared."""
        return isinstance(uid, str) and uid in self._seen

    def seen(self) -> dict[str, ObservedFile]:
        """What is known, without looking again, of the files that were read or written so far."""
        return {uid: seen for uid, seen in self._seen.items() if seen is not None}

    def current(self, uid: str) -> Record:
        """The newest version of a file; one stat if nothing changed. ``FileNotDeclared``, ``RecordCorrupt``."""
        return self._fresh(uid).record

    def change(self, uid: str, decide: Callable[[Record], Decision]) -> Decision:
        """Apply a decision to the newest version, under the record's lock; durable on return."""
        return self.change_all([uid], lambda records: decide(records[uid]), record_of=_record_of)

    def change_all(
        self,
        uids: Iterable[str],
        decide: Callable[[dict[str, Record]], T],
        *,
        record_of: Callable[[T], Sequence[Record]],
    ) -> T:
        """Apply one decision over several files at once: all of its records are committed, or none."""
        wanted = sorted({self._known(uid) for uid in uids})

        def run() -> tuple[T, list[RecordChanged]]:
            before = {uid: self._fresh(uid) for uid in wanted}
            decision = decide({uid: seen.record for uid, seen in before.items()})
            steps = [(before[record.uid], record) for record in record_of(decision)]
            return decision, self._commit(steps)

        decision, told = self._attempt(wanted, run)
        self._subscribers.tell(told)
        return decision

    def merge(self, uid: str, decide: Callable[[Record], tuple[Record | None, bool]]) -> None:
        """Apply what was decided over the newest version and the mirror's copy, under the record's lock.

        ``decide`` gives the record (None: it stays as it is), and whether it holds a change made here: one that was
        only fetched stays as it is, byte for byte.
        """

        def run() -> list[RecordChanged]:
            before = self._fresh(self._known(uid))
            by_hand = before.state == "by_hand"
            record, is_own = decide(self._stamped(before, before.record) if by_hand else before.record)
            return self._commit([(before, record)], is_own=is_own, origin="mirror") if record is not None else []

        self._subscribers.tell(self._attempt([uid], run))

    def notice(self, uid: str, *, at_once: bool = False) -> bool:
        """Look at a file that something outside may have changed; make a hand edit a revision, mend a broken one.

        False: it is broken, but so fresh that someone may still be saving it; look again in a moment. ``at_once``
        mends it nevertheless. A file that is not live is left alone. ``RecordCorrupt`` if no good version is known.
        """
        if not self.is_live(uid) or self._is_as_told(uid, self._seen.get(uid) or self._fresh(uid)):
            return True

        def run() -> tuple[bool, list[RecordChanged]]:
            seen = self._fresh(uid)
            if seen.state == "broken" and not at_once and not _is_saved(seen):
                return False, []
            if seen.state != "stored":
                return True, self._commit([(seen, seen.record)])
            self._remember(uid, seen, replace(seen, news=None))
            return True, _news_of(seen)

        settled, told = self._attempt([uid], run)
        self._subscribers.tell(told)
        return settled

    def _fresh(self, uid: str) -> ObservedFile:
        """What the newest version of a file is; read only if its signature is not the known one."""
        seen = self._seen[self._known(uid)]
        signature = self._store.signature(uid + ".json")
        if seen is not None and seen.signature == signature and seen.settled:
            return seen
        found = self._read(uid, seen, signature)
        self._remember(uid, seen, found)
        return found

    def _known(self, uid: str) -> str:
        if not self.is_live(uid):
            raise FileNotDeclared(f"no memory file {str(uid)[:80]!r} is declared")
        return uid

    def _is_as_told(self, uid: str, seen: ObservedFile) -> bool:
        """Whether there is nothing to do: the file is what this process read or wrote last, and told of."""
        is_plain = seen.state == "stored" and seen.settled and seen.news is None
        return is_plain and seen.signature == self._store.signature(uid + ".json")

    def _remember(self, uid: str, before: ObservedFile | None, found: ObservedFile) -> None:
        """Keep what was found, unless something else was remembered since ``before``: that is as new."""
        with self._remembering:
            if uid in self._seen and self._seen[uid] is before:
                self._seen[uid] = found

    def _attempt(self, uids: Sequence[str], run: Callable[[], T]) -> T:
        """Run under the locks; when a dead writer's traces are in the way, mend them and run again."""
        paths = [record_path(uid) for uid in uids]
        for _ in range(_ATTEMPTS):
            try:
                with self._store.hold(paths):
                    return run()
            except LeftBehind:
                self._store.recover()
        raise LockTimeout(f"{', '.join(paths[:3])}: a dead writer's temp file cannot be removed: run memfiles doctor")

    def _commit(
        self, steps: Sequence[tuple[ObservedFile, Record]], *, is_own: bool = True, origin: Origin = "local"
    ) -> list[RecordChanged]:
        """Write records over what was seen of them and remember them; the locks are held. What is to be told."""
        if not steps:
            return []
        for before, record in steps:
            if before.state == "broken" and before.signature is not None:
                self._store.keep_aside(record_path(record.uid), why=before.problem or "unreadable")
        records = [self._stamped(before, record) if is_own else record for before, record in steps]
        versions = [
            version_of(record, replaces=before.signature) for (before, _), record in zip(steps, records, strict=True)
        ]
        signatures = self._store.commit(versions)
        with self._remembering:
            for record in records:
                if record.uid in self._seen:
                    self._seen[record.uid] = ObservedFile(record, signatures[record_path(record.uid)])
        return [event for before, record in steps for event in _events_of(before, record, origin=origin)]

    def _stamped(self, before: ObservedFile, record: Record) -> Record:
        """The record as a change of this directory; a good version that is only put back is none."""
        is_put_back = record is before.record and before.state == "broken"
        return record if self._origin is None or is_put_back else stamped(record, self._origin)

    def _read(self, uid: str, before: ObservedFile | None, signature: Signature | None) -> ObservedFile:
        """Read a file that had ``signature`` a moment ago, which is not the known one, and tell what it is now."""
        try:
            found = self._store.find(record_path(uid))
            if found is None:
                raise RecordCorrupt(f"record {uid}: it is gone")
            return _judged(decode(found[0], uid=uid), found[1], before=before, at=self._now())
        except RecordCorrupt as error:
            if before is None:
                raise
            if before.problem != str(error):
                _log.warning("%s; the last good version is used", error)
            return ObservedFile(
                before.record,
                signature,
                "broken",
                problem=str(error),
                settled=signature is None or is_settled(signature),
                stored=before.last_stored,
                news="restored",
            )


def _judged(found: Record, signature: Signature, *, before: ObservedFile | None, at: str) -> ObservedFile:
    """Tell a version written by memfiles from one changed by hand, and refuse a hand edit that grows over the cap."""
    known = before.last_stored if before is not None else None
    settled = is_settled(signature)
    if found.is_intact and (known is None or found.revision > known.revision or found == known):
        return ObservedFile(found, signature, settled=settled, news=_origin_of(found, before))
    record = absorb(found, known=known, at=at)
    size, cap = record.size_bytes, record.max_size_bytes
    if known is not None and size > cap and size > known.size_bytes:
        raise RecordCorrupt(f"record {found.uid}: changed by hand to {size} bytes, over its cap of {cap}")
    return ObservedFile(record, signature, "by_hand", settled=settled, stored=known, news="external")


def _origin_of(found: Record, before: ObservedFile | None) -> Origin | None:
    """Where an intact version came from that was not read before; None if there is nothing new to tell."""
    if before is None or found == before.last_stored:
        return before.news if before is not None and before.state == "stored" else None
    return "process"


def _is_saved(seen: ObservedFile) -> bool:
    """Whether nobody can be in the middle of saving a broken file."""
    return seen.signature is None or is_settled(seen.signature, for_ns=_SAVED_NS)


def _record_of(decision: Decision) -> list[Record]:
    return [decision.record] if decision.record is not None else []


def _events_of(before: ObservedFile, record: Record, *, origin: Origin) -> list[RecordChanged]:
    """What is to be told when ``record`` was written over what was seen: first what nobody was told of yet."""
    return [*_news_of(before), *([_event(record, origin)] if record is not before.record else [])]


def _news_of(seen: ObservedFile) -> list[RecordChanged]:
    """What is to be told of a version that came from elsewhere."""
    if seen.news != "restored":
        return [_event(seen.record, seen.news)] if seen.news is not None else []
    kept = "what was there is in quarantine, and " if seen.signature is not None else ""
    return [_event(seen.record, "restored", warning=f"{seen.problem}; {kept}the last good version was put back")]


def _event(record: Record, origin: Origin, *, warning: str | None = None) -> RecordChanged:
    op, by = (record.history[-1].op, record.history[-1].by) if record.history else ("seed", NOBODY)
    path = record_path(record.uid)
    return RecordChanged(record.uid, record.name, record.revision, op, origin, warning, path, record.level, by)
