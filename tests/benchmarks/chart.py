"""A chart of lines over two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 270, 40, 50  # what is around the lines, in pixels
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
Points = Sequence[tuple[float, float]]


def svg(title: str, lines: Mapping[str, Points], *, x: str, y: str) -> str:
    """The chart; ``x`` and ``y`` say what the axes are, with the unit. Every number must be above 0.

    There may be as many lines as ``COLORS``.
    """
    every = [point for points in lines.values() for point in points]
    wide, high = [a for a, _ in every], [b for _, b in every]
    across = _scale(min(wide), max(wide), LEFT, WIDTH - RIGHT)
    bottom, top = _decade(min(high), math.floor), _decade(max(high), math.ceil)
    up = _scale(bottom, top, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, size=15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x, anchor="middle"),
        _text(LEFT, TOP - 6, y, anchor="middle"),
        *_grid(sorted(set(wide)), bottom, top, across=across, up=up),
    ]
    for number, (color, (name, points)) in enumerate(zip(COLORS[: len(lines)], lines.items(), strict=True)):
        placed = [(across(a), up(b)) for a, b in sorted(points)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in placed]
        height = TOP + 10 + 20 * number
        begin = WIDTH - RIGHT + 15
        parts.append(_line(begin, begin + 18, height, height, color=color))
        parts.append(_text(begin + 24, height + 4, name))
    return "\n".join([*parts, "</svg>", ""])


def _grid(
    wide: Sequence[float], bottom: float, top: float, *, across: Callable[[float], float], up: Callable[[float], float]
) -> Iterator[str]:
    """A line for each place on the horizontal axis, and for each power of ten on the other."""
    decades = [10.0**power for power in range(round(math.log10(bottom)), round(math.log10(top)) + 1)]
    for value in wide:
        yield _line(across(value), across(value), up(bottom), up(top))
        yield _text(across(value), HEIGHT - BOTTOM + 18, f"{value:,g}", anchor="middle")
    for value in decades:
        yield _line(LEFT, WIDTH - RIGHT, up(value), up(value))
        yield _text(LEFT - 8, up(value) + 4, f"{value:,g}", anchor="end")


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """Pixels for values from ``low`` to ``high``, on a logarithmic scale."""
    width = math.log10(high) - math.log10(low) or 1.0
    return lambda value: begin + (math.log10(value) - math.log10(low)) / width * (end - begin)


def _decade(value: float, rounded: Callable[[float], int]) -> float:
    return 10.0 ** rounded(math.log10(value))


def _line(x1: float, x2: float, y1: float, y2: float, *, color: str = "#ddd") -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
