"""How a folder of texts and a text are shown to a model that works with files: sizes, paths and numbered lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

NUMBER_WIDTH = 6
_UNITS = "BKMG"
T = TypeVar("T")


def numbered(lines: Sequence[str], *, first: int) -> str:
    """The lines, each behind its number, right-aligned, and a tab."""
    return "\n".join(f"{number:>{NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def listing(sizes: Mapping[str, int], *, path: str) -> str:
    """A folder with its size, and what lies in it by path below it; folders end in "/" and hold what is below them."""
    whole = sum(size for below, size in sizes.items() if "/" not in below.removesuffix("/"))
    shown = {path: whole} | {f"{path.rstrip('/')}/{below}": size for below, size in sizes.items()}
    return "\n".join(f"{readable(size)}\t{name}" for name, size in shown.items())


def readable(size_bytes: int) -> str:
    """A size as ``du -h`` writes it: 0B, 512B, 1.5K, 2M."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + _UNITS[unit]


def lines_with(text: str, wanted: str) -> Iterator[int]:
    """The lines, counted from 1, in which ``wanted`` begins, also within itself, as the vendor's own tool counts."""
    line, counted, at = 1, 0, text.find(wanted)
    while at >= 0:
        line += text.count("\n", counted, at)
        counted = at
        yield line
        at = text.find(wanted, at + 1)


def children(texts: Mapping[str, T], *, prefix: str) -> dict[str, T | None]:
    """What lies in a folder itself, of all that lies below ``prefix``, by name; None for a folder, ending in "/"."""
    found: dict[str, T | None] = {}
    for name, text in texts.items():
        first, slash, _ = name.removeprefix(prefix).partition("/")
        found[prefix + first + slash] = None if slash else text
    return found
