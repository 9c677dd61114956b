"""Vectors of contents, and the entries nearest in meaning to a question.

A vector is kept under the model's name and the digest of the content, so a content is embedded once however often it
is saved, and another model starts from nothing. A question is compared with all vectors of its scope: at the sizes of
a memory that is exact and fast enough, and needs no vector index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memfiles.index import queries
from memfiles.index.index import Index
from memfiles.index.rows import PartitionKey
from memfiles.index.search.embedder import Embedder
from memfiles.index.search.scope import SearchScope
from memfiles.index.text import fts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

NEAREST = 50  # entries that gain by their meaning
SHARE = 0.3  # of the best score by words, for the nearest entry; words lead
BATCH = 64  # texts embedded at once


def fill_index(index: Index, view: Sequence[PartitionKey], embedder: Embedder) -> None:
    """Embed all contents of these partitions that have no vector yet, without holding the index meanwhile."""
    model = embedder.model_id
    while batch := index.ask(lambda connection: missing(connection, queries.parts(connection, view), model)):
        found = embedder.embed([content for _, content in batch])
        made = list(zip((digest for digest, _ in batch), found, strict=True))
        index.change(lambda connection: keep(connection, model, made), durable=False)  # noqa: B023 (called at once)


def fill(connection: sqlite3.Connection, parts: Sequence[int], embedder: Embedder) -> None:
    """Embed contents that have no vector yet, in the caller's transaction."""
    while batch := missing(connection, parts, embedder.model_id):
        found = embedder.embed([content for _, content in batch])
        keep(connection, embedder.model_id, zip((digest for digest, _ in batch), found, strict=True))


def missing(connection: sqlite3.Connection, parts: Sequence[int], model: str) -> list[tuple[bytes, str]]:
    """Digests and contents that have no vector of this model, each once, at most ``BATCH`` of them."""
    found: dict[bytes, str] = {}
    for part in fts.present(connection, parts):
        found.update(fts.without_vector(connection, part, model, limit=BATCH - len(found)))
        if len(found) >= BATCH:
            break
    return list(found.items())


def keep(connection: sqlite3.Connection, model: str, vectors: Iterable[tuple[bytes, Any]]) -> None:
    """Write vectors, by the digests of their contents, in the caller's transaction."""
    import numpy

    found = ((digest, _unit(numpy.asarray([vector], dtype=numpy.float32))[0]) for digest, vector in vectors)
    rows = [(model, digest, vector.astype(numpy.float16).tobytes()) for digest, vector in found]
    connection.executemany("INSERT OR REPLACE INTO vector (model, digest, data) VALUES (?, ?, ?)", rows)


def gains(scope: SearchScope, embedder: Embedder, query: str, *, best: float) -> dict[int, float]:
    """Gains of the entries nearest in meaning: ``SHARE`` of ``best`` for the nearest, nothing for the farthest."""
    import numpy

    asked = _unit(numpy.asarray(embedder.embed([query]), dtype=numpy.float32))[0]
    ids, vectors = _all(scope, embedder.model_id, length=len(asked))
    if not ids:
        return {}
    near = vectors @ asked
    chosen = _kept(scope, [(float(near[place]), ids[place]) for place in numpy.argsort(-near, kind="stable")])
    middle = float(numpy.median(near))
    low = max(middle, chosen[-1][0]) if len(chosen) == NEAREST else middle
    high = max((value for value, _ in chosen), default=1.0)
    return {id: SHARE * best * (value - low) / (high - low) for value, id in chosen if value > low}


def _kept(scope: SearchScope, ordered: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The nearest entries that count."""
    found: list[tuple[float, int]] = []
    for begin in range(0, len(ordered), NEAREST):
        page = ordered[begin : begin + NEAREST]
        kept = set(scope.kept([id for _, id in page]))
        found += [(value, id) for value, id in page if id in kept]
        if len(found) >= NEAREST:
            break
    return found[:NEAREST]


def _all(scope: SearchScope, model: str, *, length: int) -> tuple[list[int], NDArray[float32]]:
    """Entries and vectors of that length; a vector of another length is by another model of the same name."""
    import numpy

    found = [row for part in scope.parts for row in fts.vectors(scope.connection, part, model)]
    rows = [
        (id, data)
        for id, data in found
        if id not in scope.shadowed and len(data) == length * numpy.dtype(numpy.float16).itemsize
    ]
    flat = numpy.frombuffer(b"".join(data for _, data in rows), dtype=numpy.float16)
    matrix = flat.reshape(len(rows), -1) if rows else flat.reshape(0, 0)
    return [id for id, _ in rows], matrix.astype(numpy.float32)


def _unit(vectors: NDArray[float32]) -> NDArray[float32]:
    import numpy

    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / numpy.where(lengths == 0, 1, lengths)).astype(numpy.float32)
