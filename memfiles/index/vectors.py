"""Meaning: vectors of contents, derived, and what is near a question among them.

A vector is kept under the model's name and the digest of the content, so a content is embedded once however often it
is saved, and another model starts anew. All vectors of the view are compared: at the sizes of a memory that is exact
and quick enough, and needs no index of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memfiles.index import texts
from memfiles.index.view import View

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from memfiles.embedding import Embedder

NEAREST = 50  # entries that a question is taken to mean
SHARE = 0.3  # of the best score by words, for the nearest of all; words lead
BATCH = 64  # texts embedded at once


def fill(connection: sqlite3.Connection, parts: Sequence[int], embedder: Embedder) -> int:
    """Embed what has no vector yet, in the caller's transaction; returns how many contents that were."""
    missing = {
        digest: content
        for part in texts.present(connection, parts)
        for digest, content in texts.without_vector(connection, part, embedder.model_id)
    }
    for batch in _batches(list(missing.items())):
        vectors = embedder.embed([content for _, content in batch])
        rows = [
            (embedder.model_id, digest, _packed(vector)) for (digest, _), vector in zip(batch, vectors, strict=True)
        ]
        connection.executemany("INSERT OR REPLACE INTO vector (model, digest, data) VALUES (?, ?, ?)", rows)
    return len(missing)


def drop_vectors(connection: sqlite3.Connection) -> int:
    """Take all vectors out; returns how many there were. They come back when they are next needed."""
    return connection.execute("DELETE FROM vector").rowcount


def gains(view: View, embedder: Embedder, query: str, *, best: float) -> dict[int, float]:
    """What the entries nearest in meaning gain: ``SHARE`` of ``best`` for the nearest, nothing at the edge."""
    ids, vectors = _all(view, embedder.model_id)
    if not ids:
        return {}
    import numpy

    near = vectors @ _unit(numpy.asarray(embedder.embed([query]), dtype=numpy.float32))[0]
    chosen = _kept(view, [(float(near[place]), ids[place]) for place in numpy.argsort(-near, kind="stable")])
    middle = float(numpy.median(near))
    low = max(middle, chosen[-1][0]) if len(chosen) == NEAREST else middle
    high = max((value for value, _ in chosen), default=1.0)
    return {id: SHARE * best * (value - low) / (high - low) for value, id in chosen if value > low}


def _kept(view: View, ordered: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The nearest that count."""
    found: list[tuple[float, int]] = []
    for begin in range(0, len(ordered), NEAREST):
        page = ordered[begin : begin + NEAREST]
        kept = set(view.kept([id for _, id in page]))
        found += [(value, id) for value, id in page if id in kept]
        if len(found) >= NEAREST:
            break
    return found[:NEAREST]


def _all(view: View, model: str) -> tuple[list[int], NDArray[float32]]:
    import numpy

    rows = [row for part in view.parts for row in texts.vectors(view.connection, part, model)]
    flat = numpy.frombuffer(b"".join(data for _, data in rows), dtype=numpy.float16)
    matrix = flat.reshape(len(rows), -1) if rows else flat.reshape(0, 0)
    return [id for id, _ in rows], matrix.astype(numpy.float32)


def _packed(vector: Sequence[float]) -> bytes:
    import numpy

    return bytes(_unit(numpy.asarray([vector], dtype=numpy.float32))[0].astype(numpy.float16).tobytes())


def _unit(vectors: NDArray[float32]) -> NDArray[float32]:
    import numpy

    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / numpy.where(lengths == 0, 1, lengths)).astype(numpy.float32)


def _batches(items: list[tuple[bytes, str]]) -> Iterator[list[tuple[bytes, str]]]:
    yield from (items[at : at + BATCH] for at in range(0, len(items), BATCH))
