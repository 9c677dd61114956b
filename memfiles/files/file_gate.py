"""The secrets gate of memory files: judges each change by its result, and erases what a redaction takes out.

The rules this file guards: a decision that the gate has not seen is not committed; and what a record lost is nowhere
else under the directory when the call returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal
from weakref import ref

from msgspec.structs import replace

from memfiles.errors import MemfilesError, MirrorRefused
from memfiles.files.user_files import FilesOfUser
from memfiles.records import late_logger as _log
from memfiles.records.declared_metadata import decode_file
from memfiles.records.entry import Entry
from memfiles.records.file_changes import Decision, Redaction, new_part, with_warnings, without_credential
from memfiles.records.history import contents, has_lost, reverse
from memfiles.records.keys import ENTRIES, WORKSPACE, is_file_path, record_path, uid_of
from memfiles.records.record import NOBODY, Actor, Change, Record, Stamp, stamp_of
from memfiles.records.redactions import NONCE_BYTES, piece_of
from memfiles.secrets.gate import Gated, LabelGate, Policy, Scanner, check_label, judge_change

if TYPE_CHECKING:
    from memfiles.files.manager import MemoryManager
    from memfiles.storage.events import RecordChanged
    from memfiles.storage.repository import RecordRepository
    from memfiles.sync.mirror import Mirror

Given = Literal["part", "all", "nothing"]
"""How much of a result the caller gave: the new part, all of it, or nothing, when a credential is only a warning."""

_ANY_ENTRY = f"{ENTRIES}/{WORKSPACE}/any.json"  # a mirror that takes none keeps the content of memory files only


class LostTexts(dict[str, tuple[int, tuple[str, ...]]]):
    """By path, the revision of a record from which on it lacks these texts, and the texts."""


class FileGate:
    """Judges changes of memory files, and the ``labels`` of who makes them. ``allowed`` are the exceptions by uid."""

    def __init__(self, policy: Policy, scan: Scanner | None) -> None:
        self.policy = policy
        self.allowed: Mapping[str, Collection[str]] = {}
        self.labels = LabelGate(policy, scan)
        self._scan = scan

    def judged(
        self, record: Record, made: Decision, *, stamp: Stamp, lost: LostTexts, given: Given = "part"
    ) -> Decision:
        """The decision as it may be committed; texts that a redaction removes from ``record`` are added to ``lost``."""
        if made.record is None or self.policy == "off":
            return made
        content = made.record.content
        policy: Policy = "warn" if given == "nothing" else self.policy
        change, is_given = made.record.history[-1], given == "part"
        judged = self._judge(record.uid, record.content, change, content, is_given=is_given, policy=policy)
        if judged.text != content:
            nonces = iter(partial(os.urandom, NONCE_BYTES), b"")
            made = without_credential(record, made, stamp, content=judged.text, lost=judged.lost, nonces=nonces)
        if judged.lost:
            path = record_path(record.uid)
            lost[path] = made.receipt.revision, (*lost.get(path, (0, ()))[1], *judged.lost)
        return replace(made, receipt=with_warnings(made.receipt, judged.warnings)) if judged.warnings else made

    def stamp(self, by: Actor | None, call_id: str | None, expected_revision: int | None, *, at: str) -> Stamp:
        """The stamp of a change; ``InvalidArgument`` or ``SecretRefused`` for labels that no history may hold."""
        stamp = stamp_of(by, at=at, call_id=call_id, expected_revision=expected_revision)
        who = stamp.by
        if who is not NOBODY:
            check_label(who.actor, what="actor")
            self.labels.check({"agent": who.agent, "run": who.session, "call_id": who.call, "actor": who.actor})
        return stamp

    def look_at_hand_edits(self, manager: MemoryManager) -> None:
        """Warn of credentials that changes by hand bring, for as long as somebody holds the manager."""
        known = ref(manager)

        def look(event: RecordChanged) -> None:
            manager = known() if event.op == event.origin == "external" and is_file_path(event.path) else None
            with suppress(MemfilesError):  # it is gone again
                if manager is not None and (record := _changed(manager, event)) is not None:
                    manager.gate.look_at_hand_edit(record, event)

        manager.subscribers.add(look, foreign_only=True)

    def look_at_hand_edit(self, record: Record, event: RecordChanged) -> None:
        """Warn of a credential that a change by hand brought to ``record``."""
        for change, after in contents(record) if self.policy != "off" else ():
            if change.revision == event.revision and change.op == "external":
                before = "" if change.opaque else reverse(after, change).decode()
                whole = replace(change, offset=0, old="", bytes=len(after)) if change.opaque else change
                found = self._judge(event.uid, before, whole, after.decode(), is_given=False, policy="warn")
                name = event.name if uid_of(event.path) is not None else f"{event.name}, in {event.path}"
                for warning in found.warnings:
                    _log.tell(f"{name}: a change by hand {warning}")

    def _judge(self, uid: str, before: str, change: Change, after: str, *, is_given: bool, policy: Policy) -> Gated:
        start, end = new_part(before, change, after)
        allow = self.allowed.get(uid, ())
        return judge_change(
            before, after, start=start, end=end, is_given=is_given, policy=policy, allow=allow, scan=self._scan
        )


def _changed(manager: MemoryManager, event: RecordChanged) -> Record | None:
    """The memory file that was changed, of all users or of one."""
    if uid_of(event.path) is not None or manager.users is None:
        return manager.snapshot(event.uid)
    return found.text if isinstance(found := manager.users.opened().repository.current(event.path), Entry) else None


def note(manager: MemoryManager, revisions: Mapping[str, int]) -> None:
    """Note records that are to lose text, so that the next start finishes that; a failure is only logged."""
    try:
        manager.place.notes.note_forgets(revisions)
    except MemfilesError as error:
        _log.warning("redact the text again if this process is killed meanwhile, as that was not noted: %s", error)


def finish(manager: MemoryManager) -> None:
    """Finish the redactions of killed processes, except in files of users; a failure is only logged."""
    try:
        noted = manager.place.notes.noted_forgets()
    except MemfilesError as error:
        _log.warning("redacted text may not be removed everywhere yet: %s", error)
        return
    for path, revision in noted.items():
        try:
            if uid_of(path) is not None:
                _finish_one(manager, path, revision)
        except MemfilesError as error:
            _log.warning("%s: redacted text may not be removed everywhere; the next start tries again: %s", path, error)


def _finish_one(manager: MemoryManager, path: str, revision: int) -> None:
    store = manager.records
    if (found := store.find(path)) is None:
        manager.place.notes.strike_forgets({path: revision + 1})
    elif has_lost(record := decode_file(found[0], uid=uid_of(path) or ""), after=revision):
        store.kept.remove(path, holding=record.redactions)
        _scrub(manager, {path: record.revision}, store.scrub)
        manager.place.notes.strike_forgets({path: record.revision})


def erase(
    manager: MemoryManager,
    lost: Mapping[str, tuple[int, tuple[str, ...]]],
    records: RecordRepository[Record] | FilesOfUser,
) -> int:
    """Remove lost texts from everything but ``records``; returns how many kept copies held one.

    1. delete the kept copies that hold one, or a text of an earlier redaction whose process may have been killed;
    2. scrub the sync ledger; 3. scrub every process's journal and, for the file of a user, the index of entries;
    4. strike the notes of these redactions, unless earlier pieces could not be read. A later redaction, which may run
    in another process, has a note of its own.
    """
    if not lost:
        return 0
    scrub, strike = manager.records.scrub, manager.place.notes.strike_forgets
    if isinstance(records, FilesOfUser):
        lost, users = {records.path(uid_of(path) or ""): gone for path, gone in lost.items()}, records.files.opened()
        scrub, strike = partial(users.release, list(lost)), users.strike
    removed, unread = 0, set[str]()
    for path, (_, texts) in lost.items():
        pieces = [piece_of(text.encode(), known=(), nonce=os.urandom(NONCE_BYTES)) for text in texts]
        try:
            pieces += records.current(path).redactions
        except MemfilesError as error:
            unread.add(path)
            _log.warning("what earlier redactions took out may be in kept copies until the next start: %s", error)
        removed += manager.records.kept.remove(path, holding=pieces)
    revisions = {path: revision for path, (revision, _) in lost.items()}
    _scrub(manager, revisions, scrub)
    try:
        strike({path: revision for path, revision in revisions.items() if path not in unread})
    except MemfilesError as error:
        _log.warning("it is redacted, and the next start does so once more: %s", error)
    return removed


def _scrub(manager: MemoryManager, revisions: Mapping[str, int], scrub: Callable[[], None]) -> None:
    try:
        from memfiles.sync import ledger  # late: few changes take out what was there

        ledger.scrub(manager.place, revisions)
    finally:
        scrub()


def check_carried(redaction: Redaction, *, mirror: Mirror | None) -> None:
    """``MirrorRefused`` after a redaction that the mirror cannot carry to other machines."""
    is_changed = redaction.in_content or redaction.in_history
    if not is_changed or mirror is None:
        return
    from memfiles.sync.mirror import takes  # late: only workflows with a mirror need it

    if not takes(mirror, _ANY_ENTRY):
        raise MirrorRefused(
            f"{redaction.receipt.name}: the text is gone here, and from the mirror's copy once that is pushed; but "
            f"this mirror keeps content only, so other machines do not learn of the redaction and can bring the text "
            f"back: redact it on each of them as well, or use another kind of mirror"
        )
