"""What forgetting owes: records that are to be forgotten, noted before their content goes and struck out after.

A kill in between leaves the note, and whoever opens the index next finishes. If the index is lost, so is what it held.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

_KEY = "forget "


def note(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Note these records; noted twice is noted once."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, 1)", [(_KEY + path,) for path in paths])


def noted(connection: sqlite3.Connection) -> list[str]:
    """The records of which it is not known that all their content is gone."""
    found = connection.execute("SELECT key FROM meta WHERE key > ? AND key < ?", (_KEY, _KEY + "~")).fetchall()
    return [key.removeprefix(_KEY) for (key,) in found]


def strike(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Strike out these records: nothing holds their content."""
    connection.executemany("DELETE FROM meta WHERE key = ?", [(_KEY + path,) for path in paths])
