"""The scan for records to push, by comparing the disk, the ledger and the mirror's listing.

The rule this file guards: a scan costs about as much as there is news. 100,000 entries take half a second to compare;
a folder in which no file was put since the last scan is not compared again, unless the scan is thorough.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time_ns
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from memfiles.errors import RecordCorrupt, StorageFailed
from memfiles.records import NamedTuple
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.records.record import digest
from memfiles.storage.atomic import Signature, is_of_one_file, is_settled
from memfiles.sync.downloads import EntryDownloads
from memfiles.sync.ledger import Acknowledged, Ledger
from memfiles.sync.merge.record_types import decode_copy
from memfiles.sync.mirror import Stored
from memfiles.sync.replica import Replica

_PATIENCE_SECONDS = 300.0
Care = Literal["patient", "usual", "thorough"]


class DirtyRecord(NamedTuple):
    """A record whose present version the mirror has not acknowledged, and when it was written (ns, wall clock).

    ``unread`` says why it, or a folder of entries, cannot be read at the moment, so it is unknown what must be pushed.
    """

    path: str
    since_ns: int
    unread: StorageFailed | None = None


class _Compared(Struct):
    """A folder of entries as of its scan ``at`` a time (s, monotonic): modification time (ns) and paths to push.

    ``is_sure``: any later change has another modification time.
    """

    changed_ns: int
    is_sure: bool
    at: float
    dirty: list[str] = field(default_factory=list)

    def still_holds(self, changed_ns: int, *, patient: bool) -> bool:
        """Whether nothing else can have become dirty, or a ``patient`` scan need not look yet."""
        is_unchanged = self.is_sure and self.changed_ns == changed_ns
        return is_unchanged or (patient and monotonic() - self.at < _PATIENCE_SECONDS)


class DirtyScan:
    """Finds what the mirror lacks. Threads may share it."""

    def __init__(self, replica: Replica, ledger: Ledger, downloads: EntryDownloads) -> None:
        self._replica = replica
        self._ledger = ledger
        self._downloads = downloads
        self._compared: dict[str, _Compared] = {}
        self._private: dict[str, Signature] = {}
        self._first_seen: dict[str, tuple[Signature, int]] = {}

    def dirty(self, *, care: Care = "usual") -> list[DirtyRecord]:
        """The records to push. One stat each; only records that changed since the last scan are read.

        The usual care assumes that entries change by renaming files into place, as memfiles and editors do. A patient
        scan relies on events for some minutes, a thorough one on nothing.
        """
        listing = self._replica.listing
        dirty = self._compare(listing.signatures(listing.file_paths()), under="")
        for folder, changed_ns in listing.folders().items():
            dirty += self._compare_folder(folder, changed_ns, care=care)
        unlisted = listing.unlisted.topmost()
        return dirty + [DirtyRecord(path, time_ns(), StorageFailed(why)) for path, why in unlisted.items()]

    def recheck(self, path: str) -> None:
        """Compare this record again in the next scan although its folder did not change: its copy may be lost."""
        place = entry_place(path)
        if place is not None and (before := self._compared.get(place[0])) is not None:
            self._compared[place[0]] = replace(before, dirty=[*before.dirty, path])

    def changed(self, listed: Mapping[str, str]) -> list[str]:
        """The records whose copies are not at the version last known, or are gone."""
        known = self._ledger.versions()
        return [path for path in self._replica.listing.paths() if listed.get(path) != known.get(path)]

    def lost(self, listed: Mapping[str, str]) -> list[str]:
        """The records whose copies the mirror has lost."""
        known = self._ledger.versions()
        return [path for path in self._replica.listing.paths() if path in known and path not in listed]

    def _compare_folder(self, folder: str, changed_ns: int, *, care: Care) -> list[DirtyRecord]:
        before = self._compared.get(folder)
        is_known = before is not None and before.still_holds(changed_ns, patient=care == "patient")
        if before is not None and is_known and care != "thorough" and not before.dirty:
            return []  # most folders of many users
        with self._downloads.writing:
            if before is not None and is_known and care != "thorough":
                dirty = self._compare(self._replica.listing.signatures(before.dirty), under=f"{ENTRIES}/{folder}")
                self._compared[folder] = replace(before, dirty=[record.path for record in dirty])
                return dirty
            dirty = self._compare(self._replica.listing.entries_in(folder), under=f"{ENTRIES}/{folder}")
        is_sure = is_settled(Signature(0, 0, changed_ns)) and folder not in self._replica.listing.unlisted
        self._compared[folder] = _Compared(changed_ns, is_sure, monotonic(), [record.path for record in dirty])
        return dirty

    def _compare(self, found: Mapping[str, Signature], *, under: str) -> list[DirtyRecord]:
        """The records with these signatures whose present versions the mirror has not acknowledged."""
        noted = self._ledger.signatures(under=under) if found else {}
        changed = [(path, now) for path, now in found.items() if noted.get(path) != now]
        digests = self._ledger.digests(under=under) if changed else {}
        dirty: list[DirtyRecord] = []
        settled: dict[str, Signature] = {}
        for path, signature in changed:
            try:
                local = self._replica.read(path) if path in digests else None
                is_left_out = local is None and self._is_private(path, signature)
            except StorageFailed as error:
                if not is_of_one_file(error):
                    raise
                dirty.append(DirtyRecord(path, self._since(path, signature), error))
                continue
            is_known = local is not None and not local.is_provisional and local.digest == digests[path]
            if local is not None and is_known:
                self._first_seen.pop(path, None)
                if is_settled(local.signature):
                    settled[path] = local.signature
            elif not is_left_out:
                dirty.append(DirtyRecord(path, self._since(path, signature)))
        if settled:
            self._ledger.settle(settled)
        return dirty

    def _since(self, path: str, signature: Signature) -> int:
        """When a version was written, or first seen here if its store has no times."""
        if signature.mtime_ns > 0:
            return signature.mtime_ns
        if self._first_seen.get(path, (None, 0))[0] != signature:
            self._first_seen[path] = signature, time_ns()
        return self._first_seen[path][1]

    def _is_private(self, path: str, signature: Signature) -> bool:
        """Whether no mirror may have the record at ``path``; an answer is kept for each version."""
        if self._private.get(path) != signature and self._replica.is_private(path):
            self._private[path] = signature
        return self._private.get(path) == signature


def note_hydrated(ledger: Ledger, hydrated: Mapping[str, Stored]) -> None:
    """Acknowledge the copies that a restore fetched: the mirror has them, at these versions."""
    copies = []
    for path, stored in hydrated.items():
        try:
            record = decode_copy(stored.body, path=path)
        except RecordCorrupt:
            continue
        copies.append(Acknowledged(path, stored.version, stored.body, record.revision, digest(stored.body)))
    if copies:
        ledger.acknowledge(*copies)
