"""The command line: ``memfiles --help`` lists it, ``main`` runs it.

``program`` is the root command and its table, ``options`` the options of every command, ``opening`` opens the memory
for one, ``output`` prints, ``failures`` reports errors and maps them to exit codes. The other files are families of
commands, loaded only when one of them runs.

This file guards the standard streams: the next opened file must not take the number of a closed one, or output would be
printed into a record; output to stdout arrives whole, or the exit code is not 0; and a closed stderr changes nothing.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from contextlib import suppress
from threading import main_thread
from typing import Any

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_INTERRUPTED = 130  # as of ``failures``


def run() -> None:
    """Run the command line, and then end the process at once: taking all modules down took 8 of 60 ms.

    Not while another thread still works, which Python waits for. What other packages want done at the exit is done.
    """
    try:
        main()
    except SystemExit as end:
        code = end.code if end.code is not None else 0
        if not isinstance(code, int) or any(not it.daemon for it in threading.enumerate() if it is not main_thread()):
            raise
        atexit._run_exitfuncs()
        flush_stdout()
        os._exit(code & 0xFF)


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    try:
        secure_streams()
        gc.disable()  # the imports' objects live to the end: walking them again and again took 7 ms of 48
        from memfiles.cli.program import program

        program()
    except KeyboardInterrupt:  # during an import; click takes care of the others
        said = "error: interrupted"
        if "--json" in sys.argv:
            said = '{"error": {"code": "interrupted", "message": "interrupted", "transient": false}}'
        print(said, file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    finally:
        flush_stdout()


def secure_streams() -> None:
    """Open all three. Reading a closed stdin and printing to a closed stdout fail; a closed stderr drops its output.

    Stdout is buffered even with ``PYTHONUNBUFFERED``: an unbuffered one may write a part and drop the rest.
    """
    _open_if_closed(_STDIN, os.O_WRONLY)
    _open_if_closed(_STDOUT, os.O_RDONLY)
    _open_if_closed(_STDERR, os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(_STDIN, closefd=False)))
    buffer = io.BufferedWriter(io.FileIO(_STDOUT, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(buffer, _encoding_of(sys.stdout), line_buffering=os.isatty(_STDOUT))
    lenient: Any = _LenientFile(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(lenient, _encoding_of(sys.stderr), write_through=True)


def flush_stdout() -> None:
    """Flush stdout; ``SystemExit`` with 1 if that fails."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # or the interpreter would flush, and complain, again
        raise SystemExit(1) from None


class _LenientFile(io.FileIO):
    """A file that accepts everything, even if it cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write as much as possible; claim all of it."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def _encoding_of(stream: Any) -> str | None:
    return stream.encoding if stream is not None else None


def _open_if_closed(number: int, flags: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)  # takes the lowest free number: this one, if the lower ones are open
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
