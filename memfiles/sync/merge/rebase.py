"""Rebase and merge base: where two copies of a record diverged, and the changes of one rebased on the other.

The rules this file keeps:

- An append is rebased exactly, at the end of the other content; every other change is merged by lines. Each keeps its
  operation, time and author, so that a replay of its call is recognised.
- The merge base is told by the version vectors, else by the histories, else by what the caller remembers. If none of
  them tells, two files that began as seeds diverged at their seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import RevisionUnknown
from memfiles.records.history import TextChange, content_at, splice_between, steps_after
from memfiles.records.lineage import (
    Relation,
    are_among,
    base_revision,
    change_at,
    common_revision,
    is_same_change,
    later_changes,
    relation,
)
from memfiles.records.record import Change, Record
from memfiles.sync.merge.text_merge import Side, merge_text


@dataclass(frozen=True, slots=True)
class Suffix:
    """The changes of a record after a revision, oldest first.

    ``textless`` are the oldest ones, whose text the history no longer has; ``start`` is the content after them.
    ``is_whole``: the history has all of them with their text.
    """

    textless: tuple[Change, ...]
    start: str
    steps: tuple[TextChange, ...]
    is_whole: bool


class Rebased(Struct, frozen=True):
    """The rebased content and changes; not clean if a change lost some of its text."""

    content: str
    changes: tuple[Change, ...]
    is_clean: bool = True


def suffix_after(record: Record, revision: int) -> Suffix:
    """The changes of ``record`` after ``revision``, as far as its history has them."""
    content, steps = steps_after(record, revision)
    later = [change for change in record.history if change.revision > revision]
    textless = tuple(later[: len(later) - len(steps)])
    reaches_back = revision >= record.revision or bool(later and record.history[0].revision <= revision + 1)
    return Suffix(textless, content.decode(), steps, is_whole=reaches_back and not textless)


def rebase(content: str, suffix: Suffix, *, winner: Side, held: Sequence[TextChange] = ()) -> Rebased:
    """Rebase the changes of ``suffix`` on ``content``, which is the first side of a conflict.

    A change that is among the ``held`` ones of the other copy is not repeated: after a mirror was put back from a
    backup, another machine may have rebased it already.
    """
    changes: list[Change] = []
    before, is_clean = suffix.start.encode(), True
    there = [*map(_identity, held)]
    for step in suffix.steps:
        after = step.after(before)
        if _identity(step) in there:
            there.remove(_identity(step))
        else:
            made = _rebased_change(content, step.change, before=before.decode(), after=after.decode(), winner=winner)
            content, is_clean = made.content, is_clean and made.is_clean
            changes += made.changes
        before = after
    return Rebased(content, tuple(changes), is_clean)


def _identity(step: TextChange) -> tuple[object, ...]:
    """A key for a change that does not depend on its revision."""
    return step.change.at, step.change.op, step.change.by, step.change.old, step.text


def without_effect(change: Change) -> Change:
    """A change without its text, kept in the history for the log and for replays."""
    return replace(change, bytes=0, offset=None, old="", opaque=False, merged=True)


def splice_change(before: str, after: str, change: Change) -> Change:
    """``change`` as the splice that turns ``before`` into ``after``."""
    splice = splice_between(before.encode(), after.encode())
    return replace(change, bytes=splice.bytes, offset=splice.offset, old=splice.old, opaque=False)


def _rebased_change(content: str, change: Change, *, before: str, after: str, winner: Side) -> Rebased:
    """One change rebased on ``content``."""
    if not change.bytes and not change.old:
        return Rebased(content, (replace(change, offset=None),))
    if content == before:
        return Rebased(after, (change,))
    if change.offset is None and not change.old:
        return Rebased(content + after[len(before) :], (change,))
    merged = merge_text(before, content, after, winner=winner)
    carried = _moved(content.encode(), merged.text.encode(), change, after=after.encode())
    if carried is None:  # an edit is then identified by its call alone
        is_merged = change.op == "edit" or change.merged
        carried = replace(splice_change(content, merged.text, change), merged=is_merged)
    return Rebased(merged.text, (carried,), merged.is_clean)


def _moved(content: bytes, merged: bytes, change: Change, *, after: bytes) -> Change | None:
    """The edit at its new offset, if it replaced the same text by the same text there."""
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
class MergeBase:
    """The revision of each copy after which the two differ, and the content there (None: unknown).

    ``is_exact``: the content is of that revision, not of an earlier one. ``is_seed``: the copies have only
    the local seed in common.
    """

    local: int
    remote: int
    content: str | None
    is_exact: bool = True
    is_seed: bool = False


def relation_by_history(local: Record, remote: Record) -> Relation:
    """The relation by the version vectors, else by both histories; unknown: nothing in common."""
    if (by_origins := relation(local, remote)) != "unknown":
        return by_origins
    common = common_revision(local, remote)
    if not common:
        return "unknown"
    if common == local.revision == remote.revision:
        return "equal"
    here, there = later_changes(local, remote, common)
    if are_among(here, there):
        return "behind"
    return "ahead" if are_among(there, here) else "diverged"


def find_merge_base(local: Record, remote: Record, *, base: Record | None) -> MergeBase | None:
    """The merge base of two copies; None if they have nothing in common. ``base`` may be one."""
    here, there = base_revision(local, remote), base_revision(remote, local)
    if not (here and there) or relation(local, remote) == "unknown":
        here = there = common_revision(local, remote)
    if here and there and (here >= _began(local) or there >= _began(remote)):
        return _with_content(MergeBase(here, there, None), local, remote, base=base)
    if base is not None and _may_include(local, base) and _may_include(remote, base):
        return MergeBase(base.revision, base.revision, base.content)
    seed = seed_content(local)
    return MergeBase(_began(local), _began(remote), seed, is_seed=True) if seed is not None else None


def is_untouched(record: Record) -> bool:
    """Whether the file was never changed since it was declared."""
    changes = record.history
    return bool(changes) and changes[0].revision == _began(record) and all(it.op in _UNTOUCHED for it in changes)


def seed_content(record: Record) -> str | None:
    """The first content of the file, if the history still has it."""
    if not record.history or record.history[0].op != "seed":
        return None
    with suppress(RevisionUnknown):
        return content_at(record, record.history[0].revision)
    return None


def _began(record: Record) -> int:
    """The revision of the seed: 1, or above what a path had before, for the file of a user who was forgotten."""
    first = record.history[0] if record.history else None
    return first.revision if first is not None and first.op == "seed" else 1


def _with_content(merge_base: MergeBase, local: Record, remote: Record, *, base: Record | None) -> MergeBase:
    for record, revision in ((local, merge_base.local), (remote, merge_base.remote)):
        with suppress(RevisionUnknown):
            return MergeBase(merge_base.local, merge_base.remote, content_at(record, revision))
    if base is None or not (_may_include(local, base) and _may_include(remote, base)):
        return merge_base
    is_exact = base.revision == merge_base.local == merge_base.remote
    return MergeBase(merge_base.local, merge_base.remote, base.content, is_exact)


def _may_include(record: Record, base: Record) -> bool:
    """Whether ``record`` may have been made from ``base``: nothing contradicts it."""
    if base.revision > record.revision or not base.history:
        return False
    if any(revision > record.origins.get(origin, 0) for origin, revision in base.origins.items() if record.origins):
        return False
    found = change_at(record, base.revision)
    return found is None or is_same_change(found, base.history[-1])
