"""What the mirror last acknowledged of each record: one small database, shared by all processes on a directory.

The rules this file guards: it is derived, so that losing it costs requests and never a word; what may have suffered
in a power cut is not believed; and after a redaction it holds no earlier text of that record, however late an
acknowledgement comes in.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfiles.atomic import Signature
from memfiles.errors import StorageFailed
from memfiles.forking import renew_in_child
from memfiles.mirror import Stored

PATH = ".state/mirror.sqlite"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FORMAT = 1
_PATIENCE_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS note (
    path TEXT PRIMARY KEY, version TEXT, digest TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER,
    body BLOB, sent BLOB, sent_version TEXT, redacted INTEGER NOT NULL DEFAULT 0
);
"""
_SIGNATURES = "SELECT path, inode, size, mtime_ns FROM note WHERE inode IS NOT NULL AND sent IS NULL"
_DIGESTS = "SELECT path, digest FROM note WHERE digest IS NOT NULL AND sent IS NULL"
Run = Callable[..., sqlite3.Cursor]  # one statement of a transaction, with its values
_left_to_parents: list[sqlite3.Connection] = []  # closing one in a child could undo what its parent is writing


@dataclass(frozen=True, slots=True)
class Sent:
    """What was put into the mirror without an answer so far, on top of which version (None: where nothing was)."""

    body: bytes
    version: str | None


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of one record's copy in the mirror.

    ``version`` and ``body`` are the mirror's (None: not known, or not there); ``digest`` and ``signature`` are those of
    the local record that needs no push any more, None if it does. ``is_redacted``: the mirror may hold what was taken
    out of the local record.
    """

    version: str | None = None
    digest: str | None = None
    signature: Signature | None = None
    body: bytes | None = None
    sent: Sent | None = None
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A copy that the mirror is known to hold, of a record at ``revision``; the rest as in ``Note``."""

    path: str
    version: str
    body: bytes
    revision: int
    digest: str | None = None
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """What a look from outside finds: by path what needs no push, and what last went wrong."""

    signatures: Mapping[str, Signature]
    digests: Mapping[str, str]
    last_error: str | None


class Bookkeeping:
    """The notes on one directory and one mirror. Threads and processes may share them."""

    def __init__(self, directory: Path, *, mirror: str) -> None:
        """``mirror`` names the mirror: what was noted of another one counts for nothing here."""
        self._path = directory / PATH
        self._mirror = mirror
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        renew_in_child(self, Bookkeeping._leave_to_parent)

    def origin(self) -> str:
        """The random id of this directory, by which its changes are told from those of others: 12 hex digits."""
        with self._change() as run:
            run("INSERT OR IGNORE INTO meta VALUES ('origin', ?)", secrets.token_hex(6))
            return str(run("SELECT value FROM meta WHERE key = 'origin'").fetchone()[0])

    def find(self, path: str) -> Note:
        """What is noted of the record at ``path``; an empty note if nothing is."""
        with self._change() as run:
            row = run(
                "SELECT version, digest, inode, size, mtime_ns, body, sent, sent_version, body IS NULL AND redacted > 0"
                " FROM note WHERE path = ?",
                path,
            ).fetchone()
        if row is None:
            return Note()
        version, digest, inode, size, mtime_ns, body, sent, sent_version, is_redacted = row
        signature = Signature(inode, size, mtime_ns) if inode is not None else None
        on_its_way = Sent(sent, sent_version) if sent is not None else None
        return Note(version, digest, signature, body, on_its_way, bool(is_redacted))

    def signatures(self) -> dict[str, Signature]:
        """By path, the files that were seen to need no push."""
        with self._change() as run:
            return {path: Signature(*signature) for path, *signature in run(_SIGNATURES)}

    def digests(self) -> dict[str, str]:
        """By path, the digest of the local record that needs no push."""
        with self._change() as run:
            return dict(run(_DIGESTS).fetchall())

    def copies(self) -> Iterator[tuple[str, Stored]]:
        """Every copy that the mirror is known to hold, by path."""
        with self._change() as run:
            paths = [row[0] for row in run("SELECT path FROM note WHERE version IS NOT NULL AND body IS NOT NULL")]
        for path in paths:
            note = self.find(path)
            if note.version is not None and note.body:
                yield path, Stored(note.body, note.version)

    def unpacked(self) -> int:
        """How many copies were acknowledged since the last pack."""
        with self._change() as run:
            found = run("SELECT value FROM meta WHERE key = 'unpacked'").fetchone()
            return int(found[0]) if found else 0

    def forget_redaction(self, path: str) -> None:
        """The record was put back as it was before its redaction: it may be pushed like any other."""
        with self._change() as run:
            run("UPDATE note SET redacted = 0 WHERE path = ?", path)

    def redactions(self) -> int:
        """How many redactions there have been."""
        with self._change() as run:
            found = run("SELECT value FROM meta WHERE key = 'redactions'").fetchone()
            return int(found[0]) if found else 0

    def must_remove_pack(self) -> bool:
        """Whether the mirror's pack may hold what was taken out of a record since it was last removed."""
        with self._change() as run:
            rows = dict(run("SELECT key, value FROM meta WHERE key IN ('redactions', 'redactions_unpacked')"))
            return int(rows.get("redactions", 0)) > int(rows.get("redactions_unpacked", 0))

    def pack_is_removed(self) -> None:
        """The mirror's pack is gone."""
        with self._change() as run:
            run("INSERT OR REPLACE INTO meta SELECT 'redactions_unpacked', value FROM meta WHERE key = 'redactions'")

    def packed(self, count: int) -> None:
        """A pack was written that holds ``count`` of the copies that were not yet in one."""
        with self._change() as run:
            run("UPDATE meta SET value = max(0, value - ?) WHERE key = 'unpacked'", count)

    def versions(self) -> dict[str, str]:
        """By path, the version that the mirror was last known to hold."""
        with self._change() as run:
            return dict(run("SELECT path, version FROM note WHERE version IS NOT NULL").fetchall())

    def sending(self, path: str, body: bytes, *, version: str | None, revision: int) -> bool:
        """Note what is about to be put, so that it is known later whatever becomes of the answer.

        False: the record was redacted meanwhile, and this must not be sent.
        """
        with self._change() as run:
            run("INSERT OR IGNORE INTO note (path) VALUES (?)", path)
            statement = "UPDATE note SET sent = ?, sent_version = ? WHERE path = ? AND redacted <= ?"
            return run(statement, body, version, path, revision).rowcount == 1

    def acknowledge(self, *copies: Acknowledged) -> None:
        """The mirror is known to hold these copies; nothing is on its way any more."""
        with self._change() as run:
            run("INSERT OR IGNORE INTO meta VALUES ('unpacked', 0)")
            run("UPDATE meta SET value = value + ? WHERE key = 'unpacked'", len(copies))
            run("UPDATE meta SET value = NULL WHERE key = 'last_error'")
            for copy in copies:
                run("INSERT OR IGNORE INTO note (path) VALUES (?)", copy.path)
                run(
                    "UPDATE note SET version = ?, digest = ?, inode = ?, size = ?, mtime_ns = ?, sent = NULL,"
                    " sent_version = NULL, body = CASE WHEN redacted > ? THEN NULL ELSE ? END WHERE path = ?",
                    copy.version,
                    copy.digest,
                    *(copy.signature or (None, None, None)),
                    copy.revision,
                    copy.body,
                    copy.path,
                )

    def gone(self, path: str) -> None:
        """The mirror holds no copy: the local record is to be put there again."""
        with self._change() as run:
            run("UPDATE note SET version = NULL, digest = NULL, inode = NULL, sent = NULL WHERE path = ?", path)

    def note_error(self, what: str | None) -> None:
        """What last went wrong, for whoever looks from outside; None, or an acknowledgement, takes it back."""
        with self._change() as run:
            run("INSERT OR REPLACE INTO meta VALUES ('last_error', ?)", what)

    def settle(self, signatures: Mapping[str, Signature]) -> None:
        """The files with these signatures hold what needs no push."""
        with self._change() as run:
            for path, signature in signatures.items():
                run("UPDATE note SET inode = ?, size = ?, mtime_ns = ? WHERE path = ?", *signature, path)

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
    def _change(self) -> Iterator[Run]:
        """One transaction. A damaged database is replaced by an empty one; a full or failing disk is an error."""
        with self._turn, _failures():
            try:
                with self._transaction() as run:
                    yield run
            except sqlite3.DatabaseError as error:
                if not _is_damaged(error):
                    raise
                self._start_over()
                raise

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'boot' AND value IS NULL", (_boot(),))
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
                if not _is_damaged(error):
                    raise
                self._start_over()
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        connection = _connect(self._path)
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
        if meta.get("mirror") != self._mirror or meta.get("boot") not in (None, _boot()):
            connection.execute("DELETE FROM note")
            connection.execute("DELETE FROM meta WHERE key = 'last_error'")
        connection.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("mirror", self._mirror), ("boot", _boot())]
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


def peek(directory: Path, *, mirror: str) -> Noted:
    """The notes as a look from outside finds them: nothing is made or changed, and no other mirror's count."""
    try:
        with contextlib.closing(_connect(directory / PATH, mode="rw")) as connection:
            meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
            if meta.get("mirror") == mirror and meta.get("boot") in (None, _boot()):
                signatures = {path: Signature(*there) for path, *there in connection.execute(_SIGNATURES)}
                return Noted(signatures, dict(connection.execute(_DIGESTS).fetchall()), meta.get("last_error"))
    except sqlite3.Error:
        pass  # there are none, or none that can be read
    return Noted({}, {}, None)


def scrub(directory: Path, path: str, *, revision: int) -> None:
    """Keep no text of the record at ``path`` from before ``revision`` in the notes, ever; durable on return.

    Notes that cannot be read are removed: they may hold anything.
    """
    with _failures():
        if not (directory / PATH).exists():
            return
        try:
            _scrub(directory / PATH, path, revision=revision)
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            for name in (directory / PATH, directory / f"{PATH}-journal"):
                name.unlink(missing_ok=True)


def _scrub(database: Path, path: str, *, revision: int) -> None:
    with contextlib.closing(_connect(database)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT OR IGNORE INTO note (path) VALUES (?)", (path,))
        connection.execute("UPDATE note SET body = NULL, sent = NULL, redacted = ? WHERE path = ?", (revision, path))
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('redactions', 0)")
        connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'redactions'")
        connection.execute("COMMIT")


def _connect(path: Path, *, mode: str = "rwc") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    settings: dict[str, Any] = {"timeout": _PATIENCE_SECONDS, "isolation_level": None, "check_same_thread": False}
    connection: sqlite3.Connection = sqlite3.connect(uri, uri=True, **settings)
    for pragma in ("journal_mode = DELETE", "synchronous = OFF", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageFailed(f"the notes on the mirror ({PATH}) cannot be used: {error}") from error


def _is_damaged(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _boot() -> str:
    """What is another after every start of the machine; the same for ever where the system does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return "unknown"
