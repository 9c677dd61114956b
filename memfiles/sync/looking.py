"""How far a mirror is behind, seen from outside: nothing is made or changed, and the mirror is not asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns

from memfiles import atomic, quarantine
from memfiles.bookkeeping import Noted, peek
from memfiles.errors import RecordCorrupt
from memfiles.keys import record_path
from memfiles.record import MAX_RECORD_BYTES, digest
from memfiles.store import storage_failure
from memfiles.sync.reports import SyncStatus
from memfiles.sync.survey import Dirty
from memfiles.workflow import Workflow


def look(workflow: Workflow) -> SyncStatus:
    """What ``Sync.status`` would say, found without opening the memory; ``last_error`` is that of the last process."""
    conflicts = tuple(path for path, _ in kept_conflicts(workflow.directory))
    mirror = workflow.memory.mirror
    if mirror is None:
        return SyncStatus(conflicts=conflicts)
    noted = peek(workflow.directory, mirror=mirror.url)
    dirty = _dirty(workflow.directory, [record_path(file.uid) for file in workflow.memory.files], noted)
    oldest = min(dirty, key=lambda record: record.since_ns, default=None)
    lag = max(0.0, (time_ns() - oldest.since_ns) / 1e9) if oldest else 0.0
    return SyncStatus(mirror.url, len(dirty), oldest and oldest.path, round(lag, 3), noted.last_error, conflicts)


def pending_records(workflow: Workflow) -> list[str]:
    """The paths of the records that the mirror lacks as they are now."""
    mirror = workflow.memory.mirror
    if mirror is None:
        return []
    noted = peek(workflow.directory, mirror=mirror.url)
    paths = [record_path(file.uid) for file in workflow.memory.files]
    return [record.path for record in _dirty(workflow.directory, paths, noted)]


def kept_conflicts(directory: Path) -> list[tuple[str, str]]:
    """The path and the reason of every losing copy that was kept in ``directory``; none if it is not there."""
    with _opened(directory) as descriptor:
        return quarantine.listing(descriptor, folder=quarantine.CONFLICTS) if descriptor is not None else []


def _dirty(directory: Path, paths: list[str], noted: Noted) -> list[Dirty]:
    """The records that the mirror has not acknowledged as they are; what is not on the disk is not to be pushed."""
    dirty: list[Dirty] = []
    with _opened(directory) as descriptor:
        if descriptor is None:
            return dirty
        for path in paths:
            signature = atomic.signature(descriptor, path)
            if signature is None or noted.signatures.get(path) == signature:
                continue
            if not _is_acknowledged(descriptor, path, noted.digests.get(path)):
                dirty.append(Dirty(path, signature.mtime_ns))
    return dirty


def _is_acknowledged(directory: int, path: str, acknowledged: str | None) -> bool:
    try:
        found = atomic.read(directory, path, limit=MAX_RECORD_BYTES) if acknowledged is not None else None
    except RecordCorrupt:
        return False
    return found is not None and digest(found[0]) == acknowledged


@contextmanager
def _opened(directory: Path) -> Iterator[int | None]:
    """A descriptor of the directory, None where there is none."""
    with storage_failure(f"cannot look at the memory directory {directory}"):
        try:
            descriptor = atomic.open_directory(directory)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)
