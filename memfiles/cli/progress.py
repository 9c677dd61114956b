"""What takes long shows on stderr: only on a terminal, and only once it does take long."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from memfiles.cli.settings import current

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

ProgressCallback = Callable[[int, int], None]
_AFTER_SECONDS = 0.5
_WAITING_SECONDS = 1.0


@contextmanager
def progress(label: str) -> Iterator[ProgressCallback | None]:
    """What to tell how many of how many are done; None where nobody looks."""
    if not _is_watched():
        yield None
        return
    is_over = False
    with ExitStack() as shown:
        begun = time.monotonic()
        bar: ProgressBar[int] | None = None

        def tell(done: int, total: int) -> None:
            nonlocal bar
            if is_over:  # told by a thread that nobody waits for any more
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
    """Say what is waited for, once that has taken a second."""
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
