"""Settings, status and reports of the sync, and the status as read from the disk without opening a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from memfiles.errors import MemfilesError, RecordCorrupt, StorageFailed
from memfiles.records.keys import entry_place, record_path
from memfiles.records.record import digest
from memfiles.storage import quarantine
from memfiles.storage.atomic import Signature, is_of_one_file, storage_failure
from memfiles.storage.home import DirectoryRecords, MemoryHome, MemoryPlace, home_of
from memfiles.storage.record_store import ReadableStore

if TYPE_CHECKING:
    from memfiles.storage.events import Progress
    from memfiles.storage.record_store import Records
    from memfiles.sync.conflicts import Conflict, ConflictResolved, Conflicts
    from memfiles.sync.dirty_scan import DirtyRecord
    from memfiles.sync.ledger import LedgerSnapshot
    from memfiles.sync.replica import Outcome
    from memfiles.workflow.specs import MirrorSpec
    from memfiles.workflow.workflow import Workflow

REFUSED = ".state/refused.json"
_AT_ONCE = 256  # records that are read with one question


def status_on_disk(workflow: Workflow) -> SyncStatus:
    """The status without opening the memory or asking the mirror; ``last_error`` is that of the last process."""
    mirror, home = workflow.memory.mirror, home_of(workflow.place)
    with home.held():
        if mirror is None:
            return SyncStatus(conflicts=tuple(path for path, _ in kept_conflicts(home)))
        noted = _peek(home, mirror.identity)
        dirty, told = _dirty(workflow, home, noted), (noted.last_error, noted.shortcomings)
        return status_of(mirror.url, dirty, *told, where=home)


def status_of(
    mirror: str,
    dirty: Collection[DirtyRecord],
    last_error: str | None,
    shortcomings: tuple[str, ...] | None,
    *,
    where: MemoryPlace,
) -> SyncStatus:
    """The status with these records still to be pushed."""
    oldest = min(dirty, key=lambda record: record.since_ns, default=None)
    lag = max(0.0, (time_ns() - oldest.since_ns) / 1e9) if oldest else 0.0
    conflicts = tuple(path for path, _ in kept_conflicts(where))
    pending = (len(dirty), oldest and oldest.path, round(lag, 3))
    return SyncStatus(mirror, *pending, last_error, conflicts, shortcomings, refused_in(where))


def pending_records(workflow: Workflow) -> list[str]:
    """The paths of the records whose present versions the mirror lacks."""
    mirror, home = workflow.memory.mirror, home_of(workflow.place)
    if mirror is None:
        return []
    with home.held():
        return [record.path for record in _dirty(workflow, home, _peek(home, mirror.identity))]


def kept_conflicts(where: MemoryPlace) -> list[tuple[str, str]]:
    """The path and the reason of every kept losing copy; none if nothing exists there."""
    return kept_in(where, quarantine.CONFLICTS)


def conflicts_in(where: MemoryPlace, **given: Any) -> Conflicts:
    """The conflicts of a memory; ``given`` is as of ``Conflicts``."""
    from memfiles.sync.conflicts import Conflicts  # late: only resolving a conflict needs it

    return Conflicts(where, **given)


def refused_in(where: MemoryPlace) -> dict[str, str]:
    """By path, why objects of the mirror are not used, as ``mirrors.sealed.refusals`` notes it."""
    try:
        noted = home_of(where).notes.get(REFUSED)
        return {path: why for path, (_, why) in json.loads(noted).items()} if noted is not None else {}
    except (OSError, MemfilesError, ValueError, AttributeError, TypeError):
        return {}


def kept_in(where: MemoryPlace, folder: str) -> list[tuple[str, str]]:
    """The path and the reason of every copy kept in quarantine or conflicts; none if nothing exists there."""
    return home_of(where).kept.listing(folder)


def _dirty(workflow: Workflow, home: MemoryHome, noted: LedgerSnapshot) -> list[DirtyRecord]:
    """The records whose present versions the mirror has not acknowledged."""
    from memfiles.sync.dirty_scan import DirtyRecord  # late: only workflows with a mirror need it

    declared = {record_path(file.uid) for file in workflow.memory.files}
    with home.reading() as records, storage_failure(f"cannot look at {home.title}"):
        if records is None:
            return []
        there, unlisted = listed_in(records)
        found = {path: seen for path, seen in there.items() if noted.signatures.get(path) != seen}
        wanted = [path for path in found if path in declared or entry_place(path) is not None]
        dirty = [DirtyRecord(path, time_ns()) for path in unlisted]
        for some in (wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE)):
            view = records.view(some)
            due = (path for path in some if _must_be_pushed(view, path, noted.digests.get(path)))
            dirty += [DirtyRecord(path, found[path].mtime_ns or time_ns()) for path in due]
        return dirty


def listed_in(records: ReadableStore) -> tuple[dict[str, Signature], dict[str, str]]:
    """All records, and by path why folders of them cannot be listed at the moment."""
    if isinstance(records, DirectoryRecords):
        from memfiles.storage.entry_folders import listed  # late: few ask for all

        return listed(records.descriptor)
    return {path: seen for path, seen in records.changes().records.items() if seen is not None}, {}


def _peek(home: MemoryHome, mirror: str) -> LedgerSnapshot:
    from memfiles.sync.ledger import peek  # late: only workflows with a mirror need it

    return peek(home, mirror=mirror)


def _must_be_pushed(records: Records, path: str, acknowledged: str | None) -> bool:
    """Whether the record must be pushed; an unreadable one counts, as it may be anything."""
    from memfiles.records.entry_codec import is_of_one_run  # late, as above

    try:
        if acknowledged is None and entry_place(path) is None:
            return True
        if (found := records.find(path)) is None:
            return False
        return digest(found[0]) != acknowledged and not (entry_place(path) and is_of_one_run(found[0], path=path))
    except RecordCorrupt:
        return True
    except (OSError, StorageFailed) as error:
        if not is_of_one_file(error):
            raise
        return True


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
        broken = list(self.shortcomings) if self.shortcomings is not None else None
        return {**asdict(self), "conflicts": list(self.conflicts), "shortcomings": broken}


class SyncReport(Struct, frozen=True):
    """The result of a pull or push: the outcome for each record by path, and the records still pending.

    ``equal``: nothing to do; ``pushed``: the mirror has it now; ``pulled``: the mirror's copy was taken; ``merged``:
    the record has both writers' changes; ``conflict``: it has the changes that agree, and the losing copy was kept.
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
    """The null object for a memory without a mirror: every call succeeds at once; see ``Sync`` and ``Conflicts``."""

    settings = SyncSettings()

    def __init__(self, status: Callable[[], SyncStatus] = SyncStatus, *, kept: Callable[[], Conflicts]) -> None:
        """``status`` reads the status of a mirror that nothing is pushed to; ``kept`` gives earlier conflicts."""
        self._status = status
        self._kept = kept

    def conflicts(self) -> list[Conflict]:
        return self._kept().conflicts()

    def resolve(self, conflict: str, **taken: Any) -> ConflictResolved:
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
