"""Merging: one record out of two copies of it, with everything that both writers were promised.

The rules this file guards: what only one copy knows is taken over as it is; the remote copy is what the local
changes are made again on, so that the revisions a mirror holds stand; and where a text was redacted, the copy
without it is the one to build on, wins every conflict, and no other copy is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from memfiles.records.declared_metadata import Metadata, metadata_in
from memfiles.records.history import extend, without_text
from memfiles.records.lineage import joined
from memfiles.records.record import Change, Record, with_content
from memfiles.sync.merge.rebase import (
    Parting,
    Rebased,
    Suffix,
    exact_base,
    how_they_stand,
    is_untouched,
    part,
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
R_co = TypeVar("R_co", covariant=True)
_MARKER = "[redacted]"
_CARRIED = 50  # changes without their text: more would push the other copy's out of the history
_DROPPED = "a text was redacted on one side; what the other side made of the same lines is not kept"


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
    """The remote copy as it is to be stored here over ``revision``: byte for byte, if it is declared alike.

    Other metadata are put over it without a change of their own: two directories with different declarations
    would otherwise answer each other's changes for ever.
    """
    record = remote
    if metadata_in(remote) != metadata or remote.provisional:
        record = replace(remote, **metadata._asdict(), provisional=False)
    if remote.revision > revision:
        return record
    return extend(record, Change(revision=revision + 1, at=at, op="hydrate"))


def merge(
    local: Record, remote: Record, *, base: Record | None = None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Bring two copies of a record together; ``base`` is what the mirror last acknowledged, if that is known.

    ``on_conflict`` says whose lines stand where both changed the same ones differently.
    """
    stand = how_they_stand(local, remote)
    if stand in ("equal", "ahead"):
        record = replace(local, provisional=False) if local.provisional else local
        return MergeResult(record, is_news=stand == "ahead")
    parting = part(local, remote, base=base)
    is_first_meeting = parting is None or parting.is_seed
    if stand == "behind" or (is_first_meeting and is_untouched(local)):
        record = adopt(remote, metadata=metadata_in(local), revision=local.revision, at=at)
        return MergeResult(record, is_news=record.revision > remote.revision)
    if is_first_meeting and is_untouched(remote) and not _is_seed_of(parting, remote):
        return MergeResult(_finished(local, remote, [_merge_change(at)], local.content, onto=local))
    here = was_redacted(local, after=parting.local if parting is not None else 0)
    there = was_redacted(remote, after=parting.remote if parting is not None else 0)
    if here or there:
        return _without_redacted(local, remote, parting, base=base, at=at, here=here, there=there)
    ours = (
        _united(local, remote, at=at) if parting is None else _rebased(local, remote, parting, winner="second", at=at)
    )
    if ours.is_clean:
        return MergeResult(_finished(local, remote, ours.changes, ours.content, onto=remote))
    return _decided(local, remote, parting, ours, on_conflict=on_conflict, at=at)


def supersede(
    local: Record, remote: Record, *, base: Record | None, winner: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Two copies of which neither knows the other: the winner's text stands whole, the other's is in the history."""
    parting = part(local, remote, base=base)
    suffix = suffix_after(local, parting.local if parting is not None else 0)
    content, before = remote.content, suffix.start.encode()
    changes = _carried(suffix.untold)
    for step in suffix.steps:
        before = step.after(before)
        is_silent = not step.change.bytes and not step.change.old
        after = content if is_silent else before.decode()
        changes.append(splice_change(content, after, replace(step.change, merged=not is_silent)))
        content = after
    if content != local.content:
        changes.append(splice_change(content, local.content, _merge_change(at)))
        content = local.content
    if winner == "remote":
        changes.append(splice_change(local.content, remote.content, _merge_change(at)))
        content = remote.content
    return MergeResult(_finished(local, remote, changes or [_merge_change(at)], content, onto=remote))


def _decided(
    local: Record, remote: Record, parting: Parting | None, ours: Rebased, *, on_conflict: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """The winner's text where both changed the same lines; the history has both, so that an undo brings it back."""
    content, loser = ours.content, remote
    if on_conflict == "remote":
        theirs = remote.content if parting is None else _rebased(local, remote, parting, winner="first", at=at).content
        content, loser = theirs, local
    if parting is not None:
        suffix = suffix_after(loser, parting.remote if loser is remote else parting.local)
        content = with_lines(content, _appended(suffix), of=loser.content)
    changes = list(ours.changes)
    if content != ours.content:
        changes.append(splice_change(ours.content, content, _merge_change(at)))
    return MergeResult(_finished(local, remote, changes, content, onto=remote), loser=loser)


def _appended(suffix: Suffix) -> list[str]:
    """The lines that were appended: these were no change of any other line, so no conflict may cost them."""
    return [line for step in suffix.steps if step.change.op == "append" for line in lines_of(step.text)]


def _rebased(local: Record, remote: Record, parting: Parting, *, winner: Side, at: str) -> Rebased:
    """The local changes since the parting on the remote content."""
    return _made_again(remote.content, suffix_after(local, parting.local), parting, winner=winner, at=at)


def _made_again(content: str, suffix: Suffix, parting: Parting, *, winner: Side, at: str) -> Rebased:
    """All that a suffix did, made again on ``content``; in one change as far as its text is not in the history."""
    if suffix.is_whole:
        return rebase(content, suffix, winner=winner)
    joined_text = _whole_merge(parting, content, suffix.start, winner=winner)
    change = splice_change(content, joined_text.text, _merge_change(at))
    rest = rebase(joined_text.text, suffix, winner=winner)
    changes = (change, *_carried(suffix.untold), *rest.changes)  # a large change leaves no history before it
    return Rebased(rest.content, changes, joined_text.is_clean and rest.is_clean)


def _whole_merge(parting: Parting, first: str, second: str, *, winner: Side) -> MergedText:
    """Two contents merged without their changes, from the best base that is known."""
    base = parting.content
    if base is None:
        return unite_text(first, second)
    if parting.is_exact and second.startswith(base):
        return MergedText(first + second[len(base) :])
    if parting.is_exact and first.startswith(base):
        return MergedText(second + first[len(base) :])
    if not parting.is_exact and first.startswith(base) and second.startswith(base):
        base = shared_beginning(first, second)
    return merge_text(base, first, second, winner=winner)


def _united(local: Record, remote: Record, *, at: str) -> Rebased:
    """Two copies that have nothing in common but perhaps the beginning of their text."""
    first, second = remote.content, local.content
    if first.startswith(second) or second.startswith(first):
        text = MergedText(max(first, second, key=len))
    elif shared_beginning(first, second):
        text = unite_text(first, second)
    else:
        text = MergedText(second, is_clean=False)
    change = splice_change(first, text.text, _merge_change(at))
    return Rebased(text.text, (change, *_carried(local.history)), text.is_clean)


def _without_redacted(
    local: Record, remote: Record, parting: Parting | None, *, base: Record | None, at: str, here: bool, there: bool
) -> MergeResult[Record]:
    """A merge that brings no redacted text back: on the redacted copy, whose lines win; no loser is kept."""
    if here and there:
        return _both_redacted(local, remote, parting, at=at)
    clean, other = (local, remote) if here else (remote, local)
    changes: list[Change] = []
    content, is_clean = clean.content, parting is not None or clean.content == other.content
    if parting is not None:
        suffix = suffix_after(other, parting.local if other is local else parting.remote)
        if not suffix.is_whole:
            known = exact_base(parting, base)
            is_clean = known is not None
            if known is not None:
                text = _whole_merge(replace(parting, content=known), content, suffix.start, winner="first")
                changes.append(splice_change(content, text.text, _merge_change(at)))
                content, is_clean = text.text, text.is_clean
            changes += _carried(suffix.untold)
        rest = rebase(content, suffix, winner="first", restores=False)
        changes, content, is_clean = [*changes, *rest.changes], rest.content, is_clean and rest.is_clean
    if here:
        changes.append(_redaction_of(local))
    record = _finished(local, remote, changes or [_merge_change(at)], content, onto=clean)
    return MergeResult(record, note=None if is_clean else _DROPPED)


def _both_redacted(local: Record, remote: Record, parting: Parting | None, *, at: str) -> MergeResult[Record]:
    """Each copy may hold what the other took out: the lines that both have, and what was added since they parted."""
    ends = (parting.remote, parting.local) if parting is not None else (remote.revision, local.revision)
    theirs, ours = suffix_after(remote, ends[0]), suffix_after(local, ends[1])
    if parting is not None and theirs.is_whole and ours.is_whole:
        content, is_clean = shared_text(theirs.start, ours.start, marker=_MARKER), True
        for suffix in (theirs, ours):
            made = rebase(content, suffix, winner="first", restores=False)
            content, is_clean = made.content, is_clean and made.is_clean
    else:
        content, is_clean = shared_text(remote.content, local.content, marker=_MARKER), False
    bare = replace(remote, history=without_text(remote.history))
    whole = Change(revision=1, at=at, op="redact", bytes=len(content.encode()), offset=0, opaque=True)
    changes = [whole, *_carried([step.change for step in (*theirs.steps, *ours.steps)])]
    return MergeResult(_finished(local, remote, changes, content, onto=bare), note=None if is_clean else _DROPPED)


def _finished(local: Record, remote: Record, changes: Sequence[Change], content: str, *, onto: Record) -> Record:
    """The record that ``changes`` make of ``onto``: above both revisions, knowing both, and declared as here."""
    highest = max(local.revision, remote.revision)
    longer = with_changes(onto, changes, first_revision=max(onto.revision + 1, highest - len(changes) + 2))
    record = replace(
        with_content(longer, content),
        **metadata_in(local)._asdict(),
        created_at=min(local.created_at, remote.created_at),
        provisional=False,
    )
    return record.with_origins(joined(local, remote))


def _merge_change(at: str) -> Change:
    return Change(revision=1, at=at, op="merge")


def _carried(changes: Sequence[Change]) -> list[Change]:
    """The calls among changes whose text went another way: a replay of one is still known."""
    calls = [without_effect(change) for change in changes if change.by.call is not None]
    return calls[-_CARRIED:]


def _redaction_of(record: Record) -> Change:
    """The newest redaction once more, without effect: later merges see by it that text was taken out before it."""
    return next(without_effect(change) for change in reversed(record.history) if change.op == "redact")


def _is_seed_of(parting: Parting | None, record: Record) -> bool:
    return parting is not None and parting.content == record.content
