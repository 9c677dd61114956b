"""Everything that is printed: data on stdout, all else on stderr.

The rules this file guards: with ``--json`` stdout holds exactly one JSON document and stderr nothing but
an error; content is written byte for byte to a file or pipe, and to a terminal without anything that
could drive the terminal.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from memfiles.cli import settings

MIN_WIDTH = 40
_DIFF_HEAD = 2  # lines
_DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def data(shown: Any) -> None:
    """Print a JSON document on stdout."""
    click.echo((json.dumps(shown, ensure_ascii=False, indent=2) + "\n").encode(), nl=False)


def content(text: str) -> None:
    """Print a memory file's content: exactly as it is; only a terminal gets escapes and a last newline."""
    if sys.stdout.isatty():
        click.echo(harmless(text), nl=not text.endswith("\n"))
    else:
        click.echo(text.encode(), nl=False)


def diff(text: str) -> None:
    """Print a unified diff; on a terminal what came is green, what went is red.

    Only the first two lines are its head, and only a line feed ends a line: whatever else looks so is content.
    """
    if not sys.stdout.isatty() and not click.get_current_context().color:
        click.echo(text.encode(), nl=False)
        return
    for number, shown in enumerate(text.removesuffix("\n").split("\n") if text else ()):
        color = _DIFF_COLORS.get(shown[:1]) if number >= _DIFF_HEAD else None
        click.echo(click.style(harmless(shown), fg=color) if color else harmless(shown))


def line(text: str) -> None:
    """Print a line that is the answer to what was asked."""
    click.echo(text)


def note(text: str) -> None:
    """Tell a person something beside the answer; programs that asked for JSON do not get it."""
    if not settings.current().json:
        click.echo(text, err=True)


def warn(text: str) -> None:
    """Tell a person what they should look at."""
    note(click.style("warning: ", fg="yellow") + text)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = ()) -> None:
    """Print rows under headers, as wide as their cells; on a terminal the last column is cut to its width."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [header in numeric for header in headers]
    click.secho(_row(headers, widths, right), dim=True)
    for row in cells:
        click.echo(_row(row, widths, right))


def one_line(text: str) -> str:
    """The text as it may stand in a table: on one line, without control characters."""
    return harmless(text).replace("\n", " ").replace("\t", " ")


def harmless(text: str) -> str:
    """The text with every character that could drive a terminal shown as its escape."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def width() -> int:
    """How many columns there are to print in (80 when that is not known)."""
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def percent(share: float) -> str:
    """A share as a whole percentage, never rounded up."""
    return "<1 %" if 0 < share < 0.01 else f"{int(share * 100)} %"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(size) if to_right else cell.ljust(size)
        for cell, size, to_right in zip(cells, widths, right, strict=True)
    ]
    text = "  ".join(padded).rstrip()
    room = width()
    return text[: room - 1] + "…" if sys.stdout.isatty() and len(text) > room else text
