"""Lines in at one descriptor and out at another, each beside the event loop in a thread that can be woken.

The rules this file guards: nothing but what is written here reaches the client, as whatever else prints goes to stderr
meanwhile; and neither a client that is silent nor one that does not listen keeps the process from ending.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from memfiles.errors import InvalidArgument

LINE_MAX = 64 * 2**20
"""Bytes: the largest memory file with every character escaped, and some."""

_PIECE = 65536
_ROOM = 4096  # what a pipe that can be written to takes without blocking (PIPE_BUF)


class Waker:
    """Ends what waits with it, from any thread and from a signal handler. Once rung, it stays so."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()
        self._is_rung = False

    def ring(self) -> None:
        """Wake who waits, now and later; once is enough, as nobody takes out what is in the pipe."""
        if not self._is_rung:
            self._is_rung = True
            os.write(self._end, b".")

    def close(self) -> None:
        """Let go of the descriptors; nobody may wait any more."""
        os.close(self.descriptor)
        os.close(self._end)

    def outlasts(self, descriptor: int, event: int) -> bool:
        """Wait until ``descriptor`` is ready for ``event``; False if this was rung before."""
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        waiting.register(descriptor, event)
        return self.descriptor not in dict(waiting.poll())


class Incoming:
    """The lines of a descriptor, until it ends or the waker rings."""

    def __init__(self, descriptor: int, waker: Waker) -> None:
        self._descriptor = descriptor
        self._waker = waker
        self._rest = b""

    def next(self) -> bytes | None:
        """The next line without its end, None if there is none; of one over ``LINE_MAX`` bytes, the beginning."""
        line = bytearray()
        while True:
            piece, is_whole, self._rest = self._rest.partition(b"\n")
            line += piece[: LINE_MAX - len(line)]
            if is_whole:
                return bytes(line)
            self._rest = self._more()
            if not self._rest:
                return bytes(line) or None

    def _more(self) -> bytes:
        while self._waker.outlasts(self._descriptor, select.POLLIN):
            try:
                return os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                continue
            except OSError:  # the terminal was hung up
                return b""
        return b""


class Outgoing:
    """Where lines go, until nobody reads them or the waker rings."""

    def __init__(self, descriptor: int, waker: Waker) -> None:
        self._descriptor = descriptor
        self._waker = waker

    def put(self, line: bytes) -> bool:
        """Write one line, whole; False if it could not be."""
        left = memoryview(line + b"\n")
        while left and self._waker.outlasts(self._descriptor, select.POLLOUT):
            try:
                left = left[os.write(self._descriptor, left[:_ROOM]) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not left


@contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of stdin and stdout for the block alone: all else reads nothing there, and prints to stderr."""
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgument("stdin and stdout are needed to talk to a client, and one of them is closed")
    sys.stdout.flush()
    wire = os.dup(0), os.dup(1)
    _point(0, os.open(os.devnull, os.O_RDONLY))
    _point(1, os.dup(2) if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY))
    try:
        yield wire
    finally:
        sys.stdout.flush()
        for standard, kept in enumerate(wire):
            _point(standard, kept)


def _point(standard: int, descriptor: int) -> None:
    os.dup2(descriptor, standard)
    os.close(descriptor)
