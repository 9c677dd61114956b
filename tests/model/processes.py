"""Machines as processes: each step of a script in a process of its own, which may be killed before any call.

``kill=N`` ends a process by SIGKILL before its Nth call that may change a file, counted from the opening of its
memory: so a script dies at the same place each time. What a process leaves on the disk is all the next one has.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from tests.model.machine import Machine, SeededIds, SkewedClock
from tests.model.script import Step
from tests.model.wire import Wire

CALLS = {
    *("open", "write", "pwrite", "pwritev", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "link"),
    *("fsync", "fdatasync", "ftruncate", "truncate", "sendfile", "copy_file_range"),
}
STATEMENTS = {"execute", "executemany", "commit"}
LONGEST_SECONDS = 60.0


class Killed(Exception):
    """The process was killed before it could answer."""


class ForkedMachine:
    """A machine that is open only while it takes a step; see ``Machine``.

    ``number`` counts its steps, so that each draws other ids and is later than the one before.
    """

    def __init__(self, directory: Path, wire: Wire, *, seed: str, skew_seconds: int, **settings: Any) -> None:
        self.directory = directory
        self.pending: tuple[str, ...] = ()
        self.number = 0
        self._wire = wire
        self._seed = seed
        self._skew = skew_seconds
        self._settings = settings

    def do(self, step: Step) -> None:
        """Take a step in a process of its own; raises what it raised there, or ``Killed``."""
        self.number += 1
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _end(writing, lambda: self._answer(step))
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            answer = file.read()
        _, status = os.waitpid(child, 0)
        if not answer:
            is_planned = step.trouble.startswith("kill=") and os.WIFSIGNALED(status)
            if is_planned and os.WTERMSIG(status) == signal.SIGKILL:
                raise Killed(str(step))
            raise AssertionError(f"{step}: the process ended by itself, with status {status}")
        error, self.pending, self._wire.puts = pickle.loads(answer)
        if error is not None:
            raise error

    def age(self, seconds: int) -> None:
        """Let time pass."""
        self._skew += seconds

    def close(self) -> None:
        """Nothing is open."""

    def refused(self) -> list[str]:
        """See ``Machine``."""
        return list(self.pending)

    def _answer(self, step: Step) -> Any:
        with SeededIds(f"{self._seed} {self.directory.name} {self.number}"):
            return self._taken(step)

    def _taken(self, step: Step) -> tuple[Exception | None, tuple[str, ...], list[str]]:
        """Open the memory, take the step, close it: the error, what is pending, and what was put."""
        if step.trouble.startswith("kill="):
            _die_before(int(step.trouble.removeprefix("kill=")))
        clock = SkewedClock(count(self.number * 60), skew_seconds=self._skew)
        pending, error = self.pending, None
        try:
            machine = Machine(self.directory, self._wire, now=clock, **self._settings)
            try:
                if step.verb not in ("reopen", "restart"):
                    machine.do(step)
            finally:
                pending = machine.pending
                machine.close()
        except Exception as raised:
            error = raised
        return error, pending, self._wire.puts


def _end(writing: int, answer: Callable[[], Any]) -> None:
    """Write an answer and end this process, without the rest of the program that was forked."""
    try:
        signal.alarm(int(LONGEST_SECONDS))
        body = pickle.dumps(answer())
        sys.setprofile(None)
        os.write(writing, body)
    finally:
        os._exit(0)


def _die_before(number: int) -> None:
    """Kill this process before its call of that number that may change a file."""
    calls = count(1)

    def heed(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        name, owner = called.__name__, getattr(called, "__self__", None)
        is_file = name in CALLS and getattr(called, "__module__", "") == "posix"
        is_statement = name in STATEMENTS and type(owner).__module__ == "sqlite3"
        if (is_file or is_statement) and next(calls) >= number:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(heed)
    sys.setprofile(heed)
