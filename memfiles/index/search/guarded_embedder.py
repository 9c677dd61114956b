"""Meaning: an embedder that somebody brings, asked with care, and the vectors that searches go by.

The rule this file guards: whatever an embedder does, no save and no search fails for it. What it gives is checked, it
has a bounded time, nobody holds the index meanwhile, and one that failed is left in peace for a while: a search then
goes by words alone and says so.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.index.search import vectors
from memfiles.index.search.embedder import Embedder
from memfiles.index.totals import CountPlace

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

CALL_SECONDS = 10.0
"""How long one call may take: 64 texts at most."""

REST_SECONDS = 60.0
"""For how long one that failed is not asked again."""

_log = logging.getLogger("memfiles")


class NoMeaning(Exception):
    """The embedder cannot be used just now."""


class GuardedEmbedder:
    """The embedder, asked in a thread that nobody waits for longer than ``seconds``. Threads may share it."""

    def __init__(self, inner: Embedder, *, seconds: float = CALL_SECONDS, rest_seconds: float = REST_SECONDS) -> None:
        self._inner = inner
        self._seconds = seconds
        self._rest_seconds = rest_seconds
        self._resting_until = 0.0
        self._left_behind: threading.Thread | None = None

    @property
    def model_id(self) -> str:
        """The model's name. ``NoMeaning`` if it has none."""
        try:
            name = self._inner.model_id
        except Exception as error:
            raise self._failed(f"its model_id raised {type(error).__name__}") from error
        if not isinstance(name, str) or not name or not name.isprintable():
            raise self._failed("its model_id is no name")
        return name

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """A finite vector for each text, all of one length. ``NoMeaning`` where the embedder gives anything else."""
        if time.monotonic() < self._resting_until or (self._left_behind is not None and self._left_behind.is_alive()):
            raise NoMeaning
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._inner.embed(texts))
            except BaseException as error:  # the edge of the thread: whatever ends it, nobody waits any longer
                answers.put(error)

        thread = threading.Thread(target=ask, name="memfiles-embedder", daemon=True)
        thread.start()
        try:
            found = answers.get(timeout=self._seconds)
        except queue.Empty:
            self._left_behind = thread
            raise self._failed(f"it did not answer within {self._seconds:g} s") from None
        if isinstance(found, BaseException):
            raise self._failed(f"it raised {type(found).__name__}") from found
        return self._checked(found, count=len(texts))

    def _checked(self, found: Any, *, count: int) -> NDArray[float32]:
        try:
            import numpy
        except ImportError as error:
            raise self._failed("it needs an extra: pip install 'memfiles[semantic]'") from error
        try:
            given = numpy.asarray(found if hasattr(found, "shape") else list(found), dtype=numpy.float64)
        except (TypeError, ValueError) as error:
            raise self._failed("it gave no numbers") from error
        if given.ndim != 2 or given.shape[0] != count or not given.shape[1]:
            raise self._failed(f"it gave an array of shape {given.shape} for {count} texts")
        if not numpy.isfinite(given).all():
            raise self._failed("it gave numbers that are not finite")
        largest = numpy.abs(given).max(axis=1, keepdims=True)
        return (given / numpy.where(largest == 0, 1, largest)).astype(numpy.float32)

    def _failed(self, why: str) -> NoMeaning:
        self._resting_until = time.monotonic() + self._rest_seconds
        _log.warning("searches go by words alone for %g s: the embedder cannot be used: %s", self._rest_seconds, why)
        return NoMeaning(why)


class QueryEmbedder:
    """The embedder as one search asks it: the question's vector is made before the index is held."""

    def __init__(self, embedder: GuardedEmbedder, query: str) -> None:
        """``NoMeaning``."""
        self.model_id = embedder.model_id
        self._embedder = embedder
        self._query = [query]
        self._vector = embedder.embed(self._query)

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """As ``CarefulEmbedder.embed``; of the question what is known already."""
        return self._vector if list(texts) == self._query else self._embedder.embed(texts)


def fill(index: Index, view: Sequence[CountPlace], embedder: GuardedEmbedder) -> None:
    """Have vectors of all that a view holds; the index is not held while they are made. ``NoMeaning``."""
    model = embedder.model_id
    while missing := index.ask(lambda connection: vectors.missing(connection, reading.parts(connection, view), model)):
        found = embedder.embed([content for _, content in missing])
        made = list(zip((digest for digest, _ in missing), found, strict=True))
        index.derive(lambda connection: vectors.keep(connection, model, made))  # noqa: B023 (called in this round)
