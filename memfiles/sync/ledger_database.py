"""The small database under the notes on a mirror: opened when it is needed, started over when it is damaged.

The rule this file guards: what may have suffered in a power cut, or is of another mirror, is not believed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memfiles.errors import StorageFailed
from memfiles.storage.boot_id import boot
from memfiles.storage.fork_safety import renew_in_child

PATH = ".state/mirror.sqlite"
_FORMAT = 1
_PATIENCE_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS note (
    path TEXT PRIMARY KEY, version TEXT, digest TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER,
    body BLOB, sent BLOB, sent_version TEXT, redacted INTEGER NOT NULL DEFAULT 0
);
"""
Run = Callable[..., sqlite3.Cursor]  # one statement of a transaction, with its values
_left_to_parents: list[sqlite3.Connection] = []  # closing one in a child could undo what its parent is writing


class NotesDatabase:
    """The database of one directory and one mirror. Threads and processes may share it."""

    def __init__(self, directory: Path, *, mirror: str) -> None:
        """``mirror`` names the mirror: what was noted of another one is dropped."""
        self._path = directory / PATH
        self._mirror = mirror
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        renew_in_child(self, NotesDatabase._leave_to_parent)

    def close(self) -> None:
        """Let go of the database, on the disk as it is. May be called again."""
        with self._turn:
            connection, self._connection, self._is_closed = self._connection, None, True
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("UPDATE meta SET value = NULL WHERE key = 'boot'")
                connection.close()

    @contextmanager
    def change(self) -> Iterator[Run]:
        """One transaction. A damaged database is replaced by an empty one; a full or failing disk is an error."""
        with self._turn, failures():
            try:
                with self._transaction() as run:
                    yield run
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                self._start_over()
                raise

    def rewrite(self) -> None:
        """Write the file anew, without what lies between the rows: ``secure_delete`` misses what was once moved."""
        with self._turn, failures():
            self._opened().execute("VACUUM")

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'boot' AND value IS NULL", (boot(),))
            yield lambda statement, *values: connection.execute(statement, values)
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        if self._is_closed:
            raise StorageFailed("the notes on the mirror are closed")
        if self._connection is None:
            try:
                self._connection = self._open()
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                self._start_over()
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        connection = connect(self._path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables, and empty them if their notes are of another mirror or may have met a power cut."""
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, _FORMAT):
            for table in ("meta", "note"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        if meta.get("mirror") != self._mirror or meta.get("boot") not in (None, boot()):
            connection.execute("DELETE FROM note")
            connection.execute("DELETE FROM meta WHERE key IN ('last_error', 'entries_fetched')")
        connection.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("mirror", self._mirror), ("boot", boot())]
        )
        connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def _start_over(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        for name in (self._path, Path(f"{self._path}-journal")):
            name.unlink(missing_ok=True)

    def _leave_to_parent(self) -> None:
        """In the child of a fork: another thread may have been in the middle of a transaction."""
        self._turn = threading.Lock()
        if self._connection is not None:
            _left_to_parents.append(self._connection)
            self._connection = None


def connect(path: Path, *, mode: str = "rwc") -> sqlite3.Connection:
    """A connection of its own; what is deleted is overwritten in the file. ``mode`` rw: only if the file is there."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    settings: dict[str, Any] = {"timeout": _PATIENCE_SECONDS, "isolation_level": None, "check_same_thread": False}
    connection: sqlite3.Connection = sqlite3.connect(uri, uri=True, **settings)
    for pragma in ("journal_mode = DELETE", "synchronous = OFF", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


@contextmanager
def failures() -> Iterator[None]:
    """Map what the database or the system refuses to ``StorageFailed``."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageFailed(f"the notes on the mirror ({PATH}) cannot be used: {error}") from error


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is no database, or no sound one: it can only be started over."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
