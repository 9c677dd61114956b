"""The work of a sweep, done by as many processes as there are processors."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count, cycle, islice
from typing import Generic, NoReturn, TypeVar

_MOST = 8
T = TypeVar("T")


def in_order(work: Callable[[int], T], *, times: int | None = None) -> Iterator[T]:
    """``work(0)``, ``work(1)`` and so on, so many times or until nobody asks for more, in processes forked here."""
    numbers = count() if times is None else range(times)
    processors = sorted(os.sched_getaffinity(0))[:_MOST]
    with ExitStack() as ending:
        helpers: list[_Helper[T]] = []
        for first, processor in enumerate(processors):
            helpers.append(_Helper(work, islice(numbers, first, None, len(processors)), processor))
            ending.callback(helpers[-1].end)
        for _, helper in zip(numbers, cycle(helpers), strict=False):
            yield helper.next()


class _Helper(Generic[T]):
    """A process that does every so-manieth piece of the work until the pipe to here is closed.

    It stays on one processor, as do its children: a tracer and its child wait for each other all the time, and
    waking a processor up takes longer than changing between two processes.
    """

    def __init__(self, work: Callable[[int], T], numbers: Iterable[int], processor: int) -> None:
        answers, answering = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(answers)
            os.sched_setaffinity(0, {processor})
            _work(work, numbers, answering)
        os.close(answering)
        self._answers = os.fdopen(answers, "rb")

    def next(self) -> T:
        """What came out of its next piece."""
        try:
            result: T = pickle.load(self._answers)
        except EOFError:
            raise ChildProcessError("a part of the sweep failed: see above") from None
        return result

    def end(self) -> None:
        """Wait until it has noticed that nobody asks for more; those forked later must have ended."""
        self._answers.close()
        os.waitpid(self._pid, 0)


def _work(work: Callable[[int], T], numbers: Iterable[int], answering: int) -> NoReturn:
    try:
        for number in numbers:
            os.write(answering, pickle.dumps(work(number)))
    except BrokenPipeError:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
