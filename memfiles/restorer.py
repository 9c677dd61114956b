"""Restore: bring the declared files and the disk together, all or nothing.

The rules this file guards: per file, local record over mirror copy over declared content; the mirror is
asked for exactly the files without a usable local record and can never fail a start; a record that does
not change is not rewritten; and examining touches nothing, so that a plan is a restore that stops early.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from memfiles import atomic, unchanged
from memfiles.atomic import Signature, is_settled
from memfiles.changes import absorb
from memfiles.errors import MirrorUnavailable, RecordCorrupt, StorageFailed
from memfiles.keys import record_path, uid_of
from memfiles.live_files import Seen
from memfiles.mirror import Mirror
from memfiles.record import MAX_RECORD_BYTES, Record, decode, encode
from memfiles.restoring import (
    DeclaredFile,
    FileReport,
    Metadata,
    RestoreReport,
    Status,
    is_over_cap,
    metadata_of,
    redeclared,
    seed,
)
from memfiles.store import Store, storage_failure
from memfiles.transaction import LeftBehind, NewVersion
from memfiles.unchanged import Note

_ATTEMPTS = 20
_log = logging.getLogger("memfiles")


class Examined(NamedTuple):
    """One declared file and what a restore would do: write ``record`` (None: nothing) and say ``row``."""

    row: FileReport
    record: Record | None = None
    signature: Signature | None = None
    seen: Seen | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a file without a usable local record gets its content from."""

    status: Status
    record: Record
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore leaves: its report, what is known of each live file, and the note it trusted."""

    report: RestoreReport
    seen: dict[str, Seen | None]
    noted: dict[str, Note]


class Restorer:
    """Examines declared files against one directory and an optional mirror."""

    def __init__(self, mirror: Mirror | None, *, now: Callable[[], str], lowest_level: str) -> None:
        """``lowest_level`` is the level of a file that declares none."""
        self._mirror = mirror
        self._now = now
        self._lowest_level = lowest_level

    def plan(self, directory: Path, files: Sequence[DeclaredFile]) -> RestoreReport:
        """What ``restore`` would report; nothing is made or changed, not even the directory."""
        try:
            with storage_failure(f"cannot look at the memory directory {directory}"):
                descriptor = atomic.open_directory(directory)
        except StorageFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return RestoreReport(tuple(self._from_elsewhere(file, problem=None).row for file in files))
        try:
            examined = self._examine_all(descriptor, files, unchanged.load(descriptor))
            return _report(examined, _orphans(descriptor, files))
        finally:
            os.close(descriptor)

    def restore(self, store: Store, files: Sequence[DeclaredFile]) -> Restored:
        """Bring the records in line with the declarations; the report, and what is now known of each file."""
        noted = unchanged.load(store.descriptor)
        examined = self._examine_all(store.descriptor, files, noted)
        orphans = _orphans(store.descriptor, files)
        by_uid = {file.uid: file for file in files}
        for _ in range(_ATTEMPTS):
            paths = [record_path(item.row.uid) for item in examined if item.record is not None]
            try:
                with store.hold(paths):
                    examined = [self._again(store, item, by_uid) for item in examined]
                    signatures = _write(store, [item for item in examined if item.record is not None])
                break
            except LeftBehind:
                store.recover()
        else:
            raise RecordCorrupt("a dead writer's temp files cannot be removed: run memfiles doctor")
        report = _report(examined, orphans)
        return Restored(report, {item.row.uid: _seen_after(item, signatures) for item in examined}, noted)

    def _examine_all(self, directory: int, files: Sequence[DeclaredFile], noted: dict[str, Note]) -> list[Examined]:
        with _examining():
            return [self._examine(directory, file, noted.get(file.uid)) for file in files]

    def _examine(self, directory: int, file: DeclaredFile, noted: Note | None) -> Examined:
        metadata = metadata_of(file, lowest_level=self._lowest_level)
        signature = atomic.signature(directory, file.uid + ".json")
        if signature is None:
            return self._from_elsewhere(file, problem=None)
        size = unchanged.size_if_same(noted, signature, metadata) if noted is not None else None
        if size is not None:
            return Examined(FileReport(file.uid, file.name, "kept", is_over_cap(metadata, size)))
        try:
            return self._from_disk(directory, file, metadata)
        except RecordCorrupt as error:
            return self._from_elsewhere(file, problem=str(error), signature=signature)

    def _from_disk(self, directory: int, file: DeclaredFile, metadata: Metadata) -> Examined:
        found = atomic.read(directory, record_path(file.uid), limit=MAX_RECORD_BYTES)
        if found is None:
            return self._from_elsewhere(file, problem=None)
        local = decode(found[0], uid=file.uid)
        by_hand = not local.is_intact
        current = absorb(local, known=None, at=self._now()) if by_hand else local
        record = redeclared(current, metadata, at=self._now())
        detail = "its content was changed by hand" if by_hand else None
        status: Status = "kept" if record is current and not by_hand else "updated"
        row = FileReport(file.uid, file.name, status, is_over_cap(metadata, record.size_bytes), detail)
        seen = Seen(record, found[1], settled=is_settled(found[1]))
        return Examined(row, None if record is local else record, found[1], seen)

    def _from_elsewhere(
        self, file: DeclaredFile, *, problem: str | None, signature: Signature | None = None
    ) -> Examined:
        """A file without a usable local record: the mirror's copy or else the declared content."""
        metadata = metadata_of(file, lowest_level=self._lowest_level)
        origin = self._from_mirror(file, metadata)
        status: Status = origin.status if problem is None else "quarantined"
        details = [problem, origin.detail, f"its content is now {origin.status}" if problem else None]
        detail = "; ".join(part for part in details if part) or None
        over = is_over_cap(metadata, origin.record.size_bytes)
        row = FileReport(file.uid, file.name, status, over, detail)
        return Examined(row, origin.record, signature, is_bad=problem is not None)

    def _from_mirror(self, file: DeclaredFile, metadata: Metadata) -> Origin:
        declared = seed(file.uid, metadata, content=file.content, at=self._now())
        if self._mirror is None:
            return Origin("seeded", declared)
        try:
            stored = self._mirror.get(record_path(file.uid))
        except MirrorUnavailable as error:
            _log.warning("the mirror did not answer for %s: %s", file.name, error)
            return Origin("provisional", replace(declared, provisional=True), f"the mirror did not answer: {error}")
        if stored is None:
            return Origin("seeded", declared)
        try:
            remote = decode(stored.body, uid=file.uid)
        except RecordCorrupt as error:
            return Origin("seeded", declared, f"the mirror's copy cannot be used: {error}")
        if not remote.is_intact:
            return Origin("seeded", declared, "the mirror's copy cannot be used: its digest is wrong")
        return Origin("hydrated", redeclared(remote, metadata, at=self._now()))

    def _again(self, store: Store, item: Examined, files: dict[str, DeclaredFile]) -> Examined:
        """The same item, examined anew if its file changed before its lock was held."""
        path = record_path(item.row.uid)
        if item.record is None or store.signature(path) == item.signature:
            return item
        with _examining():
            return self._examine(store.descriptor, files[item.row.uid], None)


def _write(store: Store, items: Iterable[Examined]) -> dict[str, Signature]:
    """Keep what is bad, then commit every new record at once."""
    changes = []
    for item in items:
        assert item.record is not None
        path = record_path(item.row.uid)
        if item.is_bad:
            store.keep_aside(path, why=item.row.detail or "unreadable")
        changes.append(NewVersion(path, item.record.revision, encode(item.record), replaces=item.signature))
    return store.commit(changes) if changes else {}


def _seen_after(item: Examined, signatures: dict[str, Signature]) -> Seen | None:
    if item.record is None:
        return item.seen
    return Seen(item.record, signatures[record_path(item.row.uid)])


def _orphans(directory: int, files: Sequence[DeclaredFile]) -> tuple[str, ...]:
    """The uids of the records that lie there undeclared."""
    with _examining():
        foreign = set(atomic.names(directory)).difference([f"{file.uid}.json" for file in files])
    return tuple(sorted(uid for name in foreign if (uid := uid_of(name)) is not None))


def _report(examined: Sequence[Examined], orphans: tuple[str, ...]) -> RestoreReport:
    return RestoreReport(tuple([item.row for item in examined]), orphans)


def _examining() -> AbstractContextManager[None]:
    return storage_failure("the memory directory cannot be examined; nothing was changed")
