"""Association: a hit lends part of its score to related entries, in one bounded step.

The rule this file guards: what is lent moves nothing past its lender, however many lend to it. So a neighbour that
answers a little never takes the place of the entry that answers best.

Related are: the entries that its links name, the few entries that share a tag with it, and its neighbours, saved just
before and after it in the same run and thread. The answer to a question is often near what matches it: in a talk, one
asks and the other answers, and both go on.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum

from memfiles.index.text import fts
from memfiles.index.text.fts import PartTexts

SOURCES = 30  # the best hits; with 20, a search by meaning lost entries found by words in two categories
TAGGED_SOURCES = 5  # the best hits, whose tags and links are followed
REACH = 2  # neighbours on either side
BEFORE = (0.3, 0.3)  # shares of the score for the neighbours saved before, the nearest first
AFTER = (0.5, 0.4)
_SHARES = (*AFTER, *BEFORE)
MOST = 0.9  # of what the best lender is ahead
_NOBODY = (0,) * REACH
LINK = 0.4
TAG = 0.2
MAX_TAGGED = 20  # entries; a tag that more of them share relates none of them
MAX_LINKS = 20  # followed from one hit
MAX_TAGS = 8

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
_LINKED = """
    SELECT id FROM entry INDEXED BY entry_key WHERE part IN (SELECT value FROM json_each(?))
        AND key IN (SELECT value FROM json_each(?)) AND state = 'live' AND digest <> ''
"""
_AMONG = "id IN (SELECT value FROM json_each(?))"
_Near = tuple[int, ...]  # a source and its neighbours in the order of ``_SHARES``; 0 where there is none


def shares(
    connection: sqlite3.Connection,
    texts: Sequence[PartTexts],
    scores: Mapping[int, float],
    *,
    but: Collection[int] = frozenset(),
) -> dict[int, float]:
    """The scores that hits (id to score, best first) lend to related entries of the texts' partitions, hits among them.

    Rows in ``but`` do not exist here: they get nothing and separate no neighbours.
    """
    if not texts or not scores:
        return {}
    sources = list(scores)[:SOURCES]
    lent: dict[int, list[tuple[float, float]]] = defaultdict(list)  # a lender's score, and its share
    for source, *near in _neighbours(connection, [each.part for each in texts], sources, but):
        for target, share in zip(near, _SHARES, strict=True):
            if target:
                lent[target].append((scores[source], share))
    for source, target, share in _ties(connection, texts, sources[:TAGGED_SOURCES], but):
        if target != source:
            lent[target].append((scores[source], share))
    return {
        target: min(fsum(score * share for score, share in loans), MOST * ahead)
        for target, loans in lent.items()
        if (ahead := max(loans)[0] - scores.get(target, 0.0)) > 0
    }


def neighbours(
    connection: sqlite3.Connection, parts: Sequence[int], ids: Sequence[int], *, but: Collection[int] = frozenset()
) -> dict[int, list[int]]:
    """The neighbours of these rows, for each row that has any."""
    return {source: [id for id in near if id] for source, *near in _neighbours(connection, parts, ids, but)}


def _ties(
    connection: sqlite3.Connection, texts: Sequence[PartTexts], sources: Sequence[int], but: Collection[int]
) -> Iterator[tuple[int, int, float]]:
    """Source, related entry and share, for each link and each shared tag of the sources."""
    rows = connection.execute(
        f"SELECT id, tags, links FROM entry WHERE {_AMONG} AND (tags <> '[]' OR links <> '[]')", (fts.as_json(sources),)
    )
    parts = [each.part for each in texts]
    tagged: dict[str, list[int]] = {}  # hits often share their tags
    for source, tags, links in rows.fetchall():
        yield from ((source, target, LINK) for target in _linked(connection, parts, json.loads(links)))
        for tag in json.loads(tags)[:MAX_TAGS]:
            if tag not in tagged:
                found = [id for each in texts for id in each.tagged(tag, limit=MAX_TAGGED + 1, but=but)]
                tagged[tag] = found if len(found) <= MAX_TAGGED else []
            yield from ((source, target, TAG) for target in tagged[tag])


def _neighbours(
    connection: sqlite3.Connection, parts: Sequence[int], sources: Sequence[int], but: Collection[int]
) -> Iterable[_Near]:
    """The nearest visible entries on either side of each source; hidden entries between them do not count."""
    asked = {"sources": fts.as_json(sources), "but": fts.as_json(sorted(but))}
    statement = _STATEMENT_BUT if but else _STATEMENT
    found = [near for part in parts for near in connection.execute(statement, {**asked, "part": part})]
    return found if len(parts) == 1 else _nearest(connection, found)


def _statement(but: str) -> str:
    """The statement that finds neighbours in one partition: an index lookup for each is the cheapest way."""
    columns = [
        f"ifnull({_NEAR.format(side=side, order=order, but=but, place=place)}, 0)"
        for side, order in ((">", ""), ("<", "DESC"))
        for place in range(REACH)
    ]
    return _NEIGHBOURS.format(near=", ".join(columns))


_STATEMENT, _STATEMENT_BUT = _statement(""), _statement(_BUT)


def _nearest(connection: sqlite3.Connection, found: Sequence[_Near]) -> Iterator[_Near]:
    """The nearest of the neighbours found in several partitions."""
    statement = f"SELECT id, ordinal FROM entry WHERE {_AMONG}"
    ordinals = dict(connection.execute(statement, (fts.as_json({id for near in found for id in near}),)).fetchall())
    together: dict[int, set[int]] = defaultdict(set)
    for source, *near in found:
        together[source].update(filter(None, near))
    for source, ids in together.items():
        away = sorted((abs(ordinals[id] - ordinals[source]), id) for id in ids)
        after = [id for _, id in away if ordinals[id] > ordinals[source]]
        before = [id for _, id in away if ordinals[id] < ordinals[source]]
        yield source, *[*after, *_NOBODY][:REACH], *[*before, *_NOBODY][:REACH]


def _linked(connection: sqlite3.Connection, parts: Sequence[int], keys: Sequence[str]) -> list[int]:
    if not keys:
        return []
    asked = fts.as_json(parts), fts.as_json(keys[:MAX_LINKS])
    return [id for (id,) in connection.execute(_LINKED, asked)]
