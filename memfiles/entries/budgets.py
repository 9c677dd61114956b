"""Budgets: limits on the entries of each kind and category, and the choice of entries to evict beyond them.

The rules this file guards: an entry is never evicted by its own save, and an entry larger than a whole budget is
refused before anything is evicted; the rest goes in the order of ``value``, the lowest first, and never for its age
alone. Budgets count the live entries of one folder and level. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from memfiles.errors import BudgetExceeded
from memfiles.records.entry import CORE, GENERAL, Entry, EntryState, Kind

DisplayOrder = tuple[bool, str, int, str]
Value = tuple[bool, float, bool, float, int, str, str, int, str, str]


class EntrySummary(Struct, frozen=True):
    """The facts about an entry that decisions need, without its content.

    ``size_bytes`` is the size of the content, ``block_bytes`` that of the block in a prompt.
    Made from one row of the index, so a decision about a hundred thousand entries reads no record. ``accesses`` and
    ``accessed_at`` (None: never) are hints; no record holds them.
    """

    uid: str
    key: str
    level: str
    category: str = GENERAL
    kind: Kind = "note"
    size_bytes: int = 0
    updated_at: str = ""
    expires_at: str | None = None
    pinned: bool = False
    importance: float = 0.5
    confidence: float = 1.0
    successes: int = 0
    failures: int = 0
    accesses: int = 0
    accessed_at: str | None = None
    state: EntryState = "live"
    ordinal: int = 0
    block_bytes: int = 0

    @property
    def is_held(self) -> bool:
        """Whether it is shown first and evicted last: it is pinned, by itself or by its category."""
        return self.pinned or self.category == CORE

    def is_expired(self, now: str) -> bool:
        """Whether it may not be returned any more, swept or not."""
        return self.expires_at is not None and self.expires_at <= now

    def is_live(self, now: str) -> bool:
        """Whether it is live and has not expired."""
        return self.state == "live" and not self.is_expired(now)

    @property
    def display_order(self) -> DisplayOrder:
        """Its place in the display order: the highest comes first, and no two keys share one.

        In SQL: ``ORDER BY (pinned OR category = 'core') DESC, updated_at DESC, ordinal DESC, key DESC``.
        """
        return self.is_held, self.updated_at, self.ordinal, self.key


class Tally(Struct, frozen=True):
    """A number of entries, and the size of their contents in UTF-8 bytes."""

    entries: int = 0
    size_bytes: int = 0

    def plus(self, other: Tally) -> Tally:
        """The sum of both."""
        return Tally(self.entries + other.entries, self.size_bytes + other.size_bytes)

    def minus(self, other: Tally) -> Tally:
        """The difference of both."""
        return Tally(self.entries - other.entries, self.size_bytes - other.size_bytes)

    @property
    def is_met(self) -> bool:
        """Whether an excess of this tally is used up."""
        return self.entries <= 0 and self.size_bytes <= 0


class Budgeted(Struct, frozen=True):
    """The entries that a limit counts: those of one kind, those of one category, or all."""

    kind: str | None = None
    category: str | None = None

    def holds(self, entry: Entry | EntrySummary) -> bool:
        """Whether the entry counts."""
        return self.kind in (None, entry.kind) and self.category in (None, entry.category)

    def __str__(self) -> str:
        if self.kind is not None:
            return f"entries of kind {self.kind}"
        return "all entries" if self.category is None else f"entries of category {self.category}"


ALL = Budgeted()


class Limit(Struct, frozen=True):
    """The most that is kept, in entries and in UTF-8 bytes of content; None: no limit."""

    max_entries: int | None = None
    max_bytes: int | None = None

    def excess(self, tally: Tally) -> Tally:
        """By how much the tally is over."""
        entries = 0 if self.max_entries is None else max(0, tally.entries - self.max_entries)
        size = 0 if self.max_bytes is None else max(0, tally.size_bytes - self.max_bytes)
        return Tally(entries, size)

    def times(self, share: float) -> Limit:
        """This share of the limit, rounded down, and of one entry and byte at least."""
        entries = None if self.max_entries is None else max(1, int(self.max_entries * share))
        return Limit(entries, None if self.max_bytes is None else max(1, int(self.max_bytes * share)))


class Budget(Struct, frozen=True):
    """The limits of one folder at one level, for all entries and for single kinds and categories."""

    max_entries: int | None = None
    max_bytes: int | None = None
    per_kind: Mapping[str, Limit] = field(default_factory=dict)
    per_category: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def limits(self) -> dict[Budgeted, Limit]:
        """Every limit, the narrow ones first and sorted by name, so that their evictions count for the wide one."""
        kinds = {Budgeted(kind=name): self.per_kind[name] for name in sorted(self.per_kind)}
        categories = {Budgeted(category=name): self.per_category[name] for name in sorted(self.per_category)}
        return {**kinds, **categories, ALL: Limit(self.max_entries, self.max_bytes)}


class FolderTotals(Struct, frozen=True):
    """The totals of one folder at one level: a tally for each pair of kind and category."""

    tallies: Mapping[tuple[str, str], Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[EntrySummary]) -> FolderTotals:
        """The totals of these entries."""
        return cls().after((entry, 1) for entry in entries)

    def within(self, scope: Budgeted) -> Tally:
        """The tally of the entries that a limit counts."""
        tally = Tally()
        for (kind, category), part in self.tallies.items():
            if scope.kind in (None, kind) and scope.category in (None, category):
                tally = tally.plus(part)
        return tally

    def after(self, growth: Iterable[tuple[Entry | EntrySummary, int]]) -> FolderTotals:
        """The totals with the entries that are added (1) and without the removed ones (-1)."""
        tallies, none = dict(self.tallies), Tally()
        for entry, sign in growth:
            at = entry.kind, entry.category
            tallies[at] = tallies.get(at, none).plus(Tally(sign, sign * entry.size_bytes))
        return FolderTotals(tallies)


Order = Callable[[Budgeted], Iterable[EntrySummary]]
"""The live entries within a scope by ``value``, the lowest first; read only as far as needed."""


def value(entry: EntrySummary) -> Value:
    """The worth of an entry: the lowest is evicted first, pinned ones last; no two entries share one.

    Of equally important entries, a procedure that failed more often than it succeeded goes first. In SQL:
    ``ORDER BY (pinned OR category = 'core'), importance, (kind <> 'procedure' OR failures <= successes), confidence,
    accesses, coalesce(accessed_at, ''), updated_at, ordinal, key, uid``.
    """
    works = entry.kind != "procedure" or entry.failures <= entry.successes
    access = entry.accesses, entry.accessed_at or ""
    recency = entry.updated_at, entry.ordinal, entry.key, entry.uid
    return entry.is_held, entry.importance, works, entry.confidence, *access, *recency


def check_fits(limits: Mapping[Budgeted, Limit], entry: Entry | EntrySummary) -> None:
    """Raise ``BudgetExceeded`` if the entry alone is larger than a whole budget."""
    for scope, limit in limits.items():
        if limit.max_bytes is not None and entry.size_bytes > limit.max_bytes and scope.holds(entry):
            raise BudgetExceeded(
                f"{entry.key[:80]!r} is {entry.size_bytes} bytes and the whole budget of {scope} is "
                f"{limit.max_bytes} bytes: shorten it by {entry.size_bytes - limit.max_bytes} bytes, save it in "
                f"parts, or raise max_bytes in the workflow"
            )


def excess(limits: Mapping[Budgeted, Limit], totals: FolderTotals) -> dict[Budgeted, Tally]:
    """The excess over each limit; empty if the totals are within all of them."""
    over = {scope: limit.excess(totals.within(scope)) for scope, limit in limits.items()}
    return {scope: tally for scope, tally in over.items() if not tally.is_met}


def added_excess(
    limits: Mapping[Budgeted, Limit], within: Callable[[Budgeted], Tally], growth: Sequence[tuple[Entry, int]]
) -> dict[Budgeted, Tally]:
    """The excess over each limit that a commit adds to.

    ``within`` gives the totals before it; ``growth`` is the entries that come (1) and that go (-1).
    """
    over: dict[Budgeted, Tally] = {}
    for scope, limit in limits.items():
        held = [(entry, sign) for entry, sign in growth if scope.holds(entry)]
        added = Tally(sum([sign for _, sign in held]), sum([sign * entry.size_bytes for entry, sign in held]))
        left = limit.excess(within(scope).plus(added))
        if not left.is_met and (added.entries > 0 or added.size_bytes > 0):
            over[scope] = left
    return over


def victims(
    order: Order, over: Mapping[Budgeted, Tally], *, saved: Collection[str], among: Collection[str] | None = None
) -> tuple[EntrySummary, ...]:
    """The entries to evict so that nothing is left of the excess ``over``, except the uids just ``saved``.

    ``BudgetExceeded`` if the saved entries alone are over a budget, or if the ``order`` has only these categories.
    """
    chosen, left = select(order, over, spared=saved)
    for scope, tally in left.items():
        if not tally.is_met:
            if among is not None:
                raise BudgetExceeded(
                    f"the budget of {scope} is used up by entries that other users see, over by "
                    f"{max(0, tally.entries)} entries and {max(0, tally.size_bytes)} bytes, and this session, which is "
                    f"for one user, can evict none of them: save without a category, for this user alone, or raise "
                    f"the budget"
                )
            raise BudgetExceeded(
                f"the entries saved together are over the budget of {scope} by {max(0, tally.entries)} entries and "
                f"{max(0, tally.size_bytes)} bytes, even if all others were evicted: save fewer at once, or raise the "
                f"budget"
            )
    return chosen


def select(
    order: Order, over: Mapping[Budgeted, Tally], *, spared: Collection[str] = ()
) -> tuple[tuple[EntrySummary, ...], dict[Budgeted, Tally]]:
    """The entries to evict, except the ``spared`` uids; and the excess that is left once they are gone.

    Reads no more of a scope than its excess needs.
    """
    chosen: dict[str, EntrySummary] = {}
    left = dict(over)
    for scope in over:
        entries = iter(order(scope) if not left[scope].is_met else ())
        while not left[scope].is_met and (entry := next(entries, None)) is not None:
            if entry.uid not in spared and entry.uid not in chosen:
                chosen[entry.uid] = entry
                left.update({each: left[each].minus(Tally(1, entry.size_bytes)) for each in left if each.holds(entry)})
    return tuple(chosen.values()), left
