"""The database file of the index: which file, which tables, and which failures cost it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from memfiles.index.schema import FORMAT, TABLES
from memfiles.index.unusable import IndexUnusable
from memfiles.storage.derived_database import DAMAGED, DerivedDatabase, DerivedFile

PATH = ".state/index.sqlite"
_FILE = DerivedFile(
    path=PATH,
    title="the index",
    format=FORMAT,
    # with the usual cache of 2 MB a search among 10,000 entries reads most pages anew, and takes a tenth longer
    pragmas=(
        *("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON", "temp_store = MEMORY"),
        "cache_size = -16384",  # KiB, at most
    ),
    patience_seconds=3.0,  # nobody can be kept waiting: the fallback in memory answers then
    lost_codes=DAMAGED | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY},
    unusable=IndexUnusable,
)
failures = _FILE.failures


def index_database(
    directory: Path, descriptor: int, *, prepare: Callable[[sqlite3.Connection], None]
) -> DerivedDatabase:
    """The database of one directory's index; ``prepare`` makes tables in addition to those of the rows."""

    def create(connection: sqlite3.Connection) -> None:
        for statement in TABLES:
            connection.execute(statement)
        prepare(connection)

    return DerivedDatabase(_FILE, directory, create=create, descriptor=descriptor)
