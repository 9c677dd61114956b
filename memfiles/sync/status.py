"""Settings, status and reports of the sync, and the status as read from the disk without opening a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from memfiles.errors import RecordCorrupt
from memfiles.records.keys import entry_place, record_path
from memfiles.records.record import MAX_RECORD_BYTES, digest
from memfiles.storage import atomic, quarantine
from memfiles.storage import entry_folders as folders
from memfiles.storage.atomic import Signature, storage_failure

if TYPE_CHECKING:
    from memfiles.storage.events import Progress
    from memfiles.sync.conflicts import Conflict, ConflictResolved, Conflicts
    from memfiles.sync.dirty_scan import Dirty
    from memfiles.sync.ledger import LedgerSnapshot
    from memfiles.sync.replica import Outcome
    from memfiles.workflow.specs import MirrorSpec
    from memfiles.workflow.workflow import Workflow

REFUSED = ".state/refused.json"


def status_on_disk(workflow: Workflow) -> SyncStatus:
    """The status without opening the memory or asking the mirror; ``last_error`` is that of the last process."""
    mirror = workflow.memory.mirror
    if mirror is None:
        return SyncStatus(conflicts=tuple(path for path, _ in kept_conflicts(workflow.directory)))
    noted = _peek(workflow.directory, mirror.identity)
    dirty, told = _dirty(workflow, noted), (noted.last_error, noted.shortcomings)
    return status_of(mirror.url, dirty, *told, directory=workflow.directory)


def status_of(
    mirror: str,
    dirty: Collection[Dirty],
    last_error: str | None,
    shortcomings: tuple[str, ...] | None,
    *,
    directory: Path,
) -> SyncStatus:
    """The status with these records still to be pushed."""
    oldest = min(dirty, key=lambda record: record.since_ns, default=None)
    lag = max(0.0, (time_ns() - oldest.since_ns) / 1e9) if oldest else 0.0
    conflicts = tuple(path for path, _ in kept_conflicts(directory))
    pending = (len(dirty), oldest and oldest.path, round(lag, 3))
    return SyncStatus(mirror, *pending, last_error, conflicts, shortcomings, refused_in(directory))


def pending_records(workflow: Workflow) -> list[str]:
    """The paths of the records whose present versions the mirror lacks."""
    mirror = workflow.memory.mirror
    if mirror is None:
        return []
    noted = _peek(workflow.directory, mirror.identity)
    return [record.path for record in _dirty(workflow, noted)]


def kept_conflicts(directory: Path) -> list[tuple[str, str]]:
    """The path and the reason of every kept losing copy in ``directory``; none if it does not exist."""
    return kept_in(directory, quarantine.CONFLICTS)


def conflicts_in(directory: Path, **given: Any) -> Conflicts:
    """The conflicts in ``directory``; ``given`` is as of ``Conflicts``."""
    from memfiles.sync.conflicts import Conflicts  # late: only who settles conflicts needs it

    return Conflicts(directory, **given)


def refused_in(directory: Path) -> dict[str, str]:
    """By path, why objects of the mirror are not used, as ``mirrors.sealed.refusals`` notes it."""
    try:
        return {path: why for path, (_, why) in json.loads((directory / REFUSED).read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def kept_in(directory: Path, folder: str) -> list[tuple[str, str]]:
    """The path and the reason of every copy kept in quarantine or conflicts; none if there is no ``directory``."""
    with _opened(directory) as descriptor:
        return quarantine.listing(descriptor, folder=folder) if descriptor is not None else []


def _dirty(workflow: Workflow, noted: LedgerSnapshot) -> list[Dirty]:
    """The records on the disk whose present versions the mirror has not acknowledged."""
    from memfiles.sync.dirty_scan import Dirty  # late: only workflows with a mirror need it

    with _opened(workflow.directory) as descriptor:
        if descriptor is None:
            return []
        found = {path: seen for path, seen in _signatures(descriptor, workflow) if noted.signatures.get(path) != seen}
        return [
            Dirty(path, seen.mtime_ns)
            for path, seen in found.items()
            if _must_be_pushed(descriptor, path, noted.digests.get(path))
        ]


def _peek(directory: Path, mirror: str) -> LedgerSnapshot:
    from memfiles.sync.ledger import peek  # late: only workflows with a mirror need it

    return peek(directory, mirror=mirror)


def _signatures(directory: int, workflow: Workflow) -> Iterator[tuple[str, Signature]]:
    """The signatures of every declared memory file and every entry on the disk."""
    for path in (record_path(file.uid) for file in workflow.memory.files):
        if (seen := atomic.signature(directory, path)) is not None:
            yield path, seen
    for folder in folders.folder_times(directory):
        yield from ((path, Signature(*at)) for path, at in folders.files(directory, folder, []) if entry_place(path))


def _must_be_pushed(directory: int, path: str, acknowledged: str | None) -> bool:
    """Whether the file must be pushed; an unreadable one counts, as it may be anything."""
    from memfiles.records.entry_codec import is_of_one_run  # late, as above

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
    """A descriptor of the directory, None if it does not exist."""
    with storage_failure(f"cannot look at the memory directory {directory}"):
        try:
            descriptor = atomic.Descriptor.of_directory(directory)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        yield descriptor


class SyncSettings(Struct, frozen=True):
    """``url`` names the mirror; ``pull_seconds`` is the time between pulls (None: no automatic pull)."""

    url: str = "given by the program"
    on_conflict: Literal["local", "remote"] = "local"
    pull_at_start: bool = False
    pull_seconds: float | None = None


class SyncStatus(Struct, frozen=True):
    """How far the mirror is behind; ``mirror`` is None if there is none.

    ``pending`` counts the records whose last change the mirror has not acknowledged; ``oldest_pending`` has been
    waiting for ``lag_seconds``. ``last_error`` is the last error of a record or request that still fails.
    ``conflicts`` are the losing copies that were kept. ``shortcomings`` are the promises that the mirror breaks, one
    sentence each; None: not known yet. ``refused`` says by path why objects of the mirror are not used.
    """

    mirror: str | None = None
    pending: int = 0
    oldest_pending: str | None = None
    lag_seconds: float = 0.0
    last_error: str | None = None
    conflicts: tuple[str, ...] = ()
    shortcomings: tuple[str, ...] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        told = list(self.shortcomings) if self.shortcomings is not None else None
        return {**asdict(self), "conflicts": list(self.conflicts), "shortcomings": told}


class SyncReport(Struct, frozen=True):
    """The result of a pull or push: the outcome for each record by path, and the records still pending.

    ``equal``: nothing to do; ``pushed``: the mirror has it now; ``pulled``: the mirror's copy was taken; ``merged``:
    the record has both writers' changes; ``conflict``: it has those that agree, and the losing copy was kept.
    ``refused`` is as in the status.
    """

    outcomes: Mapping[str, Outcome]
    pending: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of the whole report."""
        return {"records": dict(self.outcomes), "pending": list(self.pending), "refused": dict(self.refused)}


def settings_of(declared: MirrorSpec | None) -> SyncSettings:
    """The settings that a workflow declares."""
    if declared is None:
        return SyncSettings()
    seconds = float(declared.pull) if isinstance(declared.pull, int) else None
    at_start = declared.pull != "cold-start"
    return SyncSettings(declared.url, declared.on_conflict, pull_at_start=at_start, pull_seconds=seconds)


class NullSync:
    """The null object for a memory without a mirror: every call of ``Sync`` succeeds at once."""

    settings = SyncSettings()

    def __init__(self, status: Callable[[], SyncStatus] = SyncStatus, *, kept: Callable[[], Conflicts]) -> None:
        """``status`` reads the status of a mirror that nothing is pushed to; ``kept`` gives earlier conflicts."""
        self._status = status
        self._kept = kept

    def conflicts(self) -> list[Conflict]:
        """As of ``Conflicts``."""
        return self._kept().conflicts()

    def resolve(self, conflict: str, **taken: Any) -> ConflictResolved:
        """As of ``Conflicts``."""
        return self._kept().resolve(conflict, **taken)

    def status(self) -> SyncStatus:
        """How far the mirror is behind."""
        return self._status()

    def flush(self, timeout: float = 30.0, *, insist: bool = True, progress: Progress | None = None) -> bool:
        """True at once."""
        return True

    def push(self, timeout: float = 300.0, *, progress: Progress | None = None) -> SyncReport:
        """Nothing is pushed or fetched."""
        return SyncReport({}, ())

    pull = push

    def close(self, timeout: float = 0.0) -> bool:
        """True: nothing is left."""
        return True
