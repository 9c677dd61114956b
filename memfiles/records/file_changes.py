"""Decisions on requested changes of a record: caps, replays, expected revisions, undo and redaction.

Everything here is a pure function of its arguments. A decision is the record to commit (None if nothing changes) and
the receipt to return; a refusal is raised, and nothing has happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from memfiles.errors import EditNoMatch, EmptyText, InvalidArgument, RevisionConflict, RevisionUnknown, SizeExceeded
from memfiles.records.history import (
    Splice,
    content_at,
    contents,
    inserted,
    rewritten,
    splice_between,
    steps_after,
    texts_in,
    without,
    without_text,
)
from memfiles.records.keys import check_whole
from memfiles.records.record import (
    Change,
    Operation,
    Record,
    Stamp,
    check_text,
    extend,
    grown,
    with_content,
    with_redactions,
)
from memfiles.records.redactions import MAX_PIECES, Cleaner, lacking, piece_of, united_pieces

WARN_SHARE = 0.8
_HINT_LINES = 2000
LEAST_REDACTED = 8  # bytes of a part of a credential
_HINT_WIDTH = 160


class Receipt(Struct, frozen=True, gc=False):
    """The outcome of one accepted write. Sizes are UTF-8 bytes; ``share`` is size / cap, 1.0 at the cap.

    An edit has ``matches``, the number of occurrences, and ``line``, the line of the replaced one (from 1). An undo
    has ``undone_revision``, the change taken back. ``replayed``: nothing was written, because this very call had been
    accepted before.
    """

    uid: str
    name: str
    revision: int
    size_bytes: int
    max_size_bytes: int
    bytes_left: int
    share: float
    warning: str | None = None
    replayed: bool = False
    matches: int | None = None
    line: int | None = None
    undone_revision: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object, without fields that do not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}


class FileCard(Struct, frozen=True, gc=False):
    """The description of a memory file, without its content."""

    uid: str
    name: str
    description: str
    level: str
    max_size_bytes: int
    size_bytes: int
    revision: int
    provisional: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def card_of(record: Record) -> FileCard:
    """The card of a record."""
    name, description, cap = record.name, record.description, record.max_size_bytes
    size, revision, provisional = record.size_bytes, record.revision, record.provisional
    return FileCard(record.uid, name, description, record.level, cap, size, revision, provisional)


def receipt_of(record: Record) -> Receipt:
    """The receipt of a write that left the file as ``record``."""
    return _receipt(record, revision=record.revision, size=record.size_bytes)


def receipt_of_change(record: Record, change: Change, *, size: int) -> Receipt:
    """The receipt of a write recorded as ``change``, which left the file with ``size`` bytes."""
    receipt = _receipt(record, revision=change.revision, size=size)
    return replace(receipt, matches=change.matches, line=change.line, undone_revision=change.undone)


def with_warnings(receipt: Receipt, warnings: Sequence[str]) -> Receipt:
    """The receipt with the warnings of the secrets gate added."""
    if not warnings:
        return receipt
    texts = [receipt.warning, *warnings] if receipt.warning else warnings
    return replace(receipt, warning="; ".join(texts))


def _receipt(record: Record, *, revision: int, size: int) -> Receipt:
    cap, warning = record.max_size_bytes, None
    if size >= WARN_SHARE * cap:
        left = f"{cap - size} bytes are left" if size <= cap else f"{size - cap} bytes over it"
        percent = size * 100 // cap if cap else 100
        warning = f"{percent} % of the cap is used ({size} of {cap} bytes, {left}): shorten the file soon"
    return Receipt(
        record.uid, record.name, revision, size, cap, max(0, cap - size), round(share_of(cap, used=size), 4), warning
    )


def share_of(cap: int, *, used: int) -> float:
    """The used share of a cap, 1.0 at the cap; a file whose cap is 0 is always full."""
    return used / cap if cap else 1.0


class Decision(Struct, frozen=True):
    """The record to commit, None if nothing changes, and the receipt for the caller."""

    record: Record | None
    receipt: Receipt


class Redaction(Struct, frozen=True, gc=False):
    """The result of a redaction: occurrences in the content, and kept changes and quarantined copies with the text."""

    receipt: Receipt
    in_content: int
    in_history: int
    copies_removed: int = 0


Repeats = Callable[[Change, bytes | None], bool]
"""Whether a change is the requested one; the content right after it is None if it is no longer known."""


def append(record: Record, stamp: Stamp, *, text: str, earlier: Record | None = None, same_later: int = 0) -> Decision:
    """Put ``text`` at the very end, exactly as it is.

    For a call with several appends: ``earlier`` is the record in which to look for a replay, ``same_later`` the number
    of equal appends still to come.
    """
    data = text.encode()

    def repeats(change: Change, after: bytes | None) -> bool:
        return change.bytes == len(data) and (after is None or inserted(after, change) == data)

    if replay := _replay_of(earlier or record, stamp, op="append", repeats=repeats, same_later=same_later):
        return Decision(None, replay)
    _check_revision(record, stamp)
    if not text:
        return Decision(None, receipt_of(record))
    check_cap(record, record.size_bytes + len(data))
    changed = grown(record, text, _change(record, stamp, op="append", splice=Splice(len(data))))
    return Decision(changed, receipt_of(changed))


def checked_pairs(appends: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The appends as (uid, text) pairs; ``InvalidArgument`` for anything else."""
    try:
        return [(uid, content) for uid, content in appends]
    except (TypeError, ValueError):
        raise InvalidArgument("append_many takes (uid, text) pairs") from None


def append_all(
    records: Mapping[str, Record],
    texts: Sequence[tuple[str, str]],
    stamp: Stamp,
    *,
    judge: Callable[[Record, Decision], Decision],
) -> list[Decision]:
    """Append (path, text) pairs in order; one decision each, as ``judge`` lets it pass."""
    changed, decisions = dict(records), []
    left = Counter(texts)  # how often the same append is still to come, as a replay returns the receipts in order
    for path, text in texts:
        left[path, text] -= 1
        made = append(changed[path], stamp, text=text, earlier=records[path], same_later=left[path, text])
        decision = judge(changed[path], made)
        changed[path] = decision.record or changed[path]
        decisions.append(decision)
    return decisions


def edit(record: Record, stamp: Stamp, *, old: str, new: str) -> Decision:
    """Replace the first occurrence of ``old``; the receipt says how many there were and at which line."""
    for text in (old, new):
        check_text(text)
    if not old:
        raise EmptyText(f"nothing to find in {record.name}: pass the text to replace, or append instead")
    put = new.encode()

    def repeats(change: Change, after: bytes | None) -> bool:
        same_old = change.matches is not None and (change.opaque or change.old == old)
        return same_old and change.bytes == len(put) and (after is None or inserted(after, change) == put)

    if replay := _replay_of(record, stamp, op="edit", repeats=repeats):
        return Decision(None, replay)
    _check_revision(record, stamp)
    at = record.content.find(old)
    if at < 0:
        raise EditNoMatch(_no_match(record, old))
    before, after = record.content[:at], record.content[at + len(old) :]
    matches, line = record.content.count(old), before.count("\n") + 1
    if new == old:
        return Decision(None, replace(receipt_of(record), matches=matches, line=line))
    splice = Splice(len(put), len(before.encode()), old)
    change = replace(_change(record, stamp, op="edit", splice=splice), matches=matches, line=line)
    return _spliced(record, change, content=before + new + after)


def replace_content(record: Record, stamp: Stamp, *, content: str) -> Decision:
    """Make ``content`` the whole content, recorded as the smallest edit that does it."""
    check_text(content)
    data = content.encode()

    def repeats(change: Change, after: bytes | None) -> bool:
        return change.matches is None and (after is None or after == data)

    if replay := _replay_of(record, stamp, op="edit", repeats=repeats):
        return Decision(None, replay)
    _check_revision(record, stamp)
    if content == record.content:
        return Decision(None, receipt_of(record))
    splice = splice_between(record.content_bytes, data)
    return _spliced(record, _change(record, stamp, op="edit", splice=splice), content=content)


def undo(record: Record, stamp: Stamp, *, to_revision: int | None = None) -> Decision:
    """Take back the last change of the content, or go back to the content at ``to_revision``."""
    if to_revision is not None:
        check_whole(to_revision, what="to_revision")
    if replay := _replay_of(record, stamp, op="undo", repeats=lambda change, _: change.target == to_revision):
        return Decision(None, replay)
    _check_revision(record, stamp)
    undone = _last_content_change(record).revision if to_revision is None else None
    content = content_at(record, undone - 1 if undone is not None else to_revision or 0)
    if content == record.content:
        return Decision(None, receipt_of(record))
    splice = splice_between(record.content_bytes, content.encode())
    change = replace(_change(record, stamp, op="undo", splice=splice), undone=undone, target=to_revision)
    return _spliced(record, change, content=content)


def redact(record: Record, stamp: Stamp, *, text: str, nonce: bytes) -> tuple[Record | None, Redaction]:
    """Remove every occurrence of ``text`` from the content and the history; never refused for the cap.

    The marker ``[redacted]`` takes its place, or nothing if the marker itself contains the text. The record keeps a
    piece of it, so that other copies lose the text as well; ``nonce`` are random bytes for that.
    """
    if not text:
        raise EmptyText(f"nothing to redact in {record.name}: pass the text to remove")
    _check_revision(record, stamp)
    needle = text.encode()
    clean = Cleaner([needle])
    is_there = any(clean.count(part) for part in texts_in(record, reach=len(needle)))
    cleaned = rewritten(record, clean) if is_there else record
    if cleaned == record:
        return None, Redaction(receipt_of(record), 0, 0)
    if len(record.redactions) >= MAX_PIECES:
        raise SizeExceeded(
            f"{record.name} keeps {len(record.redactions)} redactions, and {MAX_PIECES} is the most; nothing was "
            f"changed. Declare a new file with a new uid, move the wanted text there, and take this one out of the "
            f"workflow, the memory directory and the mirror"
        )
    _, steps = steps_after(record, 0)
    in_history = sum(bool(clean.count(step.change.old.encode()) or clean.count(step.text)) for step in steps)
    piece = piece_of(needle, known=record.redactions, nonce=nonce)
    cleaned = with_redactions(cleaned, united_pieces(record.redactions, [piece]))
    changed = extend(cleaned, _change(record, stamp, op="redact", splice=Splice(0)))
    return changed, Redaction(receipt_of(changed), clean.count(record.content_bytes), in_history)


def absorb(found: Record, *, known: Record | None, at: str) -> Record:
    """The record after a hand edit: a new revision over the version known before.

    Without a known version, or if another process wrote a later one, the change is opaque, because the text before it
    is unknown. The history is then the one found, which may be redacted. Text that was redacted since the file was
    read by the editor that wrote it is taken out again.
    """
    if known is None or known.revision < found.revision:
        known, base = None, replace(found, history=without_text(found.history))
    else:
        base = known
    revision = base.revision + 1
    found = without(found, lacking(found.redactions, base.redactions))
    after = found.content_bytes
    splice = splice_between(base.content_bytes, after) if known else Splice(len(after), 0)
    change = Change(
        revision, at, "external", bytes=splice.bytes, offset=splice.offset, old=splice.old, opaque=known is None
    )
    return extend(with_content(base, found.content), change)


def check_cap(record: Record, size: int) -> None:
    """Refuse ``size`` bytes over the cap, unless the file is already over it and shrinks."""
    cap, now = record.max_size_bytes, record.size_bytes
    if size > cap and size >= now:
        raise SizeExceeded(
            f"{record.name} would be {size} bytes, over its cap of {cap}; it is {now} now, so {max(0, cap - now)} "
            f"bytes are left and this needs {size - now}: make the text shorter, or first edit the file down"
        )


def new_part(before: str, change: Change, after: str) -> tuple[int, int]:
    """The span, in characters, of the text that a change put into the content ``after`` it: from, to."""
    if change.offset is None:
        return len(before), len(after)
    start = change.offset if before.isascii() else len(before.encode()[: change.offset].decode())
    return start, len(after) - (len(before) - start - len(change.old))


def without_credential(
    record: Record, decision: Decision, stamp: Stamp, *, content: str, lost: Sequence[str], nonces: Iterator[bytes]
) -> Decision:
    """The decision with this ``content``, out of which a credential was taken.

    ``lost`` are the parts of it that the record held: they are redacted, everywhere. For a part too short for that,
    which may stand anywhere by chance, the history loses its text instead.
    """
    assert decision.record is not None, "only a change can hold a credential"
    asked, now, short = decision.record.history[-1], replace(stamp, expected_revision=None), False
    for text in lost:
        if len(text.encode()) < LEAST_REDACTED:
            short = True
        else:
            record = redact(record, now, text=text, nonce=next(nonces))[0] or record
    target = Cleaner([text.encode() for text in lost if len(text.encode()) >= LEAST_REDACTED])(content.encode())
    splice = splice_between(record.content_bytes, target)
    if short:
        record, splice = replace(record, history=without_text(record.history)), Splice(len(target), 0)
    elif asked.offset is None and splice.offset == record.size_bytes:
        splice = Splice(splice.bytes)
    change = _change(record, now, op=asked.op, splice=splice)
    change = replace(change, matches=asked.matches, line=asked.line, redacted=True, opaque=short)
    return _spliced(record, change, content=target.decode())


def _spliced(record: Record, change: Change, *, content: str) -> Decision:
    """Accept ``change``, which results in ``content``, if the cap allows it."""
    check_cap(record, record.size_bytes + change.bytes - len(change.old.encode()))
    changed = extend(with_content(record, content), change)
    return Decision(changed, receipt_of_change(changed, change, size=changed.size_bytes))


def _change(record: Record, stamp: Stamp, *, op: Operation, splice: Splice) -> Change:
    return Change(record.revision + 1, stamp.at, op, stamp.by, splice.bytes, splice.offset, splice.old)


def _check_revision(record: Record, stamp: Stamp) -> None:
    expected = stamp.expected_revision
    if expected is not None and expected != record.revision:
        raise RevisionConflict(
            f"{record.name} is at revision {record.revision}, not {expected}: read it again and retry"
        )


def _replay_of(record: Record, stamp: Stamp, *, op: Operation, repeats: Repeats, same_later: int = 0) -> Receipt | None:
    """The receipt of this very call if it is in the history: same caller, same call id, same change."""
    call = stamp.by.call
    if call is None or not any(change.by.call == call for change in record.history):
        return None
    known = {change.revision: after for change, after in contents(record)}
    mine = [change for change in reversed(record.history) if change.by == stamp.by and change.op == op]
    found = [change for change in mine if change.is_altered or repeats(change, known.get(change.revision))]
    if not found:
        return None
    change = found[min(same_later, len(found) - 1)]  # the history may have forgotten the first of them
    after = known.get(change.revision)
    size = record.size_bytes if after is None else len(after)
    return replace(receipt_of_change(record, change, size=size), replayed=True)


def _last_content_change(record: Record) -> Change:
    """The newest change of the content, or ``RevisionUnknown`` if there is none to take back."""
    for change in reversed(record.history):
        if change.revision > 1 and not change.opaque and (change.bytes or change.old):
            return change
        if change.opaque:
            break
    raise RevisionUnknown(f"{record.name} has no change in its history to undo")


def _no_match(record: Record, old: str) -> str:
    """The reason for no match, with the nearest line so that the caller can correct itself."""
    import difflib  # late: only a mistake needs it

    first = old.strip().split("\n")[0][:_HINT_WIDTH]
    lines = record.content.split("\n")[:_HINT_LINES]
    near = difflib.get_close_matches(first, [line[:_HINT_WIDTH] for line in lines], n=1, cutoff=0.5) if first else []
    if not near:
        return f"the text to replace does not occur in {record.name}: read it and copy the text exactly"
    number = next(index for index, line in enumerate(lines, 1) if line[:_HINT_WIDTH] == near[0])
    nearest = f"the nearest is line {number}: {near[0]!r}"
    return f"the text to replace does not occur in {record.name}; {nearest}; copy it exactly"
