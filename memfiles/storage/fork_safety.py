"""Hazards of the whole process: forks, interrupts, its exit, and Python's collector of cycles.

An object renews itself in a forked child, where a lock that another thread held is never released.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from memfiles.records import learning

T = TypeVar("T")
_renewals: dict[int, Callable[[], Any]] = {}  # of the objects alive, the oldest first
_numbers = itertools.count()
_paused = False  # whether the collector is off for a moment
MANY = 64  # records: from here on a pause is worth it


def renew_in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Call ``renew`` with ``owner`` in every child forked while the owner is in use."""
    number = next(_numbers)
    reference = weakref.ref(owner, lambda _: _renewals.pop(number, None))
    _renewals[number] = lambda: renew(alive) if (alive := reference()) is not None else None


def start_thread(thread: threading.Thread) -> bool:
    """Start a thread; False if the process may have no more of them now, or if Python is ending.

    It would not run then, and on 3.11 its start would never return.
    """
    if sys.is_finalizing():
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def join_thread(thread: threading.Thread | None) -> None:
    """Wait until a thread has ended; not for one that never started, and in a callback not for the thread itself."""
    if thread is not None and thread is not threading.current_thread() and thread.is_alive():
        thread.join()


class Flag:
    """An ``Event`` that an interrupt (Ctrl-C) in one of its methods cannot leave locked for all other threads."""

    def __init__(self) -> None:
        """It is not set."""
        self._is_set = False
        self._calls = SimpleQueue[None]()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        self._calls.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most ``seconds``; returns whether it is."""
        if not self._is_set:
            with suppress(Empty):
                self._calls.get(timeout=max(0.0, seconds))
        if self._is_set:
            self._calls.put(None)  # for the next to wait
        return self._is_set


@contextmanager
def collector_paused() -> Iterator[None]:
    """Leave out collections of cycles for as long as many records are made.

    They walked through all records again and again, a third of the processor time of saving 10,000, and found nothing:
    what is not in a cycle goes at once. Of threads that pause at the same time, the first to end ends it for all.
    """
    global _paused
    if not gc.isenabled():
        yield
        return
    _paused = True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _paused = False


def _renew_all() -> None:
    if _paused:  # by a thread that is not in the child
        gc.enable()
    with ExitStack() as stack:  # calls all of them, also after one failed
        for renew in list(_renewals.values())[::-1]:
            stack.callback(renew)


def _wait_for_learning() -> None:
    """Wait until no thread is in ``decoder_of``, or the child would crash. A fork hook drops interrupts in any case."""
    while not learning._is_owned():  # type: ignore[attr-defined]
        with suppress(BaseException):
            learning.acquire()


os.register_at_fork(after_in_child=_renew_all)  # one handler for all: none can be removed
# what another thread was learning, a child would know by half for ever
os.register_at_fork(before=_wait_for_learning, after_in_parent=learning.release, after_in_child=learning.release)
