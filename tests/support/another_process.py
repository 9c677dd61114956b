"""Another process at work on the same directory, while a test looks on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support import ROOT

_PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Other:
    """A running Python program that answers line by line."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def hear(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, line: str = "") -> None:
        """Send it a line; ``input()`` there returns it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def another_process(program: str, *arguments: object) -> Iterator[Other]:
    """Run a Python program with these arguments; it is ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield Other(process)
            if process.stdin is not None:
                process.stdin.close()
            process.wait(_PATIENCE_SECONDS)
        finally:
            process.kill()  # if it has not ended


def in_a_child(work: Callable[[], None]) -> None:
    """Run it in a child process, which is expected to end with 9."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
