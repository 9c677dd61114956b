"""Association: a hit lends part of its score to the entries that are tied to it, in one bounded step.

Tied are: the entries that it names in its links, the few entries that share a tag with it, and its neighbours, saved
just before and after it in the same run and thread. What is asked often stands beside what answers it: of two
people talking, one asks and the other tells, and both go on.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum

from pydantic_core import to_json

from memfiles.index.text import fts as texts

SOURCES = 30  # hits that lend, best first; with 20 a search by meaning lost what words had found in two categories
TAGGED_SOURCES = 5  # of them, those whose tags and links are followed
REACH = 2  # neighbours on either side
BEFORE = (0.3, 0.3)  # shares lent to the neighbours saved before, the nearest first
AFTER = (0.5, 0.4)
_SHARES = (*AFTER, *BEFORE)
LINK = 0.4
TAG = 0.2
MOST_TAGGED = 20  # a tag that more entries share ties none of them
MOST_LINKS = 20  # that are followed from one hit
MOST_TAGS = 8

_NEAR = """
    (SELECT id FROM entry INDEXED BY entry_near WHERE part = :part AND source_run = source.source_run
        AND thread IS source.thread AND state = 'live' AND digest <> '' AND ordinal {side} source.ordinal {but}
        ORDER BY ordinal {order} LIMIT 1 OFFSET {place})
"""
_NEIGHBOURS = """
    SELECT source.id, {near} FROM json_each(:sources) AS leading CROSS JOIN entry AS source ON source.id = leading.value
    WHERE source.source_run <> ''
"""
_BUT = "AND id NOT IN (SELECT value FROM json_each(:but))"
_AMONG = "id IN (SELECT value FROM json_each(?))"

_Near = tuple[int, ...]  # a source, and on either side the nearest, as ``_SHARES`` has them; 0 for nobody


def prepare(connection: sqlite3.Connection) -> None:
    """Make the ways from an entry to those tied to it, on the table ``entry``; may be called again."""
    connection.execute(
        """CREATE INDEX IF NOT EXISTS entry_near ON entry (part, source_run, thread, ordinal)
           WHERE state = 'live' AND digest <> ''"""
    )
    connection.execute("CREATE INDEX IF NOT EXISTS entry_key ON entry (part, key)")


def lent(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    scores: Mapping[int, float],
    *,
    but: Collection[int] = frozenset(),
) -> dict[int, float]:
    """What the hits, id to score and best first, lend to which entries of the partitions; hits may be among them.

    Those in ``but`` are not there: nothing is lent to them, and they stand between nobody.
    """
    if not parts or not scores:
        return {}
    sources = list(scores)[:SOURCES]
    shares: dict[int, list[float]] = defaultdict(list)
    for source, *near in _neighbours(connection, parts, sources, but):
        for target, share in zip(near, _SHARES, strict=True):
            if target:
                shares[target].append(share * scores[source])
    for source, target, share in _ties(connection, parts, sources[:TAGGED_SOURCES], but):
        if target != source:
            shares[target].append(share * scores[source])
    return {target: fsum(lent) for target, lent in shares.items()}


def _ties(
    connection: sqlite3.Connection, parts: Sequence[int], sources: Sequence[int], but: Collection[int]
) -> Iterator[tuple[int, int, float]]:
    """Who is tied to the sources by a link or a tag, and how closely."""
    rows = connection.execute(
        f"SELECT id, tags, links FROM entry WHERE {_AMONG} AND (tags <> '[]' OR links <> '[]')", (_json(sources),)
    )
    tagged: dict[str, list[int]] = {}  # hits often share their tags
    for source, tags, links in rows.fetchall():
        yield from ((source, target, LINK) for target in _linked(connection, parts, _strings(links)))
        for tag in _strings(tags)[:MOST_TAGS]:
            if tag not in tagged:
                tagged[tag] = _tagged(connection, parts, tag, but)
            yield from ((source, target, TAG) for target in tagged[tag])


def _neighbours(
    connection: sqlite3.Connection, parts: Sequence[int], sources: Sequence[int], but: Collection[int]
) -> Iterable[_Near]:
    """The nearest visible entries on either side of each source; what is hidden between them does not count."""
    asked = {"sources": _json(sources), "but": _json(sorted(but))}
    statement = _STATEMENT_BUT if but else _STATEMENT
    found = [near for part in parts for near in connection.execute(statement, {**asked, "part": part})]
    return found if len(parts) == 1 else _nearest(connection, found)


def _near(side: str, order: str, *, but: str) -> Iterator[str]:
    return (f"ifnull({_NEAR.format(side=side, order=order, but=but, place=place)}, 0)" for place in range(REACH))


def _statement(but: str) -> str:
    """What finds the neighbours in one partition: a look into the index for each, as that costs least."""
    return _NEIGHBOURS.format(near=", ".join([*_near(">", "", but=but), *_near("<", "DESC", but=but)]))


_STATEMENT, _STATEMENT_BUT = _statement(""), _statement(_BUT)


def _nearest(connection: sqlite3.Connection, found: Sequence[_Near]) -> Iterator[_Near]:
    """Of the neighbours found in each of several partitions, those that are nearest."""
    statement = f"SELECT id, ordinal FROM entry WHERE {_AMONG}"
    ordinals = dict(connection.execute(statement, (_json({id for near in found for id in near}),)).fetchall())
    together: dict[int, set[int]] = defaultdict(set)
    for source, *near in found:
        together[source].update(filter(None, near))
    for source, ids in together.items():
        away = sorted((abs(ordinals[id] - ordinals[source]), id) for id in ids)
        after = [id for _, id in away if ordinals[id] > ordinals[source]]
        before = [id for _, id in away if ordinals[id] < ordinals[source]]
        yield source, *_padded(after), *_padded(before)


def _padded(near: Sequence[int]) -> Sequence[int]:
    return [*near, *(0,) * REACH][:REACH]


def _linked(connection: sqlite3.Connection, parts: Sequence[int], keys: Sequence[str]) -> list[int]:
    keys = keys[:MOST_LINKS]
    marks = ",".join("?" * len(keys))
    statement = (
        f"SELECT id FROM entry WHERE part IN ({_list(parts)}) AND key IN ({marks}) AND state = 'live' AND digest <> ''"
    )
    return [row for (row,) in connection.execute(statement, keys)] if keys else []


def _tagged(connection: sqlite3.Connection, parts: Sequence[int], tag: str, but: Collection[int]) -> list[int]:
    """The entries with the tag, if only few share it."""
    found = [row for part in parts for row in texts.tagged(connection, part, tag, limit=MOST_TAGGED + 1, but=but)]
    return found if len(found) <= MOST_TAGGED else []


def _strings(text: str | None) -> list[str]:
    values = json.loads(text or "[]")
    return [value for value in values if isinstance(value, str)]


def _json(ids: Collection[int]) -> str:
    """A list as SQLite takes it, so that a statement stays the same and is prepared once."""
    return to_json(list(ids)).decode()


def _list(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
