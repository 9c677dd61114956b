"""Retention: what goes over a budget, in which order, and what never does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.entries.budgets import (
    ALL,
    Budget,
    Budgeted,
    EntrySummary,
    FolderTotals,
    Limit,
    Order,
    Tally,
    check_fits,
    excess,
    value,
    victims,
)
from memfiles.entries.lazy import budget_of
from memfiles.errors import BudgetExceeded
from memfiles.workflow.specs import CategorySpec, EntriesSpec, KindSpec
from tests.entries.summaries import MOMENTS, STANDINGS, standing
from tests.support.records import many_times

LIMITS = st.builds(Limit, st.none() | st.integers(1, 5), st.none() | st.integers(30, 90))
BUDGETS = st.builds(
    Budget,
    st.none() | st.integers(1, 6),
    st.none() | st.integers(30, 150),
    st.dictionaries(st.sampled_from(["note", "procedure"]), LIMITS, max_size=2),
    st.dictionaries(st.sampled_from(["general", "core", "daily"]), LIMITS, max_size=2),
)
STORES = st.lists(STANDINGS, max_size=10).map(
    lambda drawn: [replace(each, uid=f"u{n}", key=f"k{n}", state="live") for n, each in enumerate(drawn)]
)


def lowest_first(standings: list[EntrySummary]) -> Order:
    """What an index would give."""
    return lambda scope: sorted(filter(scope.holds, standings), key=value)


def evicted(budget: Budget, *standings: EntrySummary, saved: str = "") -> list[str]:
    """The keys that go when the entry ``saved`` was the last of these to come."""
    over = excess(budget.limits, FolderTotals.of(standings))
    return [each.key for each in victims(lowest_first([*standings]), over, saved={saved})]


def test_within_the_budget_nothing_goes() -> None:
    """Full to the last entry and byte is not over."""

    assert [] == evicted(Budget(2, 10), standing("a", size_bytes=4), standing("b", size_bytes=6))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(max_entries=2), ["a"]),
        (Budget(max_bytes=299), ["a"]),
        (Budget(max_bytes=199), ["a", "b"]),
        (Budget(max_entries=2, max_bytes=100), ["a", "b"]),
        (Budget(per_kind={"fact": Limit(max_entries=1)}), ["b"]),
        (Budget(per_category={"daily": Limit(max_bytes=100)}), ["a"]),
        (Budget(max_entries=2, per_kind={"fact": Limit(max_entries=1)}), ["b"]),
        (Budget(max_entries=1, per_kind={"fact": Limit(max_entries=1)}), ["b", "a"]),
    ],
)
def test_as_much_goes_as_must(budget: Budget, expected: list[str]) -> None:
    """A narrow budget takes only of its own, and what it takes counts for the wide one."""
    standings = [
        standing("a", size_bytes=100, ordinal=1, category="daily"),
        standing("b", size_bytes=100, ordinal=2, kind="fact"),
        standing("c", size_bytes=100, ordinal=3, kind="fact", category="daily"),
    ]

    assert expected == evicted(budget, *standings, saved="c")


def test_what_was_just_saved_is_never_a_victim() -> None:
    """Though it be worth the least of all, and all others pinned."""
    new = standing("new", size_bytes=60, importance=0.0, confidence=0.0)
    held = [standing("core", size_bytes=30, category="core"), standing("pin", size_bytes=30, pinned=True, ordinal=1)]

    assert ["core"] == evicted(Budget(max_bytes=90), *held, new, saved="new")


def test_the_order_of_eviction() -> None:
    """Held last; then importance, failing procedures, confidence, access and recency, the lowest first."""
    ordered = [
        standing("failing", importance=0.4, kind="procedure", failures=2, successes=1, accesses=9),
        standing("doubtful", importance=0.4, confidence=0.2, accesses=9),
        standing("unread", importance=0.4, ordinal=9),
        standing("read once", importance=0.4, accesses=1, accessed_at="2026-11-23T09:00:00.000Z"),
        standing("read lately", importance=0.4, accesses=1, accessed_at="2026-11-24T09:00:00.000Z"),
        standing("working", importance=0.4, accesses=2, kind="procedure", failures=1, successes=1),
        standing("old", updated_at="2026-11-20T09:00:00.000Z", ordinal=5),
        standing("first of two", ordinal=1),
        standing("second of two", ordinal=2),
        standing("important", importance=0.6, updated_at="2026-11-01T09:00:00.000Z"),
        standing("core", category="core", importance=0.1),
        standing("pinned", pinned=True, importance=0.2),
    ]

    shuffled = [*ordered[5:], *ordered[:5]]

    assert [each.key for each in ordered] == [each.key for each in sorted(shuffled, key=value)]


def test_an_entry_larger_than_a_budget_is_refused() -> None:
    """By its name and with the numbers, before anything goes; at the size of the budget it may stay alone."""
    budget = Budget(10, 1000, {"note": Limit(max_bytes=50)}, {"daily": Limit(5)})
    with pytest.raises(BudgetExceeded, match=r"'k' is 51 bytes and the whole budget of entries of kind note is 50 b"):
        check_fits(budget.limits, standing("k", size_bytes=51))
    with pytest.raises(BudgetExceeded, match=r"1001 bytes and the whole budget of all entries is 1000 bytes"):
        check_fits(budget.limits, standing("k", size_bytes=1001, kind="fact"))
    check_fits(budget.limits, standing("k", size_bytes=50))
    check_fits(budget.limits, standing("k", size_bytes=1000, kind="fact", category="daily"))


def test_a_batch_larger_than_a_budget_is_refused() -> None:
    """What is saved together must fit together: none of it goes for another."""
    batch = [standing("a", size_bytes=7), standing("b", size_bytes=7)]
    over = excess(Budget(max_bytes=10).limits, FolderTotals.of(batch))
    with pytest.raises(BudgetExceeded, match="over the budget of all entries by 0 entries and 4 bytes"):
        victims(lowest_first(batch), over, saved={"a", "b"})


def test_as_many_are_looked_at_as_go() -> None:
    """However many are kept: a save over budget costs the same at a hundred thousand entries."""
    walked = 0

    def order(scope: Budgeted) -> Iterator[EntrySummary]:
        nonlocal walked
        for number in range(100_000):
            walked += 1
            yield standing(f"k{number}", size_bytes=10)

    gone = victims(order, {ALL: Tally(3, 25)}, saved={"k1"})

    assert (["k0", "k2", "k3"], 4) == ([each.key for each in gone], walked)


@many_times
@given(STORES, BUDGETS)
def test_afterwards_the_budget_is_met(standings: list[EntrySummary], budget: Budget) -> None:
    """Whatever the store and the budgets, and not before the last of them went."""
    assume(standings)
    saved, totals = standings[-1], FolderTotals.of(standings)
    assume(not any(limit.excess(FolderTotals.of([saved]).within(scope)).size_bytes
                   for scope, limit in budget.limits.items() if scope.holds(saved)))  # fmt: skip
    check_fits(budget.limits, saved)
    gone = victims(lowest_first(standings), excess(budget.limits, totals), saved={saved.uid})
    rest = [each for each in standings if each not in gone]

    assert saved in rest
    assert {} == excess(budget.limits, FolderTotals.of(rest))
    assert not gone or {} != excess(budget.limits, FolderTotals.of([*rest, gone[-1]]))


@many_times
@given(STORES, STANDINGS)
def test_totals_follow_what_comes_and_goes(standings: list[EntrySummary], one: EntrySummary) -> None:
    """One entry more and the same one less is as before, and the parts add up to all."""
    totals = FolderTotals.of(standings)

    assert Tally(len(standings), sum(each.size_bytes for each in standings)) == totals.within(ALL)
    assert totals.within(ALL) == totals.after([(one, 1), (one, -1)]).within(ALL)
    more = totals.after([(one, 1)]).within(Budgeted(kind=one.kind))
    assert totals.within(Budgeted(kind=one.kind)).entries + 1 == more.entries


@given(MOMENTS)
def test_no_two_entries_are_worth_the_same(moment: str) -> None:
    """So the order is the same on every machine."""

    assert value(standing("a", updated_at=moment)) != value(standing("b", updated_at=moment))
    assert value(standing("a", uid="1", updated_at=moment)) != value(standing("a", uid="2", updated_at=moment))


def test_a_workflow_s_budget() -> None:
    """The numbers of the declaration, those of all entries and those of single kinds and categories."""
    declared = EntriesSpec(
        max_entries=7, categories={"daily": CategorySpec(max_entries=3)}, kinds={"fact": KindSpec(max_bytes=99)}
    )
    expected = Budget(7, 1024 * 1024, {"fact": Limit(max_bytes=99)}, {"daily": Limit(max_entries=3)})

    assert expected == budget_of(declared)
