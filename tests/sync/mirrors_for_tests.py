"""Mirrors with a habit: one that counts, one that is away, one that hangs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from memfiles.errors import MirrorUnavailable
from memfiles.sync.mirror import ANY, Condition, Mirror, Stored


class CountingMirror:
    """Counts the calls by name, and keeps the keys of the puts in order."""

    def __init__(self, inner: Mirror) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()
        self.puts: list[str] = []

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``."""
        self.calls["list"] += 1
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        self.calls["get"] += 1
        return self._inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        self.calls["put"] += 1
        self.puts.append(key)
        return self._inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        self.calls["delete"] += 1
        self._inner.delete(key, when=when)


class AbsentMirror:
    """Does not answer while ``is_away``; ``happens``: what it is asked to do happens nevertheless.

    While it ``takes_nothing``, no put is answered.
    """

    def __init__(self, inner: Mirror, *, is_away: bool = True, happens: bool = False) -> None:
        self._inner = inner
        self.is_away = is_away
        self.happens = happens
        self.takes_nothing = False
        self.asked = 0

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``."""
        self._answer()
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        self._answer()
        return self._inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        if self.is_away and self.happens:
            self._inner.put(key, body, when=when)
        if self.takes_nothing:
            raise MirrorUnavailable("nothing is taken")
        self._answer()
        return self._inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        self._answer()
        self._inner.delete(key, when=when)

    def _answer(self) -> None:
        self.asked += 1
        if self.is_away:
            raise MirrorUnavailable("nobody answers")


class RepeatingMirror:
    """Puts a copy twice, as a client does that got no answer; the second is refused, as the version is another now."""

    def __init__(self, inner: Mirror) -> None:
        """Each copy is put once until ``between`` is set, which is called after the first of both, once."""
        self._inner = inner
        self.between: Callable[[], object] | None = None

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``."""
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        return self._inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        version = self._inner.put(key, body, when=when)
        if self.between is None:
            return version
        between, self.between = self.between, None
        between()
        return self._inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        self._inner.delete(key, when=when)


class HangingMirror:
    """Every call hangs until it is let go, or for ``seconds``, and then fails."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._let_go = threading.Event()
        self.asked = threading.Event()
        self.has_answered = False

    def let_go(self) -> None:
        """End the calls that hang."""
        self._let_go.set()

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Hangs."""
        raise self._hang()

    def get(self, key: str) -> Stored | None:
        """Hangs."""
        raise self._hang()

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """Hangs."""
        raise self._hang()

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """Hangs."""
        raise self._hang()

    def _hang(self) -> MirrorUnavailable:
        self.asked.set()
        self._let_go.wait(self._seconds)
        self.has_answered = True
        return MirrorUnavailable("timed out")
