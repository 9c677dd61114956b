"""One record and its copy in the mirror, brought together.

The rules this file guards: nothing is put but on top of a version that was seen, so that no one's change is
overwritten; what is put is noted first, and put again as it was until its fate is known, so that a lost answer neither
loses nor doubles anything; and every step may be the last one before a kill.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from memfiles.errors import MirrorConflict, MirrorUnavailable, RecordCorrupt
from memfiles.records.record import FORMAT, digest
from memfiles.storage.atomic import is_settled
from memfiles.sync.downloads import Newcomers
from memfiles.sync.ledger import Acknowledged, Bookkeeping, LedgerRow, Sent
from memfiles.sync.merge.merge_files import ConflictPolicy
from memfiles.sync.merge.record_types import MergeContext, copies_of
from memfiles.sync.mirror import ABSENT, Mirror, Stored, equals
from memfiles.sync.pack import remove_pack
from memfiles.sync.replica import Replica, Resolution
from memfiles.sync.replica_sides import LocalCopy
from memfiles.sync.reports import OUTCOMES, Outcome

_ROUNDS = 50
_log = logging.getLogger("memfiles.sync")


@dataclass(frozen=True, slots=True)
class _Decided:
    """What a merge comes to; ``settled`` is the digest of a record that need not be pushed.

    ``buries`` is the revision before which nothing of the record may be kept, ``is_outlived`` says that this holds for
    the mirror's copy as well.
    """

    resolution: Resolution
    outcome: Outcome
    settled: str | None = None
    note: str | None = None
    buries: int | None = None
    is_outlived: bool = False


class Reconciler:
    """Brings records and their copies together, one at a time; the caller holds the record's turn."""

    def __init__(
        self,
        replica: Replica,
        *,
        mirror: Mirror,
        book: Bookkeeping,
        on_conflict: ConflictPolicy,
        now: Callable[[], str],
    ) -> None:
        """``on_conflict`` says whose text wins where two changes cannot be merged."""
        self.newcomers = Newcomers(replica, mirror=mirror, book=book)
        self._replica = replica
        self._mirror = mirror
        self._book = book
        self._on_conflict = on_conflict
        self._now = now
        self._complaint = ""

    def bring_together(self, path: str, *, look: bool) -> Outcome:
        """Make the record at ``path`` and its copy equal; ``look`` at the copy even if nothing changed here.

        ``MirrorUnavailable``, ``MirrorConflict`` (others are always faster), ``StorageFailed``: done in part at most,
        and to be done again.
        """
        outcome: Outcome = "equal"
        for _ in range(_ROUNDS):
            local = self._replica.read(path)
            if local is None:
                return max(outcome, self.newcomers.bring_one(path), key=OUTCOMES.index)
            if local.is_private:
                return outcome
            note = self._book.find(path)
            if look or local.is_provisional:
                look = False
                step = self._meet(path, local, note, self._mirror.get(path))
            elif note.sent is None and note.digest == local.digest:
                if is_settled(local.signature):
                    self._book.settle({path: local.signature})
                return outcome
            else:
                step = self._put(path, local, note)
            outcome = max(outcome, step, key=OUTCOMES.index)
            if step == "pushed" and note.sent is None:
                return outcome  # what changed meanwhile waits for a quiet of its own
        raise MirrorConflict(f"{path} changed {_ROUNDS} times while it was brought together with the mirror's copy")

    def _put(self, path: str, local: LocalCopy, note: LedgerRow) -> Outcome:
        """Put what was sent before without an answer, or else the record as it is now."""
        sent, copies = note.sent, copies_of(path)
        if sent is None:
            if note.body and copies.is_overtaken(local.record, by=(known := copies.decode(note.body, path=path))):
                return self._merge(path, Stored(note.body, note.version or ""), known, note)  # put back from a backup
            sent = Sent(local.body, note.version)
            if not self._book.sending(path, sent.body, version=sent.version, revision=local.record.revision):
                self._let_back(path, local)
                return "equal"  # redacted meanwhile
        try:
            version = self._mirror.put(path, sent.body, when=equals(sent.version) if sent.version else ABSENT)
        except MirrorConflict:
            return self._meet(path, local, note, self._mirror.get(path))
        if copies.is_dead(local.record) and note.body and not copies.is_dead(copies.decode(note.body, path=path)):
            self._bury(path, local.record.revision)  # whoever forgot it was killed before that
        self._acknowledge(path, Stored(sent.body, version), digest(sent.body), local)
        self.remove_stale_pack()
        return "pushed"

    def _bury(self, path: str, revision: int) -> None:
        """Have nothing beside the record hold what was forgotten: no note, no kept copy, no pack and no journal."""
        self._book.bury(path, revision=revision)
        self._replica.remove_copies([path])

    def _let_back(self, path: str, refused: LocalCopy) -> None:
        """Let a record be pushed that a person put back as it was before a redaction."""
        again = self._replica.read(path)
        if again is not None and again.body == refused.body:
            self._book.forget_redaction(path)

    def remove_stale_pack(self) -> None:
        """After a redaction the pack holds what was taken out; what cannot be removed now is tried again later."""
        if self._book.must_remove_pack():
            try:
                remove_pack(self._mirror)
            except MirrorUnavailable as error:
                if str(error) != self._complaint:  # said once, however often it is tried
                    self._complaint = str(error)
                    _log.warning("the mirror's pack may hold a redacted text and cannot be removed: %s", error)
            else:
                self._complaint = ""
                self._book.pack_is_removed()

    def _meet(self, path: str, local: LocalCopy, note: LedgerRow, stored: Stored | None) -> Outcome:
        """Decide over what the mirror holds now; the next round does the rest."""
        if stored is None:
            self._book.gone(path)
            self._replica.confirm(path)
            return "equal"
        if stored.body == local.body or (note.sent and stored.body == note.sent.body):
            self._acknowledge(path, stored, digest(stored.body), local)
            return "equal"
        if stored.body == note.body:
            self._acknowledge(path, stored, note.digest, local)
            return "equal"
        try:
            remote = copies_of(path).decode(stored.body, path=path)
        except RecordCorrupt as error:
            return self._replace_unusable(path, stored, local, why=f"the mirror's copy cannot be used: {error}")
        if copies_of(path).says_no_more(remote, than=local.record):
            self._acknowledge(path, stored, local.digest, local)
            return "equal"
        return self._merge(path, stored, remote, note)

    def _merge(self, path: str, stored: Stored, remote: Any, note: LedgerRow) -> Outcome:
        """Make of the record what both copies say; what the mirror lacks then is put in the next round.

        Long edits take seconds to merge: that is done without the record's lock, and again if it changed meanwhile.
        """
        self._book.find(path)  # raises if it was closed while the mirror was asked: nothing changes any more
        for is_last_try in (False, False, False, True):
            seen = self._replica.current(path)
            decided = self._decided(path, seen, remote, note)
            if decided.buries is not None:
                self._bury(path, decided.buries)
            is_outdated = False

            def decide(current: Any) -> Resolution:
                nonlocal decided, is_outdated
                is_outdated = current != seen and not is_last_try  # noqa: B023 (called in this very round)
                if current != seen and is_last_try:  # noqa: B023
                    decided = self._decided(path, current, remote, note)
                return Resolution(None) if is_outdated else decided.resolution

            self._replica.change(path, decide)
            if not is_outdated:
                break
        if decided.note is not None:
            _log.warning("%s: %s", path, decided.note)
        if stored.version:
            body = None if note.is_redacted or decided.is_outlived else stored.body  # it may hold what was taken out
            self._book.acknowledge(Acknowledged(path, stored.version, body, remote.revision, digest=decided.settled))
        return decided.outcome

    def _decided(self, path: str, local: Any, remote: Any, note: LedgerRow) -> _Decided:
        """What becomes of the record, given the copies that the mirror is known to have had."""
        copies, at = copies_of(path), self._now()
        sent = note.sent.body if note.sent else None
        known = [copies.decode(body, path=path) for body in (sent, note.body) if body]
        settled_before = {note.digest, digest(sent) if sent else None}
        is_settled = settled_before == {None} or digest(copies.encode(local)) in settled_before
        met = copies.merge(local, remote, meeting=MergeContext(known, is_settled, self._on_conflict, at))
        settled = None if met.is_news else digest(copies.encode(met.record))
        buries = met.record.revision if met.is_buried or met.is_outlived else None
        what = partial(_Decided, settled=settled, note=met.note, buries=buries, is_outlived=met.is_outlived)
        if met.record == local:
            return what(Resolution(None), "equal")
        if met.record.revision == local.revision:
            return _Decided(Resolution(copies.confirmed(local, at=at)), "equal")
        if met.record.revision <= remote.revision:
            return what(Resolution(met.record, is_ours=False), "pulled")
        why = met.note or f"the {self._on_conflict} copy won where both had changed the same lines"
        outcome: Outcome = "merged" if met.loser is None else "conflict"
        return what(Resolution(met.record, loser=met.loser, why=why), outcome)

    def _replace_unusable(self, path: str, stored: Stored, local: LocalCopy, *, why: str) -> Outcome:
        """Have the next round put the local record over a copy that is no record, once it was read so twice."""
        if _says_another_format(stored.body):
            raise RecordCorrupt(f"{why}; it says it has a format that this version does not know, and is left alone")
        if self._mirror.get(path) != stored:
            return "equal"  # it was read badly, or has changed: met again in the next round
        self._replica.keep_unusable(path, stored.body, why=why)
        _log.warning("%s: %s; it is kept in quarantine here and replaced there", path, why)
        self._book.acknowledge(Acknowledged(path, stored.version, b"", local.record.revision))
        return "equal"

    def _acknowledge(self, path: str, stored: Stored, settled: str | None, local: LocalCopy) -> None:
        """The mirror holds this copy, and a local record with the digest ``settled`` needs no push."""
        copies = copies_of(path)
        is_other = stored.body != local.body
        revision = copies.decode(stored.body, path=path).revision if is_other else local.record.revision
        signature = local.signature if settled == local.digest and is_settled(local.signature) else None
        self._book.acknowledge(Acknowledged(path, stored.version, stored.body, revision, settled, signature))


def _says_another_format(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    name = found.get("format") if isinstance(found, dict) else None
    return isinstance(name, str) and name.startswith("memfiles/") and name != FORMAT
