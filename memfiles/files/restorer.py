"""Restore: bring the declared files and the disk together, all or nothing.

The rules this file guards: per file, local record over mirror copy over declared content; the mirror is
asked, once and for all of them, for exactly the files without a usable local record, and can never fail a start; a
record that does not change is not rewritten; and examining touches nothing, so that a plan is a restore that stops
early.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from memfiles.errors import RecordCorrupt, StorageFailed
from memfiles.files import start_cache as unchanged
from memfiles.files.content_source import Remote, source_of
from memfiles.files.restore_report import DeclaredFile, FileReport, RestoreReport, Status, is_over_cap, metadata_of
from memfiles.files.start_cache import CacheRow
from memfiles.records.declared_metadata import Metadata, redeclared
from memfiles.records.file_changes import absorb
from memfiles.records.keys import record_path, uid_of
from memfiles.records.lineage import stamped
from memfiles.records.record import MAX_RECORD_BYTES, Record, decode
from memfiles.storage import atomic
from memfiles.storage.atomic import Signature, is_settled
from memfiles.storage.record_kinds import Observed
from memfiles.storage.store import Store, storage_failure
from memfiles.storage.transaction import LeftBehind, NewVersion, groups_of, version_of
from memfiles.sync.fetching import DEADLINE_SECONDS
from memfiles.sync.mirror import Mirror, Stored

_ATTEMPTS = 20


class Examined(NamedTuple):
    """One declared file and what a restore would do: write ``record`` (None: nothing) and say ``row``.

    ``data`` are the record's bytes where they are known already; ``stored`` is the mirror's object it comes from.
    """

    row: FileReport
    record: Record | None = None
    signature: Signature | None = None
    seen: Observed[Record] | None = None
    is_bad: bool = False
    data: bytes | None = None
    stored: Stored | None = None


class MissingFile(NamedTuple):
    """One declared file without a usable local record; ``problem`` says what is wrong with the one that lies there."""

    file: DeclaredFile
    problem: str | None = None
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: its report, the observed record of each live file by path, and the cache it trusted.

    ``hydrated`` are the mirror's objects that records were made from, by path: what the mirror has acknowledged.
    """

    report: RestoreReport
    seen: dict[str, Observed[Record] | None]
    noted: dict[str, CacheRow]
    hydrated: dict[str, Stored]


class Restorer:
    """Examines declared files against one directory and an optional mirror."""

    def __init__(
        self,
        mirror: Mirror | None,
        *,
        now: Callable[[], str],
        lowest_level: str,
        origin: str | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        """``lowest_level`` is the level of a file that declares none, ``origin`` the id of a mirrored directory.

        ``deadline_seconds`` as for ``fetch``.
        """
        self._mirror = mirror
        self._now = now
        self._lowest_level = lowest_level
        self._origin = origin
        self._deadline_seconds = deadline_seconds

    def plan(self, directory: Path, files: Sequence[DeclaredFile]) -> RestoreReport:
        """What ``restore`` would report; nothing is made or changed, not even the directory."""
        try:
            with storage_failure(f"cannot look at the memory directory {directory}"):
                descriptor = atomic.open_directory(directory)
        except StorageFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return _report(self._settled([MissingFile(file) for file in files], self._remote()), ())
        try:
            found = self._examine_all(descriptor, files, unchanged.load(descriptor))
            return _report(self._settled(found, self._remote()), _orphans(descriptor, files))
        finally:
            os.close(descriptor)

    def restore(self, store: Store, files: Sequence[DeclaredFile]) -> Restored:
        """Bring the records in line with the declarations; the report, and what is now known of each file."""
        noted = unchanged.load(store.descriptor)
        remote = self._remote()
        examined = self._settled(self._examine_all(store.descriptor, files, noted), remote)
        orphans = _orphans(store.descriptor, files)
        by_uid = {file.uid: file for file in files}
        for _ in range(_ATTEMPTS):
            paths = [record_path(item.row.uid) for item in examined if item.record is not None]
            try:
                with store.hold(paths):
                    examined = self._settled(self._again(store, examined, by_uid), remote)
                    signatures = _write(store, [item for item in examined if item.record is not None])
                break
            except LeftBehind:
                store.recover()
        else:
            raise RecordCorrupt("a dead writer's temp files cannot be removed: run memfiles doctor")
        report = _report(examined, orphans)
        seen = {record_path(item.row.uid): _seen_after(item, signatures) for item in examined}
        hydrated = {record_path(item.row.uid): item.stored for item in examined if item.stored is not None}
        return Restored(report, seen, noted, hydrated)

    def _remote(self) -> Remote:
        return Remote(self._mirror, deadline_seconds=self._deadline_seconds)

    def _settled(self, found: Iterable[Examined | MissingFile], remote: Remote) -> list[Examined]:
        """What was found, with a content from elsewhere for the files that lack one: asked for in one call."""
        items = list(found)
        remote.ask([item.file.uid for item in items if isinstance(item, MissingFile)])
        return [self._from_elsewhere(item, remote) if isinstance(item, MissingFile) else item for item in items]

    def _examine_all(
        self, directory: int, files: Sequence[DeclaredFile], noted: dict[str, CacheRow]
    ) -> list[Examined | MissingFile]:
        with _examining():
            return [self._examine(directory, file, noted.get(file.uid)) for file in files]

    def _examine(self, directory: int, file: DeclaredFile, noted: CacheRow | None) -> Examined | MissingFile:
        signature = atomic.signature(directory, file.uid + ".json")
        if signature is None:
            return MissingFile(file)
        metadata = metadata_of(file, lowest_level=self._lowest_level)
        size = unchanged.size_if_same(noted, signature, metadata) if noted is not None else None
        if size is not None:
            return Examined(FileReport(file.uid, file.name, "kept", is_over_cap(metadata, size)))
        try:
            return self._from_disk(directory, file, metadata)
        except RecordCorrupt as error:
            return MissingFile(file, str(error), signature)

    def _from_disk(self, directory: int, file: DeclaredFile, metadata: Metadata) -> Examined | MissingFile:
        found = atomic.read(directory, record_path(file.uid), limit=MAX_RECORD_BYTES)
        if found is None:
            return MissingFile(file)
        local = decode(found[0], uid=file.uid)
        by_hand = not local.is_intact
        current = absorb(local, known=None, at=self._now()) if by_hand else local
        changed = redeclared(current, metadata, at=self._now())
        record = local if changed is local else self._own(changed)
        detail = "its content was changed by hand" if by_hand else None
        status: Status = "kept" if record is local else "updated"
        row = FileReport(file.uid, file.name, status, is_over_cap(metadata, record.size_bytes), detail)
        seen = Observed(record, found[1], settled=is_settled(found[1]))
        return Examined(row, None if record is local else record, found[1], seen)

    def _from_elsewhere(self, lacking: MissingFile, remote: Remote) -> Examined:
        """A file without a usable local record: the mirror's copy or else the declared content."""
        file, problem, signature = lacking
        metadata = metadata_of(file, lowest_level=self._lowest_level)
        source = source_of(file, metadata, remote.answer(file.uid), at=self._now())
        record = source.record if source.data is not None else self._own(source.record)
        status: Status = source.status if problem is None else "quarantined"
        details = [problem, source.detail, f"its content is now {source.status}" if problem else None]
        detail = "; ".join(part for part in details if part) or None
        over = is_over_cap(metadata, record.size_bytes)
        row = FileReport(file.uid, file.name, status, over, detail)
        is_bad = problem is not None
        return Examined(row, record, signature, is_bad=is_bad, data=source.data, stored=source.stored)

    def _own(self, record: Record) -> Record:
        """The record as a change made in this directory, if it is mirrored."""
        return record if self._origin is None else stamped(record, self._origin)

    def _again(
        self, store: Store, examined: Sequence[Examined], files: dict[str, DeclaredFile]
    ) -> list[Examined | MissingFile]:
        """The same items, examined anew where a file changed before its lock was held."""

        def is_as_it_was(item: Examined) -> bool:
            return item.record is None or store.signature(record_path(item.row.uid)) == item.signature

        with _examining():
            return [
                item if is_as_it_was(item) else self._examine(store.descriptor, files[item.row.uid], None)
                for item in examined
            ]


def _write(store: Store, items: Iterable[Examined]) -> dict[str, Signature]:
    """Keep what is bad, then commit every new record, all at once unless they are too large for one commit."""
    changes = []
    for item in items:
        assert item.record is not None
        path = record_path(item.row.uid)
        if item.is_bad:
            store.keep_aside(path, why=item.row.detail or "unreadable")
        if item.data is None:
            changes.append(version_of(item.record, replaces=item.signature))
        else:
            changes.append(NewVersion(path, item.record.revision, item.data, replaces=item.signature))
    signatures: dict[str, Signature] = {}
    for group in groups_of(changes):
        signatures |= store.commit(group)
    return signatures


def _seen_after(item: Examined, signatures: dict[str, Signature]) -> Observed[Record] | None:
    if item.record is None:
        return item.seen
    return Observed(item.record, signatures[record_path(item.row.uid)])


def _orphans(directory: int, files: Sequence[DeclaredFile]) -> tuple[str, ...]:
    """The uids of the records that lie there undeclared."""
    with _examining():
        foreign = set(atomic.names(directory)).difference([f"{file.uid}.json" for file in files])
    return tuple(sorted(uid for name in foreign if (uid := uid_of(name)) is not None))


def _report(examined: Sequence[Examined], orphans: tuple[str, ...]) -> RestoreReport:
    return RestoreReport(tuple([item.row for item in examined]), orphans)


def _examining() -> AbstractContextManager[None]:
    return storage_failure("the memory directory cannot be examined; nothing was changed")
