"""A wrapper that opens its mirror on first use, so that libraries and clients cost nothing before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, check_keys, get_many, shortcomings_of


class LazyMirror:
    """Opens its inner mirror once, in the thread that makes the first call; see ``Mirror``.

    If opening fails, the call fails, and the next call tries again.
    """

    def __init__(self, open_inner: Callable[[], Mirror]) -> None:
        self._open_inner = open_inner
        self._opening = threading.Lock()
        self._opened: Mirror | None = None

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return self._inner().list(prefix)

    def get(self, key: str) -> Stored | None:
        return self._inner().get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        asked = check_keys(keys)
        try:
            return get_many(self._inner(), asked)
        except MirrorUnavailable as error:
            return iter([(key, error) for key in asked])

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self._inner().put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner().delete(key, when=when)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner(), key)

    def _inner(self) -> Mirror:
        with self._opening:
            if self._opened is None:
                self._opened = self._open_inner()
            return self._opened


LateMirror = LazyMirror  # its name until 0.1
