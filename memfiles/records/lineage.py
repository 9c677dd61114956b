"""Ancestry: which of two copies of a record knows the changes of the other, and where the two parted.

A copy says in ``origins``, for each memory directory, the revision of the latest change made there that it
includes. The rules this file relies on: a mirror takes a version only over the one it was made from, so its
versions follow one another; a directory gives new revisions only to changes of its own that no mirror has yet;
and whoever made the newest version has its revision as its own entry. The clock orders nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from memfiles.errors import InvalidArgument, RevisionUnknown
from memfiles.records.entry import Entry, Tombstone
from memfiles.records.history import contents
from memfiles.records.record import MAX_ORIGINS, ORIGIN_PATTERN, Change, Origins, Record

Relation = Literal["equal", "behind", "ahead", "diverged", "unknown"]
HasOrigins = Record | Entry | Tombstone


def check_origin(origin: str | None) -> str | None:
    """The id of a memory directory as it was given, or ``InvalidArgument``."""
    if origin is not None and not re.fullmatch(ORIGIN_PATTERN, origin):
        raise InvalidArgument(f"origin {origin[:40]!r} is not 12 hexadecimal digits in lower case")
    return origin


def joined(one: HasOrigins, other: HasOrigins) -> Origins:
    """The version vector of a record that includes both of these."""
    both = one.origins.keys() | other.origins.keys()
    return {origin: max(one.origins.get(origin, 0), other.origins.get(origin, 0)) for origin in both}


def is_included(record: Record, other: Record) -> bool:
    """Whether ``other`` knows every change that ``record`` includes; False if one of them does not say."""
    return bool(record.origins and other.origins) and not _ahead(record, other)


def base_revision(record: Record, other: Record) -> int:
    """The revision, as ``record`` counts, after which its changes are unknown to ``other``; 0: all of them."""
    ahead = _ahead(record, other)
    shared = [revision for origin, revision in record.origins.items() if origin not in ahead]
    return max([*shared, *(other.origins.get(origin, 0) for origin in ahead)], default=0)


def relation(local: Record, remote: Record) -> Relation:
    """How the local copy stands to the remote one.

    Equal: neither knows more. Behind: the remote one knows all of it and more. Ahead: the other way round. Unknown:
    one does not say, or they contradict each other, as the copies of a directory that was itself copied do.
    """
    if not (_tells_all(local) and _tells_all(remote)) or _contradict(local, remote):
        return "unknown"
    known_there, known_here = is_included(local, remote), is_included(remote, local)
    if known_there and known_here:
        return "equal" if (local.revision, local.sha256) == (remote.revision, remote.sha256) else "unknown"
    if known_there:
        return "behind"
    return "ahead" if known_here else "diverged"


def common_revision(one: Record, other: Record) -> int:
    """The newest revision at which both histories hold the same change with the same outcome; 0 if none is."""
    theirs = {change.revision: (change, after) for change, after in _outcomes(other)}
    was_redacted = _was_redacted(one) or _was_redacted(other)
    for change, after in _outcomes(one):
        found, outcome = theirs.get(change.revision, (None, None))
        if found is None or not is_same_change(change, found):
            continue
        if was_redacted or (outcome == after if after is not None is not outcome else change.bytes == found.bytes):
            return change.revision
    return 0


def is_same_change(one: Change, other: Change) -> bool:
    """Whether two copies hold the same change; a redaction alters its text, not who made it and when."""
    return (one.revision, one.at, one.op, one.by) == (other.revision, other.at, other.op, other.by)


def change_at(record: Record, revision: int) -> Change | None:
    """The change that made a revision, if the history still holds it."""
    return next((change for change in record.history if change.revision == revision), None)


def _ahead(record: Record, other: Record) -> set[str]:
    """The directories of which ``record`` includes changes that ``other`` does not."""
    return {origin for origin, revision in record.origins.items() if revision > other.origins.get(origin, 0)}


def _tells_all(record: Record) -> bool:
    """Whether its origins speak of its newest change: one that was made while no mirror was declared is in none."""
    return max(record.origins.values(), default=0) == record.revision


def _contradict(local: Record, remote: Record) -> bool:
    """Whether their origins cannot be believed: their histories differ where the origins say that they are one.

    A list of origins that is full may have lost an early one. A redaction on both sides may renumber changes.
    """
    if _may_have_lost(local, remote) or _may_have_lost(remote, local):
        return True
    parted = base_revision(local, remote)
    here, there = change_at(local, parted), change_at(remote, parted)
    if here is None or there is None or is_same_change(here, there):
        return False
    return not (_was_redacted(local) or _was_redacted(remote))


def _may_have_lost(record: Record, other: Record) -> bool:
    """Whether ``other`` may have known a change that only ``record`` still names."""
    if len(other.origins) < MAX_ORIGINS:
        return False
    earliest = min(other.origins.values())
    return any(revision <= earliest for origin, revision in record.origins.items() if origin not in other.origins)


def _was_redacted(record: Record) -> bool:
    return any(change.op == "redact" for change in record.history)


def _outcomes(record: Record) -> Iterator[tuple[Change, bytes | None]]:
    """Every kept change, newest first, with the content right after it, or None where that is not known."""
    known = 0
    with suppress(RevisionUnknown):  # the history was damaged by hand
        for change, after in contents(record):
            known += 1
            yield change, after
    for change in reversed(record.history[: len(record.history) - known]):
        yield change, None
