"""The exam of record stores, taken by the directory store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memfiles.records.declared_metadata import decode_file
from mirrors.testing.stores import StorePlace, questions
from mirrors.testing.stores.place import body_of
from tests.support.saved import files_holding

KILLS = int(os.environ.get("MEMFILES_KILLS", "35"))  # each pair of how many changes were made and how late it is


def place(directory: Path, *, rounds: int = 3) -> StorePlace:
    return StorePlace(
        "tests.support.stores:directory_store",
        (str(directory),),
        lambda text: files_holding(directory, text.decode()),
        rounds,
    )


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.__name__)
@pytest.mark.slow
def test_the_directory_store_keeps_its_promises(question: Callable[[StorePlace], None], tmp_path: Path) -> None:
    """It passes the exam that every store must pass."""
    question(place(tmp_path / "memory"))


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_records_together(tmp_path: Path) -> None:
    """The same question, with a kill in each of many rounds."""
    (question,) = [each for each in questions() if each.__name__ == "records_change_together_or_not_at_all_in_a_kill"]
    question(place(tmp_path / "memory", rounds=KILLS))


def test_the_exam_keeps_records_that_memfiles_reads() -> None:
    """What it keeps in the store is what a store holds in use, so that it may look into it."""
    record = decode_file(body_of("notes.json", 3, "ü\n"), uid="notes")

    assert ("ü\n", 3, True) == (record.content, record.revision, record.is_intact)
