"""What is to be done, found by comparing the disk, what the mirror acknowledged, and what it lists now.

The rule this file guards: a look costs about as much as there is news. 100,000 entries take half a second to compare;
a folder of them in which no file was put since the last comparison is not compared again, unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from memfiles.atomic import Signature, is_settled
from memfiles.bookkeeping import Acknowledged, Bookkeeping
from memfiles.copies import copies_of
from memfiles.errors import RecordCorrupt
from memfiles.keys import ENTRIES
from memfiles.mirror import Stored
from memfiles.record import digest
from memfiles.replica import Replica
from memfiles.sync.newcomers import Newcomers


class Dirty(NamedTuple):
    """A record whose present version the mirror has not acknowledged, and when that was written (ns, wall clock)."""

    path: str
    since_ns: int


@dataclass(slots=True)
class _Compared:
    """A folder of entries as it was when it was compared: when it had changed last (ns), and what was to be pushed."""

    changed_ns: int
    dirty: list[str] = field(default_factory=list)


class Survey:
    """Looks for what the mirror lacks. Threads may share it."""

    def __init__(self, replica: Replica, book: Bookkeeping, newcomers: Newcomers) -> None:
        self._replica = replica
        self._book = book
        self._newcomers = newcomers
        self._compared: dict[str, _Compared] = {}
        self._private: dict[str, Signature] = {}

    def dirty(self, *, thorough: bool = False) -> list[Dirty]:
        """The records to be pushed. One stat each; only those that changed since the last look are read.

        ``thorough`` False takes it that entries change by files being put in place, as memfiles and editors do.
        """
        found = self._signatures(self._replica.file_paths())
        dirty = self._compare(found, under="")
        for folder, changed_ns in self._replica.entries.folders().items():
            dirty += self._compare_folder(folder, changed_ns, thorough=thorough)
        return dirty

    def changed(self, listed: Mapping[str, str]) -> list[str]:
        """The records whose copies are not at the version last known, or that have none any more."""
        known = self._book.versions()
        return [path for path in self._replica.paths() if listed.get(path) != known.get(path)]

    def lost(self, listed: Mapping[str, str]) -> list[str]:
        """The records of which the mirror once had a copy and has none any more."""
        known = self._book.versions()
        return [path for path in self._replica.paths() if path in known and path not in listed]

    def _compare_folder(self, folder: str, changed_ns: int, *, thorough: bool) -> list[Dirty]:
        before = self._compared.get(folder)
        with self._newcomers.settled():
            if before is not None and before.changed_ns == changed_ns and not thorough:
                found = self._signatures(before.dirty)
            else:
                found = self._replica.entries.signatures(folder)
            dirty = self._compare(found, under=f"{ENTRIES}/{folder}")
        if is_settled(Signature(0, 0, changed_ns)):
            self._compared[folder] = _Compared(changed_ns, [record.path for record in dirty])
        else:
            self._compared.pop(folder, None)
        return dirty

    def _compare(self, found: Mapping[str, Signature], *, under: str) -> list[Dirty]:
        """Those of the records with these signatures whose versions the mirror has not acknowledged."""
        noted = self._book.signatures(under=under) if found else {}
        changed = [(path, now) for path, now in found.items() if noted.get(path) != now]
        digests = self._book.digests(under=under) if changed else {}
        dirty: list[Dirty] = []
        settled: dict[str, Signature] = {}
        for path, signature in changed:
            local = self._replica.read(path) if path in digests else None
            if local is None:
                if not self._is_private(path, signature):
                    dirty.append(Dirty(path, signature.mtime_ns))
            elif local.is_provisional or local.digest != digests[path]:
                dirty.append(Dirty(path, signature.mtime_ns))
            elif is_settled(local.signature):
                settled[path] = local.signature
        if settled:
            self._book.settle(settled)
        return dirty

    def _is_private(self, path: str, signature: Signature) -> bool:
        """Whether no mirror may have what lies at ``path``; what was found so is not read again."""
        if self._private.get(path) == signature:
            return True
        is_private = self._replica.is_private(path)
        if is_private:
            self._private[path] = signature
        return is_private

    def _signatures(self, paths: Iterable[str]) -> dict[str, Signature]:
        found = ((path, self._replica.signature(path)) for path in paths)
        return {path: seen for path, seen in found if seen is not None}


def note_hydrated(book: Bookkeeping, hydrated: Mapping[str, Stored]) -> None:
    """Note the copies that a restore fetched: the mirror holds them, at these versions."""
    copies = []
    for path, stored in hydrated.items():
        try:
            record = copies_of(path).decode(stored.body, path=path)
        except RecordCorrupt:
            continue
        copies.append(Acknowledged(path, stored.version, stored.body, record.revision, digest(stored.body)))
    if copies:
        book.acknowledge(*copies)
