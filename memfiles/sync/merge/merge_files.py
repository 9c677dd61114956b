"""Merge of memory files: one record from two copies, with everything that both writers were promised.

The rules this file guards: changes that only one copy has are taken as they are; the local changes are rebased on the
remote copy, so that revisions in a mirror stay valid; and before two copies are merged, each loses the texts that only
the other one knows to be redacted, as does their base.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from memfiles.records.declared_metadata import Metadata, metadata_in
from memfiles.records.history import texts_in, without, without_lost
from memfiles.records.lineage import all_origins, relation
from memfiles.records.record import Change, Record, extend, with_content
from memfiles.records.redactions import Piece, lacking, reveal
from memfiles.sync.merge.rebase import (
    MergeBase,
    Rebased,
    Suffix,
    find_merge_base,
    is_untouched,
    rebase,
    relation_by_history,
    splice_change,
    suffix_after,
    without_effect,
)
from memfiles.sync.merge.text_merge import (
    MergedText,
    Side,
    lines_of,
    lost_parts,
    merge_text,
    shared_beginning,
    unite_text,
    with_lines,
)

ConflictPolicy = Literal["local", "remote"]
R_co = TypeVar("R_co", covariant=True)
_CARRIED = 50  # changes without their text: more would push the other copy's out of the history


class MergeResult(Struct, Generic[R_co], frozen=True):
    """The record that includes both copies, the copy that lost lines in a conflict, its side, and a note for the log.

    The ``loser`` is whole, but for the texts that the other copy knows to be redacted.
    A merge was made here, and is to be stamped, if the record's revision is higher than that of both copies.
    ``is_news``: the mirror lacks something of the record. If not, nothing is pushed, even if the bytes differ because
    the file is declared differently here. ``forgets_remote``: the remote copy is of a forgotten entry, whose content
    nothing may keep. ``forgets_local``: so is the local copy.
    """

    record: R_co
    loser: R_co | None = None
    lost: ConflictPolicy | None = None
    note: str | None = None
    is_news: bool = True
    forgets_remote: bool = False
    forgets_local: bool = False


def adopt(remote: Record, *, metadata: Metadata, revision: int, at: str) -> Record:
    """The remote copy as stored here over ``revision``: byte for byte, if its declared metadata are the same.

    Different metadata replace its own without a change in the history, or two directories with different declarations
    would answer each other's changes for ever.
    """
    record = remote
    if metadata_in(remote) != metadata or remote.provisional:
        record = replace(remote, **metadata._asdict(), provisional=False)
    if remote.revision > revision:
        return record
    return extend(record, Change(revision=revision + 1, at=at, op="hydrate"))


class _Copies(Struct, frozen=True):
    """Two copies of a record, each without the texts redacted in the other, and where they diverged.

    ``pieces`` are the ones that only one of them had.
    """

    local: Record
    remote: Record
    merge_base: MergeBase | None
    pieces: tuple[Piece, ...]
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
        for number, change in enumerate(changes, max(onto.revision + 1, highest - len(changes) + 2)):
            onto = extend(onto, replace(change, revision=number))
        record = replace(
            with_content(onto, content),
            **metadata_in(self.local)._asdict(),
            created_at=min(self.local.created_at, self.remote.created_at),
            provisional=False,
        )
        return record.with_origins(all_origins(self.local, self.remote))

    def rid_of_joined(self, merged: MergeResult[Record]) -> MergeResult[Record]:
        """The result without redacted texts that neither copy had, and that only their lines together made."""
        if not self.pieces:
            return merged
        longest = max(piece.size for piece in self.pieces)
        again = reveal(self.pieces, chain(*(texts_in(copy, reach=longest) for copy in (self.local, self.remote))))
        rest = [piece for piece in self.pieces if piece not in again]
        return replace(merged, record=without(merged.record, rest))


def merge(
    local: Record, remote: Record, *, base: Record | None = None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Merge two copies of a record; ``base`` is the copy that the mirror last acknowledged, if known.

    | case | when | the merged record |
    |---|---|---|
    | equal, ahead | the local copy has everything of the remote one | the local copy |
    | behind | the remote copy has everything of the local one | the remote copy |
    | untouched here | first meeting, the local copy is as declared | the remote copy |
    | untouched there | first meeting, the remote copy is as declared (elsewhere) | the local copy, above both |
    | diverged | all others | the local changes, rebased on the remote copy |

    At a first meeting the copies have nothing in common but, perhaps, the seed of the file. ``on_conflict`` says whose
    lines are taken where both changed the same ones differently.
    """
    standing = relation_by_history(local, remote)
    copies = _cleaned(local, remote, base=base, at=at)
    if (standing in ("equal", "ahead") and copies.local is not local) or (
        standing in ("equal", "behind") and copies.remote is not remote
    ):
        standing = "diverged"  # one of them was put together by hand
    if standing in ("equal", "ahead"):
        confirmed = replace(local, provisional=False) if local.provisional else local
        return MergeResult(confirmed, is_news=standing == "ahead")
    merge_base = copies.merge_base
    is_first_meeting = merge_base is None or merge_base.is_seed
    if standing == "behind" or (is_first_meeting and is_untouched(local)):
        record = adopt(copies.remote, metadata=metadata_in(local), revision=local.revision, at=at)
        return MergeResult(record, is_news=record.revision > remote.revision)
    is_seed = merge_base is not None and merge_base.content == copies.remote.content
    if is_first_meeting and is_untouched(remote) and not is_seed:
        return MergeResult(copies.finished([copies.change], copies.local.content, onto=copies.local))
    return copies.rid_of_joined(_diverged(copies, on_conflict=on_conflict))


def _cleaned(local: Record, remote: Record, *, base: Record | None, at: str) -> _Copies:
    """Both copies and their base, each without the texts that only the others know to be redacted.

    A piece that both copies have is applied to neither: who wrote that text again already knew of the redaction.
    """
    here, there = lacking(local.redactions, remote.redactions), lacking(remote.redactions, local.redactions)
    known = (*local.redactions, *remote.redactions)
    base = without(base, lacking(base.redactions, known)) if base is not None else None
    merge_base = find_merge_base(local, remote, base=base)
    if here or there:
        ends = (merge_base.local, merge_base.remote) if merge_base is not None else (0, 0)
        local, remote = without(local, here, traced_after=ends[0]), without(remote, there, traced_after=ends[1])
        local, remote = _parted_alike(local, remote, merge_base)
        merge_base = find_merge_base(local, remote, base=base)
    return _Copies(local, remote, merge_base, (*here, *there), at)


def _parted_alike(local: Record, remote: Record, merge_base: MergeBase | None) -> tuple[Record, Record]:
    """Both copies without the parts of a redacted text that the other one lost before the two diverged.

    A redaction also removes the parts from which its text was put together, and the other copy may have such a part
    alone. The contents at the merge base show it, if both histories reach back that far.
    """
    if merge_base is None or merge_base.is_seed or relation(local, remote) != "diverged":
        return local, remote
    here, there = suffix_after(local, merge_base.local), suffix_after(remote, merge_base.remote)
    if not (here.is_whole and there.is_whole) or here.start == there.start:
        return local, remote
    ours, theirs = lost_parts(here.start, there.start)
    local = without_lost(local, ours, after=merge_base.local) if ours else local
    return local, without_lost(remote, theirs, after=merge_base.remote) if theirs else remote


def supersede(
    local: Record, remote: Record, *, base: Record | None, winner: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """Merge two diverged copies by taking the winner's whole text; the other's is the loser, and in the history."""
    copies = _cleaned(local, remote, base=base, at=at)
    local, remote = copies.local, copies.remote
    content, changes = local.content, _replayed(copies)
    if winner == "remote":
        changes.append(splice_change(local.content, remote.content, copies.change))
        content = remote.content
    merged = copies.finished(changes or [copies.change], content, onto=remote)
    return MergeResult(merged, remote, "remote") if winner == "local" else MergeResult(merged, local, "local")


def _replayed(copies: _Copies) -> list[Change]:
    """Changes that lead from the remote content through every kept local one to the present local one."""
    suffix = copies.suffix(copies.local)
    content, before = copies.remote.content, suffix.start.encode()
    changes = _carried(suffix.textless)
    for step in suffix.steps:
        before = step.after(before)
        is_silent = not step.change.bytes and not step.change.old
        after = content if is_silent else before.decode()
        changes.append(splice_change(content, after, replace(step.change, merged=not is_silent)))
        content = after
    if content != copies.local.content:
        changes.append(splice_change(content, copies.local.content, copies.change))
    return changes


def _diverged(copies: _Copies, *, on_conflict: ConflictPolicy) -> MergeResult[Record]:
    """The local changes rebased on the remote copy.

    Where both changed the same lines, the winner's text is taken; the history has both, so an undo brings it back.
    """
    local, remote = copies.local, copies.remote
    ours = _rebased(copies, winner="second")
    if not ours.is_clean and (text := _merged_at_open_end(copies)) is not None:
        ours = Rebased(text, (*ours.changes, splice_change(ours.content, text, copies.change)))
    if ours.is_clean:
        return MergeResult(copies.finished(ours.changes or [copies.change], ours.content, onto=remote))
    content, loser, winner = ours.content, remote, local
    lost: ConflictPolicy = "remote"
    if on_conflict == "remote":
        content = remote.content if copies.merge_base is None else _rebased(copies, winner="first").content
        loser, winner, lost = local, remote, "local"
    if copies.merge_base is not None:  # appends changed no other line, so a conflict must not drop them
        texts = [step.text.decode() for step in copies.suffix(loser).steps if step.change.op == "append"]
        content = with_lines(content, [*chain(*map(lines_of, texts))], of=loser.content, won=winner.content)
    changes = list(ours.changes)
    if content != ours.content:
        changes.append(splice_change(ours.content, content, copies.change))
    return MergeResult(copies.finished(changes, content, onto=remote), loser, lost)


def _rebased(copies: _Copies, *, winner: Side) -> Rebased:
    """The local changes rebased on the remote content; in one change as far as the history lacks their text."""
    content = copies.remote.content
    if copies.merge_base is None:
        return _united(copies)
    suffix = copies.suffix(copies.local)
    if suffix.is_whole:
        is_doubtful = relation(copies.local, copies.remote) == "unknown"  # else the two have no change in common
        held = copies.suffix(copies.remote).steps if is_doubtful else ()
        return rebase(content, suffix, winner=winner, held=held)
    joined_text = _whole_merge(copies.merge_base, content, suffix.start, winner=winner)
    change = splice_change(content, joined_text.text, copies.change)
    rest = rebase(joined_text.text, suffix, winner=winner)
    changes = (change, *_carried(suffix.textless), *rest.changes)  # a large change leaves no history before it
    return Rebased(rest.content, changes, joined_text.is_clean and rest.is_clean)


def _merged_at_open_end(copies: _Copies) -> str | None:
    """The merged text if one was appended to a line without an end and both merge cleanly as wholes; else None.

    Text appended to such a line joins it, so that an edit of either, rebased by itself, would replace the whole line.
    """
    base = copies.merge_base
    if base is None or not base.is_exact or base.content is None:
        return None
    if base.content.endswith("\n") and copies.remote.content.endswith("\n"):
        return None
    merged = _whole_merge(base, copies.remote.content, copies.local.content, winner="second")
    return merged.text if merged.is_clean else None


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
    if any(step.change.old for step in copies.suffix(copies.local).steps):  # a value that only the history has
        return Rebased(text.text, (*_replayed(copies), splice_change(second, text.text, copies.change)), text.is_clean)
    change = splice_change(first, text.text, copies.change)
    return Rebased(text.text, (change, *_carried(copies.local.history)), text.is_clean)


def _carried(changes: Sequence[Change]) -> list[Change]:
    """Changes made by calls, without their text, so that a replay of a call is still recognised."""
    calls = [without_effect(change) for change in changes if change.by.call is not None]
    return calls[-_CARRIED:]
