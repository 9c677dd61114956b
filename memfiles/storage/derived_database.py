"""SQLite files that may be lost at any time, because they are derived: the search index and the mirror ledger.

The rules this file guards: a file that may have suffered in a power cut is not trusted; nothing foreign at its path is
followed or read; the file is private (mode 0600); and a forked child leaves its parent's connection alone.

No transaction is flushed, as that would cost more than a rebuild after a rare power cut. Instead, each transaction
marks the file with the machine's boot id, and ``settle`` flushes the file and clears the mark. A file with another boot
id was in use when the machine went down.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from memfiles.errors import StorageFailed, reason_of
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, storage_failure

if TYPE_CHECKING:
    from memfiles.storage.home import Turns

DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SIDE_FILES = ("-wal", "-shm", "-journal")
_COPY_SECONDS = 0.2
_MAPPED_BYTES = 4096
_ROOM_BYTES = 1 << 20  # free on the disk, below which the write-ahead log is removed
_IDENTITY = ".state/identity"
_GET_VERSION = 0x80087601  # FS_IOC_GETVERSION, of ext4, XFS and btrfs
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MARK = (
    "INSERT INTO meta (key, value) VALUES ('boot', ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value"
)
_left_to_parents: list[sqlite3.Connection] = []  # closing one in a child could undo what its parent is writing


class DatabaseLost(StorageFailed):
    """The database is damaged, gone or replaced, or cannot be trusted: it can only be started over."""


class DerivedFile(Struct, frozen=True):
    """A kind of derived database.

    ``path`` is relative to the memory directory, ``title`` names the database in messages, ``format`` is its
    ``user_version``. ``tables`` are the statements that fill an empty file; one makes ``meta (key, value)``.
    ``journal_mode`` is SQLite's. ``lost_codes`` are the SQLite errors after which it must be started
    over; any other failure is ``unusable``. ``patience_seconds`` is how long to wait while another process holds it.
    """

    path: str
    title: str
    format: int
    tables: tuple[str, ...]
    journal_mode: Literal["WAL", "DELETE"]
    pragmas: tuple[str, ...]
    patience_seconds: float
    lost_codes: frozenset[int] = DAMAGED
    unusable: type[StorageFailed] = StorageFailed

    def connect(self, directory: Path, *, patience: float | None = None) -> sqlite3.Connection:
        """Open a new connection to the file, which must exist; ``patience`` is in seconds."""
        uri = f"{(directory / self.path).absolute().as_uri()}?mode=rw"
        seconds = self.patience_seconds if patience is None else patience
        settings: dict[str, Any] = {"timeout": seconds, "isolation_level": None, "check_same_thread": False}
        connection: sqlite3.Connection = sqlite3.connect(uri, uri=True, cached_statements=256, **settings)
        try:
            for pragma in (*self._journaling(directory), *self.pragmas):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:  # the error would keep it open, perhaps with an exclusive lock
            connection.close()
            raise
        return connection

    def create_tables(self, connection: sqlite3.Connection) -> None:
        """Create the tables of an empty database."""
        for statement in self.tables:
            connection.execute(statement)

    def _journaling(self, directory: Path) -> tuple[str, ...]:
        """The pragmas for the journal.

        SQLite maps the index of a write-ahead log into memory, and reserves one byte in each 4 KiB of it. Smaller
        blocks leave holes, and the process dies of SIGBUS on a disk too full to fill them. There the journal is a file
        (a save and a search take 2 to 20 % longer); exclusive locking converts an older database without a mapping.
        """
        if self.journal_mode == "WAL" and os.statvfs((directory / self.path).parent).f_frsize < _MAPPED_BYTES:
            return ("locking_mode = EXCLUSIVE", "journal_mode = TRUNCATE", "locking_mode = NORMAL")
        return (f"journal_mode = {self.journal_mode}",)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Map errors of SQLite and the system to ``DatabaseLost`` or to the class for an unusable database."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            what, why = f"{self.title} ({self.path})", f"cannot be used: {reason_of(error)}"
            lacks_table = _code(error) == sqlite3.SQLITE_ERROR and str(error).startswith("no such table")
            if isinstance(error, sqlite3.DatabaseError) and (_code(error) in self.lost_codes or lacks_table):
                raise DatabaseLost(f"{what} {why}") from error
            if _code(error) in _HELD:
                why = f"is locked by another process: {error}; try again later"
            raise self.unusable(f"{what} {why}") from error


class DerivedDatabase:
    """One connection to a derived database. The caller ensures that one thread at a time uses it."""

    def __init__(
        self,
        file: DerivedFile,
        directory: Path,
        *,
        check: Callable[[sqlite3.Connection], None] | None = None,
        descriptor: int | None = None,
    ) -> None:
        """Nothing is opened yet; ``descriptor`` is that of the memory directory, None to create it.

        ``check`` gets every newly opened database of the right format; by default, one unsettled by another boot is
        lost.
        """
        self.file = file
        self._directory = directory
        self._descriptor = descriptor
        self._path = str((directory if descriptor is None else Path()) / file.path)  # for calls with the descriptor
        self._check = check
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @property
    def is_current(self) -> bool:
        """Whether the connection is open and leads to the file that is at the path now."""
        return self._connection is not None and self._inode_at_path() == self._inode

    def connection(self) -> sqlite3.Connection:
        """The connection, opened if needed, outside any transaction: one that was interrupted is rolled back.

        ``DatabaseLost`` if the file can only be started over.
        """
        if self._connection is None or self._inode_at_path() != self._inode:
            self.close()
            with self.file.failures():
                self._connection = self._open()
        elif self._connection.in_transaction:
            with self.file.failures():
                self._connection.execute("ROLLBACK")
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction, committed at the end of the block and rolled back if that raises."""
        connection = self.connection()
        with self.file.failures():
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_MARK, (boot_id(),))
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                    if isinstance(error, sqlite3.OperationalError):  # the disk may be full
                        self._leave_room(connection)
                raise
            self._leave_room(connection)

    def settle(self) -> None:
        """Flush everything and clear the boot mark, so that the file is trusted after a power cut."""
        connection = self.connection()
        with self.file.failures():
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("UPDATE meta SET value = NULL WHERE key = 'boot'")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def compact(self) -> bool:
        """Rewrite the file so that it holds nothing deleted; False if another process is reading it.

        ``secure_delete`` is not enough: a row that was moved to another page has left its bytes in the first one.
        """
        connection = self.connection()
        with self.file.failures():
            try:
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if _code(error) not in _HELD:
                    raise
                return False
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)

    def copy_into(self, target: sqlite3.Connection) -> bool:
        """Copy everything into ``target``, even while others hold the file; False if it cannot be read or trusted."""
        try:
            with closing(self.reading()) as source:
                source.backup(target)
                return True
        except (sqlite3.Error, OSError, DatabaseLost):
            return False  # its holder allows no reads, or it is damaged

    def reading(self) -> sqlite3.Connection:
        """A new connection that reads the file as it is now, whatever is written later; ``DatabaseLost``."""
        source = self.file.connect(self._directory, patience=_COPY_SECONDS)
        try:
            source.execute("BEGIN")
            is_ours = source.execute("PRAGMA user_version").fetchone()[0] == self.file.format
            if not (is_ours and _is_of_this_boot(source)):
                raise DatabaseLost(f"{self.file.title} cannot be trusted")
        except BaseException:
            source.close()
            raise
        return source

    def close(self) -> None:
        """Close the connection and leave the file as it is. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def start_over(self) -> None:
        """Remove whatever is at the path; the next use creates an empty database."""
        self.close()
        with storage_failure(f"{self.file.title} ({self.file.path}) cannot be replaced", self.file.unusable):
            for suffix in ("", *_SIDE_FILES):
                atomic.remove(self._descriptor, self._path + suffix)

    def leave_to_parent(self) -> None:
        """In a forked child: drop the connection unclosed, as the parent may be in the middle of a transaction."""
        if self._connection is not None:
            _left_to_parents.append(self._connection)
            self._connection = None

    def _leave_room(self, connection: sqlite3.Connection) -> None:
        """Empty the write-ahead log on a nearly full disk; if there is no room for that, remove the database.

        Records need that room: a log that fills the disk could never be written back, and would refuse every change.
        """
        if self.file.journal_mode != "WAL":
            return
        volume = os.statvfs(self._directory) if self._descriptor is None else os.fstatvfs(self._descriptor)
        if volume.f_bavail * volume.f_frsize >= _ROOM_BYTES:
            return
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            if _code(error) == sqlite3.SQLITE_FULL:
                self.start_over()
            raise

    def _inode_at_path(self) -> int:
        try:
            return os.stat(self._path, dir_fd=self._descriptor, follow_symlinks=False).st_ino
        except OSError:
            return 0

    def _open(self) -> sqlite3.Connection:
        self._make_file()
        connection = self.file.connect(self._directory)
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            connection.execute("COMMIT")
            self._inode = self._inode_at_path()
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """Ensure a regular file at the path, private whatever the umask, without following a link.

        An existing file is not opened: closing it would drop SQLite's locks on it in this process. A memory directory
        that was deleted while in use is not brought back.
        """
        folder = Path(self._path).parent
        if self._descriptor is None:
            folder.mkdir(mode=0o700, parents=not self._inode, exist_ok=True)
        else:
            atomic.make_folder(self._descriptor, str(folder))
        try:
            found = os.stat(self._path, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            for suffix in _SIDE_FILES:
                atomic.remove(self._descriptor, self._path + suffix)
            with suppress(FileExistsError):
                atomic.create(self._descriptor, self._path, b"", flush=False)
            return
        if not stat.S_ISREG(found.st_mode):
            raise DatabaseLost(f"{self.file.path} is not a regular file")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables of an empty file, and check whether an older one can be used."""
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self.file.create_tables(connection)
            connection.execute(f"PRAGMA user_version = {self.file.format}")
        elif found != self.file.format:
            raise DatabaseLost(f"{self.file.title} has another format")
        if self._check is not None:
            self._check(connection)
        elif not _is_of_this_boot(connection):
            raise DatabaseLost(f"{self.file.title} was in use when the machine went down")


@cache
def boot_id() -> str:
    """The id of the machine's current boot; always the same where the system has none."""
    try:
        return _BOOT_ID.read_text("utf-8").strip()
    except OSError:
        return "unknown"


def _is_of_this_boot(connection: sqlite3.Connection) -> bool:
    marked = connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
    return marked is None or marked[0] in (None, boot_id())


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class MirrorFiles(Struct, frozen=True):
    """The ledger of a memory directory's mirror, in files of the directory; see ``MirrorSide``."""

    directory: Path

    def database(self, file: DerivedFile, check: Callable[[Any], None] | None = None) -> DerivedDatabase:
        return DerivedDatabase(file, self.directory, check=check)

    @contextmanager
    def peeking(self, file: DerivedFile) -> Iterator[sqlite3.Connection | None]:
        try:
            connection = file.connect(self.directory)
        except sqlite3.Error:
            yield None
            return
        with closing(connection):
            yield connection

    def scrub_database(self, file: DerivedFile, work: Callable[[Any], None]) -> None:
        """See ``MirrorSide``; one that cannot be read is replaced, as it may hold anything."""
        with file.failures():
            if not (self.directory / file.path).exists():
                return
        try:
            with file.failures(), closing(file.connect(self.directory)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                work(connection)
                connection.execute("COMMIT")
                connection.execute("VACUUM")  # a row that was once moved to another page left its bytes in the first
        except DatabaseLost:
            (database := self.database(file)).start_over()
            with database.transaction() as connection:
                work(connection)
            database.settle()
            database.close()

    def turns(self, folder: str) -> Turns:
        from memfiles.storage.locks import RecordLocks  # late: an index needs none

        return RecordLocks(Descriptor.of_directory(self.directory), timeout=0.0, folder=folder)

    def identity(self) -> str:
        """See ``MirrorSide``: inode and generation of a file. A copy has another generation, even in a reused inode.

        Where a file system tells no generation, it is the time of the file's last change, which no copy can have. To
        set the mode or owner, or to make a hard link, changes that time as well, and the memory gets a new id.
        """
        root = Descriptor.of_directory(self.directory)
        file = os.open(_IDENTITY, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
        try:
            found = os.fstat(file)
            generation = fcntl.ioctl(file, _GET_VERSION, bytes(8))[:4]
        except OSError:
            return str(found.st_ctime_ns)
        finally:
            os.close(file)
        return f"{found.st_ino} {generation.hex()}"

    def leading(self) -> AbstractContextManager[object]:
        """See ``MirrorSide``: processes take turns record by record."""
        return nullcontext()
