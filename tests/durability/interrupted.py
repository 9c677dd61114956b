"""Threads that share a manager while the main thread is interrupted again and again, or the manager is closed.

Run as a program, ``python -m durability.interrupted DIRECTORY TURNS`` prints one line of JSON: what was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType

from durability.crowd import UID, restored
from memfiles.errors import MemfilesError
from memfiles.manager import MemoryManager

_SHORTEST, _LONGEST = 0.0005, 0.003  # seconds until an interrupt comes


class Interrupted(BaseException):
    """What Ctrl-C raises, under a name of its own."""


def interrupt(_: int, __: FrameType | None) -> None:
    """The handler of the alarm."""
    raise Interrupted


def append_until(manager: MemoryManager, name: str, done: list[str], stop: threading.Event) -> None:
    """Append lines until told to stop; those that were acknowledged are added to ``done``."""
    for turn in count():
        if stop.is_set():
            return
        manager.append(UID, f"{name}.{turn}\n")
        done.append(f"{name}.{turn}")


def interrupt_often(manager: MemoryManager, turns: int) -> list[str]:
    """Append in the main thread, interrupted at any moment, beside three threads; what was acknowledged."""
    done: list[str] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=append_until, args=(manager, f"thread-{number}", done, stop)) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for turn in range(turns):
        _interrupted(lambda turn=turn: _append(manager, f"main.{turn}", done))  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join(timeout=20)
    if any(thread.is_alive() for thread in threads):
        print("a thread waits for ever", file=sys.stderr)
    return done


def _append(manager: MemoryManager, name: str, done: list[str]) -> None:
    for part in count():
        manager.append(UID, f"{name}.{part}\n")
        done.append(f"{name}.{part}")


def _interrupted(run: Callable[[], None]) -> None:
    """Run until an alarm interrupts."""
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(_SHORTEST, _LONGEST))
        run()
    except Interrupted:
        return
    except MemfilesError as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(f"{error!r}", file=sys.stderr)


def main() -> None:
    """Interrupt so many times, then close, and print what was acknowledged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("turns", type=int)
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, interrupt)
    with restored(asked.directory) as manager:
        done = interrupt_often(manager, asked.turns)
    print(json.dumps({"acknowledged": done}))


if __name__ == "__main__":
    main()
