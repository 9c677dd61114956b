"""How far a mirror is behind, seen from outside: nothing is made or changed, and the mirror is not asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time_ns
from typing import Any, Literal

from memfiles.errors import RecordCorrupt
from memfiles.records.entry_codec import is_of_one_run
from memfiles.records.keys import entry_place, record_path
from memfiles.records.record import MAX_RECORD_BYTES, digest
from memfiles.storage import atomic, quarantine
from memfiles.storage import entry_folders as folders
from memfiles.storage.atomic import Signature, storage_failure
from memfiles.sync.dirty_scan import Dirty
from memfiles.sync.ledger import LedgerSnapshot, peek
from memfiles.sync.replica import Outcome
from memfiles.workflow.workflow import MirrorSpec, Workflow


def status_on_disk(workflow: Workflow) -> SyncStatus:
    """What ``Sync.status`` would say, found without opening the memory; ``last_error`` is that of the last process."""
    conflicts = tuple(path for path, _ in kept_conflicts(workflow.directory))
    mirror = workflow.memory.mirror
    if mirror is None:
        return SyncStatus(conflicts=conflicts)
    noted = peek(workflow.directory, mirror=mirror.url)
    dirty = _dirty(workflow, noted)
    oldest = min(dirty, key=lambda record: record.since_ns, default=None)
    lag = max(0.0, (time_ns() - oldest.since_ns) / 1e9) if oldest else 0.0
    return SyncStatus(mirror.url, len(dirty), oldest and oldest.path, round(lag, 3), noted.last_error, conflicts)


def pending_records(workflow: Workflow) -> list[str]:
    """The paths of the records that the mirror lacks as they are now."""
    mirror = workflow.memory.mirror
    if mirror is None:
        return []
    noted = peek(workflow.directory, mirror=mirror.url)
    return [record.path for record in _dirty(workflow, noted)]


def kept_conflicts(directory: Path) -> list[tuple[str, str]]:
    """The path and the reason of every losing copy that was kept in ``directory``; none if it is not there."""
    with _opened(directory) as descriptor:
        return quarantine.listing(descriptor, folder=quarantine.CONFLICTS) if descriptor is not None else []


def _dirty(workflow: Workflow, noted: LedgerSnapshot) -> list[Dirty]:
    """The records that the mirror has not acknowledged as they are; what is not on the disk is not to be pushed."""
    with _opened(workflow.directory) as descriptor:
        if descriptor is None:
            return []
        found = {path: seen for path, seen in _signatures(descriptor, workflow) if noted.signatures.get(path) != seen}
        return [
            Dirty(path, seen.mtime_ns)
            for path, seen in found.items()
            if _must_be_pushed(descriptor, path, noted.digests.get(path))
        ]


def _signatures(directory: int, workflow: Workflow) -> Iterator[tuple[str, Signature]]:
    """Of every declared memory file and every entry on the disk."""
    for path in (record_path(file.uid) for file in workflow.memory.files):
        if (seen := atomic.signature(directory, path)) is not None:
            yield path, seen
    for folder in folders.folder_times(directory):
        for path, there in folders.files(directory, folder, []):
            if entry_place(path) is not None:
                yield path, Signature(*there)


def _must_be_pushed(directory: int, path: str, acknowledged: str | None) -> bool:
    """Whether the mirror is to have what lies there and has it not; what cannot be read may be anything."""
    try:
        if acknowledged is None and entry_place(path) is None:
            return True
        found = atomic.read(directory, path, limit=MAX_RECORD_BYTES)
        if found is None:
            return False
        return digest(found[0]) != acknowledged and not (entry_place(path) and is_of_one_run(found[0], path=path))
    except RecordCorrupt:
        return True


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


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """``url`` names the mirror; ``pull_seconds`` is how often it is looked at for changes (None: never by itself)."""

    url: str = "given by the program"
    on_conflict: Literal["local", "remote"] = "local"
    pull_at_start: bool = False
    pull_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How far the mirror is behind; ``mirror`` is None where there is none.

    ``pending`` counts the records whose last change the mirror has not acknowledged, ``lag_seconds`` is how long the
    one called ``oldest_pending`` has been waiting. ``last_error`` is what last went wrong, None once all went well.
    ``conflicts`` are the losing copies that were kept.
    """

    mirror: str | None = None
    pending: int = 0
    oldest_pending: str | None = None
    lag_seconds: float = 0.0
    last_error: str | None = None
    conflicts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {**asdict(self), "conflicts": list(self.conflicts)}


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a pull or push did: the outcome for each record it looked at, by path, and what is still pending.

    ``equal``: nothing to do; ``pushed``: the mirror has it now; ``pulled``: the mirror's was taken; ``merged``: both
    writers' changes are in both copies now; ``conflict``: so are those that agree, and the losing copy was kept.
    """

    outcomes: Mapping[str, Outcome]
    pending: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of the whole report."""
        return {"records": dict(self.outcomes), "pending": list(self.pending)}


def settings_of(declared: MirrorSpec | None) -> SyncSettings:
    """The settings that a workflow declares."""
    if declared is None:
        return SyncSettings()
    seconds = float(declared.pull) if isinstance(declared.pull, int) else None
    at_start = declared.pull != "cold-start"
    return SyncSettings(declared.url, declared.on_conflict, pull_at_start=at_start, pull_seconds=seconds)


class NullSync:
    """Takes the calls that ``Sync`` takes."""

    settings = SyncSettings()

    def __init__(self, status: Callable[[], SyncStatus] = SyncStatus) -> None:
        """``status`` reads the status of a mirror that nothing is pushed to; without it nothing is behind."""
        self._status = status

    def status(self) -> SyncStatus:
        """How far the mirror is behind."""
        return self._status()

    def flush(
        self,
        timeout: float = 30.0,
        *,
        insist: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """True at once."""
        return True

    def push(self, timeout: float = 300.0, *, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        """Nothing is pushed."""
        return SyncReport({}, ())

    def pull(self, timeout: float = 300.0, *, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        """Nothing is fetched."""
        return SyncReport({}, ())

    def close(self, timeout: float = 0.0) -> bool:
        """True: nothing is left."""
        return True
