"""Merging texts by lines: what two writers made of one text, in one text.

The rule this file keeps: what only one of them changed is kept from both, also where the changes touch; of text
that both put in the same place the first writer's comes first, and what they did alike is done once. Only lines
that both changed differently are a conflict; there the winner's lines stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

Side = Literal["first", "second"]
Lines = Sequence[str]
_MANY_LINES = 2000


@dataclass(frozen=True, slots=True)
class MergedText:
    """A text that two writers made, and whether everything of both is in it."""

    text: str
    is_clean: bool = True


class LineEdits(NamedTuple):
    """What was made of each changed line (None: it is gone), and the lines that were added before each line."""

    changed: dict[int, str | None]
    added: dict[int, Lines]


def merge_text(base: str, first: str, second: str, *, winner: Side) -> MergedText:
    """What both made of ``base``: by lines, the winner's where both changed the same ones differently."""
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
    """All lines of two texts whose base nobody knows any more: what they share once, in order, and the rest of both.

    Clean only if they share a beginning and nothing after it, as when both added at the end.
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


def shared_text(first: str, second: str, *, marker: str) -> str:
    """The lines that both have, with a marker where they have different ones."""
    one, other = lines_of(first), lines_of(second)
    shared: list[str] = []
    for kind, start, end, _, _ in _opcodes(one, other):
        shared += one[start:end] if kind == "equal" else [f"{marker}\n"] if kind == "replace" else []
    return _joined(shared)


def with_lines(text: str, lines: Lines, *, of: str) -> str:
    """``text`` and at its end those of ``lines`` that it lacks, if the text ``of`` has them."""
    wanted = Counter(lines) & Counter(lines_of(of))
    missing = wanted - Counter(lines_of(text))
    added = []
    for line in lines:
        if missing[line] > 0:
            missing[line] -= 1
            added.append(line)
    return _joined([*lines_of(text), *added])


def shared_beginning(first: str, second: str) -> str:
    """The whole lines that both texts begin with."""
    lines = lines_of(first)
    return "".join(lines[: _shared(lines, lines_of(second))])


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with their ends; only ``\n`` ends a line."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _only_adds(base: str, text: str) -> bool:
    """Whether ``text`` is ``base`` with whole lines after it, so that what became of the base does not matter."""
    return text.startswith(base) and (not base or base.endswith("\n") or text[len(base)] == "\n")


def _merge_lines(base: Lines, first: Lines, second: Lines, *, winner: Side) -> MergedText:
    """A merge by lines; the beginning and the end that all three share are not looked at."""
    head = min(_shared(base, first), _shared(base, second))
    rest = [lines[head:] for lines in (base, first, second)]
    tail = min(_shared(rest[0][::-1], lines[::-1]) for lines in rest[1:])
    middle = [lines[: len(lines) - tail] for lines in rest]
    merged, is_clean = list(base[:head]), True
    for region in _regions(*middle):
        lines, is_kept = (region, True) if isinstance(region, list) else _woven(*region, winner=winner)
        merged += lines
        is_clean = is_clean and is_kept
    return MergedText(_joined([*merged, *base[len(base) - tail :]]), is_clean)


def _regions(base: Lines, first: Lines, second: Lines) -> Iterator[list[str] | tuple[Lines, Lines, Lines]]:
    """The merged lines, region by region; three versions where both writers changed something."""
    from merge3 import Merge3  # loads only when there is something to merge

    matcher: Any = _matcher
    for region in Merge3(base, first, second, sequence_matcher=matcher).merge_groups():
        if region[0] == "conflict":
            yield region[1], region[2], region[3]
        else:
            yield list(region[1])


def _woven(base: Lines, first: Lines, second: Lines, *, winner: Side) -> tuple[list[str], bool]:
    """Both writers' edits of a region, line by line, and whether all could be made.

    Of a line that both changed differently, only the winner's is there; what both added alike is there once.
    """
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
    """How ``text`` differs from ``base``: of lines put in place of fewer ones, those beyond are added after them."""
    edits = LineEdits({}, {})
    for kind, start, end, low, high in _opcodes(base, text):
        if kind != "equal":
            pairs = zip_longest(range(start, end), text[low : min(high, low + end - start)])
            edits.changed.update((at, line) for at, line in pairs if at is not None and line != base[at])
            edits.added[end] = text[low + end - start : high]
    return edits


def _opcodes(one: Lines, other: Lines) -> list[tuple[str, int, int, int, int]]:
    return _matcher(None, one, other).get_opcodes()  # type: ignore[return-value]


def _matcher(junk: None, one: Lines, other: Lines) -> SequenceMatcher[str]:
    """A matcher that takes frequent lines for noise only where looking at them all would take seconds."""
    return SequenceMatcher(junk, one, other, autojunk=min(len(one), len(other)) > _MANY_LINES)


def _shared(one: Lines, other: Lines) -> int:
    """How many leading lines are the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _joined(lines: Lines) -> str:
    """Lines as one text; a line that was the last of its text and is not any more gets its end."""
    ended = [line if line.endswith("\n") else line + "\n" for line in lines[:-1]]
    return "".join([*ended, *lines[-1:]])
