"""Bulk reads: many objects of a mirror, by its own ``get_many`` if it has one, else by threads.

The rule this file guards: the threads are daemons and start nothing new once nobody listens, so a store that hangs
delays neither its caller nor the end of the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import Answer, BulkMirror, Mirror, check_keys

THREADS = 32
T = TypeVar("T")


def get_many(mirror: Mirror, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
    """``BulkMirror.get_many`` for any mirror. Wrappers pass their own calls on with this."""
    if isinstance(mirror, BulkMirror):
        return mirror.get_many(keys)
    return in_parallel(mirror.get, check_keys(keys))


def in_parallel(
    get: Callable[[str], T], keys: Iterable[str], *, threads: int = THREADS
) -> Iterator[tuple[str, T | MirrorUnavailable]]:
    """Each key with the result of ``get``, as they arrive, by at most ``threads`` threads.

    A ``MirrorUnavailable`` is the answer for its key; any other error is raised here.
    """
    waiting = deque(keys)
    count = len(waiting)
    arrived: SimpleQueue[tuple[str, T | BaseException]] = SimpleQueue()

    def work() -> None:
        with suppress(IndexError):  # nothing waits any longer
            while True:
                key = waiting.popleft()
                try:
                    arrived.put((key, get(key)))
                except BaseException as error:  # the edge of the thread: raised where the answers are read
                    arrived.put((key, error))

    try:
        for _ in range(min(threads, count)):
            threading.Thread(target=work, name="memfiles-mirror", daemon=True).start()
        for _ in range(count):
            key, answer = arrived.get()
            if isinstance(answer, BaseException) and not isinstance(answer, MirrorUnavailable):
                raise answer
            yield key, answer
    finally:
        waiting.clear()  # nobody listens any longer
