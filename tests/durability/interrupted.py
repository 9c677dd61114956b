"""Threads that share a manager while the main thread is interrupted again and again, or the manager is closed.

``python -m tests.durability.interrupted DIRECTORY TURNS`` prints a line of JSON: what was acknowledged.
With ``--bare`` the threads share no manager but a group that serves them at once, so that interrupts come at each of
its steps; what was served is printed as well.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import memfiles
from memfiles.errors import MemfilesError
from memfiles.files.manager import MemoryManager
from memfiles.storage.transaction import GroupCommit, Request
from tests.durability.crowd import UID, restored

_SHORTEST, _LONGEST = 0.0005, 0.003  # seconds until an interrupt comes
_SHORTEST_BARE, _LONGEST_BARE = 0.00001, 0.0003
_PATIENCE_BARE = 0.0002
_SWITCH_SECONDS = 0.0001
_STUCK_SECONDS = 120

Work = Callable[[memfiles.Memory, Any, str], object]

WORKFLOW = f"""
memory:
  files: [{{uid: {UID}, name: {UID}, content: "begun", max_size_bytes: 8388608}}]
  entries: {{}}
agents:
  guide: {{memory: [{{id: {UID}, mode: rw}}]}}
"""
"""Of the memory that ``WORK`` is done on."""
WORK: dict[str, Work] = {
    "append": lambda memory, session, text: memory.manager.append(UID, f"{text}\n"),
    "edit": lambda memory, session, text: memory.manager.edit(UID, "begun", "begun."),
    "save": lambda memory, session, text: memory.entries.save(session, "plan", text),
    "save and forget": lambda memory, session, text: (
        memory.entries.save(session, f"plan {text}", text),
        memory.entries.forget(session, key=f"plan {text}"),
    ),
    "search": lambda memory, session, text: (
        memory.entries.save(session, "plan", text),
        memory.entries.search(session, text),
    ),
    "push": lambda memory, session, text: (memory.manager.append(UID, f"{text}\n"), memory.sync.flush()),
    "pull": lambda memory, session, text: (memory.manager.append(UID, f"{text}\n"), memory.sync.pull()),
}
MIRRORED = ("push", "pull")


@contextmanager
def starts_hidden(name: str) -> Iterator[list[threading.Thread]]:
    """The first thread of this name starts a moment after an interrupt came in its start; both threads are noted."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def started_late(thread: threading.Thread) -> None:
        if thread.name != name:
            return start(thread)
        started.append(thread)
        if len(started) > 1:
            return start(thread)
        start(threading.Timer(0.1, start, [thread]))
        raise Interrupted

    threading.Thread.start = started_late  # type: ignore[method-assign, assignment]
    try:
        yield started
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


class Interrupted(BaseException):
    """What Ctrl-C raises, under a name of its own."""


def interrupt(_: int, frame: FrameType | None) -> None:
    """The handler of the alarm, which comes again if it met a finaliser: Python drops what is raised in one."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            signal.setitimer(signal.ITIMER_REAL, _SHORTEST)
            return
        frame = frame.f_back
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
        thread.join(timeout=60)
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
        with suppress(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(f"{error!r}", file=sys.stderr)


def interrupt_everywhere(
    memory: memfiles.Memory,
    work: Work,
    event: str,
    *,
    stride: int = 1,
    but: str = "nowhere",
    patience: float = _STUCK_SECONDS,
) -> int:
    """Do the work again and again, each time interrupted ``stride`` calls later; how many calls there are.

    Python raises an interrupt as a function begins (``call``), or as one in C ends (``c_return``). After each, another
    thread does the same. Calls of or by modules with ``but`` in their path are left alone. ``AssertionError`` with the
    stacks of all threads if something is still locked after ``patience`` seconds; then the memory cannot be closed.
    """
    session, step = memory.session("guide"), random.randrange(stride)
    seen = step
    work(memory, session, "first")
    while seen >= step:
        step += stride
        with time_limit(patience):
            seen = interrupt_at(step, partial(work, memory, session, f"interrupted at {step}"), event, but=but)
            in_another_thread(partial(work, memory, session, f"after {step}"))
    return step


def interrupt_at(step: int, work: Callable[[], object], event: str, *, but: str = "nowhere") -> int:
    """Do the work, interrupted at a call; how many calls there were. See ``interrupt_everywhere``."""
    seen = 0

    def interrupt_there(frame: FrameType | None, what: str, _: object) -> None:
        nonlocal seen
        if what != event:
            return
        while frame is not None:
            if but in frame.f_code.co_filename:
                return
            frame = frame.f_back
        seen += 1
        if seen == step:
            raise Interrupted

    try:
        sys.setprofile(interrupt_there)
        work()
    except Interrupted:
        pass
    except RuntimeError as error:  # of a Condition in the standard library, which cannot be left where it was unlocked
        if not isinstance(error.__context__, Interrupted):
            raise
    finally:
        sys.setprofile(None)
    return seen


def in_another_thread(work: Callable[[], object]) -> None:
    """Do the work in a thread that keeps no program from ending; an error of it is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """``AssertionError`` in the main thread after so long, with the stacks of all threads."""

    def give_up(_: int, __: FrameType | None) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"{names.get(thread)}:\n{''.join(traceback.format_stack(frame))}"
            for thread, frame in sys._current_frames().items()
        ]
        raise AssertionError("\n".join(["something stays locked", *stacks]))

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class BareGroup:
    """A group whose requests need no work, and what came of them."""

    def __init__(self) -> None:
        """Nothing was submitted."""
        self._group: GroupCommit[str] = GroupCommit()
        self.served: list[str] = []
        self.acknowledged: list[str] = []

    def _serve(self, requests: list[Request[str]]) -> None:
        for request in requests:
            self.served.append(request.work)
            request.is_served = True

    def submit_until(self, name: str, stop: threading.Event) -> None:
        """Submit until told to stop, or interrupted; whose leader was interrupted goes on."""
        for turn in count():
            if stop.is_set():
                return
            with suppress(InterruptedError):
                self._group.submit(f"{name}.{turn}", self._serve, patience=lambda: _PATIENCE_BARE)
                self.acknowledged.append(f"{name}.{turn}")


def interrupt_bare(turns: int) -> dict[str, list[str]]:
    """Submit in the main thread, interrupted at any moment, beside two threads; what became of all."""
    bare, stop = BareGroup(), threading.Event()
    threads = [threading.Thread(target=bare.submit_until, args=(f"thread-{n}", stop), daemon=True) for n in range(2)]
    sys.setswitchinterval(_SWITCH_SECONDS)
    for thread in threads:
        thread.start()
    for turn in range(turns):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(_SHORTEST_BARE, _LONGEST_BARE))
            bare.submit_until(f"main.{turn}", stop)
        except Interrupted:
            pass
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
    waiting = [thread.name for thread in threads if thread.is_alive()]
    return {"acknowledged": bare.acknowledged, "served": bare.served, "waiting": waiting}


def main() -> None:
    """Interrupt so many times, then close, and print what was acknowledged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("turns", type=int)
    parser.add_argument("--bare", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, interrupt)
    if asked.bare:
        faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True)
        print(json.dumps(interrupt_bare(asked.turns)))
        return
    with restored(asked.directory) as manager:
        done = interrupt_often(manager, asked.turns)
    print(json.dumps({"acknowledged": done}))


if __name__ == "__main__":
    main()
