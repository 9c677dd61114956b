"""A wrapper that reports the progress of reading many objects, such as at a long start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from memfiles.sync.mirror import (
    ANY,
    Answer,
    Condition,
    Mirror,
    NotingMirror,
    Stored,
    check_keys,
    get_many,
    shortcomings_of,
    takes,
)


class CountingMirror:
    """Passes calls on to ``inner``, and reports (done, total) for each object of a ``get_many``; see ``Mirror``."""

    def __init__(self, inner: Mirror, report: Callable[[int, int], None]) -> None:
        self._inner = inner
        self._report = report

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        return self._inner.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        asked = check_keys(keys)
        for number, answer in enumerate(get_many(self._inner, asked), start=1):
            self._report(number, len(asked))
            yield answer

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self._inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner.delete(key, when=when)

    def takes(self, key: str) -> bool:
        return takes(self._inner, key)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner, key)

    def note(self, key: str, why: str, *, version: str | None) -> None:
        if isinstance(self._inner, NotingMirror):
            self._inner.note(key, why, version=version)
