"""Migration: all that is kept of a memory, copied from one home to another and compared there.

The rules this file guards: the source is only read, once what dead processes left in its journals is in its records;
no kept copy in the target holds text that the target's records say was redacted or forgotten; and it may be stopped and
repeated at any point, also while both are in use. ``record_copy`` has the rules of records.

Records are taken with their history, ids, tombstones and locations, kept copies with their reasons, and the audit. What
is derived is not taken: the search index, the notes on a mirror, and the id of the memory in a mirror, as two memories
with one id would take each other's changes for their own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from msgspec import Struct, field

from memfiles.errors import InvalidArgument
from memfiles.records.entry import Entry
from memfiles.records.marks import Mark
from memfiles.storage.audit_reader import NAMES_OF_RUNS
from memfiles.storage.events import Progress
from memfiles.storage.home import KeptConflicts, MemoryHome, needs_recovery
from memfiles.storage.quarantine import CONFLICTS, FOLDER, KeptCopy, holds_forgotten_entry, holds_text
from memfiles.storage.record_copy import RecordCopy, decoded_at
from memfiles.storage.record_store import CommitHook, RecordStore

HookFor = Callable[[RecordStore], AbstractContextManager[CommitHook | None]]

_LINES_AT_ONCE = 1000


class Migrated(Struct):
    """The report of a migration: numbers of records, kept copies and lines of the audit.

    ``records`` are the source's, of which ``copied`` were written now; the target had the others already.
    ``newer`` were left as they are: they, or other records of their entries, were changed, renamed or forgotten in the
    target. ``unreadable`` says by path why a record was not taken. ``left`` are kept copies that no record's size lets
    be taken. ``is_complete``: every record of the source that can be read was found in the target, with the same
    bytes, or is one of ``newer``.
    """

    source: str
    target: str
    records: int = 0
    copied: int = 0
    kept: int = 0
    audit_lines: int = 0
    newer: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    is_complete: bool = False


def migrate(
    source: MemoryHome,
    target: MemoryHome,
    *,
    now: Callable[[], str],
    progress: Progress | None = None,
    announced: HookFor = lambda _: nullcontext(),
) -> Migrated:
    """Copy everything of a home to another one, and compare it there.

    1. the records, until none changed meanwhile; 2. the kept copies; 3. the audit. ``InvalidArgument`` if there is
    nothing to copy, or both are the same; errors of the target's store: repeat it then. ``announced`` gives who tells
    of each commit those who have the target open.
    """
    report = Migrated(source.title, target.title)
    if source.title == target.title:
        raise InvalidArgument("the memory is there already: name another directory or store")
    if source.directory is not None and target.directory is not None:
        here, there = source.directory.resolve(), target.directory.resolve()
        if here.is_relative_to(there) or there.is_relative_to(here):
            raise InvalidArgument("a memory needs a directory of its own, apart from the other one: name another place")
    if needs_recovery(source):  # a process died: what it had acknowledged may be in its journal alone
        source.open(now=now).close()
    with source.held(), source.reading() as records:
        if records is None or not records.changes().records:
            raise InvalidArgument(f"nothing is kept in {source.title} yet")
        with closing(target.open(now=now)) as store, target.held(), announced(store) as hook:
            copying = RecordCopy(records, store, target.notes, hook=hook, at=now())
            report.is_complete = copying.copy(progress)
            report.records, report.copied = copying.records, copying.copied
            report.newer, report.unreadable = sorted(copying.left), copying.unreadable
            report.kept = _kept_copied(source, target, store, report)
            _audit_blanked(source, target, store)
            report.audit_lines = _audit_copied(source, target)
            _kept_cleaned(target.kept, store)
    return report


def _kept_copied(source: MemoryHome, target: MemoryHome, store: RecordStore, report: Migrated) -> int:
    """Copy the copies that were put aside, or lost in a merge, and may be kept there; how many were not there."""
    count = 0
    for folder in (FOLDER, CONFLICTS):
        there = Counter(_identity(note, target.kept.read(note.kept)) for note in target.kept.notes(folder))
        for note in source.kept.notes(folder):
            body = source.kept.read(note.kept)
            if body is None:
                report.left.append(note.kept)
            elif there[known := _identity(note, body)]:
                there[known] -= 1
            elif not _is_gone(store, note.path, body):
                given: dict[str, Any] = {"reason": note.reason, "at": note.at, "folder": folder, "lost": note.lost}
                target.kept.keep(note.path, body, **given)
                count += 1
    return count


def _identity(note: KeptCopy, body: bytes | None) -> tuple[str, str, bytes | None]:
    """A key for a copy that is the same in both places, with a digest: all bodies may not fit in memory."""
    return note.path, note.at, None if body is None else hashlib.blake2b(body, digest_size=16).digest()


def _kept_cleaned(kept: KeptConflicts, target: RecordStore) -> None:
    """Remove the kept copies with a text that was redacted or forgotten, as the target's records say."""
    before = len([*kept.notes(FOLDER), *kept.notes(CONFLICTS)])
    kept.remove_if(lambda path, data: _is_gone(target, path, data))
    if before > len([*kept.notes(FOLDER), *kept.notes(CONFLICTS)]):
        target.scrub()


def _is_gone(target: RecordStore, path: str, data: bytes) -> bool:
    def mark(at: str) -> Mark | None:
        return found if isinstance(found := decoded_at(target, at), Mark) else None

    record = decoded_at(target, path)
    redactions = record.text.redactions if isinstance(record, Entry) else getattr(record, "redactions", ())
    return holds_text(data, redactions) or holds_forgotten_entry(path, data, mark=mark)


def _audit_blanked(source: MemoryHome, target: MemoryHome, store: RecordStore) -> None:
    """Do in the target's audit for forgotten users what was done in the source's: later, some may have come back."""
    marks = {path: mark for path in source.audit.blanked() if isinstance(mark := decoded_at(store, path), Mark)}
    target.audit.blank(marks, lambda path: marks[path].user or marks[path].uid)


def _audit_copied(source: MemoryHome, target: MemoryHome) -> int:
    """Copy the lines of the audit that the target lacks, month by month; how many."""
    count = 0
    months = dict.fromkeys(month for month, _, line in source.audit.backwards(lambda _: True) if line is not None)
    for month in reversed(months):
        there = Counter(map(_digest, _lines(target, month)))
        pages, missing = target.audit, []
        for line in reversed([*_lines(source, month)]):
            if there[digest := _digest(line)]:
                there[digest] -= 1
            else:
                missing.append(line + b"\n")
        for start in range(0, len(missing), _LINES_AT_ONCE):
            pages.append(month, b"".join(missing[start : start + _LINES_AT_ONCE]))
        pages.let_go()
        count += len(missing)
    return count


def _lines(home: MemoryHome, month: str) -> Iterator[bytes]:
    return (line for _, _, line in home.audit.backwards(lambda name: name == month) if line and line.strip())


def _digest(line: bytes) -> bytes:
    """A digest of a line that stays the same when the names of a forgotten user's runs are taken out."""
    return hashlib.blake2b(NAMES_OF_RUNS.sub(b"", line).replace(b" ", b""), digest_size=16).digest()
