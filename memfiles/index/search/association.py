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
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum
from types import MappingProxyType

from msgspec import Struct

from memfiles.index.search.weights import BRIEF, DENSE, LENDERS, TAGGED_LENDERS, WEIGHTS, Weights
from memfiles.index.text import fts
from memfiles.index.text.fts import PartState, PartTexts, RunRow
from memfiles.records import NamedTuple

REACH = 2  # neighbours on either side
BEST_OF_RUN = 3
MAX_TAGGED = 20  # entries; a tag that more of them share relates none of them
MAX_LINKS = 20  # followed from one hit
MAX_TAGS = 8
READ_AT_ONCE = 32  # rows that are read in order in less than the time in which the neighbours of eight are looked up
MOST_ORDERED = 300_000  # rows whose order is kept, at about 120 bytes each

_NEAR = """
    (SELECT group_concat(id) FROM (
        SELECT id FROM entry INDEXED BY entry_near WHERE part = :part AND source_run = source.source_run
            AND thread IS source.thread AND state = 'live' AND digest <> '' AND ordinal {side} source.ordinal {but}
            ORDER BY ordinal {order} LIMIT {reach}
    ))
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


class Ties(Struct, frozen=True):
    """The ties of hits: their neighbours by hit, and each tie by a link or a tag, with its share.

    ``leading`` hits lend to both sides.
    """

    near: Mapping[int, Near]
    others: Sequence[tuple[int, int, float]] = ()
    leading: Collection[int] = ()


class RunOrder:
    """The order in which the entries of one partition were saved, run by run, as of a state of it.

    ``doubted`` are the runs in which something changed since: what is next to their entries has to be looked up.
    """

    def __init__(self, state: PartState, rows: Iterable[RunRow]) -> None:
        self.state = state
        self.runs: set[RunThread] = set()
        self.doubted: set[RunThread] = set()
        self.new: set[int] = set()  # rows that were put into a run since
        self._ids = [0, 0]  # of one run after the other, with zeros before and after each
        self._starts: list[int] = []
        self._named: list[RunThread] = []
        last = RunRow(0, ("", ""), 0)
        for row in rows:
            if row.run != last.run:
                self._ids += (0,) * REACH
                self._starts.append(len(self._ids))
                self._named.append(row.run)
            elif row.ordinal == last.ordinal:
                self.doubted.add(row.run)  # which of the two came first is unknown
            last = row
            self._ids.append(row.id)
        self._ids += (0,) * REACH
        self._places = {id: place for place, id in enumerate(self._ids) if id}
        self.runs.update(self._named)

    def __len__(self) -> int:
        return len(self._places)

    def follow(self, connection: sqlite3.Connection, part: int, now: PartState) -> bool:
        """Doubt the runs in which something changed up to a state; False if that is not known."""
        if (gone := fts.removed_rows(connection, part, since=self.state, now=now)) is None:
            return False
        rows = fts.in_runs(connection, part, since=self.state.stamp)
        changed = {run for id in gone if (run := self.run_of(id))} | {row.run for row in rows}
        self.runs |= changed
        self.doubted |= changed
        for id in gone:
            self._places.pop(id, None)
        self.new = (self.new - gone) | {row.id for row in rows}
        self.state = now
        return True

    def run_of(self, id: int) -> RunThread | None:
        """The run in which a row was when the order was read; None of one that is new or in no run."""
        place = self._places.get(id)
        return None if place is None else self._named[bisect_right(self._starts, place) - 1]

    def near(
        self, ids: Iterable[int], *, but: Collection[int], others: Sequence[RunOrder]
    ) -> tuple[dict[int, Near], list[int]]:
        """The neighbours of the rows that are here, and the rows that have to be looked up.

        A row has to be if its run is doubted, or may be in one of the ``others`` as well.
        """
        found: dict[int, Near] = {}
        unknown: list[int] = []
        places, starts, named, order = self._places, self._starts, self._named, self._ids
        doubted = self.doubted.union(*(it.runs for it in others)) if others else self.doubted
        for id in ids:
            if (place := places.get(id)) is None:
                unknown += (id,) if id in self.new else ()
                continue
            run = named[bisect_right(starts, place) - 1]
            if doubted and run in doubted:
                unknown.append(id)
            elif but:
                found[id] = Near(self._walked(place, 1, but), self._walked(place, -1, but), run)
            else:
                after, before = order[place + 1 : place + 1 + REACH], order[place - 1 : place - 1 - REACH : -1]
                if not (after[-1] and before[-1]):  # it is at an end of its run
                    after, before = ([each for each in side if each] for side in (after, before))
                found[id] = Near(after, before, run)
        return found, unknown

    def _walked(self, place: int, step: int, but: Collection[int]) -> list[int]:
        found: list[int] = []
        while len(found) < REACH and (id := self._ids[place := place + step]):
            found += () if id in but else (id,)
        return found


class RunOrders:
    """The orders of the partitions that were searched last, on one connection; one thread at a time uses them.

    One is read only once so many neighbours were looked up that it will soon have cost less.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._known: dict[int, RunOrder] = {}
        self._looked_up: dict[int, int] = defaultdict(int)

    def neighbours(
        self, connection: sqlite3.Connection, texts: Sequence[PartTexts], ids: Sequence[int], *, but: Collection[int]
    ) -> dict[int, Near]:
        """The neighbours as the function of that name finds them, from memory where nothing changed."""
        self._follow(connection)
        orders = [order for each in texts if (order := self._order(connection, each)) is not None]
        found: dict[int, Near] = {}
        unknown = [*ids] if len(orders) < len(texts) else []
        for order in orders if not unknown else ():
            told, more = order.near(ids, but=but, others=[it for it in orders if it is not order])
            found |= told
            unknown += more
        for each in texts:
            self._looked_up[each.part] += len(unknown)
        return found | neighbours(connection, [each.part for each in texts], unknown, but=but)

    def forget(self) -> None:
        """Start from nothing."""
        self._known.clear()
        self._looked_up.clear()

    def _follow(self, connection: sqlite3.Connection) -> None:
        if connection is not self._connection:  # its tables may be others
            self._connection = connection
            self.forget()

    def _order(self, connection: sqlite3.Connection, texts: PartTexts) -> RunOrder | None:
        part, state = texts.part, texts.state
        known = self._known.pop(part, None)
        if known is not None and known.state != state and not known.follow(connection, part, state):
            known = None
        if self._looked_up[part] * READ_AT_ONCE >= state.size <= MOST_ORDERED:
            known = RunOrder(state, fts.in_runs(connection, part))
            self._looked_up[part] = 0
        if known is not None:
            self._known[part] = known
        while sum(map(len, self._known.values())) > MOST_ORDERED and len(self._known) > 1:
            del self._known[next(iter(self._known))]
        return known


def ties(
    connection: sqlite3.Connection,
    texts: Sequence[PartTexts],
    best: Sequence[int],
    *,
    but: Collection[int] = frozenset(),
    weights: Weights = WEIGHTS,
    orders: RunOrders | None = None,
) -> Ties:
    """The ties of hits, best first, in the texts' partitions; rows in ``but`` do not exist here."""
    near = (RunOrders() if orders is None else orders).neighbours(connection, texts, best, but=but)
    others = list(_ties(connection, texts, best[:TAGGED_LENDERS], but, weights))
    return Ties(near, others, leading=frozenset(best[:LENDERS]))


def lent_scores(
    scores: Mapping[int, float],
    tied: Ties,
    *,
    asking: Collection[int],
    bonus: Mapping[RunThread, float] = MappingProxyType({}),
    enough: float = 0.0,
    weights: Weights = WEIGHTS,
) -> dict[int, float]:
    """The scores that hits lend to related entries, other hits among them, by row; ``asking`` are the hits that ask.

    Other entries are left out that cannot reach ``enough``, not even with the ``bonus`` of their run.
    """
    answered: dict[int, float] = {}
    loans: dict[int, list[float]] = {}  # of each entry: the score of its best lender, the bonus of its run, and loans
    for lender, target, share in tied.others:
        if target != lender:
            known = loans.setdefault(target, [0.0, 0.0])
            known.append(scores[lender] * share)
            known[0] = max(known[0], scores[lender])
    strong: list[tuple[int, Near, float]] = []
    weak: list[tuple[int, Near, float]] = []
    most_lent = weights.most
    for lender, near in tied.near.items():
        added = bonus.get(near.run, 0.0)
        (strong if most_lent * scores[lender] + added >= enough else weak).append((lender, near, added))
    shares = (*weights.after, *weights.before)
    for are_strong, lenders in (True, strong), (False, weak):
        for lender, (after, before, _), added in lenders:
            score = scores[lender]
            if lender not in tied.leading:
                targets = zip(after, shares, strict=False)
            elif len(after) == REACH:
                targets = zip((*after, *before), shares, strict=False)
            else:
                targets = zip((*after, *before), (*shares[: len(after)], *weights.before), strict=False)
            if after and lender in asking:
                first, _ = next(targets)
                if are_strong or first in scores or first in loans:
                    answered[first] = max(answered.get(first, 0.0), score)
            for target, share in targets:
                if target in loans:
                    known = loans[target]
                    known.append(score * share)
                    known[1] = known[1] or added
                    if score > known[0]:
                        known[0] = score
                elif are_strong or target in scores or target in answered:
                    loans[target] = [score, added, score * share]
    return _gained(scores, loans, answered, enough=enough, weights=weights)


def _gained(
    scores: Mapping[int, float],
    loans: Mapping[int, list[float]],
    answered: Mapping[int, float],
    *,
    enough: float,
    weights: Weights,
) -> dict[int, float]:
    """The gains by loans, of rows with the score of their best lender, the bonus of their run and their loans."""
    found, share = {}, weights.most
    for target, (most, added, *loaned) in loans.items():
        if target in answered:
            continue
        if (own := scores.get(target)) is None:
            gain = min(fsum(loaned) if loaned[1:] else loaned[0], share * most)
            if gain + added >= enough and gain:
                found[target] = gain
        elif most > own and (gain := min(fsum(loaned) if loaned[1:] else loaned[0], share * (most - own))):
            found[target] = gain
    for target, asked in answered.items():
        most, _, *loaned = loans.get(target, (0.0, 0.0))
        gain = weights.answer * asked
        if (ahead := most - scores.get(target, 0.0) - gain) > 0:
            gain += min(fsum(loaned), share * ahead)
        if gain:
            found[target] = min(gain, share * max(asked, most))
    return found


def run_bonuses(
    scores: Mapping[int, float], runs: Mapping[int, RunThread], lengths: Mapping[int, int], *, weights: Weights
) -> dict[RunThread, float]:
    """The bonus that each run and thread with several hits adds to every hit in it; ``lengths`` are in words.

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
    near = [Near(_ids(after), _ids(before), (run, thread)) for _, run, thread, after, before in found]
    if len(parts) == 1:
        return dict(zip((source for source, *_ in found), near, strict=True))
    return _nearest(connection, [(source, each) for (source, *_), each in zip(found, near, strict=True)])


def _statement(*, both: bool, but: bool) -> str:
    """The statement that finds neighbours in one partition: an index lookup for each is the cheapest way."""
    after, before = (
        _NEAR.format(side=side, order=order, but=_BUT if but else "", reach=REACH)
        for side, order in ((">", ""), ("<", "DESC"))
    )
    return _NEIGHBOURS.format(near=f"{after}, {before if both else 'NULL'}")


def _ids(listed: str | None) -> list[int]:
    return list(map(int, listed.split(","))) if listed else []


_STATEMENTS = {(both, but): _statement(both=both, but=but) for both in (False, True) for but in (False, True)}


def _nearest(connection: sqlite3.Connection, found: Iterable[tuple[int, Near]]) -> dict[int, Near]:
    """The nearest of the neighbours found in several partitions."""
    together: dict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    runs: dict[int, RunThread] = {}
    for source, near in found:
        runs[source] = near.run
        together[source][0].update(near.after)
        together[source][1].update(near.before)
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
