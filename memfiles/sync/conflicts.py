"""Conflicts: the losing copies that merges kept, and how the operator of a directory settles each.

The rules this file guards: a copy with text that was redacted or forgotten is never shown nor taken back; a text is
taken as a change of its own, through the gates that every change passes; and a copy is removed once that is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from memfiles.errors import InvalidArgument, ReadOnly, RecordCorrupt, RevisionConflict
from memfiles.records.entry import Entry
from memfiles.records.keys import check_whole, id_path
from memfiles.records.lineage import text_of
from memfiles.records.marks import AnyRecord, Mark
from memfiles.records.record import Actor, Record, check_text
from memfiles.records.redactions import reveal
from memfiles.storage import quarantine
from memfiles.storage.atomic import storage_failure
from memfiles.storage.events import AuditEvent, AuditLog
from memfiles.storage.home import KeptConflicts, MemoryPlace, home_of
from memfiles.storage.quarantine import KeptCopy, MergeSide
from memfiles.storage.record_store import Records
from memfiles.sync.merge.merge_entries import fate, place_of
from memfiles.sync.merge.record_types import decode_copy, pieces_in

ConflictState = Literal["open", "contained", "redacted", "forgotten", "gone", "unreadable"]
Taken = Literal["record", "copy"]
_BARRED = {
    "redacted": "it holds text that was redacted since",
    "forgotten": "its entry was forgotten",
    "gone": "its record is not there any more",
    "unreadable": "it cannot be read",
}
Rewrite = Callable[[Record | Entry, str, Actor | None], int]
"""Makes a text the content of a record that is still at its revision, and returns the new revision."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A losing copy. Sizes are UTF-8 bytes of content; ``record_bytes`` is None if the record is not there any more.

    ``path`` is that of the copy, ``record`` that of its record, ``name`` the file's name or the entry's key, ``user``
    the person whose it is ("" if it is nobody's), and ``revision`` that of the record now. ``lost`` is the side whose
    text lost: ``local`` or ``remote``, None if unknown.

    ``state``: ``open`` (the copy has ``new_lines`` that the record lacks), ``contained`` (it has none), ``redacted``,
    ``forgotten``, ``gone`` (there is no such record) or ``unreadable``; only the first two can be taken. ``content`` is
    the copy's text then, else "", and ``current`` that of the record.
    """

    path: str
    record: str
    name: str
    level: str
    at: str
    why: str
    lost: MergeSide | None
    state: ConflictState
    size_bytes: int = 0
    record_bytes: int | None = None
    revision: int | None = None
    new_lines: int = 0
    content: str = field(default="", repr=False)
    user: str = ""
    current: str = field(default="", repr=False)

    @property
    def is_of_use(self) -> bool:
        """Whether the text has anything that the record lacks, and may be taken."""
        return self.state == "open"

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of all fields but the contents."""
        shown = {name: value for name, value in asdict(self).items() if name not in ("content", "current")}
        return shown | {"is_of_use": self.is_of_use}


@dataclass(frozen=True, slots=True)
class ConflictResolved:
    """A conflict that was settled: the copy is removed. ``revision`` is None if the record stayed as it was."""

    path: str
    record: str
    name: str
    revision: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


class Conflicts:
    """The losing copies of merges in one memory: the verbs ``conflicts`` and ``resolve`` of ``memory.sync``."""

    def __init__(self, where: MemoryPlace, *, rewrite: Rewrite | None = None, audit: AuditLog | None = None) -> None:
        """Without ``rewrite`` they can be looked at only."""
        self._home = home_of(where)
        self._rewrite = rewrite
        self._audit = audit

    def conflicts(self) -> list[Conflict]:
        """The losing copies of all levels, the newest first; reads only the disk."""
        with storage_failure("the conflicts cannot be listed"), self._home.reading() as records:
            if records is None:
                return []
            kept = self._home.kept
            found = [_conflict(records, kept, note)[0] for note in kept.notes(quarantine.CONFLICTS)]
        return sorted(found, key=lambda each: (each.at, each.path), reverse=True)

    def resolve(
        self,
        conflict: str,
        *,
        take: Taken | None = None,
        text: str | None = None,
        expected_revision: int | None = None,
        by: Actor | None = None,
    ) -> ConflictResolved:
        """Settle a conflict, named by its path, or by the name or record if it is the only one; its copy is removed.

        ``take`` is ``record`` (it stays as it is) or ``copy`` (the copy's text becomes the content); or ``text`` does.
        A text is a new revision, checked like any change, and can be undone. Of an entry only the text is taken.
        ``ReadOnly``: the text was redacted or forgotten, or its record is gone. Else errors as of any change.
        """
        if (take is None) == (text is None) or take not in (None, "record", "copy"):
            raise InvalidArgument("say what to take: take='record', take='copy' or text='...'")
        if expected_revision is not None:
            check_whole(expected_revision, what="expected_revision", least=1)
        if self._rewrite is None:
            raise ReadOnly("this memory was opened to be looked at only")
        kept = self._home.kept
        with storage_failure("the conflict cannot be settled"), self._home.reading() as records:
            chosen = self._find(conflict).path
            assert records is not None, "there are conflicts"
            noted = {note.kept: note for note in kept.notes(quarantine.CONFLICTS)}
            found, record = _conflict(records, kept, noted[chosen])
        revision = None
        if take != "record":
            if record is None or (take == "copy" and found.state in _BARRED):
                raise ReadOnly(f"{found.path} cannot be taken: {_BARRED.get(found.state, _BARRED['gone'])}")
            if expected_revision not in (None, record.revision):
                raise RevisionConflict(f"{found.name} is at revision {record.revision}, not {expected_revision}")
            revision = self._rewrite(record, found.content if text is None else text, by)  # 1 durable
        with storage_failure(f"{found.path} cannot be removed"):
            kept.remove_copy(found.path)  # 2 a kill before leaves a copy of what the record has
        if self._audit is not None:
            who = by or Actor()
            event = AuditEvent("resolve", "ok", found.record, found.level or None, who.agent, who.session)
            self._audit.record(replace(event, actor=who.actor))
        return ConflictResolved(found.path, found.record, found.name, revision)

    def _find(self, wanted: str) -> Conflict:
        check_text(wanted, what="the conflict")
        known = self.conflicts()
        found = [each for each in known if wanted in (each.path, each.name, each.record)]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(each.path for each in (found or known)[:5]) or "none"
        raise InvalidArgument(f"{len(found) or 'no'} conflicts of {ascii(wanted[:80])}: name one of {listed}")


def _conflict(records: Records, kept: KeptConflicts, note: KeptCopy) -> tuple[Conflict, Record | Entry | None]:
    """The conflict of a copy, and its record as it is now; None without one that could take the text."""
    known: dict[str, Any] = {"path": note.kept, "at": note.at, "why": note.reason, "lost": note.lost}
    copy = _decoded(kept.read(note.kept), note.path)
    if copy is None or isinstance(copy, Mark):
        return Conflict(record=note.path, name="", level="", state="unreadable", **known), None
    path, is_forgotten = _place_of(records, copy, note.path)
    record = _read(records, path)
    known |= {"record": path, "level": copy.level}
    known |= {"name": copy.name} if isinstance(copy, Record) else {"name": copy.key, "user": copy.user}
    if is_forgotten or record is None or isinstance(record, Mark):
        return Conflict(state="forgotten" if is_forgotten else "gone", **known), None
    sizes = {"size_bytes": text_of(copy).size_bytes, "record_bytes": text_of(record).size_bytes}
    known |= sizes | {"revision": record.revision, "current": record.content}
    if reveal(pieces_in(record), [text_of(copy).content_bytes]):
        return Conflict(state="redacted", **known), record
    lacking = {line for line in copy.content.split("\n") if line.strip()} - set(record.content.split("\n"))
    state: ConflictState = "open" if lacking else "contained"
    return Conflict(state=state, new_lines=len(lacking), content=copy.content, **known), record


def _place_of(records: Records, copy: Record | Entry, path: str) -> tuple[str, bool]:
    """The present path of the record of a copy, and whether its entry was forgotten."""
    if isinstance(copy, Record):
        return path, False
    there = _read(records, path)
    marks = {id: mark for id in copy.ids if isinstance(mark := _read(records, id_path(id)), Mark)}
    place = place_of(copy, marks)
    is_forgotten = fate(copy, None if isinstance(there, Record) else there, marks) == "forgotten"
    return (place.target if place is not None else path), is_forgotten


def _read(records: Records, path: str) -> AnyRecord | None:
    """The sound record at ``path``; None if there is none."""
    try:
        found = records.find(path)
    except RecordCorrupt:
        return None
    return _decoded(found[0], path) if found is not None else None


def _decoded(body: bytes | None, path: str) -> AnyRecord | None:
    try:
        return decode_copy(body, path=path) if body is not None else None
    except RecordCorrupt:
        return None
