"""What a requested change does to a record: caps, replays, expected revisions, undo and redaction.

Everything here is a pure function of its arguments. A decision is the record to commit (None when the
disk already says so) and the receipt to return; what is refused is raised, and nothing has happened.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace

from memfiles.errors import EditNoMatch, EmptyText, RevisionConflict, RevisionUnknown, SizeExceeded
from memfiles.history import (
    Splice,
    content_at,
    contents,
    extend,
    inserted,
    oldest_known,
    rewritten,
    splice_between,
)
from memfiles.receipt import Receipt, receipt_of, receipt_of_edit, receipt_of_replay
from memfiles.record import NOBODY, Actor, Change, Operation, Record, grown, with_content

MARKER = "[redacted]"
_HINT_LINES = 2000
_HINT_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a change is made, by whom, and at which revision the caller believes the record to be."""

    at: str
    by: Actor = NOBODY
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The record to commit, None if nothing changes, and what to tell the caller."""

    record: Record | None
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Redaction:
    """What a redaction took out: occurrences in the content, kept changes and set-aside copies that held the text."""

    receipt: Receipt
    in_content: int
    in_history: int
    copies_removed: int = 0


Decide = Callable[[Record, Stamp], Decision]


def append(record: Record, stamp: Stamp, *, text: str) -> Decision:
    """Put ``text`` at the very end, exactly as it is."""
    if replay := _replay_of(record, stamp, op="append", new=text):
        return Decision(None, replay)
    _check_revision(record, stamp)
    if not text:
        return Decision(None, receipt_of(record))
    size = len(text.encode())
    check_cap(record, record.size_bytes + size)
    changed = extend(grown(record, text), _change(record, stamp, op="append", splice=Splice(size)))
    return Decision(changed, receipt_of(changed))


def edit(record: Record, stamp: Stamp, *, old: str, new: str) -> Decision:
    """Replace the first occurrence of ``old``; the receipt tells how many there were and at which line."""
    if not old:
        raise EmptyText(f"nothing to find in {record.name}: pass the text to replace, or append instead")
    if replay := _replay_of(record, stamp, op="edit", new=new, old=old):
        return Decision(None, replay)
    _check_revision(record, stamp)
    at = record.content.find(old)
    if at < 0:
        raise EditNoMatch(_no_match(record, old))
    before, after = record.content[:at], record.content[at + len(old) :]
    matches, line = record.content.count(old), before.count("\n") + 1
    if new == old:
        return Decision(None, replace(receipt_of(record), matches=matches, line=line))
    splice = Splice(len(new.encode()), len(before.encode()), old)
    told = (matches, line)
    changed = _spliced(record, stamp, op="edit", content=before + new + after, splice=splice, told=told)
    return Decision(changed, receipt_of_edit(changed, changed.history[-1]))


def replace_content(record: Record, stamp: Stamp, *, content: str) -> Decision:
    """Make ``content`` the whole content, recorded as the smallest edit that does it."""
    splice = splice_between(record.content_bytes, content.encode())
    if replay := _replay_of(record, stamp, op="edit", new=None):
        return Decision(None, replay)
    _check_revision(record, stamp)
    if content == record.content:
        return Decision(None, receipt_of(record))
    changed = _spliced(record, stamp, op="edit", content=content, splice=splice)
    return Decision(changed, receipt_of(changed))


def undo(record: Record, stamp: Stamp, *, to_revision: int | None = None) -> Decision:
    """Take back the last change of the content, or go back to the content at ``to_revision``."""
    if replay := _replay_of(record, stamp, op="undo", new=None):
        return Decision(None, replay)
    _check_revision(record, stamp)
    undone = _last_content_change(record) if to_revision is None else None
    target = undone.revision - 1 if undone else to_revision
    assert target is not None
    content = content_at(record, target)
    if content == record.content:
        return Decision(None, receipt_of(record))
    splice = splice_between(record.content_bytes, content.encode())
    changed = _spliced(record, stamp, op="undo", content=content, splice=splice)
    return Decision(changed, replace(receipt_of(changed), undone_revision=undone.revision if undone else None))


def redact(record: Record, stamp: Stamp, *, text: str) -> tuple[Record | None, Redaction]:
    """Take every occurrence of ``text`` out of the content and the history; never refused for the cap.

    The marker ``[redacted]`` takes its place, or nothing where the marker itself would hold the text.
    """
    if not text:
        raise EmptyText(f"nothing to redact in {record.name}: pass the text to take out")
    _check_revision(record, stamp)
    needle = text.encode()
    clean = _cleaner(needle)
    in_content = record.content_bytes.count(needle)
    in_history = sum(needle in change.old.encode() or needle in inserted(after, change) for change, after in contents(record))
    past = any(needle in content for _, content in contents(record)) or needle in _oldest(record)
    if not (in_content or in_history or past):
        return None, Redaction(receipt_of(record), 0, 0)
    cleaned = rewritten(record, clean)
    changed = extend(cleaned, _change(record, stamp, op="redact", splice=Splice(0)))
    return changed, Redaction(receipt_of(changed), in_content, in_history)


def absorb(found: Record, *, known: Record | None, at: str) -> Record:
    """The record after someone changed it by hand: a new revision over what was known before.

    Without a known earlier version the change is opaque: the text before it cannot be told.
    """
    base = known or found
    revision = max(found.revision, base.revision) + 1
    after = found.content_bytes
    splice = splice_between(base.content_bytes, after) if known else Splice(len(after), 0)
    change = Change(
        revision=revision,
        at=at,
        op="external",
        bytes=splice.bytes,
        offset=splice.offset,
        old=splice.old,
        opaque=known is None,
    )
    return extend(with_content(base, found.content), change)


def check_cap(record: Record, size: int) -> None:
    """Refuse ``size`` bytes over the cap, unless the file is over it already and gets smaller."""
    cap, now = record.max_size_bytes, record.size_bytes
    if size > cap and size >= now:
        raise SizeExceeded(
            f"{record.name} would be {size} bytes, over its cap of {cap}; it is {now} now, so {max(0, cap - now)} bytes "
            f"are left and this needs {size - now}: make the text shorter, or first edit the file down"
        )


def _spliced(
    record: Record,
    stamp: Stamp,
    *,
    op: Operation,
    content: str,
    splice: Splice,
    told: tuple[int | None, int | None] = (None, None),
) -> Record:
    check_cap(record, record.size_bytes + splice.bytes - len(splice.old.encode()))
    change = replace(_change(record, stamp, op=op, splice=splice), matches=told[0], line=told[1])
    return extend(with_content(record, content), change)


def _change(record: Record, stamp: Stamp, *, op: Operation, splice: Splice) -> Change:
    return Change(
        revision=record.revision + 1,
        at=stamp.at,
        op=op,
        by=stamp.by,
        bytes=splice.bytes,
        offset=splice.offset,
        old=splice.old,
    )


def _check_revision(record: Record, stamp: Stamp) -> None:
    expected = stamp.expected_revision
    if expected is not None and expected != record.revision:
        raise RevisionConflict(
            f"{record.name} is at revision {record.revision}, not {expected}: read it again and decide anew"
        )


def _replay_of(record: Record, stamp: Stamp, *, op: Operation, new: str | None, old: str = "") -> Receipt | None:
    """The receipt of this very call if the history holds it: same caller, same call id, same change."""
    call = stamp.by.call
    if call is None or not any(change.by.call == call for change in record.history):
        return None
    for change, after in contents(record):
        if change.by == stamp.by and change.op == op:
            same = new is None or (change.opaque or (change.old == old and inserted(after, change) == new.encode()))
            return receipt_of_replay(record, change, size=len(after)) if same else None
    return None


def _last_content_change(record: Record) -> Change:
    """The newest change that changed the content, or ``RevisionUnknown`` when there is none to take back."""
    for change in reversed(record.history):
        if change.revision > 1 and not change.opaque and (change.bytes or change.old):
            return change
        if change.opaque:
            break
    raise RevisionUnknown(f"{record.name} has no change in its history that could be taken back")


def _oldest(record: Record) -> bytes:
    """The earliest content that the history can tell."""
    return content_at(record, oldest_known(record)).encode()


def _cleaner(needle: bytes) -> Callable[[bytes], bytes]:
    """A function that takes every ``needle`` out, also where taking one out makes another."""
    marker = MARKER.encode()
    put = b"" if needle in marker else marker

    def clean(content: bytes) -> bytes:
        while needle in content:
            content = content.replace(needle, put)
            if put and needle in content:
                content = content.replace(needle, b"")
        return content

    return clean


def _no_match(record: Record, old: str) -> str:
    """Why there is no match, with the nearest line so that the caller can correct itself."""
    first = old.strip().split("\n")[0][:_HINT_WIDTH]
    lines = record.content.split("\n")[:_HINT_LINES]
    near = difflib.get_close_matches(first, [line[:_HINT_WIDTH] for line in lines], n=1, cutoff=0.5) if first else []
    if not near:
        return f"the text to replace does not occur in {record.name}: read the file and copy the text exactly"
    number = next(index for index, line in enumerate(lines, 1) if line[:_HINT_WIDTH] == near[0])
    return f"the text to replace does not occur in {record.name}; the nearest is line {number}: {near[0]!r}; copy it exactly"
