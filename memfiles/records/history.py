"""The bounded history of reverse deltas inside a record: walk it, compare it, redact it.

The rule this file guards: applying the kept changes backwards from the content gives exactly the earlier contents, and
a revision that the history no longer covers is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import StringIO

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import RevisionUnknown
from memfiles.records.keys import check_whole
from memfiles.records.record import Change, Record, with_content, with_redactions
from memfiles.records.redactions import ALIKE_MIN, Cleaner, Fragments, Piece, reveal, united_pieces

_COMPARED_MAX = 2048  # characters; longer ones would take seconds


class Splice(Struct, frozen=True, gc=False):
    """Replacing ``old`` at byte ``offset`` by ``bytes`` bytes of new text; offset None means at the end."""

    bytes: int
    offset: int | None = None
    old: str = ""


def splice_between(before: bytes, after: bytes) -> Splice:
    """The smallest single splice that turns ``before`` into ``after``, cut between characters."""
    start = common_prefix(before, after)
    while start and _inside_character(before, start) | _inside_character(after, start):
        start -= 1
    limit = min(len(before), len(after)) - start
    tail = common_suffix(before, after, most=limit)
    while tail and _inside_character(before, len(before) - tail) | _inside_character(after, len(after) - tail):
        tail -= 1
    old = before[start : len(before) - tail].decode()
    return Splice(bytes=len(after) - tail - start, offset=start, old=old)


def contents(record: Record) -> Iterator[tuple[Change, bytes]]:
    """Each kept change, newest first, with the content right after it; ends where the past is unknown."""
    content = record.content_bytes
    for change in reversed(record.history):
        yield change, content
        if change.opaque:
            return
        content = reverse(content, change)


def reverse(content: bytes, change: Change) -> bytes:
    """The content before ``change``, given the content after it."""
    offset = _start(content, change)
    if not _fits(content, change):
        raise RevisionUnknown(f"the history of revision {change.revision} does not fit the content")
    return content[:offset] + change.old.encode() + content[offset + change.bytes :]


def content_at(record: Record, revision: int) -> str:
    """The content at ``revision``, or ``RevisionUnknown`` with the known revisions."""
    check_whole(revision, what="a revision")
    oldest = oldest_known(record)
    if not oldest <= revision <= record.revision:
        known = f"{oldest} to {record.revision}"
        raise RevisionUnknown(f"{record.name} has no revision {revision}; its history holds {known}")
    content = record.content_bytes
    for change in reversed(record.history):
        if change.revision <= revision:
            break
        content = reverse(content, change)
    return content.decode()


def oldest_known(record: Record) -> int:
    """The earliest revision whose content can still be computed."""
    oldest = record.revision
    for change in reversed(record.history):
        if change.opaque or change.revision == 1:
            return change.revision
        oldest = change.revision - 1
    return oldest


def has_lost(record: Record, *, after: int) -> bool:
    """Whether a record lost text since this revision, by a redaction or a forget; True if its history is too short."""
    since = {change.revision: change.op for change in record.history if change.revision > after}
    return record.revision > after and (after + 1 not in since or "redact" in since.values())


def inserted(content: bytes, change: Change) -> bytes:
    """The text that ``change`` inserted, given the content right after it."""
    offset = _start(content, change)
    return content[offset : offset + change.bytes]


def unified_diff(record: Record, *, from_revision: int, to_revision: int) -> str:
    """A unified diff between two revisions of a record; empty when their contents are equal."""
    before, after = (content_at(record, revision) for revision in (from_revision, to_revision))
    return diff_between(before, after, names=(f"{record.name}@{from_revision}", f"{record.name}@{to_revision}"))


def diff_between(before: str, after: str, *, names: tuple[str, str]) -> str:
    """A unified diff between two texts under these names; empty when they are equal."""
    import difflib  # late: few changes need it

    old, new = (list(StringIO(text, newline="\n")) for text in (before, after))
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class TextChange(Struct, frozen=True):
    """A change and the text that it inserted."""

    change: Change
    text: bytes

    def after(self, before: bytes) -> bytes:
        """The content after the change, given the content before it."""
        offset, removed, _ = self.splice(before)
        return before[:offset] + self.text + before[offset + removed :]

    def splice(self, before: bytes) -> tuple[int, int, int]:
        """The offset of the change in the content before it, and the numbers of bytes that it removes and inserts."""
        offset = len(before) if self.change.offset is None else self.change.offset
        return offset, len(self.change.old.encode()), len(self.text)


def steps_after(record: Record, revision: int) -> tuple[bytes, tuple[TextChange, ...]]:
    """The changes after a revision as far as the history has their text, and the content before them."""
    steps: list[TextChange] = []
    content = record.content_bytes
    with suppress(RevisionUnknown):  # the history was damaged by hand: what is before that is unknown
        for change in reversed(record.history):
            if change.revision <= revision or change.opaque:
                break
            before = reverse(content, change)
            steps.append(TextChange(change, inserted(content, change)))
            content = before
    return content, tuple(reversed(steps))


def texts_in(record: Record, *, reach: int) -> Iterator[bytes]:
    """The oldest known content and, for each later change, the text after it around the place that it changed.

    A text of up to ``reach`` bytes that stands in any revision stands in one of these.
    """
    content, steps = steps_after(record, 0)
    yield content
    for step in steps:
        start, _, length = step.splice(content)
        content = step.after(content)
        yield content[max(0, start - reach) : start + length + reach]
    yield from (change.old.encode() for change in record.history[: len(record.history) - len(steps)])


def rewritten(
    record: Record,
    clean: Cleaner,
    *,
    traced_after: int | None = None,
    oldest: Sequence[Fragments] = (),
    newest: Sequence[Fragments] = (),
) -> Record:
    """The record with ``clean`` applied to its content and to every earlier content that its history covers.

    The deltas are computed between the cleaned contents, so that text which a change cut in two is cleaned as well.
    Earlier contents lose the parts from which a text was put together, and what the changes after the revision
    ``traced_after`` left of a text goes too. So do parts of other texts in the ``oldest`` or the ``newest`` content.
    """
    content, steps = steps_after(record, 0)
    unknown = record.history[: len(record.history) - len(steps)]
    history = list(without_text(unknown))
    earlier = _earlier_parts(record, len(steps), clean, [*newest])
    before, cleaned = content, clean(content, [*oldest, *earlier.pop()])
    if unknown and unknown[-1].opaque:
        first = unknown[-1]
        history[-1] = first if cleaned == before else replace(first, offset=0, bytes=len(cleaned), redacted=True)
    fragments = list(oldest)
    left = {hash(before): fragments}  # by content: an undo restores the content of an earlier change
    for step in steps:
        after = step.after(before)
        if hash(after) in left:
            fragments = left[hash(after)]
        elif traced_after is not None and step.change.revision > traced_after and (fragments or clean.count(before)):
            for part in _parts(before, after):
                fragments = clean.carried(fragments, *part)
        left[hash(after)] = fragments
        now = clean(after, [*fragments, *earlier.pop()])
        history.append(_cleaned(step, cleaned, after, now, clean))
        before, cleaned = after, now
    return replace(with_content(record, cleaned.decode()), history=tuple(history))


def _earlier_parts(record: Record, count: int, clean: Cleaner, fragments: list[Fragments]) -> list[list[Fragments]]:
    """The fragments of later texts in the content, which has these, and in ``count`` contents before it, newest first.

    Where a change put other text in place of a part, only whole lines of the rest are parts of the later text: "Bob is
    on Free" is another fact than "Bob is on Pro".
    """
    after, found = record.content_bytes, [fragments]
    for change in record.history[: -count - 1 : -1]:
        before, at, old = reverse(after, change), _start(after, change), change.old.encode()
        if fragments or clean.is_near(after, at, at + change.bytes):
            parts = _parts(after, before) if change.bytes and old else [(after, before, (at, change.bytes, len(old)))]
            for part in parts:
                fragments = clean.carried(fragments, *part, in_lines=bool(part[2][2]))
        found.append(fragments)
        after = before
    return found


def without(record: Record, pieces: Sequence[Piece], *, traced_after: int | None = None) -> Record:
    """The record with these pieces and without their texts, as ``rewritten``; the very same record without pieces."""
    if not pieces:
        return record
    longest, cleaned, texts = max(piece.size for piece in pieces), record, dict[Piece, bytes]()
    while found := reveal((it for it in pieces if it not in texts), texts_in(cleaned, reach=longest)):
        texts |= found  # one that holds a marker is found once the text that the marker replaced is gone
        cleaned = rewritten(cleaned, Cleaner(texts.values()), traced_after=traced_after)
    return with_redactions(cleaned, united_pieces(record.redactions, pieces))


def without_lost(record: Record, lost: Sequence[Fragments], *, after: int) -> Record:
    """The record without what its content at a revision has ``lost``, as earlier and later contents have it."""
    content, steps = steps_after(record, after)
    count = len(record.history) - len(steps)
    past = replace(with_content(record, content.decode()), history=record.history[:count])
    past = rewritten(past, nothing := Cleaner([]), newest=lost)
    later = replace(record, history=record.history[count:])
    later = rewritten(later, nothing, traced_after=after, oldest=lost)
    return replace(later, history=(*past.history, *later.history))


def without_text(history: Iterable[Change]) -> tuple[Change, ...]:
    """The changes without their text, which is useless here and could leak: only who, when and how much."""
    return tuple(replace(change, old="", opaque=True) for change in history)


def _cleaned(step: TextChange, before: bytes, was: bytes, now: bytes, clean: Cleaner) -> Change:
    """The change of the cleaned content from ``before`` to ``now``, which ``was`` uncleaned: moved, else computed."""
    change = step.change
    at = change.offset
    for place in (at,) if at is None else (len(clean(was[:at])), at + len(now) - len(was)):
        moved = change if place == at else replace(change, offset=place)
        if _fits(now, moved) and inserted(now, moved) == step.text and reverse(now, moved) == before:
            return moved
    if change.offset is None and now.startswith(before):
        return replace(change, bytes=len(now) - len(before), redacted=True)
    splice = splice_between(before, now)
    return replace(change, offset=splice.offset, bytes=splice.bytes, old=splice.old, redacted=True)


def _parts(before: bytes, after: bytes) -> Iterator[tuple[bytes, bytes, tuple[int, int, int]]]:
    """A difference as changes of one place each, from the end to the beginning, as ``Cleaner.carried`` takes them.

    What the replaced and the new text have in common was not removed; a few letters may be alike by chance.
    """
    import difflib  # late: few changes need it

    splice = splice_between(before, after)
    start, old = splice.offset or 0, splice.old
    new = after[start : start + splice.bytes].decode()
    matcher = difflib.SequenceMatcher(None, old, new if len(old) + len(new) <= _COMPARED_MAX else "", autojunk=False)
    kept = [(block.a, block.b, block.size) for block in matcher.get_matching_blocks() if block.size >= ALIKE_MIN]
    old_end, new_end = len(old), len(new)
    for in_old, in_new, size in [*reversed(kept), (0, 0, 0)]:
        at = start + len(old[: in_old + size].encode())
        removed, text = old[in_old + size : old_end].encode(), new[in_new + size : new_end].encode()
        changed = before[:at] + text + before[at + len(removed) :]
        yield before, changed, (at, len(removed), len(text))
        before, old_end, new_end = changed, in_old, in_new


def _start(content: bytes, change: Change) -> int:
    """The offset of the inserted text in the content right after ``change``."""
    return len(content) - change.bytes if change.offset is None else change.offset


def _fits(content: bytes, change: Change) -> bool:
    """Whether ``content`` can be the content right after ``change``."""
    start = _start(content, change)
    end = start + change.bytes
    is_within = 0 <= start <= end <= len(content)
    return is_within and not (_inside_character(content, start) or _inside_character(content, end))


def common_prefix(left: bytes, right: bytes) -> int:
    """The number of equal leading bytes, by bisection (a slice comparison is one memcmp)."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_suffix(left: bytes, right: bytes, *, most: int) -> int:
    """The number of equal bytes at the end, at most ``most``; like ``common_prefix``, without reversing a text."""
    low, high = 0, most
    if left[len(left) - high :] == right[len(right) - high :]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[len(left) - middle : len(left) - low] == right[len(right) - middle : len(right) - low]:
            low = middle
        else:
            high = middle
    return low


def _inside_character(text: bytes, index: int) -> bool:
    """Whether cutting ``text`` at ``index`` would cut a UTF-8 character in two."""
    return index < len(text) and text[index] & 0xC0 == 0x80
