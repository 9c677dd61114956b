"""The standard streams of the process, whatever it was started with.

The rules this file guards: a stream that was closed is not taken by the next file that is opened, so that nothing is
printed into a record; what goes to stdout arrives whole, or the command does not end with 0; and that nobody hears
what goes to stderr changes nothing.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def secure() -> None:
    """Have all three. Reading from a closed stdin and printing to a closed stdout fail; a closed stderr says nothing.

    Stdout is buffered also with ``PYTHONUNBUFFERED``: an unbuffered one may write a part and drop the rest.
    """
    _open_if_closed(_STDIN, os.O_WRONLY)
    _open_if_closed(_STDOUT, os.O_RDONLY)
    _open_if_closed(_STDERR, os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(_STDIN, closefd=False)))
    buffer = io.BufferedWriter(io.FileIO(_STDOUT, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(buffer, _encoding_of(sys.stdout), line_buffering=os.isatty(_STDOUT))
    unheard: Any = _Unheard(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(unheard, _encoding_of(sys.stderr), write_through=True)


def release() -> None:
    """Have all that was printed to stdout written; ``SystemExit`` with 1 where that fails."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # or the interpreter would try, and complain, once more
        raise SystemExit(1) from None


class _Unheard(io.FileIO):
    """A file that takes everything, also what cannot be written to it."""

    def write(self, data: Any, /) -> int:
        """Write; how much it was, however much of it arrived."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def _encoding_of(stream: Any) -> str | None:
    return stream.encoding if stream is not None else None


def _open_if_closed(number: int, flags: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)  # the lowest free number, which is this one if the lower ones are open
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
