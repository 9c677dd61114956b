"""Retention: how much may be kept, and which entries go when it is more.

The rules this file guards: what is being saved is never a victim of its own save, and what is larger than a whole
budget is refused before anything goes; whatever else must go goes in the order of ``value``, the lowest first. Nothing
goes because of its age. Budgets count the live entries of one folder and level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from memfiles.entries.summary import EntrySummary
from memfiles.errors import BudgetExceeded
from memfiles.records.entry import Kind

Value = tuple[bool, float, bool, float, int, str, str, int, str, str]


class LimitLike(Protocol):
    """What a workflow says of one category's or one kind's budget; None is no limit of its own."""

    @property
    def max_entries(self) -> int | None:
        """How many entries."""

    @property
    def max_bytes(self) -> int | None:
        """How many bytes of content."""


class EntriesLike(Protocol):
    """What a workflow says of entries: see ``workflow.EntriesSpec``."""

    @property
    def max_entries(self) -> int:
        """How many entries."""

    @property
    def max_bytes(self) -> int:
        """How many bytes of content."""

    @property
    def categories(self) -> Mapping[str, LimitLike]:
        """The budgets of single categories."""

    @property
    def kinds(self) -> Mapping[Kind, LimitLike]:
        """The budgets of single kinds."""


class Weighty(Protocol):
    """What a limit asks of an entry; ``Entry`` and ``Standing`` are both."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def kind(self) -> Kind:
        """Its kind."""

    @property
    def category(self) -> str:
        """Its category."""

    @property
    def size_bytes(self) -> int:
        """The size of its content in UTF-8."""


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of entries and the size of their contents in UTF-8 bytes; as an excess, what is not above 0 is met."""

    entries: int = 0
    size_bytes: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(self.entries + other.entries, self.size_bytes + other.size_bytes)

    def minus(self, other: Tally) -> Tally:
        """This without the other."""
        return Tally(self.entries - other.entries, self.size_bytes - other.size_bytes)

    @property
    def is_met(self) -> bool:
        """As an excess: whether nothing is left of it."""
        return self.entries <= 0 and self.size_bytes <= 0


@dataclass(frozen=True, slots=True)
class Scope:
    """Which entries a limit is about: those of one kind, those of one category, or all."""

    kind: str | None = None
    category: str | None = None

    def holds(self, entry: Weighty) -> bool:
        """Whether the entry counts."""
        return self.kind in (None, entry.kind) and self.category in (None, entry.category)

    def __str__(self) -> str:
        if self.kind is not None:
            return f"entries of kind {self.kind}"
        return "all entries" if self.category is None else f"entries of category {self.category}"


ALL = Scope()


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that is kept; None is no limit. Bytes are those of contents in UTF-8."""

    max_entries: int | None = None
    max_bytes: int | None = None

    def excess(self, tally: Tally) -> Tally:
        """By how much the tally is over."""
        entries = 0 if self.max_entries is None else max(0, tally.entries - self.max_entries)
        size = 0 if self.max_bytes is None else max(0, tally.size_bytes - self.max_bytes)
        return Tally(entries, size)


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits on what is kept in one folder at one level, for all entries and for single kinds and categories."""

    max_entries: int | None = None
    max_bytes: int | None = None
    per_kind: Mapping[str, Limit] = field(default_factory=dict)
    per_category: Mapping[str, Limit] = field(default_factory=dict)

    def times(self, share: float) -> Budget:
        """A budget of this share of every limit, rounded down, and of one entry and byte at least."""

        def part(most: int | None) -> int | None:
            return None if most is None else max(1, int(most * share))

        def parts(limits: Mapping[str, Limit]) -> dict[str, Limit]:
            return {name: Limit(part(limit.max_entries), part(limit.max_bytes)) for name, limit in limits.items()}

        return Budget(part(self.max_entries), part(self.max_bytes), parts(self.per_kind), parts(self.per_category))

    @property
    def limits(self) -> dict[Scope, Limit]:
        """Every limit, the narrow ones first and each by its name, so that what they free counts for the wide one."""
        kinds = {Scope(kind=name): self.per_kind[name] for name in sorted(self.per_kind)}
        categories = {Scope(category=name): self.per_category[name] for name in sorted(self.per_category)}
        return {**kinds, **categories, ALL: Limit(self.max_entries, self.max_bytes)}


@dataclass(frozen=True, slots=True)
class FolderTotals:
    """What is kept in one folder at one level: a tally for each kind and category that occur together."""

    tallies: Mapping[tuple[str, str], Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, standings: Iterable[EntrySummary]) -> FolderTotals:
        """The totals of these entries."""
        totals = cls()
        for standing in standings:
            totals = totals.plus(standing)
        return totals

    def within(self, scope: Scope) -> Tally:
        """The tally of the entries that a limit is about."""
        tally = Tally()
        for (kind, category), part in self.tallies.items():
            if scope.kind in (None, kind) and scope.category in (None, category):
                tally = tally.plus(part)
        return tally

    def plus(self, standing: EntrySummary) -> FolderTotals:
        """With this entry."""
        return self._with(standing, self._at(standing).plus(tally_of(standing)))

    def minus(self, standing: EntrySummary) -> FolderTotals:
        """Without this entry, which counted."""
        return self._with(standing, self._at(standing).minus(tally_of(standing)))

    def _at(self, standing: EntrySummary) -> Tally:
        return self.tallies.get((standing.kind, standing.category), Tally())

    def _with(self, standing: EntrySummary, tally: Tally) -> FolderTotals:
        return FolderTotals({**self.tallies, (standing.kind, standing.category): tally})


Order = Callable[[Scope], Iterable[EntrySummary]]
"""The live entries within a scope, that of the lowest ``value`` first; taken from only as far as needed."""


def tally_of(standing: EntrySummary) -> Tally:
    """What one entry counts."""
    return Tally(1, standing.size_bytes)


def budget_of(spec: EntriesLike) -> Budget:
    """The budget that a workflow declares."""
    kinds: dict[str, Limit] = {name: _limit(said) for name, said in spec.kinds.items()}
    categories = {name: _limit(said) for name, said in spec.categories.items()}
    return Budget(spec.max_entries, spec.max_bytes, kinds, categories)


def value(standing: EntrySummary) -> Value:
    """What an entry is worth: the lowest is evicted first, what is held last; no two entries share one.

    Of the same importance, a procedure that failed more often than it succeeded goes before all others. In SQL:
    ``ORDER BY (pinned OR category = 'core'), importance, (kind <> 'procedure' OR failures <= successes), confidence,
    accesses, coalesce(accessed_at, ''), updated_at, ordinal, key, uid``.
    """
    works = standing.kind != "procedure" or standing.failures <= standing.successes
    access = standing.accesses, standing.accessed_at or ""
    recency = standing.updated_at, standing.ordinal, standing.key, standing.uid
    return standing.is_held, standing.importance, works, standing.confidence, *access, *recency


def check_fits(limits: Mapping[Scope, Limit], entry: Weighty) -> None:
    """Return if the entry could be kept were it the only one, else raise ``BudgetExceeded``."""
    for scope, limit in limits.items():
        if limit.max_bytes is not None and entry.size_bytes > limit.max_bytes and scope.holds(entry):
            raise BudgetExceeded(
                f"{entry.key[:80]!r} is {entry.size_bytes} bytes and the whole budget of {scope} is "
                f"{limit.max_bytes} bytes: shorten it by {entry.size_bytes - limit.max_bytes} bytes, save it in "
                f"parts, or raise max_bytes in the workflow"
            )


def excess(budget: Budget, totals: FolderTotals) -> dict[Scope, Tally]:
    """What must go, by the limit that asks for it; empty if the totals are within the budget."""
    over = {scope: limit.excess(totals.within(scope)) for scope, limit in budget.limits.items()}
    return {scope: tally for scope, tally in over.items() if not tally.is_met}


def victims(order: Order, over: Mapping[Scope, Tally], *, saved: Collection[str]) -> tuple[EntrySummary, ...]:
    """The entries to evict so that nothing is left of the excess ``over``, none of them of the uids just ``saved``.

    Raises ``BudgetExceeded`` if what is saved together is more than a budget allows, were all others evicted.
    """
    chosen, left = select(order, over, spared=saved)
    for scope, tally in left.items():
        if not tally.is_met:
            raise BudgetExceeded(_too_many(scope, tally))
    return chosen


def select(
    order: Order, over: Mapping[Scope, Tally], *, spared: Collection[str]
) -> tuple[tuple[EntrySummary, ...], dict[Scope, Tally]]:
    """The entries to evict, without the uids that are ``spared``; and what is left of the excess, were they gone."""
    chosen: dict[str, EntrySummary] = {}
    left = dict(over)
    for scope in over:
        for standing in _needed(order, scope, left):
            if standing.uid not in spared and standing.uid not in chosen:
                chosen[standing.uid] = standing
                _take(standing, left)
    return tuple(chosen.values()), left


def _needed(order: Order, scope: Scope, left: Mapping[Scope, Tally]) -> Iterator[EntrySummary]:
    """The entries of the scope in their order, until its excess is met."""
    standings = iter(order(scope) if not left[scope].is_met else ())
    while not left[scope].is_met and (standing := next(standings, None)) is not None:
        yield standing


def _take(standing: EntrySummary, left: dict[Scope, Tally]) -> None:
    for scope in left:
        if scope.holds(standing):
            left[scope] = left[scope].minus(tally_of(standing))


def _too_many(scope: Scope, left: Tally) -> str:
    return (
        f"what is saved together is over the budget of {scope} by {max(0, left.entries)} entries and "
        f"{max(0, left.size_bytes)} bytes, whatever else were evicted: save less at once, or raise the budget"
    )


def _limit(said: LimitLike) -> Limit:
    return Limit(said.max_entries, said.max_bytes)
