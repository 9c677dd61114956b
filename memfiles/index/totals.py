"""How many entries there are and how large they are: kept as they change, because every save asks.

Pure; the table of totals is changed by ``writing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from memfiles.index.rows import Row


class Sum(NamedTuple):
    """A number of entries, and the bytes of their contents."""

    number: int = 0
    size: int = 0

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """Both together; with ``times`` -1 the difference."""
        return Sum(self.number + times * other.number, self.size + times * other.size)


class CountKey(NamedTuple):
    """What is counted together: the entries of a partition in one state, of one category and kind."""

    scope: str
    level: str
    run: str
    state: str
    category: str
    kind: str


Sums = dict[CountKey, Sum]
CountPlace = tuple[str, str, str]  # a partition: scope, level, run
NOTHING = Sum()


@dataclass(frozen=True, slots=True)
class Totals:
    """The live entries of one partition, expired ones included; and the retired ones."""

    count: int = 0
    size: int = 0
    by_kind: Mapping[str, Sum] = field(default_factory=dict)
    by_category: Mapping[str, Sum] = field(default_factory=dict)
    retired: Sum = NOTHING


def heap_of(row: Row) -> CountKey | None:
    """Where the row is counted; None for a tombstone, which is not."""
    return (
        None if row.state == "forgotten" else CountKey(row.scope, row.level, row.run, row.state, row.category, row.kind)
    )


def count(sums: Sums, row: Row | None, *, times: int = 1) -> None:
    """Add a row to the sums, or take it out again (``times`` -1)."""
    if row is not None and (heap := heap_of(row)) is not None:
        found = sums.get(heap, NOTHING)
        sums[heap] = Sum(found.number + times, found.size + times * row.size)


def totals_of(parts: Iterable[tuple[CountKey, Sum]]) -> Totals:
    """The totals that these sums of one partition make."""
    live = retired = NOTHING
    by_kind: dict[str, Sum] = {}
    by_category: dict[str, Sum] = {}
    for heap, found in parts:
        if heap.state != "live":
            retired = retired.plus(found)
            continue
        live = live.plus(found)
        by_kind[heap.kind] = by_kind.get(heap.kind, NOTHING).plus(found)
        by_category[heap.category] = by_category.get(heap.category, NOTHING).plus(found)
    return Totals(live.number, live.size, _without_nothing(by_kind), _without_nothing(by_category), retired)


def _without_nothing(sums: Mapping[str, Sum]) -> dict[str, Sum]:
    return {name: found for name, found in sums.items() if found.number}
