"""Changing rows, their texts and the totals together, inside one transaction."""

from __future__ import annotations

import sqlite3
from typing import Any

from memfiles.index.rows import COLUMNS, Row, stored, values_of
from memfiles.index.text_index import NewText, TextIndex
from memfiles.index.totals import NOTHING, CountKey, CountPlace, Sum, Sums
from memfiles.storage.atomic import Signature

_FIND = """
    SELECT id, part, state, category, kind, size, digest, tags, inode, file_size, mtime_ns
    FROM entry WHERE path = ?
"""
_ADD = f"INSERT INTO entry (part, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
_CHANGE = f"UPDATE entry SET part = ?, {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE id = ?"
_COUNT = """
    INSERT INTO total VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = count + excluded.count, size = size + excluded.size
"""
_AT = {name: place for place, name in enumerate(COLUMNS)}


class RowWriter:
    """Changes the rows of one transaction; ``finish`` comes before its end."""

    def __init__(self, connection: sqlite3.Connection, texts: TextIndex) -> None:
        self._connection = connection
        self._texts = texts
        self._parts: dict[tuple[str, str, str], int] = {}
        self._sums: dict[tuple[int, str, str, str], Sum] = {}
        self._left: set[int] = set()  # partitions that lost an entry
        self._new_texts: dict[int, list[NewText]] = {}  # by partition: written together, they cost less

    def signature(self, path: str) -> Signature | None:
        """That of the record as the row knows it, None if there is no row."""
        found = self._connection.execute(
            "SELECT inode, file_size, mtime_ns FROM entry WHERE path = ?", (path,)
        ).fetchone()
        return Signature(*found) if found is not None else None

    def put(self, row: Row) -> None:
        """Have this row for its record. Its text is written only if it may be another."""
        found = self._connection.execute(_FIND, (row.path,)).fetchone()
        if found is not None and found[-3:] == stored(row.signature):
            return
        values = values_of(row)
        part = self._part(row.scope, row.level, row.run)
        if found is None:
            cursor = self._connection.execute(_ADD, (part, *values))
            if row.state == "live":
                self._new_texts.setdefault(part, []).append((cursor.lastrowid or 0, row.key, row.content, row.tags))
        else:
            self._connection.execute(_CHANGE, (part, *values, found[0]))
            self._count(found, times=-1)
            self._change_text(found, row, part=part, tags=values[_AT["tags"]])
        if row.state != "forgotten":
            self._add(part, (row.state, row.category, row.kind), Sum(1, row.size))

    def remove(self, path: str) -> None:
        """Have no row for this path."""
        found = self._connection.execute(_FIND, (path,)).fetchone()
        if found is not None:
            self._connection.execute("DELETE FROM entry WHERE id = ?", (found[0],))
            self._count(found, times=-1)
            self._left.add(found[1])
            if found[2] == "live":
                self._texts.remove(self._connection, found[1], found[0])

    def finish(self) -> None:
        """Write what was put off and the totals, and drop what no entry needs any more."""
        for part, texts in self._new_texts.items():
            self._texts.put_new(self._connection, part, texts)
        for (part, state, category, kind), change in self._sums.items():
            if change != NOTHING:
                self._connection.execute(_COUNT, (part, state, category, kind, *change))
        if self._sums:
            self._connection.execute("DELETE FROM total WHERE count = 0")
        for part in self._left:
            self._drop_if_empty(part)

    def _put_text(self, row: Row, *, part: int, id: int) -> None:
        if row.state == "live":
            self._texts.put(self._connection, part, id, key=row.key, content=row.content, tags=row.tags)

    def _change_text(self, found: tuple[Any, ...], row: Row, *, part: int, tags: str) -> None:
        """Bring the text of an entry that was found in line with its new row."""
        id, earlier_part, was_live = found[0], found[1], found[2] == "live"
        is_same = part == earlier_part and (found[6], found[7]) == (row.digest, tags)
        if was_live and (row.state != "live" or part != earlier_part):
            self._texts.remove(self._connection, earlier_part, id)
            self._left.add(earlier_part)
        if not (was_live and is_same):
            self._put_text(row, part=part, id=id)

    def _count(self, found: tuple[Any, ...], *, times: int) -> None:
        if found[2] != "forgotten":
            self._add(found[1], found[2:5], Sum(times, times * found[5]))

    def _add(self, part: int, heap: tuple[str, str, str], change: Sum) -> None:
        place = (part, *heap)
        self._sums[place] = self._sums.get(place, NOTHING).plus(change)

    def _part(self, scope: str, level: str, run: str) -> int:
        place = (scope, level, run)
        if (found := self._parts.get(place)) is None:
            self._connection.execute("INSERT OR IGNORE INTO part (scope, level, run) VALUES (?, ?, ?)", place)
            found = self._one("SELECT id FROM part WHERE scope = ? AND level = ? AND run = ?", *place)
            self._parts[place] = found
        return found

    def _drop_if_empty(self, part: int) -> None:
        live = "SELECT EXISTS (SELECT 1 FROM entry WHERE part = ? AND state = 'live')"
        if not self._one(live, part):
            self._texts.drop(self._connection, part)
            if not self._one("SELECT EXISTS (SELECT 1 FROM entry WHERE part = ?)", part):
                self._connection.execute("DELETE FROM part WHERE id = ?", (part,))

    def _one(self, statement: str, *values: object) -> int:
        return int(self._connection.execute(statement, values).fetchone()[0])


def load_totals(connection: sqlite3.Connection, place: CountPlace) -> Sums:
    """The sums of one partition."""
    rows = connection.execute(
        """
        SELECT scope, level, run, state, category, kind, count, size
        FROM part JOIN total ON total.part = part.id WHERE scope = ? AND level = ? AND run = ?
        """,
        place,
    )
    return {CountKey(*row[:6]): Sum(*row[6:]) for row in rows}
