"""The database file of the index: opened when it is needed, started over when it cannot be trusted.

The rules this file guards: what may have suffered in a power cut is not believed; nothing foreign that lies in its
place is followed or read; and a child of a fork leaves the parent's connection alone.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from memfiles.index.schema import FORMAT, TABLES
from memfiles.index.unusable import IndexUnusable
from memfiles.storage import descriptors
from memfiles.storage.boot_id import boot

PATH = ".state/index.sqlite"
_SIDE_FILES = (f"{PATH}-wal", f"{PATH}-shm", f"{PATH}-journal")
_PATIENCE_SECONDS = 3.0  # what nobody can be kept waiting for: a stand-in answers then
_COPY_SECONDS = 0.2
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOST = {
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
}
_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PRAGMAS = (
    *("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON", "temp_store = MEMORY"),
    "cache_size = -16384",  # KiB, at most
)
_left_to_parents: list[sqlite3.Connection] = []  # closing one in a child could undo what its parent is writing


class Lost(Exception):
    """The database is damaged, gone or replaced: it can only be started over."""


class Database:
    """One connection to the index of one directory. The caller sees to it that one thread uses it at a time."""

    def __init__(self, directory: Path, descriptor: int, *, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """``descriptor`` is the directory's; ``prepare`` makes tables beside those of the rows."""
        self._directory = directory
        self._descriptor = descriptor
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._is_marked = False  # that it is written in this boot, and may suffer in a power cut

    @property
    def is_current(self) -> bool:
        """Whether the connection is to the file that lies at the path now."""
        return self._connection is not None and self._inode_at_path() == self._inode

    def connection(self) -> sqlite3.Connection:
        """The connection, opened if need be. ``Lost`` when what is there cannot be used."""
        if self._connection is None or self._inode_at_path() != self._inode:
            self.close()
            with failures():
                self._connection = self._open()
        return self._connection

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        connection = self.connection()
        with failures():
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._is_marked:
                    connection.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (boot(),))
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._is_marked = True

    def settle(self) -> None:
        """Have everything on the disk, so that it can be trusted after a power cut; nobody else uses the database."""
        connection = self.connection()
        with failures():
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("DELETE FROM meta WHERE key = 'boot'")
            self._is_marked = False
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def compact(self) -> bool:
        """Write the file anew, so that it holds nothing that was deleted; False if someone is reading just now."""
        connection = self.connection()
        with failures():
            try:
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if _code(error) not in _HELD:
                    raise
                return False
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)

    def copy_into(self, target: sqlite3.Connection) -> bool:
        """Have in ``target`` all that can be read here while it cannot be written; False if that is nothing."""
        try:
            with closing(_connect(self._directory / PATH, patience=_COPY_SECONDS)) as source:
                is_ours = source.execute("PRAGMA user_version").fetchone()[0] == FORMAT
                if is_ours and self._is_of_this_boot(source):
                    source.backup(target)
                    return True
        except sqlite3.Error:
            pass  # it is held by someone who lets nobody read, or it is damaged
        return False

    def close(self) -> None:
        """Let go of the file, on the disk as it is."""
        connection, self._connection, self._is_marked = self._connection, None, False
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def start_over(self) -> None:
        """Remove the file, whatever it is; the next use makes an empty one."""
        self.close()
        try:
            for path in (PATH, *_SIDE_FILES):
                descriptors.remove(self._descriptor, path)
        except OSError as error:
            raise IndexUnusable(f"the index ({PATH}) cannot be replaced: {error.strerror}") from error

    def leave_to_parent(self) -> None:
        """In the child of a fork: the parent may be in the middle of a transaction."""
        if self._connection is not None:
            _left_to_parents.append(self._connection)
            self._connection = None
        self._is_marked = False

    def _inode_at_path(self) -> int:
        try:
            return os.stat(PATH, dir_fd=self._descriptor, follow_symlinks=False).st_ino
        except OSError:
            return 0

    def _open(self) -> sqlite3.Connection:
        self._make_file()
        connection = _connect(self._directory / PATH)
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._make_tables(connection)
            connection.execute("COMMIT")
            self._inode = self._inode_at_path()
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """Have a regular file at the path, made by nobody's umask and through no link.

        One that is there is not opened: closing it would take this process's locks from SQLite.
        """
        descriptors.make_folder(self._descriptor, ".state")
        try:
            found = os.stat(PATH, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            for path in _SIDE_FILES:
                descriptors.remove(self._descriptor, path)
            with suppress(FileExistsError):
                os.close(os.open(PATH, _NEW, 0o600, dir_fd=self._descriptor))
            return
        if not stat.S_ISREG(found.st_mode):
            raise Lost(f"{PATH} is no file")

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file; an older one must have ours, and none that may have met a power cut."""
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in TABLES:
                connection.execute(statement)
            self._prepare(connection)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif found != FORMAT:
            raise Lost("the index is of another version")
        if not self._is_of_this_boot(connection):
            raise Lost("the index was in use when the machine went down")

    def _is_of_this_boot(self, connection: sqlite3.Connection) -> bool:
        written = connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
        return written is None or written[0] == boot()


@contextmanager
def failures() -> Iterator[None]:
    """Tell a database that is lost from one that cannot be used now, which is ``IndexUnusable``."""
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.DatabaseError) and (_code(error) in _LOST or _lacks_table(error)):
            raise Lost(str(error)) from error
        if _code(error) in _HELD:
            raise IndexUnusable(
                f"the index ({PATH}) is held by another process: {error}; try again when that is over"
            ) from error
        raise IndexUnusable(f"the index ({PATH}) cannot be used: {error}") from error
    except OSError as error:
        raise IndexUnusable(f"the index ({PATH}) cannot be used: {error}") from error


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _lacks_table(error: sqlite3.Error) -> bool:
    return _code(error) == sqlite3.SQLITE_ERROR and str(error).startswith("no such table")


def _connect(path: Path, *, patience: float = _PATIENCE_SECONDS) -> sqlite3.Connection:
    """A connection of its own; nothing that is deleted stays in the file, and no temporary file is made.

    With the usual cache of 2 MB a search among 10,000 entries reads most pages anew, and takes a tenth longer.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    settings: dict[str, Any] = {"timeout": patience, "isolation_level": None, "check_same_thread": False}
    connection: sqlite3.Connection = sqlite3.connect(uri, uri=True, cached_statements=256, **settings)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection
