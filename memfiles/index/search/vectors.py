"""Vectors of contents, and the entries nearest in meaning to a question, by one matrix in memory.

A vector is kept under the model's name and the digest of the content, so a content is embedded once however often it
is saved, and another model starts from nothing. A question is compared with the vector of an entry together with those
of its neighbours, as what was said just before and after says what a short text is about: in conversations that found
0.6 points of recall@10 more than vectors of single entries. The matrix of a partition stays in memory; a search adds
what was saved since, so it reads few vectors. It needs no vector index: it compares with the first numbers of all of
them, and with all numbers of the nearest few. Which these are depends on no entry that is hidden.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memfiles.errors import StorageFailed
from memfiles.index import queries
from memfiles.index.database import note_meaning, noted_meaning, peek
from memfiles.index.index import Index
from memfiles.index.rows import PartitionKey
from memfiles.index.search.embedder import Embedder, GuardedEmbedder, ModelUnavailable, QueryEmbedder
from memfiles.index.search.scope import SearchScope
from memfiles.index.text import fts
from memfiles.index.text.fts import PartState
from memfiles.records import NamedTuple

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

NEAREST = 50  # entries that gain by their meaning
SORTED_FIRST = 200  # entries, which most often include the wanted ones
ALL_UP_TO = 2048  # entries, with which a question is compared by all numbers
BEGIN = 128  # numbers of a vector that are compared first
BEGUN, SAMPLE = 256, 96  # entries of each partition, the nearest by these, and those from which the median is taken
BATCH = 64  # texts embedded at once, at most
BATCH_CHARACTERS = 16_000  # about 4,000 tokens, by estimate a second; one text may be longer
MOST_BYTES = 256 * 1024 * 1024  # of matrices that are kept; beyond, those of the partitions used last
FILL_SECONDS = 30.0  # how long one search embeds what was saved before it
MAX_WHY = 160  # characters of a reason
AROUND = 0.7  # the weight of the mean of the neighbours, next to that of the entry itself


class VectorRow(NamedTuple):
    """The vector of an entry, the run and thread in which that was saved, and its place in them."""

    id: int
    data: bytes
    run: tuple[str, str]
    ordinal: int


class Matrix(Struct, eq=False):
    """The vectors of one partition, as of a change of it: a row for each entry, in the order in which they came.

    ``runs`` and ``ordinals`` are those of the entries; of rows in no run, the run is the row's own. ``begin`` has the
    first numbers of each vector together with its neighbours, in the ``order`` of the runs. ``by_id`` has the places in
    it by row, as the numbers of runs tell of what others searched.
    """

    state: PartState = PartState()
    ids: Any = ()
    data: Any = None
    runs: Any = None
    ordinals: Any = None
    order: Any = None
    by_id: Any = None
    begin: Any = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return 0 if self.data is None else int(self.data.nbytes + self.begin.nbytes)

    def without(self, gone: Collection[int]) -> Matrix:
        """The matrix without these rows, as of the same change."""
        import numpy

        kept = ~numpy.isin(self.ids, list(gone))
        if kept.all():
            return self
        if not kept.any():
            return Matrix(self.state)
        return Matrix(self.state, self.ids[kept], self.data[kept], self.runs[kept], self.ordinals[kept]).ordered()

    def ordered(self) -> Matrix:
        """The matrix itself, with the order of its runs and everything derived from that computed."""
        import numpy

        self.order = numpy.lexsort((self.ordinals, self.runs))
        self.by_id = numpy.argsort(self.ids[self.order])
        self.begin = _with_neighbours(self.data[self.order, :BEGIN], self.runs[self.order])
        return self


class Matrices:
    """The matrices of the partitions that were searched last, on one connection; one thread at a time uses them."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._model = ""
        self._known: dict[int, Matrix] = {}
        self._runs: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return sum(len(each.ids) for each in self._known.values())

    def of(self, connection: sqlite3.Connection, part: int, model: str, *, length: int) -> Matrix:
        """The matrix of a partition with every vector of that length; one of another is by another model."""
        self._follow(connection, model)
        now = fts.part_state(connection, part)
        found = self._known.pop(part, None) or Matrix()
        if found.state != now:
            gone = fts.removed_rows(connection, part, since=found.state, now=now)
            found = Matrix() if gone is None else found.without(gone)
            found = self._extended(found, connection, part, length=length)
            if len(found.ids) == now.size:  # else some have no vector of that length
                found.state = now
        self._known[part] = found
        while sum(each.nbytes for each in self._known.values()) > MOST_BYTES and len(self._known) > 1:
            del self._known[next(iter(self._known))]
        return found

    def missing(self, connection: sqlite3.Connection, parts: Sequence[int], model: str) -> list[tuple[bytes, str]]:
        """Digests and contents that have no vector of this model, each once, as many as are embedded at once."""
        self._follow(connection, model)
        found: dict[bytes, str] = {}
        size = 0
        for part in fts.with_text(connection, parts):
            known = self._known.get(part)
            now = fts.part_state(connection, part)
            if known is not None and known.state == now:
                continue
            since = known.state.stamp if known is not None and known.state.epoch == now.epoch else -1
            for digest, content in _without_vector(connection, part, model, since=since, limit=BATCH - len(found)):
                size += len(content)
                if found and size > BATCH_CHARACTERS:
                    return list(found.items())
                found[digest] = content
            if len(found) >= BATCH:
                break
        return list(found.items())

    def shrink(self, connection: sqlite3.Connection) -> None:
        """Drop the vectors of texts that were removed since, as they reveal these texts."""
        for part, known in [*self._known.items()] if connection is self._connection else ():
            now = fts.part_state(connection, part)
            gone = fts.removed_rows(connection, part, since=known.state, now=now)
            if gone is None:
                del self._known[part]
            else:
                self._known[part] = known.without(gone)

    def _follow(self, connection: sqlite3.Connection, model: str) -> None:
        """Start from nothing with another connection, as its tables may be others, or with another model."""
        if connection is not self._connection or model != self._model:
            self._connection, self._model = connection, model
            self._known.clear()
            self._runs.clear()

    def _extended(self, matrix: Matrix, connection: sqlite3.Connection, part: int, *, length: int) -> Matrix:
        """The matrix with the rows that are new or changed since its state, which stays."""
        import numpy

        size = length * numpy.dtype(numpy.float16).itemsize
        found = _vectors(connection, part, self._model, since=matrix.state.stamp)
        rows = [row for row in found if len(row.data) == size]
        if not rows:
            return matrix
        matrix = matrix.without({row.id for row in rows})
        flat = numpy.frombuffer(b"".join(row.data for row in rows), dtype=numpy.float16)
        new = flat.reshape(len(rows), length).astype(numpy.float32)
        runs = [self._runs.setdefault(row.run, len(self._runs)) if row.run[0] else -row.id for row in rows]
        more = [row.id for row in rows], new, runs, [row.ordinal for row in rows]
        had = matrix.ids, matrix.data, matrix.runs, matrix.ordinals
        joined = zip(had, map(numpy.asarray, more), strict=True)
        return Matrix(matrix.state, *(new if old is None or not len(old) else numpy.concatenate([old, new])
                                      for old, new in joined)).ordered()  # fmt: skip


def _without_vector(
    connection: sqlite3.Connection, part: int, model: str, *, since: int, limit: int
) -> list[tuple[bytes, str]]:
    """Digest and content of at most ``limit`` entries put after the stamp ``since`` without a vector of the model."""
    statement = """SELECT digest, content FROM text WHERE part = ? AND stamp > ? AND NOT EXISTS
                   (SELECT 1 FROM vector WHERE model = ? AND digest = text.digest) LIMIT ?"""
    return connection.execute(statement, (part, since, model, limit)).fetchall()


def _vectors(connection: sqlite3.Connection, part: int, model: str, *, since: int) -> list[VectorRow]:
    """The vectors of this model of the entries that were put in the partition after the stamp ``since``."""
    statement = """SELECT text.id, vector.data, source_run, thread, ordinal FROM text JOIN entry USING (id)
                   JOIN vector ON vector.model = ? AND vector.digest = text.digest
                   WHERE text.part = ? AND text.stamp > ? ORDER BY text.id DESC"""
    rows = connection.execute(statement, (model, part, since))
    return [VectorRow(id, data, (run, thread), ordinal) for id, data, run, thread, ordinal in rows]


class MeaningStatus(NamedTuple):
    """The ``model`` of search by meaning, and since when and why searches leave it out; None if they do not."""

    model: str | None
    since: str | None = None
    why: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """The JSON object."""
        return self._asdict()


class Meaning:
    """Search by meaning in one open memory: its embedder, its matrices, and why it was left out. Threads share it."""

    def __init__(self, index: Index, embedder: Embedder | None, *, now: Callable[[], str]) -> None:
        """Without ``embedder`` nobody asks for it."""
        self.matrices = Matrices()
        self._index, self._now = index, now
        self._embedder = GuardedEmbedder(embedder) if embedder is not None else None
        self.is_wanted = embedder is not None
        self.is_settled = False  # whether a note of when there was an embedder is gone

    def question(self, view: Sequence[PartitionKey], query: str) -> QueryEmbedder:
        """The question, with vectors of all contents in these partitions. Raises ``ModelUnavailable``."""
        assert self._embedder is not None
        fill_index(self._index, view, self._embedder, self.matrices)
        return QueryEmbedder(self._embedder, query)

    def noted(self, error: ModelUnavailable | None) -> str | None:
        """Why a search leaves it out; noted for the ``status`` of all processes, of which the last search counts."""
        why = None
        if error is not None and self._embedder is not None:
            why = (str(error) or self._embedder.why or "the embedder cannot be used")[:MAX_WHY]
        if self._embedder is not None or not self.is_settled:
            with suppress(StorageFailed):  # the search has succeeded; the next one notes it
                found = self._index.ask(noted_meaning)
                if why != (found and found[1]):
                    self._index.change(partial(note_meaning, why=why, at=self._now()), durable=False)
                self.is_settled = True
        return why

    def status(self) -> MeaningStatus | None:
        """What the last search of any process noted; None if nobody wants it, or the index cannot be read at once."""
        if self._embedder is None:
            return None
        try:
            found = peek(self._index.directory, noted_meaning)
        except StorageFailed:
            return None
        try:
            return MeaningStatus(self._embedder.model_id, *(found or ()))
        except ModelUnavailable as error:
            return MeaningStatus(None, found and found[0], str(error))

    def shrink(self) -> None:
        """Drop the vectors of what was forgotten from this process's memory.

        What another process forgets is dropped by the next search by meaning in the same partition.
        """
        self._index.ask(self.matrices.shrink)


def fill_index(index: Index, view: Sequence[PartitionKey], embedder: Embedder, matrices: Matrices) -> None:
    """Embed all contents of these partitions that have no vector yet, without holding the index meanwhile.

    ``ModelUnavailable`` if that takes more than ``FILL_SECONDS``: the next call goes on.
    """
    model, until = embedder.model_id, monotonic() + FILL_SECONDS
    while batch := index.ask(lambda connection: matrices.missing(connection, queries.parts(connection, view), model)):
        if monotonic() > until:
            raise ModelUnavailable("the embedder has not read all entries yet; search again")
        found = embedder.embed([content for _, content in batch])
        made = list(zip((digest for digest, _ in batch), found, strict=True))
        index.change(lambda connection: store_vectors(connection, model, made), durable=False)  # noqa: B023 (called at once)


def embed_missing(
    connection: sqlite3.Connection, parts: Sequence[int], embedder: Embedder, matrices: Matrices | None = None
) -> None:
    """Embed contents that have no vector yet, in the caller's transaction."""
    matrices = Matrices() if matrices is None else matrices
    while batch := matrices.missing(connection, parts, embedder.model_id):
        found = embedder.embed([content for _, content in batch])
        store_vectors(connection, embedder.model_id, zip((digest for digest, _ in batch), found, strict=True))


def store_vectors(connection: sqlite3.Connection, model: str, vectors: Iterable[tuple[bytes, Any]]) -> None:
    """Write vectors, by the digests of their contents, in the caller's transaction."""
    import numpy

    found = ((digest, _unit(numpy.asarray([vector], dtype=numpy.float32))[0]) for digest, vector in vectors)
    rows = [(model, digest, vector.astype(numpy.float16).tobytes()) for digest, vector in found]
    connection.executemany("INSERT OR REPLACE INTO vector (model, digest, data) VALUES (?, ?, ?)", rows)


def gains(
    scope: SearchScope, embedder: Embedder, query: str, *, share: float, matrices: Matrices, associate: bool = True
) -> dict[int, float]:
    """Gains of the entries nearest in meaning: ``share`` of how much nearer than the median they are.

    With ``associate``, together with their neighbours.
    """
    import numpy

    asked = _unit(numpy.asarray(embedder.embed([query]), dtype=numpy.float32))[0]
    every = (matrices.of(scope.connection, part, embedder.model_id, length=len(asked)) for part in scope.parts)
    known = [matrix for matrix in every if len(matrix.ids)]
    if not known:
        return {}
    for begun in BEGUN, None:  # all, if most of the nearest do not count
        found = [_near(matrix, asked, but=scope.shadowed, associate=associate, begun=begun) for matrix in known]
        ids, near, usual = (numpy.concatenate(each) for each in zip(*found, strict=True))
        chosen = _kept(scope, ((float(near[place]), int(ids[place])) for place in _descending(near, ids)))
        if len(chosen) == NEAREST:
            break
    low = float(numpy.median(usual)) if chosen else 0.0
    return {id: share * (value - low) for value, id in chosen if value > low}


def _near(
    matrix: Matrix, asked: NDArray[float32], *, but: Collection[int], associate: bool, begun: int | None
) -> tuple[Any, NDArray[float32], NDArray[float32]]:
    """Entries, how near each is, alone or with the ones just before and after it in its run; and how near others are.

    Of many, they are the ``begun`` nearest by their first numbers.
    """
    import numpy

    order, by_id = matrix.order, matrix.by_id
    if but:
        order = order[~numpy.isin(matrix.ids[order], list(but))]
        by_id = numpy.argsort(matrix.ids[order])
    runs = matrix.runs[order] if associate else None
    if begun is None or len(order) <= ALL_UP_TO or len(asked) <= BEGIN:
        near = _with_neighbours(_products(matrix.data, asked)[order], runs)
        return matrix.ids[order], near, near
    if but or not associate:
        likely = _with_neighbours(_products(matrix.data, asked[:BEGIN])[order], runs)
    else:
        likely = _products(matrix.begin, asked[:BEGIN])
    first = numpy.flatnonzero(likely >= numpy.partition(likely, -begun)[-begun])
    some = by_id[:: len(order) // SAMPLE]
    is_near = numpy.zeros(len(order) + 2, dtype=bool)
    for by in range(3):
        is_near[first + by] = is_near[some + by] = True
    around = numpy.flatnonzero(is_near[1:-1])
    near = _with_neighbours(_products(matrix.data[order[around]], asked), None if runs is None else runs[around])
    of_first, usual = (near[numpy.searchsorted(around, places)] for places in (first, some))
    return matrix.ids[order[first]], of_first, usual


def _with_neighbours(alone: NDArray[float32], runs: NDArray[Any] | None) -> NDArray[float32]:
    """How near each entry, or its vector, is together with those next to it in the same run; alone without ``runs``."""
    import numpy

    if runs is None:
        return alone
    same = (runs[1:] == runs[:-1]).astype(numpy.float32)
    number = numpy.zeros(len(alone), dtype=numpy.float32)
    number[1:] += same
    number[:-1] += same
    if alone.ndim > 1:
        same, number = same[:, None], number[:, None]
    around = numpy.zeros_like(alone)
    around[1:] += alone[:-1] * same
    around[:-1] += alone[1:] * same
    beside = numpy.where(number > 0, around / numpy.maximum(number, 1), alone)
    return (alone + AROUND * beside).astype(numpy.float32)


def _products(data: NDArray[float32], asked: NDArray[float32]) -> NDArray[float32]:
    """The product of the question with the first numbers of each row; one by BLAS would tell of the rows around it."""
    import numpy

    found: NDArray[float32] = numpy.einsum("ij,j->i", data[:, : len(asked)], asked)
    return found


def _descending(near: NDArray[float32], ids: NDArray[Any]) -> Iterator[int]:
    """The places of the numbers, the largest first, and the newest row of equal ones; few of them are sorted first."""
    import numpy

    rest = numpy.arange(len(near))
    if len(near) > SORTED_FIRST:
        is_first = near >= numpy.partition(near, -SORTED_FIRST)[-SORTED_FIRST]
        first, rest = numpy.flatnonzero(is_first), numpy.flatnonzero(~is_first)
        yield from first[numpy.lexsort((-ids[first], -near[first]))]
    yield from rest[numpy.lexsort((-ids[rest], -near[rest]))]


def _kept(scope: SearchScope, ordered: Iterator[tuple[float, int]]) -> list[tuple[float, int]]:
    """The nearest entries that count."""
    found: list[tuple[float, int]] = []
    while page := list(islice(ordered, NEAREST)):
        kept = set(scope.kept([id for _, id in page]))
        found += [(value, id) for value, id in page if id in kept]
        if len(found) >= NEAREST:
            break
    return found[:NEAREST]


def _unit(vectors: NDArray[float32]) -> NDArray[float32]:
    import numpy

    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / numpy.where(lengths == 0, 1, lengths)).astype(numpy.float32)
