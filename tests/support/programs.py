"""Runs modules of the tests as programs, each in a process of its own that is forked from one that has imported them.

A new interpreter spends half a second of processor time on imports, and the tests start some hundred programs. The
process that forks, ``python -m tests.support.programs DESCRIPTOR``, has one thread and opens no memory. It ends with
the process that started it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import NoReturn

from tests.support import ROOT

TESTS = Path(__file__).parent
_NUMBER = struct.Struct("<i")
_LONGEST_REQUEST = 1 << 16
_STREAMS = 3
_END_SECONDS = 60.0
_asking = Lock()


@dataclass(frozen=True)
class Done:
    """What a program printed, and how it ended (as ``subprocess`` says it)."""

    code: int
    output: str
    complaints: str


class Running:
    """A program that was started."""

    def __init__(self, ending: int) -> None:
        """``ending`` is where its process id is said, and how it ended."""
        self._ending = open(ending, "rb", buffering=0)  # noqa: SIM115 (closed by ``wait``)
        self.pid = self._number()
        self.code: int | None = None

    def wait(self, seconds: float) -> int:
        """How it ended; a ``TimeoutError`` if it did not, in so many seconds."""
        if self.code is None:
            with selectors.DefaultSelector() as watched:
                watched.register(self._ending, selectors.EVENT_READ)
                if not watched.select(seconds):
                    raise TimeoutError(f"process {self.pid} is still at work after {seconds} s")
            self.code = self._number()
            self._ending.close()
        return self.code

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait(_END_SECONDS)

    def _number(self) -> int:
        said = self._ending.read(_NUMBER.size)
        if not said:
            raise ChildProcessError("the process that forks is gone")
        number: int = _NUMBER.unpack(said)[0]
        return number


def start(module: str, *arguments: object, streams: tuple[int, int, int]) -> Running:
    """Run the ``main`` of a module with these arguments on these descriptors: its input, its output, its complaints."""
    request = json.dumps([module, *map(str, arguments)]).encode() + b"\n"
    with _asking:  # one request at a time is on its way: it was understood when the process id is there
        ending, said = os.pipe()
        try:
            socket.send_fds(_way_to_the_forker(), [request], [*streams, said])
        finally:
            os.close(said)
        return Running(ending)


def run(module: str, *arguments: object, seconds: float) -> Done:
    """Run it to its end; one that takes longer is killed, and is a ``TimeoutError``."""
    with TemporaryFile() as output, TemporaryFile() as complaints, open(os.devnull, "rb") as nothing:
        running = start(module, *arguments, streams=(nothing.fileno(), output.fileno(), complaints.fileno()))
        try:
            code = running.wait(seconds)
        finally:
            running.kill()
        output.seek(0)
        complaints.seek(0)
        return Done(code, output.read().decode(), complaints.read().decode())


def environment() -> dict[str, str]:
    """The environment in which a program finds the tests and the product."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


@cache
def _way_to_the_forker() -> socket.socket:
    """Start the process that forks; it ends when this end is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with there:
        number = there.fileno()
        command = [sys.executable, "-m", "tests.support.programs", str(number)]
        forker = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, pass_fds=[number])
    atexit.register(forker.wait, _END_SECONDS)
    atexit.register(here.close)  # comes first
    return here


def _serve(way: socket.socket) -> None:
    """Start a program at each request, until nobody is there to ask."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the programs
    while True:
        request, descriptors, _, _ = socket.recv_fds(way, _LONGEST_REQUEST, _STREAMS + 1)
        if not request:
            return
        while not request.endswith(b"\n"):
            request += way.recv(_LONGEST_REQUEST)
        command: list[str] = json.loads(request)
        with suppress(Exception):  # the program says it
            importlib.import_module(command[0])
        if os.fork() == 0:
            way.close()
            *streams, ending = descriptors
            _wait_for_one(command, streams, ending=ending)
        for descriptor in descriptors:
            os.close(descriptor)


def _wait_for_one(command: list[str], streams: list[int], *, ending: int) -> NoReturn:
    """Fork the program, say its process id, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(ending)
        _be(command, streams)
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    _say(ending, pid)
    _say(ending, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _say(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):
        os.write(descriptor, _NUMBER.pack(number))


def _be(command: list[str], streams: list[int]) -> NoReturn:
    """What a forked process does."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.argv = command
        importlib.import_module(command[0]).main()
        sys.stdout.flush()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
