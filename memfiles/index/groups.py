"""Candidates for removal in a partition: groups that may become one (see ``rows.alike``), and ones worth least or over.

The rule this file guards: what it costs to find them does not grow with the number of entries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from heapq import merge
from itertools import islice

from msgspec import Struct

from memfiles.index import queries
from memfiles.index.queries import PART
from memfiles.index.rows import SELECTED, PartitionKey, Row, row_from
from memfiles.index.text.fts import as_json
from memfiles.records.entry import EPISODE

_AMONG = "(? IS NULL OR e.category IN (SELECT value FROM json_each(?)))"  # see ``_names``


class AlikeGroup(Struct, frozen=True):
    """A group of live entries of one category and kind that may become one; see ``rows.alike``."""

    category: str
    kind: str
    name: str


def groups(
    connection: sqlite3.Connection, place: PartitionKey, *, limit: int, category: str | None, kind: str | None,
    among: Collection[str] | None = None,
) -> list[AlikeGroup]:  # fmt: skip
    """Groups of more than one entry in a partition, duplicates or (``kind`` episode) episodes, the oldest first.

    Only episodes that are long enough for a note to be shorter. ``among``: as of ``sorts``.
    """
    of_episodes = kind == EPISODE
    found: list[tuple[str, str, str, str]] = []
    for part, a_category, a_kind in sorts(connection, place, category=category, kind=kind, among=among):
        if (a_kind == EPISODE) is not of_episodes:
            continue
        statement = f"""
            SELECT since, name FROM alike INDEXED BY {"alike_told" if of_episodes else "alike_same"}
            WHERE part = ? AND category = ? AND kind = ? AND count > 1
              AND {"kind = 'episode' AND spare > 128" if of_episodes else "kind <> 'episode'"}
            ORDER BY since LIMIT ?
        """
        rows = connection.execute(statement, (part, a_category, a_kind, limit))
        found += [(since, a_category, a_kind, name) for since, name in rows]
    return [AlikeGroup(*group) for _, *group in sorted(found)[:limit]]


def groups_known(connection: sqlite3.Connection, place: PartitionKey, names: Collection[str]) -> set[AlikeGroup]:
    """The groups of these names that have at least one entry in a partition."""
    statement = f"""
        SELECT DISTINCT category, kind, alike FROM json_each(?) AS n CROSS JOIN entry AS e INDEXED BY entry_by_alike
        ON e.part = ({PART}) AND e.alike = n.value AND e.alike <> ''
    """
    return {AlikeGroup(*found) for found in connection.execute(statement, (as_json(sorted(names)), *place))}


def members(
    connection: sqlite3.Connection, place: PartitionKey, group: AlikeGroup, *, limit: int
) -> list[tuple[Row, tuple[int, str]]]:
    """The entries of a group, the oldest first, each with the number of its reads and the time of the last one."""
    statement = f"""
        SELECT {SELECTED}, e.reads, e.read_at FROM entry AS e INDEXED BY entry_by_alike JOIN part AS p ON p.id = e.part
        WHERE e.part = ({PART}) AND e.alike = ? AND e.alike <> '' AND e.category = ? AND e.kind = ?
        ORDER BY e.created_at, e.ordinal, e.key LIMIT ?
    """
    values = (*place, group.name, group.category, group.kind, limit)
    return [(row_from(found[:-2]), (found[-2], found[-1])) for found in connection.execute(statement, values)]


def least_worthy(
    connection: sqlite3.Connection,
    place: PartitionKey,
    *,
    limit: int,
    category: str | None = None,
    kind: str | None = None,
    among: Collection[str] | None = None,
) -> list[Row]:
    """The live entries to evict first: neither pinned nor core, of little importance, not read for long.

    One statement for every category (``among``: of these) and kind, each answered by the first rows of an index.
    """
    kinds = sorts(connection, place, category=category, kind=kind, among=among)
    worth = "e.kept, e.importance, e.confidence, e.read_at, e.updated_at, e.ordinal"
    statement = f"""
        SELECT {worth}, {SELECTED}
        FROM entry AS e INDEXED BY entry_by_worth JOIN part AS p ON p.id = e.part
        WHERE e.part = ? AND e.category = ? AND e.kind = ? AND e.state = 'live' ORDER BY {worth} LIMIT ?
    """
    streams = [connection.execute(statement, (*found, limit)).fetchall() for found in kinds]
    return [row_from(found[6:]) for found in islice(merge(*streams, key=lambda found: found[:6]), limit)]


def sorts(
    connection: sqlite3.Connection, place: PartitionKey, *, category: str | None, kind: str | None,
    among: Collection[str] | None,
) -> list[tuple[int, str, str]]:  # fmt: skip
    """The partition's id with each category and kind of live entries in it, or with this one.

    ``among``: only of these categories.
    """
    statement = """
        SELECT part.id, category, kind FROM part JOIN total ON total.part = part.id
        WHERE scope = ? AND level = ? AND run = ? AND state = 'live'
          AND category = coalesce(?, category) AND kind = coalesce(?, kind)
    """
    found = connection.execute(statement, (*place, category, kind)).fetchall()
    return found if among is None else [sort for sort in found if sort[1] in among]


def expired(
    connection: sqlite3.Connection, place: PartitionKey, *, now: str, limit: int, among: Collection[str] | None = None
) -> list[Row]:
    """Live entries that have expired, the earliest first; ``among``: only those of these categories."""
    statement = f"""
        {queries.select("entry_by_expiry")}
        WHERE e.part = ({PART}) AND e.state = 'live' AND {_AMONG} AND e.expires_at <= ?
        ORDER BY e.expires_at LIMIT ?
    """
    return queries.rows(connection, statement, (*place, *_names(among), now, limit))


def retired(
    connection: sqlite3.Connection, place: PartitionKey, *, limit: int, among: Collection[str] | None = None
) -> list[Row]:
    """Deleted and evicted entries, the earliest first; ``among``: only those of these categories."""
    statement = f"""
        {queries.select("entry_by_retirement")}
        WHERE e.part = ({PART}) AND e.state IN ('deleted', 'evicted') AND {_AMONG}
        ORDER BY e.retired_at LIMIT ?
    """
    return queries.rows(connection, statement, (*place, *_names(among), limit))


def _names(among: Collection[str] | None) -> tuple[str | None, str | None]:
    return (None, None) if among is None else (as_json(sorted(among)),) * 2
