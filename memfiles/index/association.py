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

from memfiles.index import texts

SOURCES = 30  # hits that lend, best first; with 20 a search by meaning lost what words had found in two categories
TAGGED_SOURCES = 5  # of them, those whose tags and links are followed
REACH = 2  # neighbours on either side
BEFORE = (0.3, 0.3)  # shares lent to the neighbours saved before, the nearest first
AFTER = (0.5, 0.4)
LINK = 0.4
TAG = 0.2
MOST_TAGGED = 20  # a tag that more entries share ties none of them
MOST_LINKS = 20  # that are followed from one hit
MOST_TAGS = 8

_NEIGHBOURS = """
    SELECT source.id, near.id, near.ordinal, source.ordinal
    FROM json_each(:sources) AS leading CROSS JOIN entry AS source ON source.id = leading.value
        CROSS JOIN json_each(:parts) AS p CROSS JOIN entry AS near
    WHERE source.source_run <> '' AND near.id IN (
        SELECT id FROM (SELECT id FROM entry INDEXED BY entry_neighbours WHERE part = p.value
            AND source_run = source.source_run AND thread IS source.thread AND state = 'live' AND digest <> ''
            AND id NOT IN (SELECT value FROM json_each(:but))
            AND ordinal > source.ordinal ORDER BY ordinal LIMIT :reach)
        UNION ALL
        SELECT id FROM (SELECT id FROM entry INDEXED BY entry_neighbours WHERE part = p.value
            AND source_run = source.source_run AND thread IS source.thread AND state = 'live' AND digest <> ''
            AND id NOT IN (SELECT value FROM json_each(:but))
            AND ordinal < source.ordinal ORDER BY ordinal DESC LIMIT :reach))
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Make the ways from an entry to those tied to it, on the table ``entry``; may be called again."""
    connection.execute(
        "CREATE INDEX IF NOT EXISTS entry_neighbours ON entry (part, source_run, thread, ordinal) WHERE state = 'live'"
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
    for source, target, share in _ties(connection, parts, sources, but):
        if target != source:
            shares[target].append(share * scores[source])
    return {target: fsum(lent) for target, lent in shares.items()}


def _ties(
    connection: sqlite3.Connection, parts: Sequence[int], sources: Sequence[int], but: Collection[int]
) -> Iterator[tuple[int, int, float]]:
    yield from _neighbours(connection, parts, sources, but)
    leading = sources[:TAGGED_SOURCES]
    rows = connection.execute(
        f"SELECT id, tags, links FROM entry WHERE id IN ({_list(leading)}) AND (tags <> '[]' OR links <> '[]')"
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
) -> Iterator[tuple[int, int, float]]:
    """The nearest visible entries on either side of each source; what is hidden between them does not count."""
    asked = {"sources": to_json(sources).decode(), "parts": to_json(parts).decode(), "reach": REACH}
    asked["but"] = to_json(sorted(but)).decode()
    sides: dict[tuple[int, bool], list[tuple[int, int]]] = defaultdict(list)
    for source, near, ordinal, own in connection.execute(_NEIGHBOURS, asked):
        sides[source, ordinal > own].append((abs(ordinal - own), near))
    for (source, is_after), near in sides.items():
        shares = AFTER if is_after else BEFORE
        for share, (_, target) in zip(shares, sorted(near), strict=False):
            yield source, target, share


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


def _list(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
