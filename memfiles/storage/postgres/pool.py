"""The pool of connections to PostgreSQL, and connections that are given up when no answer comes.

The rule this file guards: whatever an interrupt (Ctrl-C) ends, wherever it comes, costs the pool no connection.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

_ANSWER_SECONDS = 70.0
_LOOK_SECONDS = 0.05  # after which a wait for a connection looks for a place that an interrupt left free
_IDLE_SECONDS, _OLDEST_SECONDS = 600.0, 3600.0  # a connection is closed that was unused for so long, or is so old
_BINARY = 1


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is given up if an answer does not come in time: the server hangs, or what is in between."""

    answers_within: float | None = _ANSWER_SECONDS
    place: object = None
    """Its place in the pool, which is free once nothing refers to it."""
    made_at = used_at = 0.0

    def __del__(self, *_: object) -> None:
        """Nothing to say: it ends with the program, or with the call that an interrupt ended."""

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """See ``Connection.wait``; ``OperationalError`` after ``answers_within`` seconds."""
        if self.answers_within is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_until(gen, time.monotonic() + self.answers_within), *args, **options)
        except TimeoutError as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.answers_within:g} s") from error

    def call(self, query: bytes, values: Sequence[bytes | str | None], types: Sequence[int]) -> bytes | None:
        """The one value that a statement returns; all values are in PostgreSQL's binary form.

        That is a third of what ``execute`` takes of the processor. Nothing is prepared, see above.
        """
        given = [self._encoded(value) if isinstance(value, str) else value for value in values]
        self.pgconn.send_query_params(query, given, types, [_BINARY] * len(given), _BINARY)
        result = self.wait(generators.execute(self.pgconn))[0]
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(result, encoding=self.info.encoding)
        value: bytes | None = result.get_value(0, 0)
        return value

    def _encoded(self, text: str) -> bytes:
        return text.encode("ascii" if text.isascii() else self.info.encoding)


def _until(gen: PQGen[Any], deadline: float) -> PQGen[Any]:
    """A generator of psycopg, which gets 0 when nothing came in a tenth of a second, up to a time."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                raise TimeoutError
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class _PoolPlace:
    """The place that a connection takes in a pool, as long as it exists."""


class Pool:
    """At most ``limit`` connections, each lent to one thread at a time; who waits first is served first.

    A pool that counts what it lent is one short for every call that an interrupt (Ctrl-C) ends at the wrong moment, and
    psycopg's has conditions that one leaves locked. Here a connection that nobody has any more is not counted.
    """

    def __init__(self, connect: Callable[[], TimedConnection], *, limit: int) -> None:
        self._connect, self._limit = connect, limit
        self._idle = deque[TimedConnection]()
        self._waiting = deque[SimpleQueue[TimedConnection]]()
        self._places, self._counting = WeakSet[_PoolPlace](), threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._places)

    def take(self, seconds: float) -> TimedConnection:
        """A connection; ``OperationalError`` if all are in use for so long, or none can be made."""
        with suppress(IndexError):
            return self._idle.pop()
        deadline, turn = time.monotonic() + seconds, SimpleQueue[TimedConnection]()
        self._waiting.append(turn)
        try:
            while True:
                with suppress(IndexError):
                    return self._idle.pop()
                if (place := self._free_place()) is not None:
                    try:
                        connection = self._connect()
                    except BaseException:
                        del place  # else it is taken as long as anybody keeps the error
                        raise
                    connection.place, connection.made_at = place, time.monotonic()
                    return connection
                if (left := deadline - time.monotonic()) <= 0:
                    raise psycopg.OperationalError(f"all {self._limit} connections of the pool are in use")
                with suppress(Empty):
                    return turn.get(timeout=min(left, _LOOK_SECONDS))
        finally:
            with suppress(ValueError):
                self._waiting.remove(turn)
            with suppress(Empty):
                self.give(turn.get_nowait())

    def give(self, connection: TimedConnection) -> None:
        """Take a connection back; what was not committed is rolled back."""
        now, found = time.monotonic(), pq.TransactionStatus
        if connection.info.transaction_status in (found.INTRANS, found.INERROR):
            with suppress(psycopg.Error):
                connection.rollback()
        connection.used_at, is_young = now, now - connection.made_at < _OLDEST_SECONDS
        if self._is_closed or not is_young or connection.info.transaction_status != found.IDLE:
            connection.close()
            connection.place = None
        else:
            try:
                self._waiting.popleft().put(connection)
            except IndexError:
                self._idle.append(connection)
        with suppress(IndexError):
            while self._is_closed or now - self._idle[0].used_at > _IDLE_SECONDS:
                self._idle.popleft().close()

    def close(self) -> None:
        """Close the connections; those in use are closed when they are given back."""
        self._is_closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _free_place(self) -> _PoolPlace | None:
        with self._counting:
            if len(self._places) >= self._limit:
                return None
            self._places.add(place := _PoolPlace())
            return place
