"""An entry whose category changes whom it belongs to moves as a whole, in one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, ReadOnly, RevisionConflict
from memfiles.storage.store import Store
from tests.support.saved import Clock, Visitor, entries_in

MATE = Visitor("billing")


@pytest.fixture
def clock() -> Clock:
    """A clock that is set by hand."""
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """An empty memory."""
    with entries_in(tmp_path / "memory", now=clock) as opened:
        yield opened


def test_all_that_it_is_moves_with_it(entries: Entries, clock: Clock) -> None:
    """Its times, its facets, and how often it was of use; and it is seen once, by everyone whom it belongs to."""
    visitor = Visitor(run="evt-1")
    entries.save(visitor, "how", "x", kind="procedure", tags=["t"], confidence=0.5, pinned=True, links=["l"])
    entries.update(visitor, "how", outcome="success")
    before: Any = entries.get(visitor, "how")
    clock.go_on(60)
    entries.update(visitor, "how", category="workspace")
    after: Any = entries.get(MATE, "how")
    entries.update(visitor, "how", category="general")

    assert {**before.to_dict(), "category": "workspace", "revision": 1} == after.to_dict()
    assert entries.get(MATE, "how") is None
    assert 1 == getattr(entries.get(visitor, "how"), "successes", None)


def test_what_it_was_before_is_not_restored(entries: Entries) -> None:
    """It is not gone, and what is older would hide what it became."""
    entries.save(Visitor(), "where", "older")
    entries.update(Visitor(), "where", category="workspace")
    entries.update(Visitor(), "where", content="newer")
    with pytest.raises(EntryNotFound):
        entries.restore(Visitor(), "where")
    entries.delete(Visitor(), "where")
    entries.restore(Visitor(), "where")

    assert "newer" == getattr(entries.get(Visitor(), "where"), "content", None)


def test_a_kill_leaves_it_in_one_place(tmp_path: Path) -> None:
    """After the first commit there is no other to be made."""
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(Visitor(), "where", "x")
    _in_a_child(lambda: _move_and_die(tmp_path))
    with entries_in(tmp_path, durability="fsync") as entries:
        assert (1, 0) == (len(entries.list(MATE).memories), _own(entries))


def _move_and_die(directory: Path) -> None:
    commit = Store.commit

    def commit_and_die(self: Store, versions: Any) -> Any:
        commit(self, versions)
        os._exit(9)

    with entries_in(directory, durability="fsync") as entries:
        Store.commit = commit_and_die  # type: ignore[assignment, method-assign]
        entries.update(Visitor(), "where", category="workspace")


def _own(entries: Entries) -> int:
    """How many live entries the agent has for itself."""
    return sum(counted.entries for counted in entries.counts() if counted.folder == "support")


def _in_a_child(work: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_what_is_refused_moves_nothing(entries: Entries) -> None:
    """Another revision than expected, another text of what never changes, or what is not there."""
    entries.save(Visitor(), "fact", "x")
    entries.save(Visitor(), "happened", "x", kind="episode")

    with pytest.raises(RevisionConflict):
        entries.update(Visitor(), "fact", category="workspace", expected_revision=7)
    with pytest.raises(ReadOnly):
        entries.update(Visitor(), "happened", content="y", category="workspace")
    with pytest.raises(EntryNotFound):
        entries.update(Visitor(), "missing", category="workspace")
    assert () == entries.list(MATE).memories
    assert 2 == len(entries.list(Visitor()).memories)


def test_the_same_call_made_again_moves_it_once(entries: Entries) -> None:
    """The second is told what the first one did."""
    entries.save(Visitor(), "fact", "x")
    first = entries.update(Visitor(), "fact", content="y", category="workspace", call_id="toolu_1")
    again = entries.update(Visitor(), "fact", content="y", category="workspace", call_id="toolu_1")

    assert (first.revision, True) == (again.revision, again.replayed)
    assert 1 == len(entries.list(MATE).memories)
