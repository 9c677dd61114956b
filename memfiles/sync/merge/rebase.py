"""Rebasing: the changes that one copy of a record has alone, made again on the content of the other copy.

The rules this file keeps: an append is made again exactly, at the end of what is there; every other change is
merged by lines; and each keeps its operation, its time and who made it, so that a replay of its call is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from memfiles.errors import RevisionUnknown
from memfiles.records.history import content_at, contents, extend, inserted, reverse, splice_between
from memfiles.records.lineage import Relation, base_revision, change_at, common_revision, is_same_change, relation
from memfiles.records.record import Change, Record
from memfiles.sync.merge.text_merge import Side, merge_text

_RESTORING = frozenset({"undo", "merge"})


class RebasedChange(NamedTuple):
    """A change and the text that it put in."""

    change: Change
    text: str

    def after(self, before: bytes) -> bytes:
        """The content after the change, given the content before it."""
        offset = len(before) if self.change.offset is None else self.change.offset
        return before[:offset] + self.text.encode() + before[offset + len(self.change.old.encode()) :]


@dataclass(frozen=True, slots=True)
class Suffix:
    """The changes of a record after a revision, oldest first.

    ``untold`` are the first of them, of which the history keeps no text; ``start`` is the content after those.
    ``is_whole``: the history holds all of them with their text.
    """

    untold: tuple[Change, ...]
    start: str
    steps: tuple[RebasedChange, ...]
    is_whole: bool


class Rebased(NamedTuple):
    """The content after the changes were made again, and the changes; not clean if one lost some of its text."""

    content: str
    changes: tuple[Change, ...]
    is_clean: bool = True


def suffix_after(record: Record, revision: int) -> Suffix:
    """The changes of ``record`` after ``revision``, as far as its history can tell them."""
    steps: list[RebasedChange] = []
    content = record.content_bytes
    with suppress(RevisionUnknown):  # the history was damaged by hand: what is before that is untold
        for change, after in contents(record):
            if change.revision <= revision or change.opaque:
                break
            content = reverse(after, change)
            steps.append(RebasedChange(change, inserted(after, change).decode()))
    later = [change for change in record.history if change.revision > revision]
    untold = tuple(later[: len(later) - len(steps)])
    reaches_back = revision >= record.revision or bool(later and record.history[0].revision <= revision + 1)
    return Suffix(untold, content.decode(), tuple(reversed(steps)), is_whole=reaches_back and not untold)


def rebase(content: str, suffix: Suffix, *, winner: Side, restores: bool = True) -> Rebased:
    """Make the changes of ``suffix`` again on ``content``, the first side where they conflict with what is there.

    ``restores``: also those that bring back earlier text, as an undo does; else they stay without effect.
    """
    changes: list[Change] = []
    before, is_clean = suffix.start.encode(), True
    for step in suffix.steps:
        after = step.after(before)
        if not restores and _brings_back(step.change):
            made = Rebased(content, (without_effect(step.change),), is_clean=False)
        else:
            made = _again(content, step.change, before=before.decode(), after=after.decode(), winner=winner)
        content, before, is_clean = made.content, after, is_clean and made.is_clean
        changes += made.changes
    return Rebased(content, tuple(changes), is_clean)


def without_effect(change: Change) -> Change:
    """A change that is in the history for the log and for replays only: its text went another way, or nowhere."""
    return replace(change, bytes=0, offset=None, old="", opaque=False, merged=True)


def splice_change(before: str, after: str, change: Change) -> Change:
    """``change`` as what makes ``after`` of ``before``."""
    splice = splice_between(before.encode(), after.encode())
    return replace(change, bytes=splice.bytes, offset=splice.offset, old=splice.old, opaque=False)


def with_changes(record: Record, changes: Sequence[Change], *, first_revision: int) -> Record:
    """The record with these changes after its history, numbered in a row; its content is the caller's to set."""
    for number, change in enumerate(changes):
        record = extend(record, replace(change, revision=first_revision + number))
    return record


def _brings_back(change: Change) -> bool:
    """Whether a change puts in text that may be older than the change itself, as one that was merged before may."""
    return change.bytes > 0 and (change.merged or change.op in _RESTORING)


def _again(content: str, change: Change, *, before: str, after: str, winner: Side) -> Rebased:
    """One change made again on ``content``."""
    if not change.bytes and not change.old:
        return Rebased(content, (replace(change, offset=None),))
    if content == before:
        return Rebased(after, (change,))
    if change.offset is None and not change.old:
        return Rebased(content + after[len(before) :], (change,))
    merged = merge_text(before, content, after, winner=winner)
    carried = _moved(content.encode(), merged.text.encode(), change, after=after.encode())
    return Rebased(merged.text, (carried or _altered(content, merged.text, change),), merged.is_clean)


def _altered(content: str, merged: str, change: Change) -> Change:
    """The change as what made ``merged`` of ``content``; an edit is then told by its call alone."""
    return replace(splice_change(content, merged, change), merged=change.op == "edit" or change.merged)


def _moved(content: bytes, merged: bytes, change: Change, *, after: bytes) -> Change | None:
    """The edit at the place to which it moved, if it replaced the same text by the same text there."""
    old, start = change.old.encode(), change.offset
    if change.matches is None or start is None or not old:
        return None
    new = after[start : start + change.bytes]
    near = splice_between(content, merged).offset or 0
    at = content.find(old, max(0, near - len(old) - len(new)))
    while 0 <= at <= near + 1:
        if merged == content[:at] + new + content[at + len(old) :]:
            return replace(change, offset=at)
        at = content.find(old, at + 1)
    return None


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
