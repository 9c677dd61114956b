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
from memfiles.records.history import contents, extend, inserted, reverse, splice_between
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
