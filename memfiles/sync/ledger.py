"""The sync ledger: what the mirror last acknowledged of each record, in one database shared by all processes.

The rules this file guards: it is derived, so losing it costs requests and never data; rows that may have been damaged
by a power cut are not believed; a version counts only while the keys that its object was opened with are held; and
after a redaction it holds no earlier text of that record, however late an acknowledgement arrives.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Literal

from msgspec import Struct

from memfiles.errors import StorageFailed
from memfiles.records import late_logger as _log
from memfiles.records.keys import ENTRIES
from memfiles.storage.atomic import Signature
from memfiles.storage.derived_database import DatabaseLost, DerivedDatabase, DerivedFile, boot_id
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.home import MemoryPlace, home_of
from memfiles.sync.mirror import Stored

Run = Callable[..., Any]  # one statement of a transaction, with its values
PATH = ".state/mirror.sqlite"
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)",
    """
    CREATE TABLE note (
        path TEXT PRIMARY KEY, version TEXT, digest TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER,
        body BLOB, sent BLOB, sent_version TEXT, redacted INTEGER NOT NULL DEFAULT 0
    )
    """,
)
_FILE = DerivedFile(
    path=PATH,
    title="the notes on the mirror",
    format=1,
    tables=_TABLES,
    journal_mode="DELETE",
    pragmas=("synchronous = OFF", "secure_delete = ON"),
    patience_seconds=10.0,
)
_ROW = "SELECT version, digest, body, sent, sent_version FROM note WHERE path = ?"
_NOTE_PATH = "INSERT INTO note (path) VALUES (?) ON CONFLICT DO NOTHING"
_NOTE_FIRST = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING"
_NOTE = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_META = "SELECT key, value FROM meta WHERE true"
_NUMBER = "CAST(value AS INTEGER)"
_SIGNATURES = "SELECT path, inode, size, mtime_ns FROM note WHERE inode IS NOT NULL AND sent IS NULL"
_DIGESTS = "SELECT path, digest FROM note WHERE digest IS NOT NULL AND sent IS NULL"
_IS_SOLVED = "UPDATE meta SET value = NULL WHERE key = 'last_error' AND substr(value, 1, length(?)) = ?"
_BETWEEN = " AND path >= ? AND path < ?"
_COPIES = "SELECT path, body, version FROM note WHERE version IS NOT NULL AND length(body) > 0 AND path > ?"
_COPIES_AT_ONCE = 500
_REMOVED = "redactions_unpacked"  # how many redactions there had been when the pack was removed, or its copies read


class UnansweredPut(Struct, frozen=True):
    """A put without an answer so far, and the version that it replaces (None: no copy)."""

    body: bytes
    version: str | None


class LedgerRow(Struct, frozen=True):
    """The state of one record's copy in the mirror.

    ``version`` and ``body`` are the mirror's (None: unknown, or no copy); a copy with an empty version must be read
    before it is replaced. ``digest`` is that of the local record that needs no push, None if it needs one.
    """

    version: str | None = None
    digest: str | None = None
    body: bytes | None = None
    sent: UnansweredPut | None = None


class Acknowledged(Struct, frozen=True):
    """A copy that the mirror has, of a record at ``revision``; ``body`` is None if it must not be kept."""

    path: str
    version: str
    body: bytes | None
    revision: int
    digest: str | None = None
    signature: Signature | None = None


class LedgerSnapshot(Struct, frozen=True):
    """The ledger as read from outside: by path what needs no push, the last error, and the mirror's shortcomings."""

    signatures: Mapping[str, Signature]
    digests: Mapping[str, str]
    last_error: str | None
    shortcomings: tuple[str, ...] | None = None


class Ledger:
    """The ledger of one directory and one mirror. Threads and processes may share it."""

    def __init__(self, where: MemoryPlace, *, mirror: str, keys: Callable[[], Iterable[str]] = tuple) -> None:
        """``mirror`` names the mirror: rows of another one do not count. ``keys`` gives the ids of its usable keys."""
        self._mirror = mirror
        self._keys = keys
        self._mirrored = home_of(where).mirrored
        self._database = self._mirrored.database(_FILE, self._drop_untrusted)
        self._turn = threading.Lock()
        self._is_closed = False
        self.meta = LedgerMeta(self._change, self._compact)
        renew_in_child(self, Ledger._leave_to_parent)

    def close(self) -> None:
        """Close the database. May be called again."""
        with self._turn:
            self._is_closed = True
            if self._database.is_current:
                with suppress(StorageFailed):
                    self._database.settle()
            self._database.close()

    def find(self, path: str) -> LedgerRow:
        """The row of the record at ``path``; an empty one if there is none."""
        with self._change() as run:
            version, digest, body, sent, sent_version = run(_ROW, path).fetchone() or [None] * 5
        return LedgerRow(version, digest, body, UnansweredPut(sent, sent_version) if sent is not None else None)

    def signatures(self, *, under: str = "") -> dict[str, Signature]:
        """By path, the files that need no push: those of a folder of entries, else the memory files."""
        with self._change() as run:
            return {path: Signature(*it) for ends in _ranges(under) for path, *it in run(_SIGNATURES + _BETWEEN, *ends)}

    def digests(self, *, under: str = "") -> dict[str, str]:
        """By path, the digest of the local record that needs no push; ``under`` as for ``signatures``."""
        with self._change() as run:
            return dict(row for ends in _ranges(under) for row in run(_DIGESTS + _BETWEEN, *ends))

    def copies(self) -> Iterator[tuple[str, Stored]]:
        """Every copy that the mirror has, by path; some hundred are in memory at a time."""
        rows: list[tuple[Any, ...]] = [("",)]
        while rows:
            with self._change() as run:
                rows = run(f"{_COPIES} ORDER BY path LIMIT {_COPIES_AT_ONCE}", rows[-1][0]).fetchall()
            yield from ((path, Stored(body, version)) for path, body, version in rows)

    def bury(self, path: str, *, revision: int) -> None:
        """Keep no text of the record at ``path`` from before ``revision``: it was forgotten or redacted elsewhere.

        The pack is removed, as after a redaction here; ``LedgerMeta.wipe`` does the rest.
        """
        with self._change() as run:
            _bury(run, path, revision=revision)
            run(_NOTE, "unwiped", "yes")

    def forget_redaction(self, path: str) -> None:
        """The record was restored as it was before its redaction: it may be pushed like any other."""
        with self._change() as run:
            run("UPDATE note SET redacted = 0 WHERE path = ?", path)

    def versions(self) -> dict[str, str]:
        """By path, the version that the mirror was last known to have."""
        with self._change() as run:
            return dict(run("SELECT path, version FROM note WHERE version IS NOT NULL").fetchall())

    def sending(self, path: str, body: bytes, *, version: str | None, revision: int) -> bool:
        """Note a put before it is sent, in case its answer is lost; False if the record was redacted meanwhile."""
        with self._change() as run:
            run(_NOTE_PATH, path)
            statement = "UPDATE note SET sent = ?, sent_version = ? WHERE path = ? AND redacted <= ?"
            return int(run(statement, body, version, path, revision).rowcount) == 1

    def acknowledge(self, *copies: Acknowledged) -> None:
        """The mirror has these copies; no put is under way any more."""
        with self._change() as run:
            run(_NOTE_FIRST, "unpacked", "0")
            run(f"UPDATE meta SET value = CAST({_NUMBER} + ? AS TEXT) WHERE key = 'unpacked'", len(copies))
            for copy in copies:
                run(_IS_SOLVED, told := f"{copy.path}: ", told)
                run(_NOTE_PATH, copy.path)
                kept = "CASE WHEN redacted > ? THEN NULL ELSE ? END" if copy.body is not None else "NULL"
                run(
                    "UPDATE note SET version = ?, digest = ?, inode = ?, size = ?, mtime_ns = ?, sent = NULL,"
                    f" sent_version = NULL, body = {kept} WHERE path = ?",
                    copy.version,
                    copy.digest,
                    *(copy.signature or (None, None, None)),
                    *((copy.revision, copy.body) if copy.body is not None else ()),
                    copy.path,
                )

    def gone(self, path: str) -> None:
        """The mirror has no copy: the local record must be pushed again."""
        with self._change() as run:
            run("UPDATE note SET version = NULL, digest = NULL, inode = NULL, sent = NULL WHERE path = ?", path)

    def settle(self, signatures: Mapping[str, Signature]) -> None:
        """Note that the files with these signatures need no push, unless the mirror turned out to lack them."""
        statement = "UPDATE note SET inode = ?, size = ?, mtime_ns = ? WHERE path = ? AND digest IS NOT NULL"
        with self._change() as run:
            for path, signature in signatures.items():
                run(statement, *signature, path)

    @contextmanager
    def _change(self) -> Iterator[Run]:
        """One transaction. A damaged database is replaced by an empty one; a full or failing disk is an error."""
        with self._turn:
            database = self._opened()
            try:
                with database.transaction() as connection:
                    _drop_versions_of_other_keys(connection, frozenset(self._keys()))
                    yield lambda statement, *values: connection.execute(statement, values)
            except DatabaseLost:
                self._start_over()
                raise

    def _compact(self) -> None:
        with self._turn:
            if not self._opened().compact():
                raise StorageFailed("the notes on the mirror are being read by another process; try again later")

    def _opened(self) -> DerivedDatabase:
        """The database, which can be used now; the turn is taken."""
        if self._is_closed:
            raise StorageFailed("the notes on the mirror are closed")
        try:
            self._database.connection()
        except DatabaseLost:
            self._start_over()
        return self._database

    def _start_over(self) -> None:
        """Replace a lost ledger by an empty one; everything is wiped then, as it is unknown what was to be."""
        self._database.start_over()
        with self._database.transaction() as connection:
            connection.execute(_NOTE, ("unwiped", "yes"))
            connection.execute(_NOTE, ("redactions", "1"))

    def _drop_untrusted(self, connection: Any) -> None:
        """Empty the notes if they are of another mirror or may have met a power cut; a copy gets an id of its own."""
        meta = dict(connection.execute(_META).fetchall())
        if (identity := self._mirrored.identity()) != meta.get("identity", identity):
            connection.execute("DELETE FROM meta WHERE key = 'origin'")
        connection.execute(_NOTE, ("identity", identity))
        if not _is_trusted(meta, mirror=self._mirror):
            connection.execute("DELETE FROM note WHERE true")
            connection.execute("DELETE FROM meta WHERE key IN ('last_error', 'entries_fetched', 'shortcomings')")
        connection.execute(_NOTE, ("mirror", self._mirror))

    def _leave_to_parent(self) -> None:
        """In the child of a fork: another thread may have been in the middle of a transaction."""
        self._turn = threading.Lock()
        self._database.leave_to_parent()


class LedgerState(Struct, frozen=True):
    """``unpacked`` copies were acknowledged since the last pack; ``redactions`` counts all that there have been.

    ``must_remove_pack``: the mirror's pack may hold text that was redacted since it was last removed. ``must_wipe``:
    something was buried since the last wipe. ``has_fetched_entries``: this directory once had all of the mirror's.
    ``shortcomings`` are the promises that the mirror breaks, None if it was not asked yet.
    """

    unpacked: int
    redactions: int
    must_remove_pack: bool
    must_wipe: bool
    has_fetched_entries: bool
    shortcomings: tuple[str, ...] | None


class LedgerMeta:
    """Facts about a ledger as a whole: the id of its directory, and the chores that are left."""

    def __init__(self, change: Callable[[], AbstractContextManager[Run]], compact: Callable[[], None]) -> None:
        self._change = change
        self._compact = compact

    def origin(self) -> str:
        """The random id of this directory in version vectors: 12 hex digits. A copied directory has another one."""
        with self._change() as run:
            run(_NOTE_FIRST, "origin", secrets.token_hex(6))
            return str(run("SELECT value FROM meta WHERE key = 'origin'").fetchone()[0])

    def known_origin(self) -> str | None:
        """The ``origin``; None where none can be made: a read-only disk has no changes to attribute."""
        try:
            return self.origin()
        except StorageFailed as error:
            _log.warning("this directory has no id to mark its changes with in the mirror: %s", error)
            return None

    def state(self) -> LedgerState:
        """The chores that are left, and what is known of the mirror."""
        with self._change() as run:
            meta = dict(run(_META).fetchall())
        unpacked, redactions, removed = (int(meta.get(key, 0)) for key in ("unpacked", "redactions", _REMOVED))
        chores = redactions > removed, "unwiped" in meta
        return LedgerState(unpacked, redactions, *chores, "entries_fetched" in meta, _shortcomings(meta))

    def note(self, key: Literal["last_error", "entries_fetched", "unwiped"], value: str | None) -> None:
        """Set a fact for all processes. An acknowledgement of the record that ``last_error`` names clears that."""
        with self._change() as run:
            run(_NOTE, key, value)

    def note_shortcomings(self, found: Sequence[str]) -> None:
        """Note which promises the mirror breaks."""
        with self._change() as run:
            run(_NOTE, "shortcomings", json.dumps(found))

    def pack_is_removed(self, *, redactions: int) -> None:
        """Note that the mirror's pack is gone, after ``redactions``; the next one is worth writing soon."""
        with self._change() as run:
            (count,) = run("SELECT count(*) FROM note WHERE body IS NOT NULL").fetchone()
            run("UPDATE meta SET value = ? WHERE key = 'unpacked'", str(count))
            run(_NOTE, _REMOVED, str(redactions))

    def packed(self, count: int, *, redactions: int) -> None:
        """Note that a pack was written of copies from after ``redactions``; ``count`` of them are new in a pack."""
        with self._change() as run:
            meta = dict(run(_META).fetchall())
            bounded = {"unpacked": max(0, int(meta.get("unpacked", 0)) - count)}
            bounded |= {_REMOVED: min(int(meta.get(_REMOVED, 0)), redactions)}
            for key, number in bounded.items():
                run("UPDATE meta SET value = ? WHERE key = ?", str(number), key)

    def wipe(self, release: Callable[[], None]) -> None:
        """Remove all traces of buried rows from the file after a ``release``; rows buried meanwhile need one more."""
        self.note("unwiped", begun := secrets.token_hex(6))
        release()
        self._compact()
        with self._change() as run:
            run("DELETE FROM meta WHERE key = 'unwiped' AND value = ?", begun)


def peek(where: MemoryPlace, *, mirror: str) -> LedgerSnapshot:
    """Read the ledger without creating or changing anything; rows of another mirror do not count."""
    with suppress(sqlite3.Error), home_of(where).mirrored.peeking(_FILE) as connection:  # as if there were none
        meta = dict(connection.execute(_META).fetchall()) if connection is not None else {}
        if connection is not None and _is_trusted(meta, mirror=mirror):
            signatures = {path: Signature(*there) for path, *there in connection.execute(_SIGNATURES).fetchall()}
            digests = dict(connection.execute(_DIGESTS).fetchall())
            return LedgerSnapshot(signatures, digests, meta.get("last_error"), _shortcomings(meta))
    return LedgerSnapshot({}, {}, None)


def scrub(where: MemoryPlace | None, revisions: Mapping[str, int]) -> None:
    """Never keep text of these records from before their revisions in the ledger; durable on return."""

    def bury(connection: Any) -> None:
        for path, revision in revisions.items():
            _bury(lambda statement, *values: connection.execute(statement, values), path, revision=revision)

    if where is not None:
        home_of(where).mirrored.scrub_database(_FILE, bury)


def _shortcomings(meta: Mapping[str, str]) -> tuple[str, ...] | None:
    return tuple(json.loads(meta["shortcomings"])) if "shortcomings" in meta else None


def _is_trusted(meta: Mapping[str, str | None], *, mirror: str) -> bool:
    """Whether notes with this ``meta`` are of this mirror and cannot have met a power cut."""
    return meta.get("mirror") == mirror and meta.get("boot") in (None, boot_id())


def _drop_versions_of_other_keys(connection: Any, held: frozenset[str]) -> None:
    """Clear the versions of copies, so that each is read before it is replaced, unless all their keys are ``held``."""
    found = held and connection.execute("SELECT value FROM meta WHERE key = 'keys'").fetchone()
    noted = frozenset(found[0].split() if found else ["unknown"])
    if held and noted != held:
        if not noted <= held:
            connection.execute("UPDATE note SET version = '' WHERE version IS NOT NULL")
        connection.execute(_NOTE, ("keys", " ".join(held)))


def _bury(run: Run, path: str, *, revision: int) -> None:
    run(_NOTE_PATH, path)
    run("UPDATE note SET body = NULL, sent = NULL, redacted = ? WHERE path = ?", revision, path)
    run(_NOTE_FIRST, "redactions", "0")
    run(f"UPDATE meta SET value = CAST({_NUMBER} + 1 AS TEXT) WHERE key = 'redactions'")


def _ranges(folder: str) -> list[tuple[str, str]]:
    """Ranges of paths, each with its exclusive end: of one folder of entries, or of all other records."""
    return [(f"{folder}/", f"{folder}/g")] if folder else [("", f"{ENTRIES}/"), (f"{ENTRIES}0", "\U0010ffff")]
