"""What turns text into vectors: a promise that any model can keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Embedder(Protocol):
    """A model whose vectors are near for texts that mean the same."""

    @property
    def model_id(self) -> str:
        """A name that changes whenever the same text would get another vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Iterable[Any]:
        """One vector of finite numbers for each text, all of one length; the same vector for the same text.

        It is called with many texts at once, never with an empty list, works offline or raises, and may be called
        by several threads.
        """
        ...
