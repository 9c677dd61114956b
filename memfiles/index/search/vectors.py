"""Meaning: vectors of contents, derived, and what is near a question among them.

A vector is kept under the model's name and the digest of the content, so a content is embedded once however often it
is saved, and another model starts anew. All vectors of the view are compared: at the sizes of a memory that is exact
and quick enough, and needs no index of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memfiles.index.search.scope import SearchScope
from memfiles.index.text import fts as texts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from memfiles.index.search.embedder import Embedder

NEAREST = 50  # entries that a question is taken to mean
SHARE = 0.3  # of the best score by words, for the nearest of all; words lead
BATCH = 64  # texts embedded at once


def fill(connection: sqlite3.Connection, parts: Sequence[int], embedder: Embedder) -> int:
    """Embed what has no vector yet, in the caller's transaction; returns how many contents that were."""
    count = 0
    while batch := missing(connection, parts, embedder.model_id):
        found = embedder.embed([content for _, content in batch])
        keep(connection, embedder.model_id, zip((digest for digest, _ in batch), found, strict=True))
        count += len(batch)
    return count


def missing(connection: sqlite3.Connection, parts: Sequence[int], model: str) -> list[tuple[bytes, str]]:
    """Digests and contents that the model has not embedded, each once, some at a time; none if it has them all."""
    found: dict[bytes, str] = {}
    for part in texts.present(connection, parts):
        found.update(texts.without_vector(connection, part, model, limit=BATCH - len(found)))
        if len(found) >= BATCH:
            break
    return list(found.items())


def keep(connection: sqlite3.Connection, model: str, vectors: Iterable[tuple[bytes, Any]]) -> None:
    """Have these vectors, by the digests of their contents, in the caller's transaction."""
    rows = [(model, digest, _packed(vector)) for digest, vector in vectors]
    connection.executemany("INSERT OR REPLACE INTO vector (model, digest, data) VALUES (?, ?, ?)", rows)


def drop_vectors(connection: sqlite3.Connection) -> int:
    """Take all vectors out; returns how many there were. They come back when they are next needed."""
    return connection.execute("DELETE FROM vector").rowcount


def gains(view: SearchScope, embedder: Embedder, query: str, *, best: float) -> dict[int, float]:
    """What the entries nearest in meaning gain: ``SHARE`` of ``best`` for the nearest, nothing at the edge."""
    import numpy

    asked = _unit(numpy.asarray(embedder.embed([query]), dtype=numpy.float32))[0]
    ids, vectors = _all(view, embedder.model_id, length=len(asked))
    if not ids:
        return {}
    near = vectors @ asked
    chosen = _kept(view, [(float(near[place]), ids[place]) for place in numpy.argsort(-near, kind="stable")])
    middle = float(numpy.median(near))
    low = max(middle, chosen[-1][0]) if len(chosen) == NEAREST else middle
    high = max((value for value, _ in chosen), default=1.0)
    return {id: SHARE * best * (value - low) / (high - low) for value, id in chosen if value > low}


def _kept(view: SearchScope, ordered: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The nearest that count."""
    found: list[tuple[float, int]] = []
    for begin in range(0, len(ordered), NEAREST):
        page = ordered[begin : begin + NEAREST]
        kept = set(view.kept([id for _, id in page]))
        found += [(value, id) for value, id in page if id in kept]
        if len(found) >= NEAREST:
            break
    return found[:NEAREST]


def _all(view: SearchScope, model: str, *, length: int) -> tuple[list[int], NDArray[float32]]:
    """The vectors of that length: a model that gives others under the same name is another one."""
    import numpy

    found = [row for part in view.parts for row in texts.vectors(view.connection, part, model)]
    rows = [
        (id, data)
        for id, data in found
        if id not in view.shadowed and len(data) == length * numpy.dtype(numpy.float16).itemsize
    ]
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
