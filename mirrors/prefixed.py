"""A wrapper that shows one folder of a mirror as a whole mirror, by adding a prefix to every key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memfiles.sync.mirror import (
    ANY,
    Answer,
    Condition,
    Mirror,
    Stored,
    check_key,
    check_prefix,
    get_many,
    is_key,
    shortcomings_of,
)


class PrefixedMirror:
    """The keys of ``inner`` below the folder ``prefix``, which counts for the limit of a key; see ``Mirror``."""

    def __init__(self, inner: Mirror, prefix: str) -> None:
        """``prefix`` is a path without a slash at either end."""
        self._inner = inner
        self._folder = check_key(prefix) + "/"

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        check_prefix(prefix)
        found = self._inner.list(self._folder + prefix)
        inside = ((key.removeprefix(self._folder), version) for key, version in found)
        return ((key, version) for key, version in inside if is_key(key))

    def get(self, key: str) -> Stored | None:
        return self._inner.get(self._inside(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        found = get_many(self._inner, [self._inside(key) for key in keys])
        return ((key.removeprefix(self._folder), answer) for key, answer in found)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self._inner.put(self._inside(key), body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner.delete(self._inside(key), when=when)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner, self._inside(key))

    def _inside(self, key: str) -> str:
        return self._folder + check_key(key)
