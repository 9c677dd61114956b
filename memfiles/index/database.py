"""The database file of the index: its tables, its failures, the forgets noted in it, what is to be erased, and users.

Whatever its tables hold is derived from the records, so the file may be lost at any time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from memfiles.errors import StorageFailed
from memfiles.index.rows import DECLARED
from memfiles.index.text import fts
from memfiles.records import NamedTuple
from memfiles.records.keys import FILES, IDS, USERS
from memfiles.storage.derived_database import DAMAGED, DatabaseLost, DerivedDatabase, DerivedFile

T = TypeVar("T")
PATH = ".state/index.sqlite"
LARGE = 2048  # files, or rows: a look at so many takes 10 ms
FORMAT = 18  # changes with the tables, and with what they hold
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE folder (name TEXT PRIMARY KEY, mtime_ns INT) WITHOUT ROWID",
    # what the files of each folder add up to by its rows
    "CREATE TABLE held (folder TEXT PRIMARY KEY, count INT, hashes INT) WITHOUT ROWID",
    "CREATE TABLE intent (token TEXT, path TEXT, PRIMARY KEY (token, path)) WITHOUT ROWID",
    "CREATE TABLE part (id INTEGER PRIMARY KEY, scope TEXT, level TEXT, run TEXT, UNIQUE (scope, level, run))",
    f"""
    CREATE TABLE entry (
        id INTEGER PRIMARY KEY, part INT, {DECLARED}, reads INT NOT NULL DEFAULT 0, read_at TEXT NOT NULL DEFAULT ''
    )
    """,
    """
    CREATE TABLE total (
        part INT, state TEXT, category TEXT, kind TEXT, count INT, size INT,
        PRIMARY KEY (part, state, category, kind)
    ) WITHOUT ROWID
    """,
    # groups of live entries that may become one: ``spare`` are the bytes that a note in place of episodes need not have
    """
    CREATE TABLE alike (
        part INT, category TEXT, kind TEXT, name TEXT, count INT, spare INT, since TEXT,
        PRIMARY KEY (part, category, kind, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX alike_same ON alike (part, category, kind, since) WHERE count > 1 AND kind <> 'episode'",
    "CREATE INDEX alike_told ON alike (part, category, since) WHERE count > 1 AND kind = 'episode' AND spare > 128",
    "CREATE INDEX entry_by_alike ON entry (part, alike, created_at) WHERE alike <> ''",
    "CREATE INDEX entry_by_key ON entry (part, key) WHERE state = 'live'",
    "CREATE INDEX entry_by_time ON entry (part, kept, updated_at, ordinal, key, block) WHERE state = 'live'",
    "CREATE INDEX entry_by_block ON entry (part, kept, block) WHERE state = 'live'",
    """
    CREATE INDEX entry_by_worth ON entry (
        part, category, kind, kept, importance, confidence, read_at, updated_at, ordinal
    ) WHERE state = 'live'
    """,
    "CREATE INDEX entry_by_expiry ON entry (part, expires_at) WHERE state = 'live' AND expires_at IS NOT NULL",
    "CREATE INDEX entry_by_retirement ON entry (part, retired_at) WHERE state IN ('deleted', 'evicted')",
    "CREATE INDEX entry_by_end ON entry (expires_at) WHERE state <> 'forgotten' AND expires_at IS NOT NULL",
    "CREATE INDEX entry_by_hiding ON entry (retired_at) WHERE state IN ('deleted', 'evicted')",
    "CREATE INDEX entry_by_cause ON entry (cause) WHERE cause <> ''",
    "CREATE INDEX entry_by_sources ON entry (part) WHERE sources <> '[]'",
    "CREATE INDEX entry_near ON entry (part, source_run, thread, ordinal) WHERE state = 'live' AND digest <> ''",
    "CREATE INDEX entry_key ON entry (part, key)",
    "CREATE INDEX entry_by_lineage ON entry (lineage)",
    "CREATE INDEX entry_by_epoch ON entry (epoch) WHERE epoch <> ''",
    "CREATE INDEX entry_of_marks ON entry (cause, lineage) WHERE state = 'forgotten'",
    "CREATE INDEX entry_by_alias ON entry (id) WHERE aliases <> '[]'",
    *fts.TABLES,
)
_FORGET, _BLANKED, _UNREAD, _MEANING, _CLEANED = "forget ", "blanked ", "unread ", "meaning", "cleaned"
_DUE = {
    "expires_at": """
        FROM entry INDEXED BY entry_by_end
        WHERE state <> 'forgotten' AND expires_at IS NOT NULL AND expires_at <= :expired
    """,
    "retired_at": """
        FROM entry INDEXED BY entry_by_hiding WHERE state IN ('deleted', 'evicted') AND retired_at <= :retired
    """,
}


class IndexUnusable(StorageFailed):
    """The index's own files cannot be used at the moment: another process holds them, or the disk is full.

    The records can answer instead.
    """


_FILE = DerivedFile(
    path=PATH,
    title="the index",
    format=FORMAT,
    tables=TABLES,
    journal_mode="WAL",
    # with SQLite's default cache of 2 MB, a search among 10,000 entries reads most pages again and takes a tenth longer
    pragmas=(
        *("synchronous = OFF", "secure_delete = ON", "temp_store = MEMORY"),
        "cache_size = -16384",  # KiB, at most
    ),
    patience_seconds=3.0,  # a longer wait is not worth it: the fallback in memory answers then
    lost_codes=DAMAGED | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY},
    unusable=IndexUnusable,
)
failures, create_tables = _FILE.failures, _FILE.create_tables


def index_database(directory: Path, descriptor: int) -> DerivedDatabase:
    """The database of the index of one memory directory; ``descriptor`` is the directory's."""
    return DerivedDatabase(_FILE, directory, descriptor=descriptor)


def peek(directory: Path, work: Callable[[sqlite3.Connection], T]) -> T | None:
    """The answer of the tables as they are; None if there are none. ``IndexUnusable`` at once if another holds them."""
    with suppress(DatabaseLost), failures(), closing(_FILE.connect(directory, patience=0.0)) as connection:
        return work(connection)
    return None


def note_forgets(connection: sqlite3.Connection, revisions: Mapping[str, int]) -> None:
    """Note records that are to be forgotten, by path, with their revisions, before their content goes; may be repeated.

    A kill in between leaves the note, and the next process that opens the index finishes the work. A lost index loses
    the note together with the content that it held, so whoever builds a new one cleans the kept copies.
    """
    noted = [(f"{_FORGET}{path} {revision}", revision) for path, revision in revisions.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", noted)


def noted_forgets(connection: sqlite3.Connection) -> dict[str, int]:
    """The records whose content may not be gone completely, by path, and their first noted revisions."""
    wanted = "SELECT key, value FROM meta WHERE key > ? AND key < ? ORDER BY value DESC"
    found = connection.execute(wanted, (_FORGET, _FORGET + "~"))
    return {key.removeprefix(_FORGET).partition(" ")[0]: revision for key, revision in found}


def are_copies_cleaned(connection: sqlite3.Connection) -> bool:
    """Whether ``note_cleaned`` was called since the index was built."""
    return connection.execute("SELECT 1 FROM meta WHERE key = ?", (_CLEANED,)).fetchone() is not None


def note_cleaned(connection: sqlite3.Connection) -> None:
    """Note that no kept copy holds what a forget removed whose note an earlier index had."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, 1)", (_CLEANED,))


def may_have_forgets(connection: sqlite3.Connection) -> bool:
    """Whether a forget may be unfinished, or one of another machine not followed here.

    There is a note of one then, a tombstone, or an entry made from others that may be forgotten.
    """
    statement = """
        SELECT EXISTS (SELECT 1 FROM meta WHERE key > ? AND key < ?)
        OR EXISTS (SELECT 1 FROM entry INDEXED BY entry_of_marks WHERE cause = 'tombstone' AND state = 'forgotten')
        OR EXISTS (SELECT 1 FROM entry INDEXED BY entry_by_sources WHERE sources <> '[]' AND state <> 'forgotten')
    """
    return bool(connection.execute(statement, (_FORGET, _FORGET + "~")).fetchone()[0])


def note_unread(connection: sqlite3.Connection, paths: Iterable[str], *, is_unread: bool = True) -> None:
    """Note records without a row, as they cannot be read, so that every process tries them; or that they can be."""
    noted = [(_UNREAD + path, is_unread) for path in paths]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", noted)


def noted_unread(connection: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """The paths of the records that cannot be read by ``note_unread``, and of those that can be again.

    The latter may hold what was forgotten meanwhile, until ``note_followed``.
    """
    found = connection.execute("SELECT value, key FROM meta WHERE key > ? AND key < ?", (_UNREAD, _UNREAD + "~"))
    noted = [(is_unread, key.removeprefix(_UNREAD)) for is_unread, key in found]
    return {path for is_unread, path in noted if is_unread}, {path for is_unread, path in noted if not is_unread}


def note_followed(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Delete the notes of these records that can be read again: nothing that was forgotten is in them."""
    connection.executemany("DELETE FROM meta WHERE key = ? AND value = 0", [(_UNREAD + path,) for path in paths])


def large_folders(connection: sqlite3.Connection, folders: Collection[str]) -> set[str]:
    """The folders among these with so many files that examining each would be felt."""
    statement = f"SELECT folder FROM held WHERE folder IN (SELECT value FROM json_each(?)) AND count > {LARGE}"
    return {name for (name,) in connection.execute(statement, (fts.as_json(folders),))}


def note_meaning(connection: sqlite3.Connection, why: str | None, *, at: str) -> None:
    """Note why searches leave the meaning out, since ``at`` or an earlier note; with None, that they do not."""
    if why is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (_MEANING,))
    else:
        since, _ = noted_meaning(connection) or (at, None)
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_MEANING, f"{since} {why}"))


def noted_meaning(connection: sqlite3.Connection) -> tuple[str, str] | None:
    """Since when searches leave the meaning out, and why; None if the last one did not."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_MEANING,)).fetchone()
    return None if found is None else tuple(found[0].split(" ", 1))


def strike_forgets(connection: sqlite3.Connection, revisions: Mapping[str, int]) -> None:
    """Delete the notes of records, by path, of earlier revisions than these: what was lost by then is gone."""
    noted = [(key := _FORGET + path, f"{key} ~", revision) for path, revision in revisions.items()]
    connection.executemany("DELETE FROM meta WHERE key BETWEEN ? AND ? AND value < ?", noted)


def due(connection: sqlite3.Connection, *, expired: str, retired: str, limit: int) -> list[tuple[str, int]]:
    """The paths and revisions of entries, in all partitions, that expired or were hidden by these moments."""
    moments = {"expired": expired, "retired": retired, "limit": limit}
    ways = (f"SELECT path, revision FROM (SELECT * {way} ORDER BY {at} LIMIT :limit)" for at, way in _DUE.items())
    return connection.execute(f"{' UNION '.join(ways)} LIMIT :limit", moments).fetchall()


def count_due(connection: sqlite3.Connection, *, expired: str, retired: str) -> tuple[int, int]:
    """The number of entries that ``due`` finds without a limit: expired ones, and hidden ones."""
    ways = " UNION ".join(f"SELECT id, state {way}" for way in _DUE.values())
    counts = f"SELECT count(*) FILTER (WHERE state = 'live'), count(*) FILTER (WHERE state <> 'live') FROM ({ways})"
    found: tuple[int, int] = connection.execute(counts, {"expired": expired, "retired": retired}).fetchone()
    return found


def first_expiry(connection: sqlite3.Connection) -> tuple[str | None, str | None]:
    """When the first entry of all partitions expires or expired, and when the first hidden one was hidden."""
    ever = {"expired": "~", "retired": "~"}  # sorts after every time
    expired, hidden = (connection.execute(f"SELECT min({at}) {way}", ever).fetchone()[0] for at, way in _DUE.items())
    return expired, hidden


def marks_of_plan(connection: sqlite3.Connection, plan_id: str) -> list[str]:
    """The paths of the marks in place of entries that this plan changed last, and that were erased since."""
    found = connection.execute("SELECT path FROM entry WHERE cause = ? AND state = 'forgotten'", (plan_id,))
    return [path for (path,) in found]


def of_user(connection: sqlite3.Connection, *, epoch: str, user: str) -> list[str]:
    """The paths of the entries of an epoch of a user, and of what the user's sessions wrote for others."""
    statement = """
        SELECT path FROM entry WHERE epoch = :epoch AND state <> 'forgotten'
        UNION SELECT e.path FROM entry AS e, json_each(e.aliases) AS a
        WHERE e.aliases <> '[]' AND a.value = :epoch AND state <> 'forgotten'
        UNION SELECT path FROM entry
        WHERE epoch = '' AND state <> 'forgotten' AND json_extract(provenance, '$.user') = :user
    """
    return [path for (path,) in connection.execute(statement, {"epoch": epoch, "user": user})]


class UserTally(Struct, frozen=True):
    """A user's visible entries in one partition: their number and bytes, the last change, and one of their paths.

    ``user`` is "" for the user's own ones, and the name for what the user's sessions saved for others.
    """

    path: str
    scope: str
    level: str
    user: str
    entries: int
    size_bytes: int
    updated_at: str


def user_tallies(connection: sqlite3.Connection, *, user: str = "", hashed: str = "") -> list[UserTally]:
    """The counts of each user, or of one, for the operator of the directory, never for a session."""
    own = "entry INDEXED BY entry_by_time WHERE part = part.id AND kept IN (0, 1) AND state = 'live'"
    statement = f"""
        SELECT (SELECT path FROM {own} LIMIT 1) AS path, scope, level, '', sum(count), sum(size),
            (SELECT max(updated_at) FROM {own})
        FROM part JOIN total ON total.part = part.id WHERE instr(scope, :users) AND state = 'live'
        GROUP BY part.id HAVING path NOT NULL
        UNION ALL
        SELECT max(path), scope, level, json_extract(provenance, '$.user') AS user, count(*), sum(size), max(updated_at)
        FROM entry NOT INDEXED CROSS JOIN part ON part.id = entry.part  -- as stored: a third of the time
        WHERE epoch = '' AND instr(provenance, '"user"') AND state = 'live' AND json_extract(provenance, '$.user') <> ''
            AND :user IN ('', json_extract(provenance, '$.user'))
        GROUP BY part.id, 4
    """
    rows = connection.execute(statement, {"users": f"/{USERS}/{hashed}", "user": user})
    return [UserTally(*row) for row in rows]


def user_tombstones(connection: sqlite3.Connection, *, owner: str, limit: int) -> list[str]:
    """The paths of the tombstones of users, the latest first; ``owner`` is the folder of such marks."""
    statement = f"""
        SELECT e.path FROM entry AS e INDEXED BY entry_key JOIN part AS p ON p.id = e.part
        WHERE p.scope = '{IDS}' AND e.key > ? AND e.key < ? AND e.cause = 'tombstone' AND e.state = 'forgotten'
        ORDER BY e.retired_at DESC, e.path DESC LIMIT ?
    """
    return [path for (path,) in connection.execute(statement, (f"{owner}/", f"{owner}0", limit))]


def not_blanked(connection: sqlite3.Connection, *, owner: str) -> list[str]:
    """The paths of those of ``user_tombstones`` that ``note_blanked`` did not note."""
    noted = connection.execute("SELECT key FROM meta WHERE key > ? AND key < ?", (_BLANKED, _BLANKED + "~"))
    known = {key.removeprefix(_BLANKED) for (key,) in noted}
    return [path for path in user_tombstones(connection, owner=owner, limit=-1) if path not in known]


def note_blanked(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Note the tombstones of users who are no longer named in the audit of this directory."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, 1)", [(_BLANKED + path,) for path in paths])


def buried(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The paths of tombstones, each with that of an entry which it may bury."""
    marks = "FROM entry AS m INDEXED BY entry_of_marks"
    is_of = "m.state = 'forgotten' AND m.cause = 'tombstone' AND e.state <> 'forgotten'"
    statement = f"""
        SELECT m.path, e.path {marks} CROSS JOIN entry AS e ON e.lineage = m.lineage AND m.lineage <> '' WHERE {is_of}
        UNION
        SELECT m.path, e.path {marks} CROSS JOIN entry AS e ON e.epoch = m.lineage AND e.epoch <> ''
        WHERE {is_of} AND m.lineage <> ''
        UNION
        SELECT m.path, e.path FROM entry AS e, json_each(e.aliases) AS a CROSS JOIN entry AS m ON m.lineage = a.value
        WHERE e.aliases <> '[]' AND {is_of}
        UNION
        SELECT m.path, e.path {marks}, json_each(m.aliases) AS a CROSS JOIN entry AS e ON e.lineage = a.value
        WHERE m.aliases <> '[]' AND {is_of}
    """
    return connection.execute(statement).fetchall()


_LIVE_AND_EXPIRED = "entry WHERE entry.part = part.id AND state = 'live' AND expires_at <= :now"
_COUNTS = f"""
    WITH counted AS (
        SELECT scope, level, run, instr(scope, '/{USERS}/') AS user_at,
            coalesce(sum(count) FILTER (WHERE state = 'live'), 0)
                - (SELECT count(*) FROM {_LIVE_AND_EXPIRED}) AS entries,
            coalesce(sum(total.size) FILTER (WHERE state = 'live'), 0)
                - (SELECT coalesce(sum(entry.size), 0) FROM {_LIVE_AND_EXPIRED}) AS bytes,
            (SELECT count(*) FROM {_LIVE_AND_EXPIRED}) AS expired,
            coalesce(sum(count) FILTER (WHERE state <> 'live'), 0) AS retired
        FROM part JOIN total ON total.part = part.id WHERE scope NOT LIKE '{FILES}%' GROUP BY part.id
    )
    SELECT iif(user_at, substr(scope, 1, user_at + {len(USERS)}), scope), level, iif(user_at, '', run),
        sum(entries), sum(bytes), sum(expired), sum(retired),
        count(DISTINCT iif(user_at, scope, NULL)), max(entries), max(bytes)
    FROM counted WHERE entries OR expired OR retired GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


class Counted(NamedTuple):
    """The entries in one folder at one level, of one run or of none: visible, expired and retired.

    Those of all ``users`` of an agent are summed, their runs included: the folder is then that of the users' folders.
    ``most_entries`` and ``most_bytes`` are those of the fullest part, to which the budgets apply.
    """

    folder: str
    level: str
    run: str
    entries: int
    size_bytes: int
    expired: int
    retired: int
    users: int
    most_entries: int
    most_bytes: int


def counted(connection: sqlite3.Connection, *, now: str) -> list[Counted]:
    """The counts of all partitions, for the operator of the directory, never for a session; sorted."""
    return [Counted(*row) for row in connection.execute(_COUNTS, {"now": now})]
