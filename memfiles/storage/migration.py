"""Migration: all that is kept of a memory, copied from one home to another and compared there.

The rules this file guards: the source is only read, once what dead processes left in its journals is in its records;
every record is compared byte for byte once it is there; a record of the target that is newer, or that was changed there
as well, is never replaced; what the records that are there now say was redacted or forgotten is in no kept copy of the
target; and it may be stopped and repeated at any point, also while the source is in use: what changed meanwhile is
copied again before it ends.

Records are taken with their history, ids, tombstones and locations, kept copies with their reasons, and the audit. What
is derived is not taken: the search index, the notes on a mirror, and the id of the memory in a mirror, as two memories
with one id would take each other's changes for their own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from itertools import chain
from typing import Any

from msgspec import DecodeError, Struct, field
from msgspec.json import decode as from_json

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import read_entry
from memfiles.records.keys import id_path, uid_of
from memfiles.records.lineage import are_among, later_changes
from memfiles.records.marks import EntryRecord, Mark, buries, is_tombstone
from memfiles.records.record import Record, read_record
from memfiles.storage.audit_reader import NAMES_OF_RUNS
from memfiles.storage.events import Progress
from memfiles.storage.home import KeptConflicts, MemoryHome, ReadableStore, needs_recovery
from memfiles.storage.quarantine import CONFLICTS, FOLDER, holds, holds_forgotten_entry
from memfiles.storage.record_store import NOTHING, ChangeSet, CommitHook, NewVersion, Records, RecordStore

HookFor = Callable[[RecordStore], AbstractContextManager[CommitHook | None]]

_TOGETHER, _TOGETHER_BYTES = 100, 1 << 20
_DECLARED = ("seed", "declare")  # changes that nobody made in a memory
_ROUNDS = 20  # in which the source may change while it is copied
_LINES_AT_ONCE = 1000


class Migrated(Struct):
    """What a migration did: numbers of records, kept copies and lines of the audit.

    ``records`` are those of the source, ``copied`` those that were written now; the others were there already, or are
    ``newer`` in the target or were changed there as well, and were left. ``unreadable`` says by path why a record was
    not taken. ``left`` are kept copies that no record's size allows to be taken. ``is_complete``: every record of the
    source that can be read was found in the target, with the same bytes, or is one of ``newer``.
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
            report.is_complete = _records_copied(records, store, report, progress, hook)
            report.kept = _kept_copied(source, target, report)
            _kept_cleaned(target.kept, store)
            report.audit_lines = _audit_copied(source, target)
    return report


def _records_copied(
    source: ReadableStore, target: RecordStore, report: Migrated, progress: Progress | None, hook: CommitHook | None
) -> bool:
    """Copy the records, and those that change meanwhile; whether all are in the target at the end."""
    told = source.changes()
    paths = sorted(path for path, seen in told.records.items() if seen is not None)
    report.records = len(paths)
    newer: set[str] = set()
    for _ in range(_ROUNDS):
        for done, some in _portions(paths, source, report):
            written, ahead = _copied(source, target, some, hook)
            report.copied += written
            newer = newer - some.keys() | ahead
            if progress is not None:
                progress(done, len(paths))
        seen, told = told.records, source.changes(told.until)  # all records of a folder in which one was changed
        changed = sorted(path for path, it in told.records.items() if it is not None and it != seen.get(path))
        paths = [path for path, body in _bodies(source, changed) if not _is_there(target, path, body, newer)]
        if not paths:
            report.newer = sorted(path for path in newer if not _is_as_declared(source, target, path))
            return _all_there(source, target, report, newer)
    return False


def _portions(paths: Sequence[str], source: ReadableStore, report: Migrated) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The bodies of the records by path, some at a time, each with how many paths are done."""
    some: dict[str, bytes] = {}
    size = 0
    for number, path in enumerate(paths, 1):
        body = None
        try:
            found = source.find(path)
            body = found[0] if found is not None else None
            if body is not None:
                _revision_in(body)
        except RecordCorrupt as error:
            report.unreadable[path], body = str(error), None
        if body is not None:
            report.unreadable.pop(path, None)
            some[path], size = body, size + len(body)
        if some and (len(some) >= _TOGETHER or size >= _TOGETHER_BYTES or number == len(paths)):
            yield number, some
            some, size = {}, 0
    if some:
        yield len(paths), some


def _copied(
    source: ReadableStore, target: RecordStore, bodies: Mapping[str, bytes], hook: CommitHook | None
) -> tuple[int, set[str]]:
    """Write the records that the target lacks or has an earlier version of; how many, and those that are left."""
    entries = {path: record for path, body in bodies.items() if isinstance(record := _decoded(path, body), Entry)}
    marks = {path: {id_path(id) for id in entry.mortal_ids} for path, entry in entries.items()}

    def decide(records: Records) -> tuple[tuple[int, set[str]], ChangeSet]:
        versions, ahead = [], set()
        found = {path: records.find(path) for path in {*chain.from_iterable(marks.values())}}
        forgotten = {path for path, it in found.items() if it is not None and is_tombstone(_decoded(path, it[0]))}
        for path, body in bodies.items():
            there = records.find(path)
            if not forgotten.isdisjoint(marks.get(path, ())) and (there is None or there[0] != body):
                ahead.add(path)
            elif there is None or (there[0] != body and _precedes(source, path, there[0], body)):
                signature = there[1] if there is not None else None
                versions.append(NewVersion(path, _revision_in(body), body, signature))
            elif there[0] != body:
                ahead.add(path)
        return (len(versions), ahead), ChangeSet(versions, erases=True) if versions else NOTHING

    return target.change([*bodies, *chain.from_iterable(marks.values())], decide, hook=hook)[0]


def _precedes(source: ReadableStore, path: str, there: bytes, body: bytes) -> bool:
    """Whether what is there is an earlier version of the record, or cannot be read.

    A higher revision is not enough: others may have changed the target's copy, and the source's had more changes.
    """
    before, after = _decoded(path, there), _decoded(path, body)
    if isinstance(before, Entry) and before.run and isinstance(after, Entry) and before.id != after.id:
        return before.updated_at < after.created_at  # its run is over, and another one has begun at 1
    try:
        if _revision_in(there) >= _revision_in(body):
            return False
    except RecordCorrupt:
        return True
    if isinstance(before, Mark) and isinstance(after, Entry) and not {*before.ids}.isdisjoint(after.ids):
        # it left this place, there or in the source; what the source brought back since was elsewhere meanwhile
        return any((it.key or it.place) and it.revision >= before.revision for it in after.text.history)
    if isinstance(before, Entry) and isinstance(after, Mark):
        forgotten = any(is_tombstone(_record_at(source, id_path(id))) for id in before.mortal_ids)
        if forgotten or buries(after, before):
            return True
        if (elsewhere := _entry_that_left(source, before, after)) is None:
            was_there = after.cleared or not {*after.ids}.isdisjoint(before.ids)  # else another one was saved here
            return was_there and before.text.history[-1].at <= after.at
        after = elsewhere
    past, known = (later_changes(text) if (text := _text_of(it)) is not None else [] for it in (before, after))
    last = [(change, text) for change, text in past if change.op not in _DECLARED][:1]
    if not (last and known):
        return True  # nobody's change
    first, newest = known[-1][0], last[0][0]
    return are_among(last, known) or (first.revision > 1 and newest.at <= first.at)  # or before all that is known


def _is_as_declared(source: ReadableStore, target: RecordStore, path: str) -> bool:
    """Whether both have the declared content, and nobody changed it in either."""
    here, there = _text_of(_record_at(source, path)), _text_of(_record_at(target, path))
    if here is None or there is None or here.content != there.content:
        return False
    return all(change.op in _DECLARED for text in (here, there) for change in text.history)


def _entry_that_left(source: ReadableStore, before: Entry, mark: Mark) -> Entry | None:
    """The source's record of an entry that left this mark, where it is now."""
    known = (_record_at(source, id_path(id)) for id in before.ids)
    targets = [location.target for location in known if isinstance(location, Mark) and location.leads]
    found = (_record_at(source, path) for path in (*targets, *mark.moved))
    return next((it for it in found if isinstance(it, Entry) and not {*it.ids}.isdisjoint(before.ids)), None)


def _decoded(path: str, data: bytes) -> Record | EntryRecord | None:
    with suppress(RecordCorrupt):
        return read_record(data, of=path) if uid_of(path) is not None else read_entry(data, of=path)
    return None


def _text_of(record: Record | EntryRecord | None) -> Record | None:
    return record.text if isinstance(record, Entry) else record if isinstance(record, Record) else None


def _record_at(store: ReadableStore, path: str) -> Record | EntryRecord | None:
    with suppress(RecordCorrupt):
        return _decoded(path, found[0]) if (found := store.find(path)) is not None else None
    return None


def _revision_in(body: bytes) -> int:
    try:
        revision = from_json(body)["revision"]
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise RecordCorrupt("it is not a record") from error
    if not isinstance(revision, int):
        raise RecordCorrupt("it has no revision")
    return revision


def _bodies(source: ReadableStore, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            found = source.find(path)
        except RecordCorrupt:
            continue
        if found is not None:
            yield path, found[0]


def _is_there(target: RecordStore, path: str, body: bytes, newer: set[str]) -> bool:
    try:
        found = target.find(path)
    except RecordCorrupt:
        return False
    return path in newer or (found is not None and found[0] == body)


def _all_there(source: ReadableStore, target: RecordStore, report: Migrated, newer: set[str]) -> bool:
    """Compare every record of the source with the target's, byte for byte."""
    paths = sorted(path for path, seen in source.changes().records.items() if seen is not None)
    wanted = [path for path in paths if path not in report.unreadable]
    for start in range(0, len(wanted), _TOGETHER):
        some = wanted[start : start + _TOGETHER]
        here, there = source.view(some), target.view(some)
        for path in some:
            one, other = here.find(path), there.find(path)
            if path not in newer and one is not None and (other is None or one[0] != other[0]):
                return False
    return True


def _kept_copied(source: MemoryHome, target: MemoryHome, report: Migrated) -> int:
    """Copy the copies that were put aside, or lost in a merge; how many were not there."""
    count = 0
    for folder in (FOLDER, CONFLICTS):
        there = Counter((note.path, note.at, target.kept.read(note.kept)) for note in target.kept.notes(folder))
        for note in source.kept.notes(folder):
            body = source.kept.read(note.kept)
            if body is None:
                report.left.append(note.kept)
            elif there[note.path, note.at, body]:
                there[note.path, note.at, body] -= 1
            else:
                given: dict[str, Any] = {"reason": note.reason, "at": note.at, "folder": folder, "lost": note.lost}
                target.kept.keep(note.path, body, **given)
                count += 1
    return count


def _kept_cleaned(kept: KeptConflicts, target: RecordStore) -> None:
    """Remove the kept copies with a text that was redacted or forgotten, as the target's records tell."""
    before = len([*kept.notes(FOLDER), *kept.notes(CONFLICTS)])
    kept.remove_if(lambda path, data: _is_gone(target, path, data))
    if before > len([*kept.notes(FOLDER), *kept.notes(CONFLICTS)]):
        target.scrub()


def _is_gone(target: RecordStore, path: str, data: bytes) -> bool:
    def mark(at: str) -> Mark | None:
        return found if isinstance(found := _record_at(target, at), Mark) else None

    text = _text_of(_record_at(target, path))
    is_redacted = text is not None and bool(text.redactions) and holds(data, text.redactions)
    return is_redacted or holds_forgotten_entry(path, data, mark=mark)


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
    """The same for a line before and after the names of a forgotten user's runs were taken out of it."""
    return hashlib.blake2b(NAMES_OF_RUNS.sub(b"", line).replace(b" ", b""), digest_size=16).digest()
