"""How many entries there are: what can be seen, what time has hidden, and what was retired, by partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.index.queries import Counted
from memfiles.records.levels import Levels
from memfiles.storage.events import Subscribers
from memfiles.storage.store import Store
from memfiles.tools.session import Session, SessionProvenance

NOW = "2026-11-21T09:00:00.000Z"
LATER = "2026-11-21T10:00:00.000Z"


class Times:
    """A clock that is set by hand."""

    now = NOW

    def __call__(self) -> str:
        return self.now


@pytest.fixture
def clock() -> Times:
    return Times()


@pytest.fixture
def entries(tmp_path: Path, clock: Times) -> Iterator[Entries]:
    store = Store(tmp_path / "memory", now=clock, durability="os")
    entries = Entries(store, rules=EntryRules(), subscribers=Subscribers(), now=clock)
    yield entries
    entries.close()
    store.close()


def session(agent: str = "support", *, run: str | None = None, level: str = "INTERNAL") -> Session:
    manager = MemoryManager("nowhere")
    return Session(SessionProvenance(agent, run=run), refs=[], manager=manager, levels=Levels(), level=level)


def test_nothing_saved_nothing_counted(entries: Entries) -> None:
    """An empty memory has no partitions."""

    assert [] == list(entries.counts())


def test_every_partition_is_counted_apart(entries: Entries) -> None:
    """Agents, levels, runs and what all share."""
    entries.save(session(), "a", "12345")
    entries.save(session(), "b", "1", category="workspace")
    entries.save(session(run="r"), "c", "12", category="conversation")
    entries.save(session("Other", level="PUBLIC"), "d", "123")

    assert [
        Counted("=4fther", "PUBLIC", "", 1, 3, 0, 0),
        Counted("@workspace", "INTERNAL", "", 1, 1, 0, 0),
        Counted("support", "INTERNAL", "", 1, 5, 0, 0),
        Counted("support", "INTERNAL", "r", 1, 2, 0, 0),
    ] == list(entries.counts())


def test_what_cannot_be_seen_is_counted_apart(entries: Entries, clock: Times) -> None:
    """Expired by time alone, deleted, and forgotten, of which nothing is counted."""
    entries.save(session(), "stays", "12345")
    entries.save(session(), "expires", "1", ttl=60)
    entries.save(session(), "deleted", "1")
    entries.save(session(), "forgotten", "1")
    entries.delete(session(), "deleted")
    entries.forget(session(), key="forgotten")
    clock.now = LATER

    assert [Counted("support", "INTERNAL", "", 1, 5, 1, 1)] == list(entries.counts())
