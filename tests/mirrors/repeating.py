"""A wrapper that repeats failed calls, so that the exam can be asked of a mirror that fails on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, check_keys, get_many

T = TypeVar("T")
ATTEMPTS = 200
PAUSE_SECONDS = 0.005


class RepeatingMirror:
    """Repeats each call of ``inner`` until it is answered, at most 200 times."""

    def __init__(self, inner: Mirror) -> None:
        self.inner = inner

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return iter(_repeated(lambda: list(self.inner.list(prefix))))

    def get(self, key: str) -> Stored | None:
        return _repeated(lambda: self.inner.get(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return self._in_rounds(check_keys(keys))

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return _repeated(lambda: self.inner.put(key, body, when=when))

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        _repeated(lambda: self.inner.delete(key, when=when))

    def _in_rounds(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        failed: dict[str, Answer] = {}
        for _ in range(ATTEMPTS):
            failed = {}
            for key, answer in get_many(self.inner, keys):
                if isinstance(answer, MirrorUnavailable) and answer.transient:
                    failed[key] = answer
                else:
                    yield key, answer
            if not failed:
                return
            keys = tuple(failed)
            time.sleep(PAUSE_SECONDS)
        yield from failed.items()


def _repeated(call: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except MirrorUnavailable as error:
            if not error.transient:
                raise
        time.sleep(PAUSE_SECONDS)
    return call()
