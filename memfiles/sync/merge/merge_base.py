"""Parting: up to where two copies of a record are one, and what the content was there.

The rule this file keeps: what the origins say comes before what the histories show, and that before what the
caller remembers; where none of them tells, two files that began as seeds parted at their seeds.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from memfiles.errors import RevisionUnknown
from memfiles.records.history import content_at
from memfiles.records.lineage import Relation, base_revision, change_at, common_revision, is_same_change, relation
from memfiles.records.record import Record

_UNTOUCHED = frozenset({"seed", "declare", "hydrate"})


@dataclass(frozen=True, slots=True)
class Parting:
    """The revision, as each copy counts, after which the two differ, and the content there (None: nobody knows).

    ``is_exact``: the content is that very one and not an earlier one. ``is_seed``: all they have in common is that
    they began as the local seed.
    """

    local: int
    remote: int
    content: str | None
    is_exact: bool = True
    is_seed: bool = False


def how_they_stand(local: Record, remote: Record) -> Relation:
    """As the origins say or, without them, as far as both histories go back; unknown: they have nothing in common."""
    told = relation(local, remote)
    if told != "unknown":
        return told
    common = common_revision(local, remote)
    if not common:
        return "unknown"
    if common == local.revision == remote.revision:
        return "equal"
    if _holds_all(remote, local, after=common):
        return "behind"
    return "ahead" if _holds_all(local, remote, after=common) else "diverged"


def part(local: Record, remote: Record, *, base: Record | None) -> Parting | None:
    """Where the two copies parted; None if they have nothing in common. ``base`` is what both are known to have had."""
    here, there = base_revision(local, remote), base_revision(remote, local)
    if relation(local, remote) == "unknown":
        here = there = common_revision(local, remote)
    if here and there:
        return _with_content(Parting(here, there, None), local, remote, base=base)
    if base is not None and _may_include(local, base) and _may_include(remote, base):
        return Parting(base.revision, base.revision, base.content)
    seed = seed_content(local)
    return Parting(1, 1, seed, is_seed=True) if seed is not None else None


def is_untouched(record: Record) -> bool:
    """Whether nobody ever changed the file: it is as it was declared."""
    changes = record.history
    return bool(changes) and changes[0].revision == 1 and all(change.op in _UNTOUCHED for change in changes)


def seed_content(record: Record) -> str | None:
    """The content that the file began with, if the history still tells it."""
    if not record.history or record.history[0].op != "seed":
        return None
    with suppress(RevisionUnknown):
        return content_at(record, record.history[0].revision)
    return None


def was_redacted(record: Record, *, after: int) -> bool:
    """Whether text was taken out since a revision."""
    return any(change.op == "redact" and change.revision > after for change in record.history)


def exact_base(parting: Parting, base: Record | None) -> str | None:
    """What the content was where they parted, as it was remembered: a redaction since then has not altered it."""
    is_exact = base is not None and base.revision == parting.local == parting.remote
    return base.content if base is not None and is_exact else None


def _holds_all(record: Record, other: Record, *, after: int) -> bool:
    """Whether ``record`` has all later changes of ``other``, under whatever revision: one may have renumbered them."""
    held = {(change.at, change.op, change.by) for change in record.history if change.revision > after}
    later = [change for change in other.history if change.revision > after]
    return all((change.at, change.op, change.by) in held for change in later)


def _with_content(parting: Parting, local: Record, remote: Record, *, base: Record | None) -> Parting:
    for record, revision in ((local, parting.local), (remote, parting.remote)):
        with suppress(RevisionUnknown):
            return Parting(parting.local, parting.remote, content_at(record, revision))
    if base is None or not (_may_include(local, base) and _may_include(remote, base)):
        return parting
    return Parting(parting.local, parting.remote, base.content, exact_base(parting, base) is not None)


def _may_include(record: Record, base: Record) -> bool:
    """Whether nothing speaks against it that ``record`` was made from ``base``."""
    if base.revision > record.revision or not base.history:
        return False
    if any(revision > record.origins.get(origin, 0) for origin, revision in base.origins.items() if record.origins):
        return False
    found = change_at(record, base.revision)
    return found is None or is_same_change(found, base.history[-1])
