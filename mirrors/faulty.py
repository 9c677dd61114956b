"""A wrapper that fails on purpose, for tests of code that uses a mirror.

Some faults keep to the ``Mirror`` contract (``HONEST``): a call without an answer may or may not have happened. The
others break it, as proxies, truncated answers and odd servers do: code that survives them checks every answer it can.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from memfiles.errors import MirrorConflict, MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, check_keys, get_many

Fault = Literal["timeout", "slow_down", "reset", "conflict", "truncated"]
T = TypeVar("T")
HONEST: tuple[Fault, ...] = ("timeout", "slow_down", "reset")
ALL: tuple[Fault, ...] = (*HONEST, "conflict", "truncated")


class FaultyMirror:
    """Passes calls on to ``inner``. A share of them fails: the same ones for the same ``seed`` and order of calls.

    | fault | did the call happen? | what the caller gets |
    |---|---|---|
    | timeout | at random | ``MirrorUnavailable`` |
    | slow_down | no | ``MirrorUnavailable``, as a 503 |
    | reset | yes | ``MirrorUnavailable``, as a connection that broke before the answer |
    | conflict | at random | ``MirrorConflict`` without a conflict, as a 412 (of put and delete; else as reset) |
    | truncated | yes | half the body of a get, half a list and then ``MirrorUnavailable`` (else as reset) |
    """

    def __init__(self, inner: Mirror, *, rate: float = 1 / 3, seed: int = 0, faults: Sequence[Fault] = ALL) -> None:
        """``rate`` is the share of calls that fail, each with one of ``faults``."""
        self._inner = inner
        self._rate = rate
        self._faults = faults
        self._random = random.Random(seed)
        self._drawing = threading.Lock()

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``, or a fault."""
        fault, happens = self._draw()
        if fault == "truncated":
            return _half(list(self._inner.list(prefix)))
        return self._call(lambda: self._inner.list(prefix), fault=fault, happens=happens)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``, or a fault."""
        fault, happens = self._draw()
        return self._got(lambda: self._inner.get(key), fault=fault, happens=happens)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """See ``BulkMirror.get_many``; each key may get a fault."""
        drawn = {key: self._draw() for key in check_keys(keys)}
        return ((key, self._spoilt(answer, *drawn[key])) for key, answer in get_many(self._inner, drawn))

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``, or a fault."""
        fault, happens = self._draw()
        return self._change(lambda: self._inner.put(key, body, when=when), fault=fault, happens=happens)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``, or a fault."""
        fault, happens = self._draw()
        self._change(lambda: self._inner.delete(key, when=when), fault=fault, happens=happens)

    def _draw(self) -> tuple[Fault | None, bool]:
        with self._drawing:
            fails, happens = self._random.random() < self._rate, self._random.random() < 0.5
            fault = self._random.choice(self._faults)
        return (fault, happens) if fails else (None, True)

    def _got(self, call: Callable[[], Stored | None], *, fault: Fault | None, happens: bool) -> Stored | None:
        if fault == "truncated" and (stored := call()):
            return Stored(stored.body[: len(stored.body) // 2], stored.version)
        return self._call(call, fault=fault, happens=happens)

    def _spoilt(self, answer: Answer, fault: Fault | None, happens: bool) -> Answer:
        if isinstance(answer, MirrorUnavailable):
            return answer
        try:
            return self._got(lambda: answer, fault=fault, happens=happens)
        except MirrorUnavailable as error:
            return error

    def _change(self, call: Callable[[], T], *, fault: Fault | None, happens: bool) -> T:
        if fault == "conflict":
            if happens:
                call()
            raise MirrorConflict("injected: precondition failed (412)")
        return self._call(call, fault=fault, happens=happens)

    def _call(self, call: Callable[[], T], *, fault: Fault | None, happens: bool) -> T:
        if fault == "slow_down":
            raise MirrorUnavailable("injected: slow down (503)")
        if fault == "timeout" and not happens:
            raise MirrorUnavailable("injected: timed out")
        result = call()
        if fault is not None:
            raise MirrorUnavailable(f"injected: the answer was lost ({fault})")
        return result


def _half(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield from pairs[: len(pairs) // 2]
    raise MirrorUnavailable("injected: the list ended early")
