"""The bounded history of reverse deltas inside a record: walk it, compare it, redact it.

The rule this file guards: applying the kept changes backwards from the content gives exactly the earlier contents, and
a revision that the history no longer covers is an error, never a guess.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from io import StringIO

from memfiles.errors import RevisionUnknown
from memfiles.records.keys import check_whole
from memfiles.records.record import Change, Record, with_content


@dataclass(frozen=True, slots=True)
class Splice:
    """Replacing ``old`` at byte ``offset`` by ``bytes`` bytes of new text; offset None means at the end."""

    bytes: int
    offset: int | None = None
    old: str = ""


def splice_between(before: bytes, after: bytes) -> Splice:
    """The smallest single splice that turns ``before`` into ``after``, cut between characters."""
    start = _common_prefix(before, after)
    while start and _inside_character(before, start) | _inside_character(after, start):
        start -= 1
    limit = min(len(before), len(after)) - start
    tail = min(limit, _common_prefix(before[::-1], after[::-1]))
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
    content = record.content_bytes
    if revision == record.revision:
        return record.content
    past = record.history if revision < record.revision else ()
    for change in reversed(past):
        if change.revision <= revision:
            return content.decode()
        if change.opaque:
            break
        content = reverse(content, change)
        if change.revision == revision + 1 and revision >= 1:
            return content.decode()
    known = f"{oldest_known(record)} to {record.revision}"
    raise RevisionUnknown(f"{record.name} has no revision {revision}; its history holds {known}")


def oldest_known(record: Record) -> int:
    """The earliest revision whose content can still be computed."""
    oldest = record.revision
    for change in reversed(record.history):
        if change.opaque or change.revision == 1:
            return change.revision
        oldest = change.revision - 1
    return oldest


def inserted(content: bytes, change: Change) -> bytes:
    """The text that ``change`` inserted, given the content right after it."""
    offset = _start(content, change)
    return content[offset : offset + change.bytes]


def unified_diff(record: Record, *, from_revision: int, to_revision: int) -> str:
    """A unified diff between two revisions of a record; empty when their contents are equal."""
    before, after = (list(StringIO(content_at(record, at), newline="\n")) for at in (from_revision, to_revision))
    names = (f"{record.name}@{from_revision}", f"{record.name}@{to_revision}")
    lines = difflib.unified_diff(before, after, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def rewritten(record: Record, clean: Callable[[bytes], bytes]) -> Record:
    """The record with ``clean`` applied to its content and to every earlier content that its history covers.

    The deltas are computed between the cleaned contents, so that text which a change cut in two is cleaned as well.
    """
    cleaned = [_cleaned(change, content, clean) for change, content in contents(record)]
    unknown = len(record.history) - len(cleaned)
    history = (*without_text(record.history[:unknown]), *reversed(cleaned))
    return replace(with_content(record, clean(record.content_bytes).decode()), history=history)


def without_text(history: Iterable[Change]) -> tuple[Change, ...]:
    """The changes without their text, which is useless here and could leak: only who, when and how much."""
    return tuple(replace(change, old="", opaque=True) for change in history)


def _cleaned(change: Change, after: bytes, clean: Callable[[bytes], bytes]) -> Change:
    """The change between two cleaned contents: only moved, unless its own text had to be cleaned."""
    now = clean(after)
    if change.opaque:
        return change if now == after else replace(change, offset=0, bytes=len(now), redacted=True)
    before = clean(reverse(after, change))
    moved = change if change.offset is None else replace(change, offset=len(clean(after[: change.offset])))
    if _fits(now, moved) and inserted(now, moved) == inserted(after, change) and reverse(now, moved) == before:
        return moved
    splice = splice_between(before, now)
    return replace(change, offset=splice.offset, bytes=splice.bytes, old=splice.old, redacted=True)


def _start(content: bytes, change: Change) -> int:
    """The offset of the inserted text in the content right after ``change``."""
    return len(content) - change.bytes if change.offset is None else change.offset


def _fits(content: bytes, change: Change) -> bool:
    """Whether ``content`` can be the content right after ``change``."""
    start = _start(content, change)
    end = start + change.bytes
    is_within = 0 <= start <= end <= len(content)
    return is_within and not (_inside_character(content, start) or _inside_character(content, end))


def _common_prefix(left: bytes, right: bytes) -> int:
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


def _inside_character(text: bytes, index: int) -> bool:
    """Whether cutting ``text`` at ``index`` would cut a UTF-8 character in two."""
    return index < len(text) and text[index] & 0xC0 == 0x80
