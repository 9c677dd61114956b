"""Questions to the rows, each answered from what the asking session sees: a list of partitions, nothing else.

The rule this file guards: of one key the first of these partitions that holds a live, unexpired entry shadows the
others, before anything is filtered, ordered or counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from pydantic_core import to_json

from memfiles.index.rows import SELECTED, Row, row_from
from memfiles.index.text import fts as texts
from memfiles.index.totals import CountPlace

_FROM = f"SELECT e.id, {SELECTED} FROM entry AS e {{hint}} JOIN part AS p ON p.id = e.part"
_LIVE = "e.state = 'live' AND (e.expires_at IS NULL OR e.expires_at > :now)"
_UNSHADOWED = """
    NOT EXISTS (
        SELECT 1 FROM json_each(:before) AS b CROSS JOIN entry AS s ON s.part = b.value AND s.key = e.key
        WHERE s.state = 'live' AND (s.expires_at IS NULL OR s.expires_at > :now)
    )
"""
_TAGGED = """
    NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS w WHERE w.value NOT IN (SELECT t.value FROM json_each(e.tags) AS t)
    )
"""
_PART = "SELECT id FROM part WHERE scope = ? AND level = ? AND run = ?"
_BEYOND = "\U0010ffff" * 64  # no key is that long
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Filters:
    """What an entry must have to be returned; empty: whatever it has. ``tags``: all of them; ``keys``: one of them."""

    tags: Sequence[str] = ()
    category: str | None = None
    kind: str | None = None
    prefix: str = ""
    keys: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Entries to act upon, whatever state they are in; every field that is given must fit.

    ``provenance`` by its fields' names.
    """

    key: str | None = None
    path: str | None = None
    tag: str | None = None
    kind: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


def parts(connection: sqlite3.Connection, view: Sequence[CountPlace]) -> list[int]:
    """The ids of those partitions of a view that there are, in its order."""
    found = (connection.execute(_PART, place).fetchone() for place in view)
    return [row[0] for row in found if row is not None]


def all_parts(connection: sqlite3.Connection) -> list[int]:
    """The ids of all partitions there are."""
    return [id for (id,) in connection.execute("SELECT id FROM part ORDER BY id")]


def visible(
    connection: sqlite3.Connection, parts: Sequence[int], ids: Collection[int], *, now: str, filters: Filters
) -> set[int]:
    """Those of the ids whose entries are in the view, live, unexpired, not shadowed, and fit the filters."""
    found: set[int] = set()
    asked = to_json(list(ids)).decode()
    condition, values = _filtered(filters)
    for place, part in enumerate(parts):
        statement = f"""
            SELECT e.id FROM json_each(:ids) AS i CROSS JOIN entry AS e ON e.id = i.value
            WHERE e.part = :part AND {_LIVE} AND {condition} AND {_UNSHADOWED if place else "1"}
        """
        bound = {**values, "ids": asked, "part": part, "now": now, "before": _json(parts[:place])}
        found.update(row[0] for row in connection.execute(statement, bound))
    return found


def is_all_visible(connection: sqlite3.Connection, parts: Sequence[int], *, filters: Filters) -> bool:
    """Whether ``visible`` would leave out none of those that have text, once what has expired was taken out.

    So it is if they are all in one partition, where nothing shadows them: most sessions see no more.
    """
    return filters == Filters() and len(texts.present(connection, parts)) == 1


def shadowed(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> frozenset[int]:
    """The ids of those live entries of the view whose keys are seen in an earlier partition; most often none.

    What it costs goes by the smaller one of every two partitions.
    """
    found: set[int] = set()
    sizes = {part: _live(connection, part) for part in parts} if len(parts) > 1 else {}
    for place, part in enumerate(parts):
        for before in parts[:place]:
            if not sizes[before] or not sizes[part]:
                continue
            first, second = ("s", "e") if sizes[before] <= sizes[part] else ("e", "s")
            statement = f"""
                SELECT e.id FROM entry AS {first} INDEXED BY entry_by_key
                    CROSS JOIN entry AS {second} INDEXED BY entry_by_key ON {second}.key = {first}.key
                WHERE s.part = ? AND s.state = 'live' AND (s.expires_at IS NULL OR s.expires_at > ?)
                    AND e.part = ? AND e.state = 'live'
            """
            found.update(id for (id,) in connection.execute(statement, (before, now, part)))
    return frozenset(found)


def _live(connection: sqlite3.Connection, part: int) -> int:
    ((count,),) = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM total WHERE part = ? AND state = 'live'", (part,)
    )
    return int(count)


def page(
    connection: sqlite3.Connection, parts: Sequence[int], *, now: str, filters: Filters, after: str, limit: int
) -> list[Row]:
    """The next rows by key (as UTF-8 sorts), behind the key ``after`` (empty: from the beginning)."""
    condition, values = _filtered(filters)
    values |= {"now": now, "after": after, "limit": limit, "beyond": filters.prefix + _BEYOND}
    found: list[Row] = []
    for place, part in enumerate(parts):
        statement = f"""
            {_FROM.format(hint="INDEXED BY entry_by_key")}
            WHERE e.part = :part AND e.key > :after AND e.key >= :prefix AND e.key < :beyond AND {_LIVE} AND {condition}
              AND {_UNSHADOWED if place else "1"}
            ORDER BY e.key LIMIT :limit
        """
        bound = {**values, "part": part, "before": _json(parts[:place])}
        found += (row_from(row[1:]) for row in connection.execute(statement, bound))
    return sorted(found, key=lambda row: row.key)[:limit]


def recent(
    connection: sqlite3.Connection, parts: Sequence[int], *, now: str, pinned: bool | None = None
) -> Iterator[Row]:
    """The rows with the newest content first; ``pinned``: only those that are pinned or core, or only the others."""
    sorts = (True, False) if pinned is None else (pinned,)
    streams = [
        _stream(connection, parts[:place], part, now=now, kept=kept)
        for place, part in enumerate(parts)
        for kept in sorts
    ]
    return merge(*streams, key=lambda row: (row.updated_at, row.provenance.ordinal, row.key), reverse=True)


def _stream(connection: sqlite3.Connection, before: Sequence[int], part: int, *, now: str, kept: bool) -> Iterator[Row]:
    """The rows of one partition, newest first, some at a time: no question stays open meanwhile."""
    statement = f"""
        {_FROM.format(hint="INDEXED BY entry_by_time")}
        WHERE e.part = :part AND e.kept = :kept AND {_LIVE} AND {_UNSHADOWED if before else "1"}
          AND (e.updated_at, e.ordinal, e.key) < (:at, :ordinal, :key)
        ORDER BY e.updated_at DESC, e.ordinal DESC, e.key DESC LIMIT {_BATCH}
    """
    values = {"part": part, "kept": kept, "now": now, "before": _json(before)}
    last: dict[str, Any] = {"at": "~", "ordinal": 0, "key": ""}
    while True:
        found = [row_from(row[1:]) for row in connection.execute(statement, values | last)]
        yield from found
        if len(found) < _BATCH:
            return
        last = {"at": found[-1].updated_at, "ordinal": found[-1].provenance.ordinal, "key": found[-1].key}


def least_worthy(
    connection: sqlite3.Connection,
    place: CountPlace,
    *,
    limit: int,
    category: str | None = None,
    kind: str | None = None,
) -> list[Row]:
    """The live entries that are to be evicted first: neither pinned nor core, of little importance, long not read.

    A question for every category and kind there is, each answered by the first rows of an index.
    """
    heaps = connection.execute(
        """
        SELECT part.id, category, kind FROM part JOIN total ON total.part = part.id
        WHERE scope = ? AND level = ? AND run = ? AND state = 'live'
          AND category = coalesce(?, category) AND kind = coalesce(?, kind)
        """,
        (*place, category, kind),
    ).fetchall()
    worth = "e.kept, e.importance, e.confidence, e.read_at, e.updated_at, e.ordinal"
    statement = f"""
        SELECT {worth}, {SELECTED}
        FROM entry AS e INDEXED BY entry_by_worth JOIN part AS p ON p.id = e.part
        WHERE e.part = ? AND e.category = ? AND e.kind = ? AND e.state = 'live' ORDER BY {worth} LIMIT ?
    """
    streams = [connection.execute(statement, (*heap, limit)).fetchall() for heap in heaps]
    return [row_from(found[6:]) for found in islice(merge(*streams, key=lambda found: found[:6]), limit)]


def expired(connection: sqlite3.Connection, place: CountPlace, *, now: str, limit: int) -> list[Row]:
    """Live entries whose time is over, the earliest first."""
    statement = f"""
        {_FROM.format(hint="INDEXED BY entry_by_expiry")}
        WHERE e.part = ({_PART}) AND e.state = 'live' AND e.expires_at <= ? ORDER BY e.expires_at LIMIT ?
    """
    return [row_from(found[1:]) for found in connection.execute(statement, (*place, now, limit))]


def retired(connection: sqlite3.Connection, place: CountPlace, *, limit: int) -> list[Row]:
    """Entries that were deleted or evicted, the earliest first."""
    statement = f"""
        {_FROM.format(hint="INDEXED BY entry_by_retirement")}
        WHERE e.part = ({_PART}) AND e.state IN ('deleted', 'evicted') ORDER BY e.retired_at LIMIT ?
    """
    return [row_from(found[1:]) for found in connection.execute(statement, (*place, limit))]


def matching(connection: sqlite3.Connection, parts: Sequence[int], selector: RowFilter) -> list[Row]:
    """The rows in these partitions that a selector means, by key; tombstones never."""
    conditions = ["e.part IN (SELECT value FROM json_each(:parts))", "e.state <> 'forgotten'"]
    values: dict[str, str] = {"parts": _json(parts)}
    for name in ("key", "path", "kind"):
        if (wanted := getattr(selector, name)) is not None:
            conditions.append(f"e.{name} = :{name}")
            values[name] = wanted
    if selector.tag is not None:
        conditions.append(_TAGGED)
        values["tags"] = to_json([selector.tag]).decode()
    for name, wanted in selector.provenance.items():
        conditions.append(f"json_extract(e.provenance, :at_{name}) = :is_{name}")
        values |= {f"at_{name}": f"$.{name}", f"is_{name}": wanted}
    statement = f"{_FROM.format(hint='')} WHERE {' AND '.join(conditions)} ORDER BY e.key, e.path"
    return [row_from(found[1:]) for found in connection.execute(statement, values)]


def retired_by(connection: sqlite3.Connection, parts: Sequence[int], *, prefix: str) -> list[Row]:
    """The rows in these partitions of what is retired by a cause that has this ``prefix``, which is not empty."""
    statement = f"""
        {_FROM.format(hint="INDEXED BY entry_by_cause")}
        WHERE e.cause <> '' AND e.cause >= :prefix AND e.cause < :beyond
        AND e.part IN (SELECT value FROM json_each(:parts)) AND e.state <> 'forgotten'
    """
    values = {"prefix": prefix, "beyond": prefix + _BEYOND, "parts": _json(parts)}
    return [row_from(found[1:]) for found in connection.execute(statement, values)]


def followed(connection: sqlite3.Connection) -> list[str]:
    """The paths of the tombstones that know where what they stand for went."""
    statement = "SELECT path FROM entry WHERE state = 'forgotten' AND sources <> '[]' ORDER BY path"
    return [path for (path,) in connection.execute(statement)]


def made_of_others(connection: sqlite3.Connection, parts: Sequence[int], *, prefix: str | None = None) -> list[Row]:
    """The rows of what was made of other entries or stands for them; also of notes whose keys have that ``prefix``."""
    stands = "e.part = :part AND e.state <> 'forgotten' AND"
    sorts = (
        (_FROM.format(hint="INDEXED BY entry_by_sources"), "e.sources <> '[]'"),
        (_FROM.format(hint=""), "e.key >= :prefix AND e.key < :beyond AND e.kind = 'note'"),
    )
    found: dict[str, Row] = {}
    for part in parts:
        values = {"part": part, "prefix": prefix, "beyond": f"{prefix}{_BEYOND}"}
        for select, condition in sorts if prefix is not None else sorts[:1]:
            rows = (row_from(row[1:]) for row in connection.execute(f"{select} WHERE {stands} {condition}", values))
            found.update((row.path, row) for row in rows)
    return list(found.values())


def reads(connection: sqlite3.Connection, parts: Sequence[int]) -> dict[str, tuple[int, str]]:
    """How often the entries of these partitions were read and when last, by their paths; none that never was."""
    statement = "SELECT path, reads, read_at FROM entry WHERE part IN (SELECT value FROM json_each(?)) AND reads > 0"
    return {path: (count, at) for path, count, at in connection.execute(statement, (_json(parts),))}


def _filtered(filters: Filters) -> tuple[str, dict[str, Any]]:
    """The condition that filters make, and its values."""
    conditions, values = ["1"], dict[str, Any](prefix=filters.prefix)
    if filters.prefix:
        conditions.append("substr(e.key, 1, length(:prefix)) = :prefix")
    if filters.tags:
        conditions.append(_TAGGED)
        values["tags"] = to_json(list(filters.tags)).decode()
    if filters.keys is not None:
        conditions.append("e.key IN (SELECT value FROM json_each(:keys))")
        values["keys"] = to_json(list(filters.keys)).decode()
    for name in ("category", "kind"):
        if (wanted := getattr(filters, name)) is not None:
            conditions.append(f"e.{name} = :{name}")
            values[name] = wanted
    return " AND ".join(conditions), values


def _json(ids: Sequence[int]) -> str:
    return to_json(list(ids)).decode()
