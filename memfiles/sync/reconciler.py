"""Reconciliation of one record with its copy in the mirror: a pure decision, and the steps that carry it out.

The rules this file guards: a record is put only over a version that was seen, so nobody's change is overwritten; a put
is noted in the ledger first and repeated unchanged until its outcome is known, so a lost answer neither loses nor
doubles anything; and a kill is safe after every step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct

from memfiles.errors import LockTimeout, MirrorConflict, MirrorUnavailable, RecordCorrupt
from memfiles.records.entry import Entry
from memfiles.records.keys import id_path, is_id_path
from memfiles.records.marks import AnyRecord, Mark
from memfiles.records.record import Record, digest
from memfiles.records.redactions import lacking
from memfiles.storage import quarantine
from memfiles.storage.atomic import is_settled
from memfiles.sync.downloads import EntryDownloads
from memfiles.sync.ledger import Acknowledged, Ledger, LedgerRow
from memfiles.sync.merge.merge_entries import MarksById, fate, is_same, place_of
from memfiles.sync.merge.merge_files import ConflictPolicy
from memfiles.sync.merge.record_types import (
    MergeContext,
    confirm,
    decode_copy,
    encode_copy,
    has_same_content_only,
    is_overtaken,
    merge_copies,
    pieces_in,
)
from memfiles.sync.mirror import ABSENT, Mirror, Stored, equals
from memfiles.sync.pack import remove_pack
from memfiles.sync.replica import OUTCOMES, LocalCopy, Outcome, Replica, Resolution

_ROUNDS = 50
_log = logging.getLogger("memfiles.sync")


class Push(Struct, frozen=True):
    """Put ``body`` over ``version`` (None: where no copy is)."""

    body: bytes
    version: str | None


class Acknowledge(Struct, frozen=True):
    """Note that the mirror has ``stored``; a local record with this ``digest`` needs no push."""

    stored: Stored
    digest: str | None


class Merge(Struct, frozen=True):
    """Merge the local record with ``remote``, the record in ``stored``."""

    stored: Stored
    remote: AnyRecord


class Replace(Struct, frozen=True):
    """Put the local record over a copy that is not a record; ``why`` says what is wrong with it."""

    stored: Stored
    why: str


Step: TypeAlias = Literal["wait", "read", "confirm"] | Push | Acknowledge | Merge | Replace
Unread: TypeAlias = Literal["unread"]


def next_step(
    path: str,
    local: LocalCopy,
    row: LedgerRow,
    stored: Stored | None | Unread = "unread",
    *,
    look: bool = False,
    stands: bool = False,
) -> Step:
    """The next step for a record, given its ledger row and, if it was read, its copy in the mirror (None: no copy).

    Wait: do nothing. Confirm: note that the mirror has no copy, and make a provisional record an ordinary one.
    ``stands``: a merge left the local record as it is.

    | copy | case | step |
    |---|---|---|
    | unread | ``look``, the record is provisional, or a copy with an empty version is to be replaced | read |
    | unread | a put is under way whose answer was lost | push the same again |
    | unread | the ledger has this digest | wait |
    | unread | it lacks changes of the copy in the ledger (it was put back from a backup), and not ``stands`` | merge |
    | unread | any other | push |
    | none | | confirm |
    | read | it equals the local record, or what was last sent | acknowledge |
    | read | it is the one in the ledger | acknowledge |
    | read | it is not a record | replace |
    | read | it has the same content and no history, from a mirror that keeps content only | acknowledge |
    | read | any other | merge |
    """
    if stored == "unread":
        if look or local.is_provisional or (row.version == "" and (row.sent or row.digest != local.digest)):
            return "read"
        if row.sent is not None:
            return Push(row.sent.body, row.sent.version)
        if row.digest == local.digest:
            return "wait"
        if row.body and not stands and is_overtaken(local.record, by=(known := decode_copy(row.body, path=path))):
            return Merge(Stored(row.body, row.version or ""), known)
        return Push(local.body, row.version)
    if stored is None:
        return "confirm"
    if stored.body == local.body or (row.sent and stored.body == row.sent.body):
        return Acknowledge(stored, digest(stored.body))
    if stored.body == row.body:
        return Acknowledge(stored, row.digest)
    try:
        remote = decode_copy(stored.body, path=path)
    except RecordCorrupt as error:
        return Replace(stored, why=f"the mirror's copy cannot be used: {error}")
    if has_same_content_only(remote, local.record):
        return Acknowledge(stored, local.digest)
    return Merge(stored, remote)


def plan_merge(
    path: str,
    local: AnyRecord,
    remote: AnyRecord,
    row: LedgerRow,
    *,
    on_conflict: ConflictPolicy,
    at: str,
    marks: MarksById | None = None,
) -> Resolution:
    """The resolution for the local record, given the mirror's copy and the copies that the mirror had before."""
    sent = row.sent.body if row.sent else None
    known = [decode_copy(body, path=path) for body in (sent, row.body) if body]
    settled_before = {row.digest, digest(sent) if sent and _may_include(remote, known[0]) else None}
    is_settled = (sent is None and row.digest is None) or digest(encode_copy(local)) in settled_before
    merged = merge_copies(local, remote, context=MergeContext(known, is_settled, on_conflict, at, marks or {}))
    record = merged.record
    if record != local and record.revision == local.revision:  # the mirror lacks only that it is confirmed
        return Resolution(confirm(local, at=at), outcome="equal")
    outcome: Outcome
    if record == local:
        outcome = "equal"
    elif record.revision <= remote.revision:
        outcome = "pulled"
    else:
        outcome = "merged" if merged.loser is None else "conflict"
    return Resolution(
        None if outcome == "equal" else record,
        outcome=outcome,
        is_ours=outcome != "pulled",
        loser=merged.loser if outcome == "conflict" else None,
        lost=merged.lost,
        why=merged.note or f"the {on_conflict} copy won where both had changed the same lines",
        note=merged.note,
        settled=None if merged.is_news else digest(encode_copy(record)),
        buries=record.revision if merged.forgets_local or merged.forgets_remote else None,
        drops_copy=merged.forgets_remote or bool(lacking(pieces_in(remote), pieces_in(record))),
        redacts=lacking(pieces_in(local), pieces_in(record)),
    )


def _may_include(remote: AnyRecord, sent: AnyRecord) -> bool:
    """Whether the mirror's copy can include the sent record: its version vector has exactly that last revision.

    After a restore from a backup, the mirror is beyond that revision, by changes that are unknown here.
    """
    return any(remote.origins.get(origin) == at == sent.revision for origin, at in sent.origins.items())


@dataclass(slots=True)
class Reconciler:
    """Reconciles records with their copies, one at a time; the caller holds the record's turn.

    ``on_conflict`` says whose text wins where two changes cannot be merged. ``soon`` is called with the paths of other
    records that are to be pushed, ``note`` with what was done to others.
    """

    replica: Replica
    mirror: Mirror
    ledger: Ledger
    downloads: EntryDownloads
    on_conflict: ConflictPolicy
    now: Callable[[], str]
    soon: Callable[[str], None] = lambda path: None
    note: Callable[[str, Outcome], None] = lambda path, outcome: None
    last_warning: str = ""

    def reconcile(self, path: str, *, look: bool) -> Outcome:
        """Make the record at ``path`` and its copy equal; ``look`` at the copy even if nothing changed here.

        ``MirrorUnavailable``, ``MirrorConflict`` (others are always faster), ``StorageFailed``: done in part at most,
        and to be repeated.
        """
        outcome: Outcome = "equal"
        merged = ""
        for _ in range(_ROUNDS):
            local = self.replica.read(path)
            if local is None:
                return _worse(outcome, "pulled" if self.downloads.bring_one(path) else "equal")
            if local.is_private:
                return outcome
            row = self.ledger.find(path)
            if self._push_ids_first(local, row):
                continue
            step = next_step(path, local, row, look=look, stands=local.digest == merged)
            if step == "read":
                look = False
                step = next_step(path, local, row, self.mirror.get(path))
            if step == "wait":
                if is_settled(local.signature):
                    self.ledger.settle({path: local.signature})
                return outcome
            merged = local.digest if isinstance(step, Merge) else merged
            done = self._carry_out(step, path, local, row)
            outcome = _worse(outcome, done)
            if done == "pushed" and row.sent is None:
                return outcome  # a change made meanwhile waits for a quiet of its own
        raise MirrorConflict(f"{path} changed {_ROUNDS} times while it was reconciled with the mirror's copy")

    def remove_stale_pack(self) -> None:
        """Remove the pack after a redaction, as it holds the redacted text; on failure it is tried again later."""
        if (state := self.ledger.meta.state()).must_remove_pack:
            try:
                remove_pack(self.mirror)
            except MirrorUnavailable as error:
                if str(error) != self.last_warning:  # logged once, however often it is tried
                    self.last_warning = str(error)
                    _log.warning("the mirror's pack may hold a redacted text and cannot be removed: %s", error)
            else:
                self.last_warning = ""
                self.ledger.meta.pack_is_removed(redactions=state.redactions)

    def _carry_out(self, step: Step, path: str, local: LocalCopy, row: LedgerRow) -> Outcome:
        """Carry out one step; the next round does the rest."""
        match step:
            case Push():
                return self._push(step, path, local, row)
            case Merge():
                return self._merge(step, path, local, row)
            case "confirm":
                self.ledger.gone(path)
                self._look_up(local.record.mortal_ids if isinstance(local.record, Entry) else ())
                self.replica.change(path, lambda now: Resolution(confirm(now, at=self.now()), "equal"))
            case Acknowledge():
                self._acknowledge(path, step.stored, step.digest, local)
            case Replace():
                self._replace(step, path, local)
            case "wait" | "read":
                pass
            case _:
                assert_never(step)
        return "equal"

    def _push(self, step: Push, path: str, local: LocalCopy, row: LedgerRow) -> Outcome:
        """1. Note the body in the ledger; 2. put it; 3. acknowledge it; 4. remove a pack that holds redacted text."""
        revision = local.record.revision
        if row.sent is None and not self.ledger.sending(path, step.body, version=step.version, revision=revision):  # 1
            if (again := self.replica.read(path)) is None or again.body != local.body:
                return "equal"  # redacted meanwhile
            step_now = next_step(path, local, row, self.mirror.get(path))  # a person put it back as it was before
            self.ledger.forget_redaction(path)
            return self._carry_out(step_now, path, local, row)
        try:
            version = self.mirror.put(path, step.body, when=equals(step.version) if step.version else ABSENT)  # 2
        except MirrorConflict:  # perhaps with our own copy, put twice: the row that is read now has what was sent
            row = self.ledger.find(path)
            return self._carry_out(next_step(path, local, row, self.mirror.get(path)), path, local, row)
        self._acknowledge(path, Stored(step.body, version), digest(step.body), local)  # 3
        self.remove_stale_pack()  # 4
        return "pushed"

    def _merge(self, step: Merge, path: str, local: LocalCopy, row: LedgerRow) -> Outcome:
        """Merge both copies into the record; the next round pushes what the mirror lacks.

        Long edits take seconds to merge. So they are merged without the record's lock, and again if it changed
        meanwhile; the fourth time under the lock.
        """
        self.ledger.find(path)  # raises if the ledger was closed meanwhile: nothing may change any more
        if not self._can_merge(local, step.remote):
            return "equal"
        tries = (self._try_merge(step.remote, path, row, is_last_try=last) for last in (False, False, False, True))
        resolution = next(filter(None, tries), None)
        if resolution is None:
            return "equal"  # the record is gone
        if resolution.buries is not None or resolution.redacts:
            self.ledger.meta.note("unwiped", "yes")  # once more, as it may have been wiped before the change was made
        if resolution.note is not None:
            _log.warning("%s: %s", path, resolution.note)
        if step.stored.version:
            body = None if resolution.drops_copy else step.stored.body  # which may hold redacted or forgotten text
            self.ledger.acknowledge(
                Acknowledged(path, step.stored.version, body, step.remote.revision, digest=resolution.settled)
            )
        if isinstance(local.record, Mark) and local.record.leads:  # another machine moved it as well
            found = self.replica.read(local.record.target)
            if found is not None and isinstance(found.record, Entry):
                self._move_on(found.record)
        return resolution.outcome

    def _try_merge(self, remote: AnyRecord, path: str, row: LedgerRow, *, is_last_try: bool) -> Resolution | None:
        """Merge once; None if the record changed meanwhile, or is gone."""
        seen = self.replica.current(path)
        planned = self._clean(path, self._plan(path, seen, remote, row))

        def decide(current: AnyRecord) -> Resolution | None:
            if current == seen:
                return planned
            return self._clean(path, self._plan(path, current, remote, row)) if is_last_try else None

        return self.replica.change(path, decide)

    def _clean(self, path: str, planned: Resolution) -> Resolution:
        """Remove what the resolution takes away from the ledger and from kept copies, before it is applied."""
        if planned.buries is not None:
            self.ledger.bury(path, revision=planned.buries)
        if planned.redacts and planned.record is not None:
            self.ledger.bury(path, revision=planned.record.revision)  # the next start wipes what a kill leaves here
            self.replica.home.kept.remove(path, holding=planned.redacts)
        return planned

    def _plan(self, path: str, local: AnyRecord, remote: AnyRecord, row: LedgerRow) -> Resolution:
        marks = self.replica.marks_of(
            {id for copy in (local, remote) if not isinstance(copy, Record) for id in copy.mortal_ids}
        )
        return plan_merge(path, local, remote, row, on_conflict=self.on_conflict, at=self.now(), marks=marks)

    def _push_ids_first(self, local: LocalCopy, row: LedgerRow) -> bool:
        """Push the id records of an entry before the entry; returns whether it turned out to be forgotten or moved.

        A mark waits until the entry that left is pushed, so that it is always somewhere in the mirror.
        """
        record = local.record
        if isinstance(record, Record) or is_id_path(record.path) or row.digest == local.digest:
            return False
        if isinstance(record, Entry) and row.version is None:
            self._look_up({record.epoch, *record.authors} - {""})  # these users may have been forgotten elsewhere
        self._look_up(self.replica.marks_of(record.mortal_ids), look=False)
        known = self.replica.marks_of(record.mortal_ids)
        if isinstance(record, Mark):
            for mark in known.values():
                if mark.leads and mark.target != record.path and self._is_dirty(mark.target):
                    raise LockTimeout(f"{record.path} waits until {mark.target} is pushed")
        elif fate(record, None, known) == "forgotten":
            self.replica.release_forgotten()
            return True
        return isinstance(record, Entry) and self._move_on(record)

    def _is_dirty(self, path: str) -> bool:
        local = self.replica.read(path)
        return local is not None and not local.is_private and self.ledger.find(path).digest != local.digest

    def _look_up(self, ids: Iterable[str], *, look: bool = True) -> None:
        """Reconcile the id records of these entries; without ``look``, only push them."""
        for path in map(id_path, ids):
            with self.replica.turn(path):
                self.note(path, self.reconcile(path, look=look))

    def _can_merge(self, local: LocalCopy, remote: AnyRecord) -> bool:
        """Whether the two copies can be merged at this path; a copy that belongs elsewhere is moved there first.

        Two copies of one entry always can. Otherwise the mirror is asked what became of the entries of both.
        """
        here = local.record
        if isinstance(here, Record) or isinstance(remote, Record) or is_id_path(here.path) or is_same(here, remote):
            return True
        self._look_up({id for copy in (here, remote) if isinstance(copy, Entry) for id in copy.mortal_ids})
        if isinstance(remote, Entry) and fate(remote, here, {}) == "here":
            self._move_on(remote, is_local=False)
        return not (isinstance(here, Entry) and fate(here, remote, {}) == "here" and self._move_on(here))

    def _move_on(self, entry: Entry, *, is_local: bool = True) -> bool:
        """Move a copy of an entry, and copies joined with it, to its present path; returns whether that is elsewhere.

        The mirror is asked first about another entry at that path: it may have been forgotten.
        """
        known = self.replica.marks_of(entry.mortal_ids)
        if not known or (found := fate(entry, None, known)) == "forgotten":
            return False
        there = self.replica.read(place.target) if (place := place_of(entry, known)) is not None else None
        if there is not None and isinstance(there.record, Entry) and not is_same(entry, there.record):
            self._look_up(there.record.mortal_ids)
        mirrored = self.downloads.copy_of
        for path in self.replica.place(entry, is_local=is_local, on_conflict=self.on_conflict, mirrored=mirrored):
            self.soon(path)
        return found == "elsewhere"

    def _replace(self, step: Replace, path: str, local: LocalCopy) -> None:
        """Allow the next round to overwrite a copy that is not a record, once two reads returned the same bytes."""
        if self.mirror.get(path) != step.stored:
            return  # it was read badly, or has changed: the next round reads it again
        self.replica.keep(path, step.stored.body, why=step.why, folder=quarantine.FOLDER)
        _log.warning("%s: %s; it is kept in quarantine here and replaced in the mirror", path, step.why)
        self.ledger.acknowledge(Acknowledged(path, step.stored.version, b"", local.record.revision))

    def _acknowledge(self, path: str, stored: Stored, settled: str | None, local: LocalCopy) -> None:
        """Note that the mirror has this copy, and that a local record with the digest ``settled`` needs no push."""
        is_other = stored.body != local.body
        revision = decode_copy(stored.body, path=path).revision if is_other else local.record.revision
        signature = local.signature if settled == local.digest and is_settled(local.signature) else None
        self.ledger.acknowledge(Acknowledged(path, stored.version, stored.body, revision, settled, signature))


def _worse(one: Outcome, other: Outcome) -> Outcome:
    return max(one, other, key=OUTCOMES.index)
