"""What is to be done, found by comparing the disk, what the mirror acknowledged, and what it lists now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from memfiles.atomic import Signature, is_settled
from memfiles.bookkeeping import Acknowledged, Bookkeeping
from memfiles.errors import RecordCorrupt
from memfiles.keys import uid_of
from memfiles.mirror import Mirror, Stored
from memfiles.record import decode, digest
from memfiles.replica import Replica


class Dirty(NamedTuple):
    """A record whose present version the mirror has not acknowledged, and when that was written (ns, wall clock)."""

    path: str
    since_ns: int


def dirty_records(replica: Replica, book: Bookkeeping) -> list[Dirty]:
    """The records to be pushed. One stat each; only those that changed since the last look are read."""
    noted = book.signatures()
    found = [(path, replica.signature(path)) for path in replica.paths()]
    changed = [(path, now) for path, now in found if now is not None and noted.get(path) != now]
    dirty: list[Dirty] = []
    settled: dict[str, Signature] = {}
    digests = book.digests() if changed else {}
    for path, signature in changed:
        local = replica.read(path) if path in digests else None
        if local is None or local.record.provisional or local.digest != digests[path]:
            dirty.append(Dirty(path, signature.mtime_ns))
        elif is_settled(local.signature):
            settled[path] = local.signature
    if settled:
        book.settle(settled)
    return dirty


def note_hydrated(book: Bookkeeping, hydrated: Mapping[str, Stored]) -> None:
    """Note the copies that a restore fetched: the mirror holds them, at these versions."""
    copies = []
    for path, stored in hydrated.items():
        try:
            record = decode(stored.body, uid=uid_of(path) or "")
        except RecordCorrupt:
            continue
        copies.append(Acknowledged(path, stored.version, stored.body, record.revision, digest(stored.body)))
    if copies:
        book.acknowledge(*copies)


def changed_copies(replica: Replica, book: Bookkeeping, mirror: Mirror) -> list[str]:
    """The records whose copies are not at the version last known, or that have none any more; one listing."""
    there, known = dict(mirror.list()), book.versions()
    return [path for path in replica.paths() if there.get(path) != known.get(path)]


def lost_copies(replica: Replica, book: Bookkeeping, mirror: Mirror) -> list[str]:
    """The records of which the mirror once had a copy and has none any more; one listing."""
    there, known = dict(mirror.list()), book.versions()
    return [path for path in replica.paths() if path in known and path not in there]
