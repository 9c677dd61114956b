"""Lineage: version vectors tell which of two copies includes the other's changes, and where they diverged.

The ``origins`` of a copy hold, for each memory directory, the revision of the latest change made there that it
includes. The rules this file relies on: a mirror accepts a version only over the one it was made from, so its versions
follow one another; a directory gives new revisions only to its own changes that no mirror has yet; and the directory
that made the newest version has its revision in the vector. The clock orders nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from memfiles.errors import InvalidArgument, RevisionUnknown
from memfiles.records.entry import Entry
from memfiles.records.history import contents, inserted, without
from memfiles.records.marks import AnyRecord
from memfiles.records.record import MAX_ORIGINS, ORIGIN_PATTERN, Change, Origins, Record
from memfiles.records.redactions import MARKER, lacking

Relation = Literal["equal", "behind", "ahead", "diverged", "unknown"]
PutIn = bytes | Literal["redacted"] | None  # the text of a change; None: unknown, so it may be any


def text_of(record: Record | Entry) -> Record:
    """The text of a memory file or an entry, with its history."""
    return record.text if isinstance(record, Entry) else record


def check_origin(origin: str | None) -> str | None:
    """The id of a memory directory as it was given, or ``InvalidArgument``."""
    if origin is not None and not re.fullmatch(ORIGIN_PATTERN, origin):
        raise InvalidArgument(f"origin {origin[:40]!r} is not 12 hexadecimal digits in lower case")
    return origin


def all_origins(one: AnyRecord, other: AnyRecord) -> Origins:
    """The version vector of a record that includes both of these."""
    both = one.origins.keys() | other.origins.keys()
    return {origin: max(one.origins.get(origin, 0), other.origins.get(origin, 0)) for origin in both}


def base_revision(record: Record, other: Record) -> int:
    """The last revision of ``record`` that ``other`` knows; 0 if it knows none."""
    ahead = _ahead(record, other)
    shared = [revision for origin, revision in record.origins.items() if origin not in ahead]
    return max([*shared, *(other.origins.get(origin, 0) for origin in ahead)], default=0)


def relation(local: Record, remote: Record) -> Relation:
    """The relation of the local copy to the remote one.

    Equal: both include the same changes. Behind: the remote copy includes all local changes and more. Ahead: the other
    way round. Diverged: each has changes of its own. Unknown: one has no complete origins, or they contradict each
    other, as happens when a memory directory is copied.
    """
    if not (_tells_all(local) and _tells_all(remote)) or _contradict(local, remote):
        return "unknown"
    known_there, known_here = not _ahead(local, remote), not _ahead(remote, local)
    if known_there and known_here:
        return "equal" if (local.revision, local.sha256) == (remote.revision, remote.sha256) else "unknown"
    if known_there:
        return "behind"
    return "ahead" if known_here else "diverged"


def common_revision(one: Record, other: Record) -> int:
    """The newest revision with the same change and the same resulting content in both histories; 0 if there is none.

    If anything was redacted, the texts of changes are compared, as what is cleaned depends on later changes; and one
    without a text, or with a redacted one, is the same if the one before it is.
    """
    one, other = redact_alike(one, other)
    by_text = bool(one.redactions or other.redactions)
    walk = _texts if by_text else _outcomes
    theirs = {change.revision: (change, yours) for change, yours in walk(other)}
    newest, oldest = 0, min(theirs, default=0)
    for change, mine in walk(one):
        found, yours = theirs.get(change.revision, (None, None))
        if found is None or not is_same_change(change, found):
            newest = newest if change.revision < oldest else 0
            continue
        may_differ = by_text and (change.is_altered or found.is_altered)
        if mine == yours if None not in (mine, yours) else may_differ or change.bytes == found.bytes:
            newest = newest or change.revision
            if not by_text or (mine == yours and mine not in (None, b"", "redacted")):
                return newest
        else:
            newest = 0
    return newest


def redact_alike(one: Record, other: Record) -> tuple[Record, Record]:
    """Both records, each without the texts that only the other one knows to be redacted: they can be compared then."""
    here, there = lacking(one.redactions, other.redactions), lacking(other.redactions, one.redactions)
    return without(one, here), without(other, there)


def is_same_change(one: Change, other: Change) -> bool:
    """Whether two changes are the same; a redaction alters the text of a change, not who made it and when."""
    return (one.revision, one.at, one.op, one.by) == (other.revision, other.at, other.op, other.by)


def later_changes(one: Record, other: Record, after: int = 0) -> list[list[tuple[Change, PutIn]]]:
    """The changes of each after a revision, newest first, with the text that each put in; see ``redact_alike``."""
    texts = map(_texts, redact_alike(one, other))
    return [[(change, text) for change, text in each if change.revision > after] for each in texts]


def are_among(some: Sequence[tuple[Change, PutIn]], others: Sequence[tuple[Change, PutIn]]) -> bool:
    """Whether each of some ``later_changes`` is one of the others, under any revision, as they may be renumbered.

    Two machines, or one, may change a record twice in one millisecond, so the texts are compared as well.
    """
    left = defaultdict[object, list[PutIn]](list)
    for change, text in others:
        left[change.at, change.op, change.by].append(text)
    for change, text in sorted(some, key=lambda each: each[1] is None):  # an unknown text, which may be any, comes last
        texts = left[change.at, change.op, change.by]
        if text in texts or None in texts:
            texts.remove(text if text in texts else None)
        elif text is None and texts:
            texts.pop()
        else:
            return False
    return True


def change_at(record: Record, revision: int) -> Change | None:
    """The change that made a revision, if the history still holds it."""
    return next((change for change in record.history if change.revision == revision), None)


def changes_here(record: Record) -> tuple[Change, ...]:
    """The changes that an entry's history holds since it came to its path: earlier revisions are of another path."""
    departures = [number for number, change in enumerate(record.history, 1) if change.key or change.place]
    return record.history[departures[-1] :] if departures else record.history


def _ahead(record: Record, other: Record) -> set[str]:
    """The directories with changes that ``record`` includes and ``other`` does not."""
    return {origin for origin, revision in record.origins.items() if revision > other.origins.get(origin, 0)}


def _tells_all(record: Record) -> bool:
    """Whether its origins cover its newest change: a change made while no mirror was declared is in none."""
    return max(record.origins.values(), default=0) == record.revision


def _contradict(local: Record, remote: Record) -> bool:
    """Whether the origins are wrong: the histories differ at a revision that the origins call common.

    A full version vector may have lost an early origin, and the vector of a path may count an earlier entry there.
    """
    if _may_have_lost(local, remote) or _may_have_lost(remote, local):
        return True
    parted = base_revision(local, remote)
    both = [(record, changes_here(record)) for record in (local, remote)]
    if any(all(change.op == "merge" for change in changes) for _, changes in both):  # a sync alone changed it here
        both = [(record, record.history) for record in (local, remote)]
    here, there = (next((it for it in changes if it.revision == parted), None) for _, changes in both)
    if here is not None and there is not None:
        return not is_same_change(here, there)
    lacking = [pair for pair, found in zip(both, (here, there), strict=True) if found is None and pair[1]]
    return any(changes[0].revision < parted < record.revision for record, changes in lacking)


def _may_have_lost(record: Record, other: Record) -> bool:
    """Whether ``other`` may have dropped an origin that only ``record`` still has."""
    if len(other.origins) < MAX_ORIGINS:
        return False
    earliest = min(other.origins.values())
    return any(revision <= earliest for origin, revision in record.origins.items() if origin not in other.origins)


def _texts(record: Record) -> Iterator[tuple[Change, PutIn]]:
    """Every kept change, newest first, with the text that it put in; unknown also if a merge altered it.

    A redacted change that puts in as many markers as it replaces may have completed a text that began in any redacted
    one before it. Theirs are unknown: a copy without the completing change still has the beginning.
    """
    may_have_begun = False
    for change, after in _outcomes(record):
        text = inserted(after, change) if after is not None else None
        is_unknown = change.merged or (change.redacted and may_have_begun)
        yield change, None if is_unknown or text is None else "redacted" if change.redacted else text
        if change.redacted and text is not None and text.count(MARKER.encode()) == change.old.count(MARKER):
            may_have_begun = True


def _outcomes(record: Record) -> Iterator[tuple[Change, bytes | None]]:
    """Every kept change, newest first, with the content right after it, or None if that is unknown."""
    known = 0
    with suppress(RevisionUnknown):  # the history was damaged by hand
        for change, after in contents(record):
            known += 1
            yield change, after
    for change in reversed(record.history[: len(record.history) - known]):
        yield change, None
