"""Merge of memory files: one record from two copies, with everything that both writers were promised.

The rules this file guards: changes that only one copy has are taken as they are; the local changes are rebased on the
remote copy, so that revisions in a mirror stay valid; and if a text was redacted, the redacted copy is the one to build
on, wins every conflict, and no other copy is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, assert_never

from memfiles.records.declared_metadata import Metadata, metadata_in
from memfiles.records.history import without_text
from memfiles.records.lineage import Relation, joined
from memfiles.records.record import Change, Record, extend, with_content
from memfiles.sync.merge.rebase import (
    MergeBase,
    Rebased,
    Suffix,
    exact_base,
    find_merge_base,
    how_they_stand,
    is_untouched,
    rebase,
    splice_change,
    suffix_after,
    was_redacted,
    with_changes,
    without_effect,
)
from memfiles.sync.merge.text_merge import (
    MergedText,
    Side,
    lines_of,
    merge_text,
    shared_beginning,
    shared_text,
    unite_text,
    with_lines,
)

ConflictPolicy = Literal["local", "remote"]
MergeCase = Literal[
    "equal",
    "ahead",
    "behind",
    "untouched here",
    "untouched there",
    "redacted here",
    "redacted there",
    "redacted in both",
    "diverged",
]
R_co = TypeVar("R_co", covariant=True)
_MARKER = "[redacted]"
_CARRIED = 50  # changes without their text: more would push the other copy's out of the history
_DROPPED = "a text was redacted on one side; what the other side changed in the same lines is not kept"


@dataclass(frozen=True, slots=True)
class MergeResult(Generic[R_co]):
    """The record that includes both copies, the copy that lost lines in a conflict (whole), and a note for the log.

    A merge was made here, and is to be stamped, if the record's revision is higher than that of both copies.
    ``is_news``: the mirror lacks something of the record. If not, nothing is pushed, even if the bytes differ because
    the file is declared differently here. ``is_outlived``: what the remote copy holds was forgotten, and no copy of it
    may be kept anywhere. ``is_buried``: so was what the local copy held.
    """

    record: R_co
    loser: R_co | None = None
    note: str | None = None
    is_news: bool = True
    is_outlived: bool = False
    is_buried: bool = False


def adopt(remote: Record, *, metadata: Metadata, revision: int, at: str) -> Record:
    """The remote copy as it is stored here over ``revision``: byte for byte, if it is declared alike.

    Different metadata replace its own without a change in the history: otherwise two directories with different
    declarations would answer each other's changes for ever.
    """
    record = remote
    if metadata_in(remote) != metadata or remote.provisional:
        record = replace(remote, **metadata._asdict(), provisional=False)
    if remote.revision > revision:
        return record
    return extend(record, Change(revision=revision + 1, at=at, op="hydrate"))


@dataclass(frozen=True, slots=True)
class _Copies:
    """Two copies of a record, where they diverged, and the copy ``base`` that the mirror last acknowledged."""

    local: Record
    remote: Record
    merge_base: MergeBase | None
    base: Record | None
    at: str

    @property
    def change(self) -> Change:
        """The merge as a change, whose revision and splice are still to be set."""
        return Change(revision=1, at=self.at, op="merge")

    def suffix(self, copy: Record) -> Suffix:
        """The changes of one of the copies since the merge base."""
        if self.merge_base is None:
            return suffix_after(copy, 0)
        return suffix_after(copy, self.merge_base.local if copy is self.local else self.merge_base.remote)

    def finished(self, changes: Sequence[Change], content: str, *, onto: Record) -> Record:
        """``onto`` with these changes: above both revisions, with both version vectors, and declared as here."""
        highest = max(self.local.revision, self.remote.revision)
        longer = with_changes(onto, changes, first_revision=max(onto.revision + 1, highest - len(changes) + 2))
        record = replace(
            with_content(longer, content),
            **metadata_in(self.local)._asdict(),
            created_at=min(self.local.created_at, self.remote.created_at),
            provisional=False,
        )
        return record.with_origins(joined(self.local, self.remote))


def merge(
    local: Record, remote: Record, *, base: Record | None = None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Merge two copies of a record; ``base`` is the copy that the mirror last acknowledged, if known.

    ``on_conflict`` says whose lines are taken where both changed the same ones differently.
    """
    standing = how_they_stand(local, remote)
    merge_base = find_merge_base(local, remote, base=base) if standing not in ("equal", "ahead") else None
    copies = _Copies(local, remote, merge_base, base, at)
    match merge_case(local, remote, standing, merge_base):
        case "equal":
            return MergeResult(_confirmed(local), is_news=False)
        case "ahead":
            return MergeResult(_confirmed(local))
        case "behind" | "untouched here":
            record = adopt(remote, metadata=metadata_in(local), revision=local.revision, at=at)
            return MergeResult(record, is_news=record.revision > remote.revision)
        case "untouched there":
            return MergeResult(copies.finished([copies.change], local.content, onto=local))
        case "redacted here":
            return _onto_redacted(copies, clean=local, other=remote)
        case "redacted there":
            return _onto_redacted(copies, clean=remote, other=local)
        case "redacted in both":
            return _both_redacted(copies)
        case "diverged":
            return _diverged(copies, on_conflict=on_conflict)
        case other:
            assert_never(other)


def merge_case(local: Record, remote: Record, standing: Relation, merge_base: MergeBase | None) -> MergeCase:
    """The case of a merge: the first that applies.

    | case | when | the merged record |
    |---|---|---|
    | equal, ahead | the local copy has everything of the remote one | the local copy |
    | behind | the remote copy has everything of the local one | the remote copy |
    | untouched here | first meeting, the local copy is as declared | the remote copy |
    | untouched there | first meeting, the remote copy is as declared (elsewhere) | the local copy, above both |
    | redacted here, there | text was redacted in one copy since then | the other's changes, on the redacted copy |
    | redacted in both | in both copies | the lines that both have, and what was added since |
    | diverged | all others | the local changes, rebased on the remote copy |

    At a first meeting the copies have nothing in common but, perhaps, the seed of the file.
    """
    if standing in ("equal", "ahead", "behind"):
        return standing
    if merge_base is None or merge_base.is_seed:
        if is_untouched(local):
            return "untouched here"
        if is_untouched(remote) and not (merge_base is not None and merge_base.content == remote.content):
            return "untouched there"
    here = was_redacted(local, after=merge_base.local if merge_base is not None else 0)
    there = was_redacted(remote, after=merge_base.remote if merge_base is not None else 0)
    if here and there:
        return "redacted in both"
    return "redacted here" if here else "redacted there" if there else "diverged"


def supersede(
    local: Record, remote: Record, *, base: Record | None, winner: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Merge two diverged copies by taking the winner's whole text; the other's is in the history."""
    copies = _Copies(local, remote, find_merge_base(local, remote, base=base), base, at)
    suffix = copies.suffix(local)
    content, before = remote.content, suffix.start.encode()
    changes = _carried(suffix.untold)
    for step in suffix.steps:
        before = step.after(before)
        is_silent = not step.change.bytes and not step.change.old
        after = content if is_silent else before.decode()
        changes.append(splice_change(content, after, replace(step.change, merged=not is_silent)))
        content = after
    if content != local.content:
        changes.append(splice_change(content, local.content, copies.change))
        content = local.content
    if winner == "remote":
        changes.append(splice_change(local.content, remote.content, copies.change))
        content = remote.content
    return MergeResult(copies.finished(changes or [copies.change], content, onto=remote))


def _diverged(copies: _Copies, *, on_conflict: ConflictPolicy) -> MergeResult[Record]:
    """The local changes rebased on the remote copy.

    Where both changed the same lines, the winner's text is taken; the history has both, so an undo brings it back.
    """
    local, remote = copies.local, copies.remote
    ours = _rebased(copies, winner="second")
    if ours.is_clean:
        return MergeResult(copies.finished(ours.changes, ours.content, onto=remote))
    content, loser = ours.content, remote
    if on_conflict == "remote":
        content = remote.content if copies.merge_base is None else _rebased(copies, winner="first").content
        loser = local
    if copies.merge_base is not None:
        content = with_lines(content, _appended(copies.suffix(loser)), of=loser.content)
    changes = list(ours.changes)
    if content != ours.content:
        changes.append(splice_change(ours.content, content, copies.change))
    return MergeResult(copies.finished(changes, content, onto=remote), loser=loser)


def _appended(suffix: Suffix) -> list[str]:
    """The appended lines: they changed no other line, so a conflict must not drop them."""
    return [line for step in suffix.steps if step.change.op == "append" for line in lines_of(step.text)]


def _rebased(copies: _Copies, *, winner: Side) -> Rebased:
    """The local changes rebased on the remote content; in one change as far as the history lacks their text."""
    content = copies.remote.content
    if copies.merge_base is None:
        return _united(copies)
    suffix = copies.suffix(copies.local)
    if suffix.is_whole:
        return rebase(content, suffix, winner=winner)
    joined_text = _whole_merge(copies.merge_base, content, suffix.start, winner=winner)
    change = splice_change(content, joined_text.text, copies.change)
    rest = rebase(joined_text.text, suffix, winner=winner)
    changes = (change, *_carried(suffix.untold), *rest.changes)  # a large change leaves no history before it
    return Rebased(rest.content, changes, joined_text.is_clean and rest.is_clean)


def _whole_merge(merge_base: MergeBase, first: str, second: str, *, winner: Side) -> MergedText:
    """Two contents merged without their histories, from the best known base."""
    base = merge_base.content
    if base is None:
        return unite_text(first, second)
    if merge_base.is_exact and second.startswith(base):
        return MergedText(first + second[len(base) :])
    if merge_base.is_exact and first.startswith(base):
        return MergedText(second + first[len(base) :])
    if not merge_base.is_exact and first.startswith(base) and second.startswith(base):
        base = shared_beginning(first, second)
    return merge_text(base, first, second, winner=winner)


def _united(copies: _Copies) -> Rebased:
    """Merge two copies without a common base; they may share the beginning of their text."""
    first, second = copies.remote.content, copies.local.content
    if first.startswith(second) or second.startswith(first):
        text = MergedText(max(first, second, key=len))
    elif shared_beginning(first, second):
        text = unite_text(first, second)
    else:
        text = MergedText(second, is_clean=False)
    change = splice_change(first, text.text, copies.change)
    return Rebased(text.text, (change, *_carried(copies.local.history)), text.is_clean)


def _onto_redacted(copies: _Copies, *, clean: Record, other: Record) -> MergeResult[Record]:
    """The other copy's changes on the redacted one, whose lines win: no redacted text comes back, no loser is kept."""
    merge_base = copies.merge_base
    changes: list[Change] = []
    content, is_clean = clean.content, merge_base is not None or clean.content == other.content
    if merge_base is not None:
        suffix = copies.suffix(other)
        if not suffix.is_whole:
            known = exact_base(merge_base, copies.base)
            is_clean = known is not None
            if known is not None:
                text = _whole_merge(replace(merge_base, content=known), content, suffix.start, winner="first")
                changes.append(splice_change(content, text.text, copies.change))
                content, is_clean = text.text, text.is_clean
            changes += _carried(suffix.untold)
        rest = rebase(content, suffix, winner="first", restores=False)
        changes, content, is_clean = [*changes, *rest.changes], rest.content, is_clean and rest.is_clean
    if clean is copies.local:  # its newest redaction again, so that later merges see that text was redacted before it
        changes.append(next(without_effect(change) for change in reversed(clean.history) if change.op == "redact"))
    record = copies.finished(changes or [copies.change], content, onto=clean)
    return MergeResult(record, note=None if is_clean else _DROPPED)


def _both_redacted(copies: _Copies) -> MergeResult[Record]:
    """Each copy may hold what the other redacted: keep the lines that both have, and those added since."""
    merge_base, local, remote = copies.merge_base, copies.local, copies.remote
    ends = (merge_base.remote, merge_base.local) if merge_base is not None else (remote.revision, local.revision)
    theirs, ours = suffix_after(remote, ends[0]), suffix_after(local, ends[1])
    if merge_base is not None and theirs.is_whole and ours.is_whole:
        content, is_clean = shared_text(theirs.start, ours.start, marker=_MARKER), True
        for suffix in (theirs, ours):
            made = rebase(content, suffix, winner="first", restores=False)
            content, is_clean = made.content, is_clean and made.is_clean
    else:
        content, is_clean = shared_text(remote.content, local.content, marker=_MARKER), False
    bare = replace(remote, history=without_text(remote.history))
    whole = replace(copies.change, op="redact", bytes=len(content.encode()), offset=0, opaque=True)
    changes = [whole, *_carried([step.change for step in (*theirs.steps, *ours.steps)])]
    return MergeResult(copies.finished(changes, content, onto=bare), note=None if is_clean else _DROPPED)


def _confirmed(record: Record) -> Record:
    return replace(record, provisional=False) if record.provisional else record


def _carried(changes: Sequence[Change]) -> list[Change]:
    """Changes made by calls, without their text, so that a replay of a call is still recognised."""
    calls = [without_effect(change) for change in changes if change.by.call is not None]
    return calls[-_CARRIED:]
