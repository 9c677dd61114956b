"""Restore: make the records on disk match the declared files, all or nothing.

The rules this file guards: per file, the local record wins over the mirror's copy, which wins over the declared
content; the mirror is asked at most once in a restore, for exactly the files without a usable local record, and can
never fail a start; an unusable copy is reported and replaced by the declared content; a record that does not change is
not rewritten; and examining changes nothing, so that a plan is a restore that stops early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import MirrorRefused, MirrorUnavailable, RecordCorrupt
from memfiles.files import start_cache
from memfiles.files.restore_report import FileReport, FileView, RestoreReport, Status, file_view, metadata_of
from memfiles.files.start_cache import CacheRow
from memfiles.records import NamedTuple, late_logger
from memfiles.records.declared_metadata import Metadata, decode_file, is_older, redeclared, seed
from memfiles.records.file_changes import absorb
from memfiles.records.keys import RECORD_SUFFIX, record_path
from memfiles.records.record import Record
from memfiles.storage.atomic import Signature, is_settled, storage_failure
from memfiles.storage.home import MemoryHome
from memfiles.storage.record_store import NOTHING, ChangeSet, NewVersion, Records, RecordStore
from memfiles.workflow.workflow import MemoryFile

if TYPE_CHECKING:
    from memfiles.storage.events import RecordChanged
    from memfiles.storage.record_kinds import Observed
    from memfiles.sync.mirror import Answer, Mirror, Stored

_TAKEN_OVER = "its content was taken over from the older manager's record"
_BY_HAND = "its content was changed by hand"


class Examined(Struct, frozen=True):
    """One declared file and what a restore would do: write ``record`` (None: nothing) and report ``row``.

    ``seen`` is the record on disk, its signature, and whether every later change will have another one. ``data`` has
    the record's bytes if they are known; ``stored`` is the mirror's object it comes from.
    """

    row: FileReport
    record: Record | None = None
    signature: Signature | None = None
    seen: tuple[Record, Signature, bool] | None = None
    is_bad: bool = False
    data: bytes | None = None
    stored: Stored | None = None


class MissingFile(NamedTuple):
    """One declared file without a usable local record; ``problem`` says why an existing one cannot be used."""

    file: MemoryFile
    problem: str | None = None
    signature: Signature | None = None


class Restored(Struct, frozen=True):
    """The result of a restore: its report, the observed record of each live file by path, and the start cache used.

    ``hydrated`` are the mirror's objects that records were made from, by path; ``edits`` the changes by hand taken in.
    """

    report: RestoreReport
    seen: dict[str, Observed[Record] | None]
    cached: dict[str, CacheRow]
    hydrated: dict[str, Stored]
    edits: list[RecordChanged]


class Restorer(Struct, frozen=True):
    """Examines declared files against one store and an optional mirror; ``origin`` is a mirrored directory's id."""

    mirror: Mirror | None
    now: Callable[[], str]
    lowest_level: str
    origin: str | None = None

    def plan(self, home: MemoryHome, files: Sequence[MemoryFile]) -> RestoreReport:
        """The report that ``restore`` would give; nothing is created or changed, not even the directory."""
        files = _of_all_users(files)
        with home.reading() as records:
            found: Iterable[Examined | MissingFile] = [MissingFile(file) for file in files]
            orphans: tuple[str, ...] = ()
            if records is not None:
                with _examining():
                    orphans = _orphans(records.paths(), files)
                    view = records.view([record_path(it.uid) for it in files])
                found = self._examine_all(view, files, start_cache.rows(home))
            return RestoreReport(tuple([item.row for item in self._resolved(found, {})]), orphans)

    def restore(
        self, store: RecordStore, files: Sequence[MemoryFile], *, cached: dict[str, CacheRow] | None = None
    ) -> Restored:
        """Make the records match the declarations.

        1. examine every file; 2. fetch what is missing from the mirror; 3. write what is to be written, all at once
        unless it is too large for one commit; 4. remove from kept copies what was redacted in the mirror's.
        ``cached`` are rows of the start cache.
        """
        files, cached = _of_all_users(files), cached or {}
        orphans = _orphans(store.paths(), files)
        examined, signatures = self._written(store, files, cached)
        for path, item in examined.items():
            if item.record is not None and item.stored is not None and item.record.redactions:
                store.kept.remove(path, holding=item.record.redactions)
        seen = {path: _observed(item, signatures.get(path)) for path, item in examined.items()}
        hydrated = {path: item.stored for path, item in examined.items() if item.stored is not None}
        edits = [_edit_of(item.record) for item in examined.values() if item.record and item.row.detail == _BY_HAND]
        report = RestoreReport(tuple([item.row for item in examined.values()]), orphans)
        return Restored(report, seen, cached, hydrated, edits)

    def _written(
        self, store: RecordStore, files: Sequence[MemoryFile], cached: dict[str, CacheRow]
    ) -> tuple[dict[str, Examined], dict[str, Signature]]:
        """The files by path, examined until none changed before it was written; and the signatures of written ones."""
        answers: dict[str, Answer] = {}  # of the mirror, which is asked at most once for each file
        by_path = {record_path(file.uid): file for file in files}
        found, signatures = self._examine_all(store.view(by_path), files, cached), dict[str, Signature]()
        while True:
            examined = {record_path(item.row.uid): item for item in self._resolved(found, answers)}
            due = {path: item for path, item in examined.items() if item.record and path not in signatures}
            if not due:
                return examined, signatures
            again, written = store.change(due, partial(self._decide, due=due, files=by_path, answers=answers))
            found, signatures = [*{**examined, **again}.values()], signatures | written

    def _decide(
        self, records: Records, *, due: dict[str, Examined], files: dict[str, MemoryFile], answers: dict[str, Answer]
    ) -> tuple[dict[str, Examined | MissingFile], ChangeSet]:
        """Examine again what changed, and write, unless the mirror has to be asked for a file that is missing now."""
        with _examining():
            found: dict[str, Examined | MissingFile] = {
                path: item if records.signature(path) == item.signature else self._examine(records, files[path], None)
                for path, item in due.items()
            }
        if self._unasked(found.values(), answers):
            return found, NOTHING
        items = {record_path(item.row.uid): item for item in self._resolved(found.values(), answers)}
        return {**items}, _change_set({path: item for path, item in items.items() if item.record is not None})

    def _unasked(self, found: Iterable[Examined | MissingFile], answers: dict[str, Answer]) -> list[str]:
        """The paths of missing files that the mirror was not asked for yet."""
        missing = [record_path(item.file.uid) for item in found if isinstance(item, MissingFile)]
        return [path for path in missing if path not in answers] if self.mirror is not None else []

    def _resolved(self, found: Iterable[Examined | MissingFile], answers: dict[str, Answer]) -> list[Examined]:
        """The files found, with content from elsewhere for the missing ones.

        The mirror is asked in one call, for files that are not among its earlier ``answers``, to which it adds.
        """
        items = list(found)
        unasked = self._unasked(items, answers)
        if unasked and self.mirror is not None:
            from memfiles.sync.downloads import DEADLINE_SECONDS, fetch  # late: only workflows with a mirror need it

            fetched = fetch(self.mirror, unasked, deadline_seconds=DEADLINE_SECONDS)
            answers |= fetched
            _warn(fetched)
        return [self._from_elsewhere(item, answers) if isinstance(item, MissingFile) else item for item in items]

    def _examine_all(
        self, records: Records, files: Sequence[MemoryFile], cached: dict[str, CacheRow]
    ) -> list[Examined | MissingFile]:
        with _examining():
            return [self._examine(records, file, cached.get(file.uid)) for file in files]

    def _examine(self, records: Records, file: MemoryFile, cached: CacheRow | None) -> Examined | MissingFile:
        signature = records.signature(file.uid + ".json")
        if signature is None:
            return MissingFile(file)
        metadata = metadata_of(file, lowest_level=self.lowest_level)
        size = start_cache.size_if_same(cached, signature, metadata) if cached is not None else None
        if size is not None:
            return Examined(FileReport(file.uid, file.name, "kept", size > metadata.max_size_bytes))
        try:
            return self._from_record(records, file, metadata)
        except RecordCorrupt as error:
            return MissingFile(file, str(error), signature)

    def _from_record(self, records: Records, file: MemoryFile, metadata: Metadata) -> Examined | MissingFile:
        found = records.find(record_path(file.uid))
        if found is None:
            return MissingFile(file)
        local = decode_file(found[0], uid=file.uid)
        by_hand = not local.is_intact
        current = absorb(local, known=None, at=self.now()) if by_hand else local
        changed = redeclared(current, metadata, at=self.now())
        record = local if changed is local else self._stamped(changed)
        detail = _BY_HAND if by_hand else _TAKEN_OVER if is_older(local) else None
        status: Status = "kept" if record is local else "updated"
        row = FileReport(file.uid, file.name, status, record.size_bytes > record.max_size_bytes, detail)
        seen = record, found[1], is_settled(found[1])
        return Examined(row, None if record is local else record, found[1], seen)

    def _from_elsewhere(self, missing: MissingFile, answers: dict[str, Answer]) -> Examined:
        """A file without a usable local record: the mirror's copy, or else the declared content."""
        file, problem, signature = missing
        metadata = metadata_of(file, lowest_level=self.lowest_level)
        answer, at = answers.get(record_path(file.uid)), self.now()
        copy, detail = _copy_in(answer, uid=file.uid)
        source: Status = "hydrated"
        if copy is None:
            source = "provisional" if isinstance(answer, Exception) else "seeded"
            record = seed(file.uid, metadata, content=file.content, at=at, provisional=source == "provisional")
        else:
            record = redeclared(copy, metadata, at=at)
        stored = answer if copy is not None and not isinstance(answer, Exception) else None
        data = stored.body if stored is not None and record is copy else None
        if data is None:
            record = self._stamped(record)
        is_bad = problem is not None
        details = [problem, detail, f"its content is now {source}" if is_bad else None]
        status: Status = "quarantined" if is_bad else source
        over = record.size_bytes > record.max_size_bytes
        row = FileReport(file.uid, file.name, status, over, "; ".join(filter(None, details)) or None)
        return Examined(row, record, signature, is_bad=is_bad, data=data, stored=stored)

    def _stamped(self, record: Record) -> Record:
        """The record as a change made in this directory, if it is mirrored."""
        return record if self.origin is None else record.stamped(self.origin)


def stored_record(records: Records | None, uid: str) -> Record | None:
    """The record of ``uid``; None if there is none.

    ``RecordCorrupt`` if it is not a record, ``StorageFailed`` if it may not be read.
    """
    with storage_failure(f"record {uid} cannot be read"):
        found = records.find(record_path(uid)) if records is not None else None
    return decode_file(found[0], uid=uid) if found else None


def seen_in(home: MemoryHome, file: MemoryFile, report: FileReport, *, lowest_level: str) -> FileView:
    """A declared file as it is, or as it would start; read without opening a store."""
    with home.reading() as records, suppress(RecordCorrupt):
        return file_view(file, report, stored_record(records, file.uid), lowest_level=lowest_level)
    return file_view(file, report, None, lowest_level=lowest_level)


def _observed(item: Examined, written: Signature | None) -> Observed[Record] | None:
    """The record of a file on disk now: the new one, ``written`` with this signature, or else the one found there."""
    from memfiles.storage.record_kinds import Observed  # late: a plan needs none of it

    if item.record is not None and written is not None:
        return Observed(item.record, written)
    return Observed(*item.seen[:2], settled=item.seen[2]) if item.seen is not None else None


def _edit_of(record: Record) -> RecordChanged:
    """The event of the change by hand that a record took in; how much it grew by is not known."""
    from memfiles.storage.record_kinds import FILE_KIND  # late, as above

    revision = next(change.revision for change in reversed(record.history) if change.op == "external")
    return replace(FILE_KIND.event(record, "external", before=record), revision=revision, op="external")


def _copy_in(answer: Answer, *, uid: str) -> tuple[Record | None, str | None]:
    """The record in the mirror's answer, or else the reason if there is one to report."""
    if answer is None:
        return None, None
    if isinstance(answer, Exception):
        return None, f"the mirror {'refused' if isinstance(answer, MirrorRefused) else 'did not answer'}: {answer}"
    try:
        copy = decode_file(answer.body, uid=uid)
    except RecordCorrupt as error:
        return None, f"the mirror's copy cannot be used: {error}"
    return (copy, None) if copy.is_intact else (None, "the mirror's copy cannot be used: its digest is wrong")


def _warn(found: dict[str, Answer]) -> None:
    """Log one line, however many files the mirror did not answer for."""
    errors = [answer for answer in found.values() if isinstance(answer, MirrorUnavailable)]
    if errors:
        late_logger.warning(
            "the mirror gave no answer for %d of %d files, which start with their declared content until it does: %s",
            len(errors),
            len(found),
            errors[0],
        )


def _change_set(items: Mapping[str, Examined]) -> ChangeSet:
    """The new records, as many as one commit can hold; broken files go to quarantine first."""
    from memfiles.storage.transaction import groups_of  # late, as above

    versions = next(groups_of(_version_of(path, item) for path, item in items.items()), [])
    bad = [version.path for version in versions if items[version.path].is_bad]
    return ChangeSet(versions, aside={path: items[path].row.detail or "unreadable" for path in bad})


def _version_of(path: str, item: Examined) -> NewVersion:
    assert item.record is not None
    if item.data is None:
        from memfiles.storage.record_kinds import version_of  # late, as above

        return version_of(item.record, replaces=item.signature)
    return NewVersion(path, item.record.revision, item.data, replaces=item.signature)


def _orphans(there: Iterable[str], files: Sequence[MemoryFile]) -> tuple[str, ...]:
    """The uids of the records ``there`` that are not declared."""
    foreign = set(there).difference([f"{file.uid}.json" for file in files])
    return tuple(sorted(path.removesuffix(RECORD_SUFFIX) for path in foreign))


def _of_all_users(files: Sequence[MemoryFile]) -> Sequence[MemoryFile]:
    """The files but those ``per: user``, whose records are made for each user."""
    return [file for file in files if file.per is None]


def _examining() -> AbstractContextManager[None]:
    return storage_failure("the memory directory cannot be examined; nothing was changed")
