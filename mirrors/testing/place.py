"""The parts of the exam: a place to examine, a question about it, and the comparison of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from memfiles.sync.mirror import Mirror

Power = Literal["bytes", "deleting", "folders", "racing"]
"""Powers that a few mirrors lack: keep any bytes, delete, take any key, decide between simultaneous writers."""


@dataclass(frozen=True)
class Place:
    """A store for a mirror's objects, empty at first.

    ``open`` returns a new handle each time. ``body`` makes the bytes for a key from a text (a mirror that takes only
    records needs one). ``peek`` reads the store and ``plant`` writes it, bypassing the mirror. ``many`` is more than
    the store lists at once, ``big`` the size of a large body in bytes.
    """

    open: Callable[[], Mirror]
    body: Callable[[str, str], bytes] = lambda key, text: text.encode()  # noqa: E731
    peek: Callable[[str], bytes | None] | None = None
    plant: Callable[[str, bytes], object] | None = None
    many: int = 1001
    big: int = 9 * 1024 * 1024

    def seen(self, key: str) -> bytes | None:
        """The bytes that another reader finds at ``key``."""
        if self.peek is not None:
            return self.peek(key)
        stored = self.open().get(key)
        return stored.body if stored else None

    def write(self, key: str, text: str) -> bytes:
        """Put a body as another writer."""
        body = self.body(key, text)
        if self.plant is not None:
            self.plant(key, body)
        else:
            self.open().put(key, body)
        return body


@dataclass(frozen=True)
class Question:
    """One promise put to the test: call it with an empty place."""

    ask: Callable[[Place], None]
    needs: frozenset[Power]

    def __call__(self, place: Place) -> None:
        """Raise ``AssertionError`` if the mirror at ``place`` breaks the promise."""
        self.ask(place)

    def __str__(self) -> str:
        return self.ask.__name__


def question(*needs: Power) -> Callable[[Callable[[Place], None]], Question]:
    """Make a function a question for mirrors that have the powers it ``needs``."""
    return lambda ask: Question(ask, frozenset(needs))


def expect(expected: object, actual: object, promise: str) -> None:
    """Raise ``AssertionError`` unless the two are equal."""
    if expected != actual:
        raise AssertionError(f"{promise}: expected {_short(expected)}, got {_short(actual)}")


def expect_error(kind: type[Exception], call: Callable[[], object], promise: str) -> None:
    """Raise ``AssertionError`` unless the call raises an error of that kind."""
    try:
        answer = call()
    except kind:
        return
    raise AssertionError(f"{promise}: expected {kind.__name__}, got {_short(answer)}")


def got(mirror: Mirror, key: str) -> tuple[bytes, str] | None:
    """The body and version at ``key``, None if there is nothing."""
    stored = mirror.get(key)
    return (stored.body, stored.version) if stored else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"
