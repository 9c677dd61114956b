"""The live set: the declared memory files of this process, each read fresh and changed under its lock.

The rules this file guards: nothing is returned that is not the newest version on disk or, where that is
broken, the last good one; a change made by hand becomes a revision before anything is put on top of it; and
what is replaced because it is broken is kept in quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from memfiles.atomic import Signature, is_settled
from memfiles.changes import Decision, absorb
from memfiles.errors import FileNotDeclared, LockTimeout, RecordCorrupt
from memfiles.events import Origin, RecordChanged, Subscribers
from memfiles.keys import record_path
from memfiles.record import Record, decode, encode
from memfiles.store import Store
from memfiles.transaction import LeftBehind, NewVersion

_ATTEMPTS = 50
_log = logging.getLogger("memfiles")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as last seen, and how it relates to the file on disk.

    ``state``: stored (the file is this record), by_hand (someone changed the file; the record is what that
    makes, not yet written), broken (the file is unreadable or refused: the record is the last good one).
    ``settled``: no change within the same tick of the kernel's clock can have the same signature.
    """

    record: Record
    signature: Signature | None
    state: Literal["stored", "by_hand", "broken"] = "stored"
    problem: str | None = None
    settled: bool = True


class LiveFiles:
    """The records of the declared files, by uid."""

    def __init__(self, store: Store, *, now: Callable[[], str], subscribers: Subscribers) -> None:
        """No file is live before ``declare``."""
        self._store = store
        self._now = now
        self._subscribers = subscribers
        self._seen: dict[str, Seen | None] = {}

    def declare(self, files: dict[str, Seen | None]) -> None:
        """Make exactly these files live, with what is known of each (None: not read yet)."""
        self._seen = files

    def uids(self) -> list[str]:
        """The uids of the live files, sorted."""
        return sorted(self._seen)

    def is_live(self, uid: str) -> bool:
        """Whether the file is declared."""
        return uid in self._seen

    def seen(self) -> dict[str, Seen]:
        """What is known, without looking again, of the files that were read or written so far."""
        return {uid: seen for uid, seen in self._seen.items() if seen is not None}

    def current(self, uid: str) -> Record:
        """The newest version of a file; one stat if nothing changed. ``FileNotDeclared``, ``RecordCorrupt``."""
        try:
            seen = self._seen[uid]
        except KeyError:
            raise FileNotDeclared(f"no memory file {uid[:80]!r} is declared") from None
        signature = self._store.signature(uid + ".json")
        if seen is not None and seen.signature == signature:
            return seen.record
        return self._look(uid, seen).record

    def change(self, uid: str, decide: Callable[[Record], Decision]) -> Decision:
        """Apply a decision to the newest version, under the record's lock; durable on return."""
        return self._attempt([uid], lambda: self._change_held(uid, decide))

    def change_all(self, uids: Iterable[str], decide: Callable[[dict[str, Record]], T], *, record_of: Callable[[T], Sequence[Record]]) -> T:
        """Apply one decision over several files at once: all of its records are committed, or none."""
        wanted = sorted(set(uids))

        def run() -> T:
            before = {uid: self.current(uid) for uid in wanted}
            decision = decide(before)
            self._commit(list(record_of(decision)))
            return decision

        return self._attempt(wanted, run)

    def notice(self, uid: str) -> None:
        """Look at a file that something outside may have changed; make a hand edit a revision, mend a broken one."""
        seen = self._seen.get(uid)
        if uid in self._seen and (seen is None or self._store.signature(record_path(uid)) != seen.signature):
            self._attempt([uid], lambda: self._notice_held(uid))

    def _change_held(self, uid: str, decide: Callable[[Record], Decision]) -> Decision:
        decision = decide(self.current(uid))
        if decision.record is not None:
            self._commit([decision.record])
        return decision

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

    def _commit(self, records: list[Record]) -> None:
        """Write these records and remember them; the locks are held."""
        for record in records:
            self._keep_broken(record.uid)
        versions = [NewVersion(record_path(record.uid), record.revision, encode(record)) for record in records]
        signatures = self._store.commit(versions)
        for record in records:
            self._seen[record.uid] = Seen(record, signatures[record_path(record.uid)])
        for record in records:
            self._tell(record, origin="local")

    def _keep_broken(self, uid: str) -> None:
        """Before a broken file is replaced, have its bytes in quarantine."""
        seen = self._seen.get(uid)
        if seen is not None and seen.state == "broken" and seen.signature is not None:
            self._store.keep_aside(record_path(uid), why=seen.problem or "unreadable")

    def _look(self, uid: str, before: Seen | None) -> Seen:
        """Read a file whose signature is not the known one, and remember what it is."""
        seen = self._read(uid, before)
        self._seen[uid] = seen
        return seen

    def _read(self, uid: str, before: Seen | None) -> Seen:
        path = record_path(uid)
        try:
            found = self._store.find(path)
            if found is None:
                raise RecordCorrupt(f"record {uid}: it is gone; run memfiles restore to bring it back")
            record = decode(found[0], uid=uid)
            return self._judge(record, found[1], before)
        except RecordCorrupt as error:
            if before is None:
                raise
            _log.warning("%s; the last good version is used", error)
            return Seen(before.record, self._store.signature(path), "broken", str(error))

    def _judge(self, found: Record, signature: Signature, before: Seen | None) -> Seen:
        """Tell a version written by memfiles from one changed by hand, and refuse a hand edit over the cap."""
        known = before.record if before is not None else None
        if found.is_intact and (known is None or found.revision > known.revision or found == known):
            return Seen(found, signature, settled=is_settled(signature))
        absorbed = absorb(found, known=known, at=self._now())
        size, cap = absorbed.size_bytes, absorbed.max_size_bytes
        if known is not None and size > cap and size > known.size_bytes:
            raise RecordCorrupt(f"record {found.uid}: changed by hand to {size} bytes, over its cap of {cap}")
        return Seen(absorbed, signature, "by_hand")

    def _notice_held(self, uid: str) -> None:
        before = self._seen[uid]
        record = self.current(uid)
        seen = self._seen[uid]
        assert seen is not None
        if seen is before or seen.record == (before.record if before else None) and seen.state == "stored":
            return
        if seen.state == "stored":
            self._tell(record, origin="process")
            return
        self._write_back(seen)

    def _write_back(self, seen: Seen) -> None:
        """Make a hand edit a revision, or put the last good version back over a broken file."""
        record, uid = seen.record, seen.record.uid
        self._keep_broken(uid)
        signatures = self._store.commit([NewVersion(record_path(uid), record.revision, encode(record))])
        self._seen[uid] = Seen(record, signatures[record_path(uid)])
        if seen.state == "by_hand":
            self._tell(record, origin="external")
        else:
            warning = f"{seen.problem}; it is in quarantine and the last good version was put back"
            self._tell(record, origin="restored", warning=warning)

    def _tell(self, record: Record, *, origin: Origin, warning: str | None = None) -> None:
        if not self._subscribers.any:
            return
        op = record.history[-1].op if record.history else "seed"
        self._subscribers.tell(RecordChanged(record.uid, record.name, record.revision, op, origin, warning))
