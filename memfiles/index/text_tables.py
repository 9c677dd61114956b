"""The texts as the rows keep them up to date: what ``texts`` and ``association`` need, as one ``TextIndex``."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from memfiles.index.search import association
from memfiles.index.text import fts as tables
from memfiles.index.text_index import NewText


class TextTables:
    """The texts of live entries in FTS5 tables; it has no state of its own."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make what tables and indexes are needed, unless they are there."""
        tables.prepare(connection)
        association.prepare(connection)

    def put(
        self, connection: sqlite3.Connection, part: int, id: int, *, key: str, content: str, tags: Sequence[str]
    ) -> None:
        """Have this text for an entry, in place of an earlier one."""
        tables.put(connection, part, id, key=key, content=content, tags=tags)

    def put_new(self, connection: sqlite3.Connection, part: int, texts: Sequence[NewText]) -> None:
        """Have these texts, for entries that had none."""
        tables.put_many(connection, part, texts)

    def remove(self, connection: sqlite3.Connection, part: int, id: int) -> None:
        """Have no text for an entry."""
        tables.remove(connection, part, id)

    def drop(self, connection: sqlite3.Connection, part: int) -> None:
        """Have nothing for a partition."""
        tables.drop(connection, part)

    def scrub(self, connection: sqlite3.Connection) -> None:
        """Keep no word of what was removed."""
        tables.scrub(connection)
