"""What goes when a save takes a session over its budget, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.errors import (
    BudgetExceeded,
)
from tests.support.saved import Clock, Visitor, entries_in, files_holding


def test_a_save_over_budget_names_what_went(tmp_path: Path, clock: Clock) -> None:
    """Never what was just saved; the pinned ones last."""
    rules = EntryRules(budget=Budget(max_entries=3))
    with entries_in(tmp_path, rules=rules, now=clock) as entries:
        entries.save(Visitor(), "pinned", "a", pinned=True, importance=0.0)
        for key in ("one", "two", "three", "four"):
            clock.go_on(1)
            saved = entries.save(Visitor(), key, key, importance=0.1)
        left = [each.key for each in entries.list(Visitor()).memories]

        assert ("two",) == saved.evicted
        assert ["four", "pinned", "three"] == left
        assert "evicted" == entries.explain(Visitor(), "two").reason
        entries.restore(Visitor(), "two")
        assert entries.get(Visitor(), "two") is not None


def test_hidden_levels_have_budgets_of_their_own(tmp_path: Path, clock: Clock) -> None:
    """Otherwise a low session would learn of high entries by what goes."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2)), now=clock) as entries:
        entries.save_many(Visitor(level="RESTRICTED"), [Draft("a", "x"), Draft("b", "y")])
        saved = [entries.save(Visitor(level="PUBLIC"), key, key) for key in ("c", "d")]

        assert [(), ()] == [each.evicted for each in saved]
        assert 4 == len(entries.list(Visitor(level="RESTRICTED")).memories)


def test_what_alone_is_over_a_budget_is_refused(tmp_path: Path, clock: Clock) -> None:
    """Before anything goes for it."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_bytes=10)), now=clock) as entries:
        entries.save(Visitor(), "small", "12345")
        with pytest.raises(BudgetExceeded, match="11 bytes"):
            entries.save(Visitor(), "large", "x" * 11)

        assert ["small"] == [each.key for each in entries.list(Visitor()).memories]


@pytest.mark.slow
def test_a_thousand_of_two_thousand_are_evicted_together(tmp_path: Path, clock: Clock) -> None:
    """One commit saves the new ones and hides the old ones."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2000)), now=clock) as entries:
        entries.save_many(Visitor(), [Draft(f"old{n:04}", f"x {n}") for n in range(2000)])
        clock.go_on(1)
        saved = entries.save_many(Visitor(), [Draft(f"new{n:04}", f"y {n}") for n in range(1000)])

        assert [f"old{n:04}" for n in range(1000)] == sorted(saved[0].evicted)
        assert entries.get(Visitor(), "old0999") is None
        assert entries.get(Visitor(), "old1000") is not None


@pytest.mark.slow
def test_retired_entries_are_not_kept_without_end(tmp_path: Path, clock: Clock) -> None:
    """As many as there may be live ones; of the others only tombstones are left."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=10)), now=clock) as entries:
        for number in range(200):
            clock.go_on(1)
            entries.save(Visitor(), f"k{number:03}", f"text{number:03}text")
        kept = [number for number in range(200) if files_holding(tmp_path / "entries", f"text{number:03}text")]

        assert 10 + 10 <= len(kept) <= 10 + 10 + 65
        assert list(range(200 - len(kept), 200)) == kept
