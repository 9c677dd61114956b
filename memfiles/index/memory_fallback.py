"""The stand-in: the same rows and texts in this process's memory, while the index's file cannot be used by it.

The rule this file guards: what it says is what the records say at the moment of the question; every file is compared
with its row first, so that nothing which others wrote, or this process has not noted yet, is missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from memfiles.index.catch_up import CatchingUp, differing
from memfiles.index.schema import TABLES
from memfiles.storage.derived_database import DerivedDatabase

T = TypeVar("T")


class StandIn:
    """Rows and texts that nobody else sees; the caller sees to it that one thread uses it at a time."""

    def __init__(
        self, descriptor: int, catching_up: CatchingUp, *, prepare: Callable[[sqlite3.Connection], None]
    ) -> None:
        """``descriptor`` is the directory's; ``prepare`` makes tables beside those of the rows."""
        self._descriptor = descriptor
        self._catching_up = catching_up
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None

    def ask(self, work: Callable[[sqlite3.Connection], T], *, begin: DerivedDatabase) -> T:
        """What ``work`` comes to; ``begin`` is what the rows are copied from where it can be read."""
        connection = self._current(begin)
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("COMMIT")

    def drop(self) -> None:
        """Let go of the memory; the next question begins anew."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _current(self, begin: DerivedDatabase) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._made(begin)
        connection = self._connection
        paths = list(differing(connection, self._descriptor, []))
        connection.execute("BEGIN")
        try:
            self._catching_up.look(connection, paths)
            connection.execute("COMMIT")
        except BaseException:
            self.drop()
            raise
        return connection

    def _made(self, begin: DerivedDatabase) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        if not begin.copy_into(connection):
            for statement in TABLES:
                connection.execute(statement)
            self._prepare(connection)
        return connection
