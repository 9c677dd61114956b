"""Line streams over file descriptors, read and written in threads that can be woken, off the event loop.

The rules this module enforces: only what is written here reaches the client, as everything else that prints goes to
stderr meanwhile; and neither a silent client nor one that does not read keeps the process from ending.
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

_CHUNK = 65536
_PIPE_CHUNK = 4096  # what a writable pipe accepts without blocking (PIPE_BUF)


class Waker:
    """Ends every wait that uses it, now and later, from any thread and from a signal handler."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()
        self._is_rung = False

    def ring(self) -> None:
        """Wake all that wait. One byte is enough, as nobody reads it from the pipe."""
        if not self._is_rung:
            self._is_rung = True
            os.write(self._end, b".")

    def close(self) -> None:
        """Close the descriptors; nobody may wait any more."""
        os.close(self.descriptor)
        os.close(self._end)

    def wait_for(self, descriptor: int, event: int) -> bool:
        """Wait until ``descriptor`` is ready for ``event``; False if this waker was rung first."""
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        waiting.register(descriptor, event)
        return self.descriptor not in dict(waiting.poll())


class LineReader:
    """Reads the lines of a descriptor until it ends or the waker rings."""

    def __init__(self, descriptor: int, waker: Waker) -> None:
        self._descriptor = descriptor
        self._waker = waker
        self._rest = b""

    def next(self) -> bytes | None:
        """Read the next line without its end, None at the end; a line is cut to its first ``LINE_MAX`` bytes."""
        line = bytearray()
        while True:
            chunk, newline, self._rest = self._rest.partition(b"\n")
            line += chunk[: LINE_MAX - len(line)]
            if newline:
                return bytes(line)
            self._rest = self._read()
            if not self._rest:
                return bytes(line) or None

    def stop(self) -> None:
        """End the reading, from any thread."""
        self._waker.ring()

    def _read(self) -> bytes:
        while self._waker.wait_for(self._descriptor, select.POLLIN):
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # the terminal was hung up
                return b""
        return b""


class LineWriter:
    """Writes lines to a descriptor until nobody reads them or the waker rings."""

    def __init__(self, descriptor: int, waker: Waker) -> None:
        self._descriptor = descriptor
        self._waker = waker

    def write(self, line: bytes) -> bool:
        """Write one whole line; False if that was not possible."""
        left = memoryview(line + b"\n")
        while left and self._waker.wait_for(self._descriptor, select.POLLOUT):
            try:
                left = left[os.write(self._descriptor, left[:_PIPE_CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not left

    def stop(self) -> None:
        """End the writing, from any thread."""
        self._waker.ring()


@contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Reserve stdin and stdout for the block: all other code reads nothing there, and prints to stderr."""
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgument("stdin and stdout are needed to talk to a client, but one of them is closed")
    sys.stdout.flush()
    reserved = os.dup(0), os.dup(1)
    _replace(0, os.open(os.devnull, os.O_RDONLY))
    _replace(1, os.dup(2) if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY))
    try:
        yield reserved
    finally:
        sys.stdout.flush()
        for standard, descriptor in enumerate(reserved):
            _replace(standard, descriptor)


def _replace(standard: int, descriptor: int) -> None:
    os.dup2(descriptor, standard)
    os.close(descriptor)
