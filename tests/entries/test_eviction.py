"""Which entries go for what is saved over a budget."""

from __future__ import annotations

from pathlib import Path

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from tests.support.saved import Clock, Visitor, entries_in


def test_what_was_read_just_now_stays(tmp_path: Path) -> None:
    """Also where nobody has changed anything since, which would have brought the reads into the index."""
    clock = Clock()
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2)), now=clock) as entries:
        entries.save_many(Visitor(), [Draft("older", "x"), Draft("newer", "y")])
        entries.list(Visitor())
        clock.go_on(1)
        entries.get(Visitor(), "older")

        assert ("newer",) == entries.save(Visitor(), "newest", "z").evicted
