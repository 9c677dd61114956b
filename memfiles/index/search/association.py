"""Association: a hit lends part of its score to related entries, in one bounded step.

The rule this file guards: what is lent moves nothing past its lender, however many lend to it. So a neighbour that
answers a little never takes the place of the entry that answers best. One thing may: the answer to a question that was
asked in the memory itself.

Related are: the entries that its links name, the few entries that share a tag with it, and its neighbours, saved just
before and after it in the same run and thread. The answer to a question is often near what matches it: in a talk, one
asks and the other answers, and both go on. What is said in a run as a whole counts as well: the mean of its best hits.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from memfiles.index.search.weights import BRIEF, DENSE, LENDERS, TAGGED_LENDERS, WEIGHTS, Weights
from memfiles.index.text import fts
from memfiles.index.text.fts import PartTexts

REACH = 2  # neighbours on either side
BEST_OF_RUN = 3
MAX_TAGGED = 20  # entries; a tag that more of them share relates none of them
MAX_LINKS = 20  # followed from one hit
MAX_TAGS = 8

_NEAR = """
    (SELECT id FROM entry INDEXED BY entry_near WHERE part = :part AND source_run = source.source_run
        AND thread IS source.thread AND state = 'live' AND digest <> '' AND ordinal {side} source.ordinal {but}
        ORDER BY ordinal {order} LIMIT 1 OFFSET {place})
"""
_NEIGHBOURS = """
    SELECT source.id, source.source_run, source.thread, {near}
    FROM json_each(:sources) AS leading CROSS JOIN entry AS source ON source.id = leading.value
    WHERE source.source_run <> ''
"""
_BUT = "AND id NOT IN (SELECT value FROM json_each(:but))"
_LINKED = """
    SELECT id FROM entry INDEXED BY entry_key WHERE part IN (SELECT value FROM json_each(?))
        AND key IN (SELECT value FROM json_each(?)) AND state = 'live' AND digest <> ''
"""
_AMONG = "id IN (SELECT value FROM json_each(?))"
RunThread = tuple[str, str]
"""The run and the thread in which an entry was saved."""


class Near(NamedTuple):
    """The neighbours of a row, the nearest first, and the run and thread of all of them."""

    after: Sequence[int]
    before: Sequence[int]
    run: RunThread


class Ties(NamedTuple):
    """What hits are tied to: their neighbours by hit, and each tie by a link or a tag, with its share."""

    near: Mapping[int, Near]
    others: Sequence[tuple[int, int, float]] = ()


def ties(
    connection: sqlite3.Connection,
    texts: Sequence[PartTexts],
    best: Sequence[int],
    *,
    but: Collection[int] = frozenset(),
    weights: Weights = WEIGHTS,
) -> Ties:
    """The ties of hits, best first, in the texts' partitions; rows in ``but`` do not exist here."""
    parts = [each.part for each in texts]
    near = neighbours(connection, parts, best[:LENDERS], but=but)
    near |= neighbours(connection, parts, best[LENDERS:], but=but, both=False)
    return Ties(near, list(_ties(connection, texts, best[:TAGGED_LENDERS], but, weights)))


def lent(
    scores: Mapping[int, float], tied: Ties, *, asking: Collection[int], weights: Weights = WEIGHTS
) -> dict[int, float]:
    """What hits lend to related entries, hits among them, by row; ``asking`` are those that ask."""
    answered: dict[int, float] = {}
    loans: dict[int, list[tuple[float, float]]] = defaultdict(list)  # a lender's score, and its share
    for lender, (after, before, _) in tied.near.items():
        score = scores[lender]
        for target, share in zip(after, weights.after, strict=False):
            loans[target].append((score, share))
        if after and lender in asking:
            loans[after[0]].pop()
            answered[after[0]] = max(answered.get(after[0], 0.0), score)
        for target, share in zip(before, weights.before, strict=False):
            loans[target].append((score, share))
    for lender, target, share in tied.others:
        if target != lender:
            loans[target].append((scores[lender], share))
    found = {}
    for target, others in loans.items():
        asked = answered.get(target, 0.0)
        gain, best = weights.answer * asked, max(others)[0] if others else 0.0
        if (ahead := best - scores.get(target, 0.0) - gain) > 0:
            gain += min(fsum([score * share for score, share in others]), weights.most * ahead)
        if gain:
            found[target] = min(gain, weights.most * max(asked, best))
    return found


def of_runs(
    scores: Mapping[int, float],
    runs: Mapping[int, RunThread],
    lengths: Mapping[int, int],
    *,
    weights: Weights = WEIGHTS,
) -> dict[RunThread, float]:
    """What each run and thread with several hits adds to every hit in it; ``lengths`` are in words.

    Long texts say what they are about themselves.
    """
    held: dict[RunThread, list[int]] = defaultdict(list)
    for id, run in runs.items():
        held[run].append(id)
    found = {}
    for run, ids in held.items():
        if len(ids) > 1:
            best = sorted((scores[id] for id in ids), reverse=True)[:BEST_OF_RUN]
            long = fsum(lengths.get(id, 0) for id in ids) / len(ids)
            found[run] = weights.run * min(1.0, DENSE / len(ids), BRIEF / max(long, 1.0)) * fsum(best) / BEST_OF_RUN
    return found


def neighbours(
    connection: sqlite3.Connection,
    parts: Sequence[int],
    ids: Sequence[int],
    *,
    but: Collection[int] = frozenset(),
    both: bool = True,
) -> dict[int, Near]:
    """The nearest visible entries on either side of each row that has a run, or only those saved after it.

    Hidden entries between them do not count.
    """
    if not ids:
        return {}
    asked = {"sources": fts.as_json(ids), "but": fts.as_json(sorted(but))}
    statement = _STATEMENTS[both, bool(but)]
    found = [row for part in parts for row in connection.execute(statement, {**asked, "part": part})]
    if len(parts) == 1:
        return {
            source: Near([id for id in near[:REACH] if id], [id for id in near[REACH:] if id], (run, thread))
            for source, run, thread, *near in found
        }
    return _nearest(connection, found)


def _statement(*, both: bool, but: bool) -> str:
    """The statement that finds neighbours in one partition: an index lookup for each is the cheapest way."""
    columns = [
        _NEAR.format(side=side, order=order, but=_BUT if but else "", place=place)
        for side, order in ((">", ""), ("<", "DESC"))[: 1 + both]
        for place in range(REACH)
    ]
    return _NEIGHBOURS.format(near=", ".join(columns))


_STATEMENTS = {(both, but): _statement(both=both, but=but) for both in (False, True) for but in (False, True)}


def _nearest(connection: sqlite3.Connection, found: Iterable[tuple[Any, ...]]) -> dict[int, Near]:
    """The nearest of the neighbours found in several partitions."""
    together: dict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    runs: dict[int, RunThread] = {}
    for source, run, thread, *near in found:
        runs[source] = run, thread
        together[source][0].update(filter(None, near[:REACH]))
        together[source][1].update(filter(None, near[REACH:]))
    statement = f"SELECT id, ordinal FROM entry WHERE {_AMONG}"
    every = {id for both in together.values() for ids in both for id in ids}
    ordinals = dict(connection.execute(statement, (fts.as_json(every),)).fetchall())
    return {
        source: Near(
            sorted(after, key=lambda id: (ordinals[id], id))[:REACH],
            sorted(before, key=lambda id: (-ordinals[id], id))[:REACH],
            runs[source],
        )
        for source, (after, before) in together.items()
    }


def _ties(
    connection: sqlite3.Connection,
    texts: Sequence[PartTexts],
    sources: Sequence[int],
    but: Collection[int],
    weights: Weights,
) -> Iterator[tuple[int, int, float]]:
    """Source, related entry and share, for each link and each shared tag of the sources."""
    rows = connection.execute(
        f"SELECT id, tags, links FROM entry WHERE {_AMONG} AND (tags <> '[]' OR links <> '[]')", (fts.as_json(sources),)
    )
    parts = [each.part for each in texts]
    tagged: dict[str, list[int]] = {}  # hits often share their tags
    for source, tags, links in rows.fetchall():
        yield from ((source, target, weights.link) for target in _linked(connection, parts, json.loads(links)))
        for tag in json.loads(tags)[:MAX_TAGS]:
            if tag not in tagged:
                found = [id for each in texts for id in each.tagged(tag, limit=MAX_TAGGED + 1, but=but)]
                tagged[tag] = found if len(found) <= MAX_TAGGED else []
            yield from ((source, target, weights.tag) for target in tagged[tag])


def _linked(connection: sqlite3.Connection, parts: Sequence[int], keys: Sequence[str]) -> list[int]:
    if not keys:
        return []
    asked = fts.as_json(parts), fts.as_json(keys[:MAX_LINKS])
    return [id for (id,) in connection.execute(_LINKED, asked)]
