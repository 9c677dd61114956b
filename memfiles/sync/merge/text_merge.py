"""Three-way merge of texts by lines: the changes of two writers to one base, in one text.

The rules this file keeps:

- A line that only one side changed is taken from that side, even where the changes of both sides touch (git reports
  touching changes as a conflict).
- Lines that both sides added in one place are all kept, the first side's first; what both added alike is there once.
- Whole lines that the second side added after the end of the base are kept as they are, whatever became of the base.
- Only a line that both sides changed differently is a conflict. The winner's line is taken, and the merge is not clean.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal

from msgspec import Struct

from memfiles.records import NamedTuple
from memfiles.records.history import common_prefix
from memfiles.records.redactions import MARKER, Fragments

Side = Literal["first", "second"]
Lines = Sequence[str]
_GLUE = rf"(?:(?!{re.escape(MARKER)})\W)"
_TOKEN = re.compile(rf"{re.escape(MARKER)}|\w+{_GLUE}*|{_GLUE}+")
_MANY_LINES = 2000  # up to here, frequent lines are matched like all others
_MOST_PAIRS = 20_000_000  # of equal lines, which difflib visits at each step: about two seconds


@dataclass(frozen=True, slots=True)
class MergedText:
    """A merged text, and whether it has everything of both sides."""

    text: str
    is_clean: bool = True


class LineEdits(Struct, frozen=True):
    """By line of the base: what it was changed to (None: deleted), and the lines added before it."""

    changed: dict[int, str | None]
    added: dict[int, Lines]


class Hunk(NamedTuple):
    """A difference: ``base[start:end]`` was replaced by ``text[low:high]``; one of them may be empty."""

    start: int
    end: int
    low: int
    high: int


def merge_text(base: str, first: str, second: str, *, winner: Side) -> MergedText:
    """Merge two texts made from ``base``; where both changed a line differently, the winner's line is taken."""
    if second in (base, first):
        return MergedText(first)
    if first == base:
        return MergedText(second)
    if _only_adds(base, second):
        return MergedText(first + second[len(base) :])
    if not base.endswith("\n") and _only_adds(base, first):  # else the lines tell, and in the right order
        return MergedText(second + first[len(base) :])
    return _merge_lines(lines_of(base), lines_of(first), lines_of(second), winner=winner)


def unite_text(first: str, second: str) -> MergedText:
    """Merge two texts without a base: the lines they share once, in order, and all other lines of both.

    Clean only if they share a beginning and nothing after it, as when both appended.
    """
    one, other = lines_of(first), lines_of(second)
    same = _shared(one, other)
    if set(one[same:]).isdisjoint(other[same:]):
        return MergedText(_joined([*one, *other[same:]]), is_clean=same > 0)
    united: list[str] = []
    for _, start, end, other_start, other_end in _opcodes(one, other):
        is_equal = one[start:end] == other[other_start:other_end]
        united += one[start:end] if is_equal else [*one[start:end], *other[other_start:other_end]]
    return MergedText(_joined(united), is_clean=False)


def with_lines(text: str, lines: Lines, *, of: str, won: str) -> str:
    """Append to ``text``, merged from ``of`` and ``won``, the ``lines`` that it lacks and the text ``of`` has."""
    there, own = Counter(_ended(lines_of(text))), Counter(_ended(lines_of(of)))
    missing = (Counter(_ended(lines)) & own) - there
    known = own + Counter(_ended(lines_of(won)))
    for tail in dict.fromkeys(each.rpartition("\n")[2] for each in (of, won) if not each.endswith("\n")):
        for line in there - known:
            if line.startswith(tail) and (rest := line.removeprefix(tail)) in known:  # the merge joined the two
                missing -= Counter((f"{tail}\n", rest))
    added = []
    for line, ended in zip(lines, _ended(lines), strict=True):
        if missing[ended] > 0:
            missing[ended] -= 1
            added.append(line)
    return _joined([*lines_of(text), *added])


def lost_parts(one: str, other: str) -> tuple[list[Fragments], list[Fragments]]:
    """The fragments in each of two versions of a text that were redacted in the other one alone.

    The marker is no text to align on, unless the two differ there in more than what it stands for.
    """
    lost: tuple[list[Fragments], list[Fragments]] = ([], [])
    for lines in _apart(_Apart(one, 0, other, 0), lines_of):
        for words in _apart(lines, _TOKEN.findall):
            is_told = _cut_out(words.here, words.there) or _cut_out(words.there, words.here)
            for each in [words] if is_told else _apart(words, _TOKEN.findall, by_marker=True):
                if spans := _cut_out(each.here, each.there):
                    lost[0].extend(Fragments(((each.at + start, each.at + end),), put) for start, end, put in spans)
                elif spans := _cut_out(each.there, each.here):
                    lost[1].extend(Fragments(((each.to + start, each.to + end),), put) for start, end, put in spans)
    return lost


class _Apart(NamedTuple):
    """A difference of two texts: what is here and there, and where, in bytes."""

    here: str
    at: int
    there: str
    to: int


def _apart(whole: _Apart, split: Callable[[str], Lines], *, by_marker: bool = False) -> Iterator[_Apart]:
    """The differences by parts of a text; ``by_marker``: parts that hold or are a marker may be the same."""
    _, at, _, to = whole
    parts, others = split(whole.here), split(whole.there)
    known = parts if by_marker else ["" if MARKER in it or not re.search(r"\w", it) else it for it in parts]
    for _, start, end, low, high in _opcodes(known, others):
        here, there = "".join(parts[start:end]), "".join(others[low:high])
        if here != there:
            yield _Apart(here, at, there, to)
        at, to = at + len(here.encode()), to + len(there.encode())


def _cut_out(whole: str, left: str) -> list[tuple[int, int, bytes]]:
    """The spans that a text lost, and the marker for each, if ``left`` is the rest of it; else nothing."""
    text, marker = whole.encode(), MARKER.encode()
    first, *others = left.encode().split(marker)
    if not others:
        start = common_prefix(text, first)
        while start < len(text) and text[start] & 0xC0 == 0x80:  # within a character, which stays whole
            start -= 1
        end = len(text) - len(first) + start
        return [(start, end, b"")] if start < end and text[end:] == first[start:] else []
    spans, done = [], len(first)
    for kept in others[:-1]:
        found = text.find(kept, done)
        spans.append((done, found, marker))
        done = found + len(kept)
    spans.append((done, len(text) - len(others[-1]), marker))
    is_left = text.startswith(first) and text.endswith(others[-1])
    is_left = is_left and all(start <= end for start, end, _ in spans)
    return [each for each in spans if text[each[0] : each[1]] != marker] if is_left else []


def shared_beginning(first: str, second: str) -> str:
    """The whole lines at the beginning that both texts share."""
    lines = lines_of(first)
    return "".join(lines[: _shared(lines, lines_of(second))])


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with their ends; only ``\n`` ends a line."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _only_adds(base: str, text: str) -> bool:
    """Whether ``text`` is ``base`` with whole lines after it, which fits any change of the base."""
    return text.startswith(base) and (not base or base.endswith("\n") or text[len(base)] == "\n")


def _merge_lines(base: Lines, first: Lines, second: Lines, *, winner: Side) -> MergedText:
    """Merge by lines. The beginning and the end that all three share are not compared again."""
    head = min(_shared(base, first), _shared(base, second))
    rest = [lines[head:] for lines in (base, first, second)]
    tail = min(_shared(rest[0][::-1], lines[::-1]) for lines in rest[1:])
    middle = [lines[: len(lines) - tail] for lines in rest]
    merged, is_clean = list(base[:head]), True
    for before, one, other in _regions(*middle):
        if other in (before, one):
            merged += one
        elif one == before:
            merged += other
        else:
            lines, is_kept = _woven(before, one, other, winner=winner)
            merged += lines
            is_clean = is_clean and is_kept
    return MergedText(_joined([*merged, *base[len(base) - tail :]]), is_clean)


def _regions(base: Lines, first: Lines, second: Lines) -> Iterator[tuple[Lines, Lines, Lines]]:
    """Cut the three texts into regions that belong together: changed by neither side, by one, or by both.

    Changes of both sides are in one region if no unchanged line of the base is between them.
    """
    texts, sides = (first, second), (deque(_hunks(base, first)), deque(_hunks(base, second)))
    shifts = [0, 0]  # from a position in the base to the same position in each text
    done = 0
    while any(sides):
        start = end = min(side[0].start for side in sides if side)
        starts = [start + shift for shift in shifts]
        while touching := [which for which in (0, 1) if sides[which] and sides[which][0].start <= end]:
            for which in touching:
                hunk = sides[which].popleft()
                end = max(end, hunk.end)
                shifts[which] = hunk.high - hunk.end
        yield (base[done:start],) * 3
        one, other = (texts[which][starts[which] : end + shifts[which]] for which in (0, 1))
        yield base[start:end], one, other
        done = end
    yield (base[done:],) * 3


def _woven(base: Lines, first: Lines, second: Lines, *, winner: Side) -> tuple[list[str], bool]:
    """Apply both sides' edits of a region line by line; returns whether all could be applied."""
    ours, theirs = _line_edits(base, first), _line_edits(base, second)
    clashes = [at for at in ours.changed.keys() & theirs.changed.keys() if ours.changed[at] != theirs.changed[at]]
    changed = ours.changed | theirs.changed if winner == "second" else theirs.changed | ours.changed
    woven: list[str] = []
    for at in range(len(base) + 1):
        one, other = ours.added.get(at, []), theirs.added.get(at, [])
        woven += [*one, *other[_shared(one, other) :]]
        line = changed.get(at, base[at]) if at < len(base) else None
        woven += [line] if line is not None else []
    return woven, not clashes


def _line_edits(base: Lines, text: Lines) -> LineEdits:
    """The differences of ``text`` from ``base``, line by line; further lines of a longer replacement are added ones."""
    edits = LineEdits({}, {})
    for start, end, low, high in _hunks(base, text):
        pairs = zip_longest(range(start, end), text[low : min(high, low + end - start)])
        edits.changed.update((at, line) for at, line in pairs if at is not None and line != base[at])
        edits.added[end] = text[low + end - start : high]
    return edits


def _hunks(base: Lines, text: Lines) -> list[Hunk]:
    return [Hunk(*place) for kind, *place in _opcodes(base, text) if kind != "equal"]


def _opcodes(one: Lines, other: Lines) -> list[tuple[str, int, int, int, int]]:
    """The differences as ``difflib`` finds them, in bounded time.

    difflib compares each pair of equal lines, which takes minutes where many lines are frequent. Then only the part
    between the shared beginning and end is compared, and frequent lines match only next to others that match.
    """
    matcher = _matcher(one, other)
    if _pairs(matcher, one) <= _MOST_PAIRS:
        return list(matcher.get_opcodes())
    head = _shared(one, other)
    tail = _shared(one[head:][::-1], other[head:][::-1])
    inner = one[head : len(one) - tail]
    matcher = _matcher(inner, other[head : len(other) - tail])
    if _pairs(matcher, inner) > _MOST_PAIRS:
        positions = _positions(matcher)
        for line in [line for line, found in positions.items() if len(found) * len(inner) > _MOST_PAIRS]:
            del positions[line]
    return [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in matcher.get_opcodes()]


def _matcher(one: Lines, other: Lines) -> SequenceMatcher[str]:
    return SequenceMatcher(None, one, other, autojunk=min(len(one), len(other)) > _MANY_LINES)


def _pairs(matcher: SequenceMatcher[str], one: Lines) -> int:
    """How many pairs of equal lines the matcher compares at each step."""
    positions = _positions(matcher)
    return sum(len(positions.get(line, ())) for line in one)


def _positions(matcher: SequenceMatcher[str]) -> dict[str, list[int]]:
    """The places of each line in the second text, as the matcher looks it up (documented, but not in typeshed)."""
    positions: dict[str, list[int]] = matcher.b2j  # type: ignore[attr-defined]
    return positions


def _shared(one: Lines, other: Lines) -> int:
    """How many leading lines are the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _joined(lines: Lines) -> str:
    """Lines as one text; a line without an end that is no longer the last one gets an end."""
    return "".join([*_ended(lines[:-1]), *lines[-1:]])


def _ended(lines: Lines) -> list[str]:
    return [line if line.endswith("\n") else line + "\n" for line in lines]
