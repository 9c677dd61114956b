"""The way of one machine to the bucket: it may be cut, or bad; and it counts what is put."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Literal

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, check_keys

Fate = Literal["fine", "busy", "lost before", "lost after", "stale"]
_FATES: tuple[Fate, ...] = ("busy", "lost before", "lost after", "stale")
RATE = 0.3


class Wire:
    """Passes calls on to the bucket, one after the other: reads of many objects use no threads.

    While it ``is_cut``, nothing arrives. While ``chances`` are given, a share of the calls fails: the bucket is busy
    (503), the call or its answer is lost, or a list is the one before.
    """

    def __init__(self, bucket: Mirror) -> None:
        self._bucket = bucket
        self._listed: list[tuple[str, str]] = []
        self.is_cut = False
        self.chances: random.Random | None = None
        self.puts: list[str] = []

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``."""
        fate = self._fate()
        now = list(self._bucket.list(prefix))
        if prefix:
            return iter(now)
        shown, self._listed = (self._listed if fate == "stale" else now), now
        return iter(shown)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        self._fate()
        return self._bucket.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """See ``BulkMirror.get_many``."""
        return ((key, self._answer(key)) for key in check_keys(keys))

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        fate = self._fate()
        self.puts.append(key)
        version = self._bucket.put(key, body, when=when)
        if fate == "lost after":
            raise MirrorUnavailable("the answer was lost")
        return version

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        fate = self._fate()
        self._bucket.delete(key, when=when)
        if fate == "lost after":
            raise MirrorUnavailable("the answer was lost")

    def _answer(self, key: str) -> Answer:
        try:
            return self.get(key)
        except MirrorUnavailable as error:
            return error

    def _fate(self) -> Fate:
        """What becomes of a call; raises if it does not arrive."""
        if self.is_cut:
            raise MirrorUnavailable("nobody answers")
        if self.chances is None or self.chances.random() >= RATE:
            return "fine"
        fate = self.chances.choice(_FATES)
        if fate in ("busy", "lost before"):
            raise MirrorUnavailable(fate)
        return fate
