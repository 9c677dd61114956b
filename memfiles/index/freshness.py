"""Whether the index may be believed as it is found, and what makes it so: the folders' times as they were noted."""

from __future__ import annotations

import sqlite3

from memfiles.storage.entry_folders import folder_times, stamp

_SETTLED_NS = 100_000_000  # longer than a tick of any kernel


def is_complete(connection: sqlite3.Connection) -> bool:
    """Whether every record was looked at since the database was made."""
    return connection.execute("SELECT 1 FROM meta WHERE key = 'complete'").fetchone() is not None


def is_written(connection: sqlite3.Connection) -> bool:
    """Whether it was changed since it was last put to rest."""
    return connection.execute("SELECT 1 FROM meta WHERE key = 'boot' AND value IS NOT NULL").fetchone() is not None


def is_unchanged(connection: sqlite3.Connection, directory: int) -> bool:
    """Whether no name in any folder of entries changed since it was noted."""
    return dict(connection.execute("SELECT name, mtime_ns FROM folder").fetchall()) == folder_times(directory)


def note_complete(connection: sqlite3.Connection, times: dict[str, int], *, now_ns: int) -> None:
    """Note that every record was looked at, after the folders had these times; times of just now tell nothing."""
    connection.execute("DELETE FROM folder")
    settled = [(name, at) for name, at in times.items() if not 0 <= now_ns - at < _SETTLED_NS]
    connection.executemany("INSERT INTO folder VALUES (?, ?)", settled)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('complete', 1)")


def seal(connection: sqlite3.Connection, directory: int, *, log: str, end: int) -> None:
    """Note that all is as it should be, with a new log and times of the folders that nobody else sets."""
    noted = dict(connection.execute("SELECT name, mtime_ns FROM folder").fetchall())
    times = folder_times(directory)
    fresh = {name: at if noted.get(name) == at else stamp(directory, name) for name, at in times.items()}
    connection.execute("DELETE FROM folder")
    connection.executemany("INSERT INTO folder VALUES (?, ?)", fresh.items())
    connection.execute("DELETE FROM intent")
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("log", log), ("offset", end)])
