"""While the index's files cannot be used, everything is answered from the records, and nobody waits long."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import StorageFailed
from memfiles.index.change_log import PATH as LOG
from memfiles.index.database import PATH
from tests.support.saved import Visitor, entries_in, files_holding

VISITOR = Visitor(run="r", thread="t")
RULES = EntryRules(budget=Budget(max_entries=12))
COLORS = [Draft(f"color/{number}", f"a color of number {number}", tags=["paint"]) for number in range(12)]


@contextmanager
def held(directory: Path, *pragmas: str) -> Iterator[None]:
    """Hold the database, as a process does that is stuck in a transaction."""
    with closing(sqlite3.connect(directory / PATH, isolation_level=None)) as connection:
        for pragma in pragmas:
            connection.execute(pragma)
        connection.execute("BEGIN EXCLUSIVE")
        yield


def told(entries: Entries) -> dict[str, object]:
    """What can be asked for."""
    found = entries.search(VISITOR, "number 3", max_results=50, associate=False)
    return {
        "search": sorted((match.found.key, match.score, match.legs) for match in found.matches),
        "list": [found.key for found in entries.list(VISITOR).memories],
        "block": entries.hydrate(VISITOR).text,
        "why": entries.explain(VISITOR, "color/3").to_dict(),
        "plan": entries.plan(VISITOR).before,
        "counts": entries.counts(),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "pragmas", [(), ("PRAGMA locking_mode = EXCLUSIVE",)], ids=["that can be read", "that nobody can read"]
)
def test_everything_is_answered_while_it_is_held(tmp_path: Path, pragmas: tuple[str, ...]) -> None:
    """As with it, score for score; what is saved meanwhile is found, counted and within its budget."""
    with entries_in(tmp_path, rules=RULES) as entries:
        entries.save_many(VISITOR, COLORS)
        before = told(entries)
    with entries_in(tmp_path, rules=RULES) as entries, held(tmp_path, *pragmas):
        assert before == told(entries)
        saved = entries.save(VISITOR, "shape", "a circle")
        after = told(entries)

        assert 1 == len(saved.evicted)
        assert before != after
        assert "shape" == entries.search(VISITOR, "circle").matches[0].found.key
    with entries_in(tmp_path, rules=RULES) as entries:
        assert after == told(entries)


@pytest.mark.parametrize("path", [PATH, LOG])
def test_everything_is_answered_where_its_files_cannot_be_used(tmp_path: Path, path: str) -> None:
    """As in a directory that may only be read, or on a full disk; a folder in the way is there for everyone."""
    with entries_in(tmp_path, rules=RULES) as entries:
        entries.save_many(VISITOR, COLORS)
        before = told(entries)
    (tmp_path / path).unlink()
    (tmp_path / path / "in the way").mkdir(parents=True)
    with entries_in(tmp_path, rules=RULES) as entries:
        assert before == told(entries)
        with pytest.raises(StorageFailed):
            entries.forget(VISITOR, key="color/3")
        assert before == told(entries)


@pytest.mark.slow
def test_what_must_be_written_into_it_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A forget that could not take the words out of it does not say that it did."""
    with entries_in(tmp_path) as entries:
        entries.save(VISITOR, "color", "zebrafish blue")
        entries.search(VISITOR, "blue")
        with held(tmp_path), pytest.raises(StorageFailed, match="locked by another process"):
            entries.forget(VISITOR, key="color")
        assert entries.get(VISITOR, "color") is not None
        entries.forget(VISITOR, key="color")

        assert () == entries.search(VISITOR, "zebrafish").matches
    assert [] == files_holding(tmp_path, "zebrafish")


@pytest.mark.slow
@pytest.mark.parametrize("save", [lambda entries: entries.save(VISITOR, "a", "x", ttl=60), None])
def test_an_empty_memory_is_one(tmp_path: Path, save: Callable[[Entries], object] | None) -> None:
    """With no record, and with one that nobody has looked at yet."""
    with entries_in(tmp_path) as entries:
        entries.list(VISITOR)
    with entries_in(tmp_path) as entries, held(tmp_path, "PRAGMA locking_mode = EXCLUSIVE"):
        _ = save(entries) if save is not None else None

        assert (1 if save is not None else 0) == len(entries.list(VISITOR).memories)
        assert () == entries.search(VISITOR, "nothing").matches
