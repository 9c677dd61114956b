"""Output of every command: data on stdout, everything else on stderr.

The rules this file guards: with ``--json`` stdout holds exactly one JSON document, and stderr only an error. Content
goes byte for byte to a file or pipe; a terminal gets no character that could control it or that nobody sees. Progress
shows on a terminal only, and only once it takes long; a pager too, and only if the screen is too small.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

import click

from memfiles.cli import lean_imports
from memfiles.cli.options import columns, current
from memfiles.errors import InvalidArgument
from memfiles.records import late_logger
from memfiles.records.graphemes import as_word, harmless

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

ProgressCallback = Callable[[int, int], None]
MIN_WIDTH = 40
_AFTER_SECONDS = 0.5
_WAITING_SECONDS = 1.0
_DIFF_HEAD = 2  # lines
_NAMES = ("KEY", "NAME", "USER")  # headers of columns
_DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}


def quiet_log(*, at_once: bool = True) -> None:
    """Keep the library's log off stderr without --debug: the command line reports errors itself, once.

    A warning that a person has to act on is printed. Unless ``at_once`` the log is made quiet when something is
    logged: then no mirror may be used.
    """
    late_logger.teller = None if current().json or current().debug else _warned
    if current().debug:
        return
    if not at_once and "logging" not in sys.modules:
        late_logger.is_quiet = True
        return
    with lean_imports():
        import logging  # late: a command without output does without
    logging.getLogger("memfiles").addHandler(logging.NullHandler())


def log_on_stderr(level: int) -> None:
    """Write the log from this level on to stderr, as a server does, and print no warning of it a second time."""
    import logging  # late: only servers write it

    late_logger.teller = None
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")


def data(shown: object) -> None:
    """Print a JSON document on stdout."""
    click.echo((json.dumps(shown, ensure_ascii=False, indent=2) + "\n").encode(), nl=False)


def as_json(shown: object) -> bool:
    """Print a JSON document if ``--json`` asks for it; whether it did."""
    if current().json:
        data(shown)
    return current().json


def content(text: str) -> None:
    """Print content exactly as it is; only a terminal gets escapes and a final newline."""
    if sys.stdout.isatty():
        click.echo(harmless(text), nl=not text.endswith("\n"))
    else:
        click.echo(text.encode(), nl=False)


def diff(text: str) -> None:
    """Print a unified diff; on a terminal additions are green and deletions red.

    Only the first two lines are its header, and only a line feed ends a line: everything else is content.
    """
    if not sys.stdout.isatty() and not click.get_current_context().color:
        click.echo(text.encode(), nl=False)
        return
    for number, shown in enumerate(text.removesuffix("\n").split("\n") if text else ()):
        color = _DIFF_COLORS.get(shown[:1]) if number >= _DIFF_HEAD else None
        click.echo(click.style(harmless(shown), fg=color) if color else harmless(shown))


def line(text: str, *, mark: str = "") -> None:
    """Print a line of the answer, after a ``mark`` that may be styled."""
    click.echo(mark + harmless(text))


def labelled(lines: Iterable[tuple[str, object]]) -> None:
    """Print lines of the answer, each a text after its label."""
    for label, text in lines:
        line(f"{label:<12} {one_line(str(text))}")


def note(text: str) -> None:
    """Print a note on stderr; programs that asked for JSON do not get it."""
    if not current().json:
        click.echo(harmless(text), err=True, color=True)  # as in a table


def ask(question: str) -> None:
    """Ask on the terminal for confirmation; the command ends if the answer is no."""
    if not click.confirm(question, err=True):
        raise click.Abort("not confirmed: nothing was changed")


def warn(text: str) -> None:
    """Print a warning on stderr."""
    if not current().json:
        _warned(text)


def _warned(text: str) -> None:
    click.echo(click.style("warning: ", fg="yellow") + harmless(text), err=True)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = (), nothing: str | None = None
) -> None:
    """Print rows under headers, each column as wide as its cells; a terminal cuts the last one to its width.

    Users, keys and names are in quotes where they could be taken for others. If there are no rows, ``nothing`` is a
    note in place of the headers.
    """
    shown = [as_word if header in _NAMES else one_line for header in headers]
    cells = [[show(str(cell)) for show, cell in zip(shown, row, strict=True)] for row in rows]
    if not cells and nothing is not None:
        note(nothing)
        return
    widest = [max(map(_columns_of, column)) for column in zip(headers, *cells, strict=True)]
    for number, row in enumerate([headers, *cells]):
        blanks = [" " * (wide - _columns_of(cell)) for cell, wide in zip(row, widest, strict=True)]
        whole = zip(headers, row, blanks, strict=True)
        text = _fitted("  ".join(blank + cell if header in numeric else cell + blank for header, cell, blank in whole))
        if number == 0 and (sys.stdout.isatty() or click.get_current_context().color):
            click.secho(text, dim=True)
        else:
            click.echo(text, color=True)  # without looking for colours to take out, as there are none


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return harmless(text).replace("\n", " ").replace("\t", " ")


def width() -> int:
    """The width to print in, in columns."""
    return max(MIN_WIDTH, columns())


def percent(share: float) -> str:
    """A share as a whole percentage, never rounded up."""
    return "<1 %" if 0 < share < 0.01 else f"{int(share * 100)} %"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


entries = partial(count, singular="entry", plural="entries")
records = partial(count, singular="record")


def _fitted(text: str) -> str:
    """A line of a table, cut to the width of a terminal."""
    text = text.rstrip()
    if not sys.stdout.isatty() or _columns_of(text) <= (room := width()):
        return text
    over = bisect_left(range(len(text)), room, key=lambda end: _columns_of(text[:end]))
    return text[: over - 1] + "…"


def _columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: a wide character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    text = unicodedata.normalize("NFC", text)  # parts of a syllable, as of macOS, take the columns of the whole
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)


@contextmanager
def paged() -> Iterator[None]:
    """Show what the block prints in a pager, if a terminal cannot show it at once.

    The pager is ``$MEMFILES_PAGER``, else ``$PAGER``, else ``less``; a blank one, or ``cat``, is none. As with git,
    ``$LESS`` is set if it is not: less then leaves the text on the screen, and shows colours.
    """
    chosen = (os.environ.get(name) for name in ("MEMFILES_PAGER", "PAGER"))
    pager = next((command for command in chosen if command is not None), "less").strip()
    is_watched = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if current().json or current().no_pager or not is_watched or pager in ("", "cat"):
        yield
        return
    page = _Page()
    try:
        with redirect_stdout(page):
            yield
    except BaseException:
        click.echo(page.getvalue(), nl=False)
        raise
    _show(page.getvalue(), pager)


class _Page(io.StringIO):
    """Text that is collected for a pager, and formatted as for a terminal."""

    def isatty(self) -> bool:
        return True


def _show(text: str, pager: str) -> None:
    import shlex  # late: only a pager needs it
    import shutil  # late: only a terminal needs it

    columns, lines = shutil.get_terminal_size()
    needed = sum(max(1, -(-_columns_of(line) // columns)) for line in click.unstyle(text).expandtabs().splitlines())
    if needed < lines:  # one is the prompt's
        click.echo(text, nl=False)
        return
    try:
        program = shlex.split(pager)[0]
    except ValueError as error:
        raise InvalidArgument(f"the pager is not a command: {error}, in {pager!r}") from None
    os.environ["PAGER"] = pager
    has_colors = "r" in os.environ.setdefault("LESS", "-FRX").lower() or os.path.basename(program) != "less"
    click.echo_via_pager(text.removesuffix("\n"), color=has_colors and click.get_current_context().color is not False)


@contextmanager
def progress(label: str) -> Iterator[ProgressCallback | None]:
    """A callback that shows progress on a terminal, once it has taken half a second; None without a terminal."""
    if not _is_watched():
        yield None
        return
    is_over = False
    with ExitStack() as shown:
        begun = time.monotonic()
        bar: ProgressBar[int] | None = None

        def tell(done: int, total: int) -> None:
            nonlocal bar
            if is_over:  # called by a thread that was left behind
                return
            if bar is None and total and time.monotonic() - begun >= _AFTER_SECONDS:
                bar = shown.enter_context(click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True))
            if bar is not None:
                bar.update(done - bar.pos)

        try:
            yield tell
        finally:
            is_over = True


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Print ``text`` on a terminal if the command is still waiting after a second."""
    timer = threading.Timer(_WAITING_SECONDS, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    if _is_watched():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_watched() -> bool:
    return sys.stderr.isatty() and not current().json and os.environ.get("TERM") != "dumb"
