"""A mirror that asks again: what fails because the store did not answer is repeated, later and later, and not for ever.

The pauses are exponential with full jitter (any time between none and the bound, so that the machines that met one
outage do not come back together): M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import SystemRandom
from typing import TypeVar

from memfiles.errors import MirrorUnavailable
from memfiles.sync.bulk_reads import get_many
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, check_keys, shortcomings_of

T = TypeVar("T")
_chance = SystemRandom()  # the module's own numbers are the program's, which may have seeded them


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often to ask and how long to wait in between (seconds)."""

    attempts: int = 5
    first: float = 0.1
    longest: float = 5.0
    patience: float = 60.0

    def pause(self, failures: int, *, share: float) -> float:
        """The pause after that many failures; ``share`` is between 0 and 1, and random."""
        return share * min(self.longest, self.first * 2.0 ** (failures - 1))

    def gives_up(self, failures: int, *, elapsed: float) -> bool:
        """Whether another attempt is one too many, or comes too late."""
        return failures >= self.attempts or elapsed >= self.patience


class RetryingMirror:
    """Repeats what ``inner`` did not answer, as ``backoff`` says; the last failure is the caller's.

    Every call of a mirror may be repeated, also when the first one happened and its answer was lost. A
    ``MirrorConflict`` or a ``MirrorRefused`` is an answer, and is passed on.
    """

    def __init__(
        self,
        inner: Mirror,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 (frozen)
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = _chance.random,
    ) -> None:
        self._inner = inner
        self._backoff = backoff
        self._monotonic = monotonic
        self._sleep = sleep
        self._random = random

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``; the whole list is there before the first pair is given out."""
        return iter(self._repeat(lambda: list(self._inner.list(prefix))))

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        return self._repeat(lambda: self._inner.get(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """See ``BulkMirror.get_many``; what was not answered is asked again together, after all that was."""
        return self._rounds(check_keys(keys))

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        return self._repeat(lambda: self._inner.put(key, body, when=when))

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        self._repeat(lambda: self._inner.delete(key, when=when))

    def _rounds(self, asked: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        started = self._monotonic()
        failures = 0
        while asked:
            failed: dict[str, Answer] = {}
            for key, answer in get_many(self._inner, asked):
                if isinstance(answer, MirrorUnavailable) and answer.transient:
                    failed[key] = answer
                else:
                    yield key, answer
            failures += 1
            if self._backoff.gives_up(failures, elapsed=self._monotonic() - started):
                yield from failed.items()
                return
            asked = list(failed)
            if asked:
                self._sleep(self._backoff.pause(failures, share=self._random()))

    def shortcomings(self, key: str) -> tuple[str, ...]:
        """See ``CandidMirror.shortcomings``."""
        return self._repeat(lambda: shortcomings_of(self._inner, key))

    def _repeat(self, call: Callable[[], T]) -> T:
        started = self._monotonic()
        failures = 0
        while True:
            try:
                return call()
            except MirrorUnavailable as error:
                failures += 1
                elapsed = self._monotonic() - started
                if not error.transient or self._backoff.gives_up(failures, elapsed=elapsed):
                    raise
            self._sleep(self._backoff.pause(failures, share=self._random()))
