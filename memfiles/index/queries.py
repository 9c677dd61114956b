"""Queries over the rows: each is answered from the partitions that the asking session sees, and nothing else.

The rule this file guards: for one key, the first of these partitions that holds a live, unexpired entry shadows the
others, before anything is filtered, ordered or counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import merge
from math import isqrt
from operator import itemgetter
from typing import Any

from msgspec import Struct, field

from memfiles.index.rows import SELECTED, PartitionKey, Row, row_from
from memfiles.index.text import fts
from memfiles.index.text.fts import as_json
from memfiles.records import NamedTuple
from memfiles.records.keys import IDS, RECORD_SUFFIX

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
_TAGGED_ANY = """
    EXISTS (SELECT 1 FROM json_each(e.tags) AS t WHERE t.value IN (SELECT value FROM json_each(:tags_any)))
"""
_OF_IDS = """
    SELECT i.id FROM entry AS i WHERE i.lineage IN (SELECT value FROM json_each(:ids))
    UNION SELECT i.id FROM entry AS i, json_each(i.aliases) AS a
    WHERE i.aliases <> '[]' AND a.value IN (SELECT value FROM json_each(:ids))
"""
PART = "SELECT id FROM part WHERE scope = ? AND level = ? AND run = ?"
_SIZES = """
    SELECT part, sum(count) FROM total WHERE part IN (SELECT value FROM json_each(?)) AND state = 'live' GROUP BY part
"""
_BEYOND = "\U0010ffff" * 64  # sorts after any rest of a key
_BATCH = 128  # rows
_FEW = 1024  # rows, which are fetched and sorted faster than found among very many
_PASSED = 8  # rows of an index that are passed in the time in which one is fetched and sorted
_ANY_SIZE = 2**62
_LIVE_ENTRIES = "SELECT sum(count) FROM total WHERE part = :part AND state = 'live'"
_FITTING = """
    SELECT count(*) FROM (
        SELECT 1 FROM entry INDEXED BY entry_by_block
        WHERE part = :part AND kept = :kept AND block <= :room AND state = 'live' LIMIT :few + 1
    )
"""


class Filters(Struct, frozen=True):
    """Conditions for an entry to be returned: it has all of the ``tags``, and one of the ``tags_any``, ``kinds``, keys.

    ``provenance`` gives the values of fields of its provenance by their names.
    """

    tags: Sequence[str] = ()
    category: str | None = None
    kind: str | None = None
    prefix: str = ""
    keys: Sequence[str] | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    tags_any: Sequence[str] = ()
    kinds: Sequence[str] = ()
    since: str = ""


class PagePlace(NamedTuple):
    """The place of an entry in a list: of its key or, if the latest change comes first, of all three."""

    key: str
    updated_at: str
    ordinal: int


class Offer(NamedTuple):
    """A live entry as a prompt chooses among them, as an ``EntrySummary``. ``is_held``: pinned or core."""

    path: str
    key: str
    level: str
    is_held: bool
    updated_at: str
    ordinal: int
    expires_at: str | None
    block_bytes: int

    @property
    def uid(self) -> str:
        """The uid of its record."""
        return self.path[self.path.rindex("/") + 1 : -len(RECORD_SUFFIX)]

    @property
    def display_order(self) -> tuple[bool, str, int, str]:
        """Its place in the display order: the highest comes first."""
        return self.is_held, self.updated_at, self.ordinal, self.key

    def is_live(self, now: str) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or self.expires_at > now


_offered_at = itemgetter(*(Offer._fields.index(name) for name in ("updated_at", "ordinal", "key")))


def place_of(row: Row) -> PagePlace:
    """The place of a row."""
    return PagePlace(row.key, row.updated_at, row.provenance.ordinal)


def parts(connection: sqlite3.Connection, view: Sequence[PartitionKey]) -> list[int]:
    """The ids of the partitions of a view that exist, in its order."""
    found = (connection.execute(PART, place).fetchone() for place in view)
    return [row[0] for row in found if row is not None]


def visible_ids(
    connection: sqlite3.Connection, parts: Sequence[int], ids: Collection[int], *, now: str, filters: Filters
) -> set[int]:
    """The ids whose entries are in the view, live, unexpired, not shadowed, and pass the filters."""
    found: set[int] = set()
    condition, values = _filtered(filters)
    values |= {"ids": as_json(ids), "now": now}
    for place, part in enumerate(parts):
        statement = f"""
            SELECT e.id FROM json_each(:ids) AS i CROSS JOIN entry AS e ON e.id = i.value
            WHERE e.part = :part AND {_LIVE} AND {condition} AND {_UNSHADOWED if place else "1"}
        """
        bound = {**values, "part": part, "before": as_json(parts[:place])}
        found.update(id for (id,) in connection.execute(statement, bound))
    return found


def is_all_visible(connection: sqlite3.Connection, parts: Sequence[int], *, filters: Filters) -> bool:
    """Whether ``visible_ids`` would keep all entries with text, once expired texts were removed.

    This is so if they are all in one partition, where nothing shadows them: most sessions see only one.
    """
    return filters == Filters() and (len(parts) == 1 or len(fts.with_text(connection, parts)) == 1)


def shadowed(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> frozenset[int]:
    """The ids of live entries of the view whose keys are visible in an earlier partition; most often none.

    The cost grows with the smaller one of every two partitions.
    """
    found: set[int] = set()
    sizes = dict(connection.execute(_SIZES, (as_json(parts),)).fetchall()) if len(parts) > 1 else {}
    for place, part in enumerate(parts):
        for before in parts[:place]:
            if not sizes.get(before) or not sizes.get(part):
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


def page(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    *,
    now: str,
    filters: Filters,
    after: PagePlace | None,
    limit: int,
) -> list[Row]:
    """The next rows by key (in UTF-8 order) after this place; None for the first ones."""
    condition, values = _filtered(filters)
    values |= {"now": now, "after": after.key if after else "", "limit": limit, "beyond": filters.prefix + _BEYOND}
    found: list[Row] = []
    for place, part in enumerate(parts):
        statement = f"""
            {select("entry_by_key")}
            WHERE e.part = :part AND e.key > :after AND e.key >= :prefix AND e.key < :beyond AND {_LIVE} AND {condition}
              AND {_UNSHADOWED if place else "1"}
            ORDER BY e.key LIMIT :limit
        """
        bound = {**values, "part": part, "before": as_json(parts[:place])}
        found += rows(connection, statement, bound)
    return sorted(found, key=lambda row: row.key)[:limit]


def latest(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    *,
    now: str,
    filters: Filters,
    after: PagePlace | None,
    limit: int,
) -> list[Row]:
    """The next rows after this place, the last changed content first; None for the first ones."""
    condition, values = _filtered(filters)
    values |= {"now": now, "limit": limit, "since": filters.since} | (after or PagePlace("", "~", 0))._asdict()
    found: list[Row] = []
    for place, part in enumerate(parts):
        statement = f"""
            {select("entry_by_time")}
            WHERE e.part = :part AND e.kept = :kept AND {_LIVE} AND {condition} AND {_UNSHADOWED if place else "1"}
              AND (e.updated_at, e.ordinal, e.key) < (:updated_at, :ordinal, :key) AND e.updated_at >= :since
            ORDER BY e.updated_at DESC, e.ordinal DESC, e.key DESC LIMIT :limit
        """
        values |= {"part": part, "before": as_json(parts[:place])}
        found += (row for kept in (True, False) for row in rows(connection, statement, values | {"kept": kept}))
    return sorted(found, key=lambda row: (row.updated_at, row.provenance.ordinal, row.key), reverse=True)[:limit]


def recent(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    *,
    now: str,
    pinned: bool | None = None,
    room: Callable[[], int] | None = None,
) -> Iterator[Offer]:
    """The entries, newest content first; ``pinned`` selects pinned and core entries (True) or the others (False).

    ``room`` is asked before each batch for the largest block that is wanted.
    """
    wanted = (True, False) if pinned is None else (pinned,)
    streams = [
        _stream(connection, {"part": part, "kept": kept, "now": now, "before": as_json(parts[:place])}, room)
        for place, part in enumerate(parts)
        for kept in wanted
    ]
    return streams[0] if len(streams) == 1 else merge(*streams, key=_offered_at, reverse=True)


def _stream(
    connection: sqlite3.Connection, wanted: Mapping[str, object], room: Callable[[], int] | None
) -> Iterator[Offer]:
    """The entries of one partition, newest first, in batches, so that no statement stays open meanwhile."""
    values = {**wanted, "at": "~", "ordinal": 0, "key": "", "room": _ANY_SIZE}
    unshadowed = "1" if wanted["before"] == "[]" else _UNSHADOWED
    while True:
        index: str | None = "entry_by_time"
        if room is not None:
            values["room"] = min(room(), _ANY_SIZE)
            index = _index_of_fitting(connection, values)
        if index is None:
            return
        statement = f"""
            SELECT e.path, e.key, (SELECT level FROM part WHERE id = :part), e.kept, e.updated_at, e.ordinal,
                e.expires_at, e.block FROM entry AS e INDEXED BY {index}
            WHERE e.part = :part AND e.kept = :kept AND e.block <= :room AND {_LIVE}
              AND {unshadowed} AND (e.updated_at, e.ordinal, e.key) < (:at, :ordinal, :key)
            ORDER BY e.updated_at DESC, e.ordinal DESC, e.key DESC LIMIT {_BATCH}
        """
        found = connection.execute(statement, values).fetchall()
        yield from map(Offer._make, found)
        if len(found) < _BATCH:
            return
        values["at"], values["ordinal"], values["key"] = _offered_at(found[-1])


def _index_of_fitting(connection: sqlite3.Connection, values: Mapping[str, object]) -> str | None:
    """The index that finds a batch of the newest entries that fit soonest; None if none fits.

    It is the one by time if, to find a batch, it passes fewer rows than all that fit are worth.
    """
    (entries,) = connection.execute(_LIVE_ENTRIES, values).fetchone()
    few = min(_FEW, isqrt(_BATCH * (entries or 0) // _PASSED))
    (fitting,) = connection.execute(_FITTING, {**values, "few": few}).fetchone()
    if not fitting:
        return None
    return "entry_by_time" if fitting > few else "entry_by_block"


def deleted_rows(
    connection: sqlite3.Connection, parts: Sequence[int], *, now: str, expired: str, retired: str, limit: int
) -> list[Row]:
    """Deleted, evicted and expired entries in these partitions, the latest first.

    Entries that expired or were hidden by these moments count as erased.
    """
    is_kept = "(e.expires_at IS NULL OR e.expires_at > :expired)"
    ways = (
        ("entry_by_retirement", f"e.state IN ('deleted', 'evicted') AND e.retired_at > :retired AND {is_kept}"),
        ("entry_by_expiry", f"e.state = 'live' AND e.expires_at IS NOT NULL AND e.expires_at <= :now AND {is_kept}"),
    )
    values = {"now": now, "expired": expired, "retired": retired, "limit": limit}
    found: list[Row] = []
    for part in parts:
        for (index, condition), at in zip(ways, ("retired_at", "expires_at"), strict=True):
            latest = f"e.part = :part AND {condition} ORDER BY e.{at} DESC, e.path DESC LIMIT :limit"
            found += rows(connection, f"{select(index)} WHERE {latest}", {**values, "part": part})
    return sorted(found, key=lambda row: (row.retired_at or row.expires_at or "", row.path), reverse=True)[:limit]


def tombstones(connection: sqlite3.Connection, owners: Sequence[tuple[str, str]], *, limit: int) -> list[str]:
    """The paths of the tombstones of entries that were in these folders at these levels, the latest first."""
    statement = f"""
        SELECT e.retired_at, e.path FROM entry AS e INDEXED BY entry_key
        WHERE e.part = ({PART}) AND e.key = ? AND e.cause = 'tombstone' AND e.state = 'forgotten'
        ORDER BY e.retired_at DESC, e.path DESC LIMIT ?
    """
    found: list[tuple[str, str]] = []
    for folder, level in owners:
        for scope in (IDS, folder):  # in format 1 it is where the entry was
            found += connection.execute(statement, (scope, level, "", folder, limit))
    return [path for _, path in sorted(found, reverse=True)[:limit]]


def matching(connection: sqlite3.Connection, parts: Sequence[int], filters: Filters) -> list[Row]:
    """The rows in these partitions that pass the filters, in any state but forgotten, by key."""
    condition, values = _filtered(filters)
    statement = f"""
        {select()} WHERE e.part IN (SELECT value FROM json_each(:parts)) AND e.state <> 'forgotten' AND {condition}
        ORDER BY e.key, e.path
    """
    return rows(connection, statement, values | {"parts": as_json(parts)})


def of_ids(connection: sqlite3.Connection, ids: Collection[str]) -> list[str]:
    """The paths of all records with these ids, entries and marks."""
    statement = f"SELECT path FROM entry WHERE id IN ({_OF_IDS}) ORDER BY path"
    return [path for (path,) in connection.execute(statement, {"ids": as_json(sorted(ids))})]


def all_made_of_others(connection: sqlite3.Connection) -> list[Row]:
    """The rows of entries made from others, of all agents and users."""
    return rows(connection, f"{select('entry_by_sources')} WHERE e.sources <> '[]' AND e.state <> 'forgotten'", ())


def made_of_others(connection: sqlite3.Connection, parts: Sequence[int], *, prefix: str) -> list[Row]:
    """The rows of entries made from others, and of notes whose keys have that ``prefix``."""
    exists = "e.part = :part AND e.state <> 'forgotten' AND"
    ways = (
        (select("entry_by_sources"), "e.sources <> '[]'"),
        (select(), "e.key >= :prefix AND e.key < :beyond AND e.kind = 'note'"),
    )
    found: dict[str, Row] = {}
    for part in parts:
        values = {"part": part, "prefix": prefix, "beyond": f"{prefix}{_BEYOND}"}
        for selected, condition in ways:
            for row in rows(connection, f"{selected} WHERE {exists} {condition}", values):
                found[row.path] = row
    return list(found.values())


def made_into(connection: sqlite3.Connection, parts: Sequence[int] | None, ids: Collection[str]) -> list[str]:
    """The paths of the entries in these partitions, or in all, that were made of entries with these ids."""
    statement = f"""
        SELECT DISTINCT e.path FROM entry AS e INDEXED BY entry_by_sources, json_each(e.sources) AS s
        WHERE {"1" if parts is None else "e.part = :part"} AND e.sources <> '[]' AND e.state <> 'forgotten'
          AND s.value IN (SELECT value FROM json_each(:ids))
    """
    given = {"ids": as_json(sorted(ids))}
    asked = [given] if parts is None else [{**given, "part": part} for part in parts]
    return [path for values in asked for (path,) in connection.execute(statement, values)]


def reads_of(connection: sqlite3.Connection, parts: Sequence[int]) -> dict[str, tuple[int, str]]:
    """The number of reads and the time of the last one, by path, of entries that were ever read."""
    statement = "SELECT path, reads, read_at FROM entry WHERE part IN (SELECT value FROM json_each(?)) AND reads > 0"
    return {path: (count, at) for path, count, at in connection.execute(statement, (as_json(parts),))}


def _filtered(filters: Filters) -> tuple[str, dict[str, Any]]:
    """The filters as an SQL condition with its values."""
    conditions, values = ["1"], dict[str, Any](prefix=filters.prefix)
    if filters.prefix:
        conditions.append("substr(e.key, 1, length(:prefix)) = :prefix")
    if filters.tags:
        conditions.append(_TAGGED)
        values["tags"] = as_json(filters.tags)
    if filters.tags_any:
        conditions.append(_TAGGED_ANY)
        values["tags_any"] = as_json(filters.tags_any)
    if filters.kinds:
        conditions.append("e.kind IN (SELECT value FROM json_each(:kinds))")
        values["kinds"] = as_json(filters.kinds)
    if filters.since:
        conditions.append("e.updated_at >= :since")
        values["since"] = filters.since
    if filters.keys is not None:
        conditions.append("e.key IN (SELECT value FROM json_each(:keys))")
        values["keys"] = as_json(filters.keys)
    if filters.id is not None:
        conditions.append(f"e.id IN ({_OF_IDS})")
        values["ids"] = as_json([filters.id])
    for name in ("category", "kind"):
        if (wanted := getattr(filters, name)) is not None:
            conditions.append(f"e.{name} = :{name}")
            values[name] = wanted
    for name, wanted in filters.provenance.items():
        conditions.append(f"json_extract(e.provenance, :at_{name}) = :is_{name}")
        values |= {f"at_{name}": f"$.{name}", f"is_{name}": wanted}
    return " AND ".join(conditions), values


def select(index: str = "") -> str:
    """The beginning of a statement that selects rows, in the order of one index or of none."""
    return f"SELECT {SELECTED} FROM entry AS e {index and f'INDEXED BY {index}'} JOIN part AS p ON p.id = e.part"


def rows(connection: sqlite3.Connection, statement: str, values: Mapping[str, object] | Sequence[object]) -> list[Row]:
    """The rows that a statement of ``select`` finds."""
    return [row_from(found) for found in connection.execute(statement, values)]
