"""The database file of the index: its tables, its failures, and the forgets that are noted in it.

Whatever its tables hold is derived from the records, so the file may be lost at any time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from memfiles.errors import StorageFailed
from memfiles.index.rows import DECLARED
from memfiles.index.text import fts
from memfiles.storage.derived_database import DAMAGED, DerivedDatabase, DerivedFile

PATH = ".state/index.sqlite"
FORMAT = 10  # changes with the tables
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE folder (name TEXT PRIMARY KEY, mtime_ns INT) WITHOUT ROWID",
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
_FORGET = "forget "


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
    patience_seconds=3.0,  # nobody should wait longer: the fallback in memory answers then
    lost_codes=DAMAGED | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY},
    unusable=IndexUnusable,
)
failures, create_tables = _FILE.failures, _FILE.create_tables


def index_database(directory: Path, descriptor: int) -> DerivedDatabase:
    """The database of the index of one memory directory; ``descriptor`` is the directory's."""
    return DerivedDatabase(_FILE, directory, descriptor=descriptor)


def note_forgets(connection: sqlite3.Connection, revisions: Mapping[str, int]) -> None:
    """Note records that are to be forgotten, by path, with their revisions, before their content goes; may be repeated.

    A kill in between leaves the note, and the next process that opens the index finishes the work. A lost index loses
    the note together with the content that it held.
    """
    noted = [(_FORGET + path, revision) for path, revision in revisions.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", noted)


def noted_forgets(connection: sqlite3.Connection) -> dict[str, int]:
    """The records whose content may not be gone completely, by path, and their revisions when they were noted."""
    found = connection.execute("SELECT key, value FROM meta WHERE key > ? AND key < ?", (_FORGET, _FORGET + "~"))
    return {key.removeprefix(_FORGET): revision for key, revision in found}


def strike_forgets(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Delete the notes of records whose content is gone."""
    connection.executemany("DELETE FROM meta WHERE key = ?", [(_FORGET + path,) for path in paths])
