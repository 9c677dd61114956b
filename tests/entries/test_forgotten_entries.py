"""What was forgotten is nowhere, is not brought back, and does not keep its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.drafts import Draft
from memfiles.entries.entries import Entries
from memfiles.errors import (
    EntryNotFound,
    InvalidArgument,
)
from tests.support.records import files_under
from tests.support.saved import Visitor, files_holding


def keys_of(entries: Entries, visitor: Visitor, query: str) -> list[str]:
    """The keys that a search finds, best first."""
    return [match.found.key for match in entries.search(visitor, query).matches]


def test_what_is_forgotten_is_nowhere(entries: Entries, tmp_path: Path) -> None:
    """No byte of the content, of earlier ones or of the key is left in any file under the directory."""
    entries.save(Visitor(), "ann's door code", "zebra-xylo", tags=["ann"])
    entries.save(Visitor(), "ann's door code", "quagga-vowel")
    entries.save(Visitor(), "other", "stays", tags=["bob"])
    entries.search(Visitor(), "zebra quagga door")
    forgotten = entries.forget(Visitor(), tag="ann", why="she asked")

    assert (1, ("ann's door code",)) == (forgotten.count, forgotten.keys)
    assert [] == files_holding(tmp_path, "zebra", "xylo", "quagga", "vowel", "door code", "quagg")
    assert [] == keys_of(entries, Visitor(), "zebra quagga code")
    assert ["other"] == keys_of(entries, Visitor(), "stays")
    with pytest.raises(EntryNotFound):
        entries.restore(Visitor(), "ann's door code")


def test_a_dry_run_counts_first(entries: Entries) -> None:
    """Nothing is taken by it."""
    entries.save_many(Visitor(), [Draft(f"k{n}", "x", tags=["t"]) for n in range(3)])

    assert (3, True) == ((told := entries.forget(Visitor(), tag="t", dry_run=True)).count, told.dry_run)
    assert 3 == len(entries.list(Visitor()).memories)


def test_an_empty_selector_is_refused(entries: Entries) -> None:
    """Forgetting everything by mistake would be final."""
    with pytest.raises(InvalidArgument, match="select what to forget"):
        entries.forget(Visitor())


def test_deleted_and_evicted_entries_are_forgotten_as_well(entries: Entries, tmp_path: Path) -> None:
    """What is hidden is still kept, until it is forgotten."""
    entries.save(Visitor(), "k", "xylophone")
    entries.delete(Visitor(), "k")

    assert 1 == entries.forget(Visitor(), key="k").count
    assert [] == files_holding(tmp_path, "xylophone")


def test_a_key_can_be_saved_again_after_it_was_forgotten(entries: Entries, tmp_path: Path) -> None:
    """As something new, with an id of its own; that of what was forgotten keeps its tombstone."""
    entries.save(Visitor(), "k", "old")
    before: Any = entries.get(Visitor(), "k")
    entries.forget(Visitor(), key="k")
    saved = entries.save(Visitor(), "k", "new")
    after: Any = entries.get(Visitor(), "k")
    kept = files_under(tmp_path / "memory" / "entries")
    record = json.loads(next(body for path, body in kept.items() if path.startswith("support/")))

    assert (3, 1) == (saved.revision, len(record["history"]))
    assert before.id != after.id == record["id"]
    assert [f"@ids/{before.id}.json"] == [path for path in kept if path.startswith("@ids/")]


def test_an_import_brings_nothing_forgotten_back(entries: Entries, tmp_path: Path) -> None:
    """An export from before is a stale copy like any other."""
    entries.save(Visitor(), "k", "xylophone")
    entries.save(Visitor(), "l", "lyre")
    entries.export(Visitor(), tmp_path / "out")
    entries.forget(Visitor(), key="k")
    imported = entries.import_(Visitor(), tmp_path / "out")

    assert (0, 0, 1) == (imported.added, imported.updated, imported.unchanged)
    assert "forgotten" in imported.skipped[0].why
    assert entries.get(Visitor(), "k") is None
