"""What the rows ask of the text index, which lies in the same database and changes in the same transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

NewText = tuple[int, str, str, Sequence[str]]
"""The id of an entry, its key, its content and its tags."""


class TextIndex(Protocol):
    """The texts of live entries, kept apart by partition. Only ``scrub`` is called outside a transaction."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make what tables it needs, unless they are there."""

    def put(
        self, connection: sqlite3.Connection, part: int, id: int, *, key: str, content: str, tags: Sequence[str]
    ) -> None:
        """Have this text for an entry, in place of an earlier one."""

    def put_new(self, connection: sqlite3.Connection, part: int, texts: Sequence[NewText]) -> None:
        """Have these texts, for entries that had none."""

    def remove(self, connection: sqlite3.Connection, part: int, id: int) -> None:
        """Have no text for an entry; nothing to do if there is none."""

    def drop(self, connection: sqlite3.Connection, part: int) -> None:
        """Have nothing for a partition; nothing to do if there is nothing."""

    def scrub(self, connection: sqlite3.Connection) -> None:
        """Keep no word of what was removed in any table; what SQLite itself keeps is not its business."""
