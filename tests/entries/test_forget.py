"""What is forgotten is gone from every file, also from what was made of it, and after a kill in the middle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.index.index import Index
from memfiles.index.text import fts as texts
from memfiles.storage import quarantine
from memfiles.storage.derived_database import DerivedDatabase
from memfiles.storage.store import Store
from tests.support.saved import Visitor, entries_in, files_holding

WORD = "zebrafish"


FEW = EntryRules(budget=Budget(max_entries=6))


def folded(entries: Entries, visitor: Visitor) -> str:
    """Have six episodes folded into a note; the plan that did it."""
    for number in range(6):
        what = WORD if number == 2 else f"topic {number} of {'many' * number}"
        entries.save(visitor, f"day/{number}", f"{what} came up on day {number}. " * 9, kind="episode")
    return entries.apply(visitor, entries.plan(visitor, share=0.2)).plan


def test_a_note_goes_with_the_episode_it_was_made_of(tmp_path: Path) -> None:
    """It holds the episode's words; the other episodes can still be restored."""
    with entries_in(tmp_path, rules=FEW) as entries:
        visitor = Visitor(run="r")
        folded(entries, visitor)
        (note,) = [found.key for found in entries.list(visitor).memories]
        told = entries.forget(visitor, key="day/2", dry_run=True)
        forgotten = entries.forget(visitor, key="day/2")

        assert (("day/2", note), ("day/2", note)) == (told.keys, forgotten.keys)
        assert [] == files_holding(tmp_path, WORD)
        assert entries.restore(visitor, "day/3").key == "day/3"


def test_a_note_goes_although_it_was_hidden_again(tmp_path: Path) -> None:
    """Taking a plan back hides its note, which is then on the disk like any other that was deleted."""
    with entries_in(tmp_path, rules=FEW) as entries:
        visitor = Visitor(run="r")
        entries.undo(visitor, folded(entries, visitor))
        entries.forget(visitor, key="day/2")

        assert [] == files_holding(tmp_path, WORD)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Index, "forget"),
        (texts, "scrub"),
        (DerivedDatabase, "compact"),
        (quarantine, "remove_copies"),
        (Store, "scrub"),
    ],
)
def test_a_kill_in_the_middle_is_made_good_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, method: str
) -> None:
    """Whichever step it was killed before, a look at the entries is enough to have the content gone."""
    visitor = Visitor()
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(visitor, "animal", f"a {WORD} swims")
        entries.save(visitor, "other", "stays")
        entries.search(visitor, WORD)
    _in_a_child(lambda: _forget_until(tmp_path, monkeypatch, owner, method))
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.search(visitor, "stays")

        assert [] == files_holding(tmp_path, WORD)
        assert 0 == entries.forget(visitor, key="animal").count


def _forget_until(directory: Path, monkeypatch: pytest.MonkeyPatch, owner: object, method: str) -> None:
    with entries_in(directory, durability="fsync") as entries:
        entries.search(Visitor(), "stays")
        monkeypatch.setattr(owner, method, lambda *_, **__: os._exit(9))
        entries.forget(Visitor(), key="animal")


def _in_a_child(work: Callable[[], None]) -> None:
    """Run it in a child process, which is expected to end with 9."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
