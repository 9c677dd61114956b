"""What was made of an entry, or has something of it, goes with it, whatever became of that since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from tests.support.saved import Visitor, entries_in, files_holding

VISITOR = Visitor(run="r")


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Entries]:
    """Six episodes, of which one says the word, folded into a note."""
    with entries_in(tmp_path / "memory", rules=FEW) as opened:
        for number in range(6):
            what = WORD if number == 2 else f"topic {number}"
            said = f"{what} came up on day {number}. " * 9
            opened.save(VISITOR, f"day/{number}", said, kind="episode", tags=[f"tag-{what}".replace(" ", "-")])
        yield opened


def folded(entries: Entries) -> tuple[str, str]:
    """Have the episodes folded; the key of the note and the plan's id."""
    applied = entries.apply(VISITOR, entries.plan(VISITOR, share=0.2))
    (note,) = applied.shown
    return note, applied.plan


def edited(entries: Entries, note: str, plan: str) -> None:
    entries.save(VISITOR, note, f"What I remember: {WORD}", kind="fact")


def emptied(entries: Entries, note: str, plan: str) -> None:
    for number in range(120):
        entries.save(VISITOR, note, f"{WORD} and nothing that names an episode {number}")


def deleted_and_restored(entries: Entries, note: str, plan: str) -> None:
    entries.delete(VISITOR, note)
    entries.restore(VISITOR, note)


def moved(entries: Entries, note: str, plan: str) -> None:
    entries.update(VISITOR, note, category="workspace")
    entries.update(VISITOR, note, content=f"{WORD} again")


def taken_back_and_applied_again(entries: Entries, note: str, plan: str) -> None:
    entries.undo(VISITOR, plan)
    folded(entries)


def brought_back_by_hand(entries: Entries, note: str, plan: str) -> None:
    entries.undo(VISITOR, plan)
    entries.restore(VISITOR, note)
    folded(entries)


def exported_and_taken_in(entries: Entries, note: str, plan: str) -> None:
    target = Path(entries.files.folder()).parent.parent / "out.jsonl"
    entries.export(VISITOR, target, format="jsonl")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    renamed = [{**line, "key": "my own name"} for line in lines if line["key"] == note]
    target.write_text("".join(json.dumps(line) + "\n" for line in renamed))
    entries.import_(VISITOR, target)
    target.unlink()


@pytest.mark.parametrize(
    "become",
    [
        edited,
        emptied,
        deleted_and_restored,
        moved,
        taken_back_and_applied_again,
        brought_back_by_hand,
        exported_and_taken_in,
    ],
)
def test_the_note_goes_whatever_became_of_it(
    entries: Entries, tmp_path: Path, become: Callable[[Entries, str, str], None]
) -> None:
    """Its record says what it was made of, and no text is asked for that."""
    become(entries, *folded(entries))
    entries.search(VISITOR, WORD)
    entries.forget(VISITOR, key="day/2")

    assert [] == files_holding(tmp_path, WORD)
    assert () == entries.search(VISITOR, WORD).matches
    assert WORD not in entries.hydrate(VISITOR).text


def test_a_forgotten_note_says_what_still_holds_its_text(entries: Entries, tmp_path: Path) -> None:
    """The episodes are hidden, and kept until they are forgotten, too."""
    note, _ = folded(entries)
    told = entries.forget(VISITOR, key=note, dry_run=True)
    forgotten = entries.forget(VISITOR, key=note)

    episodes = tuple(f"day/{number}" for number in range(6))
    assert ((note,), episodes, episodes) == (forgotten.keys, told.held_by, forgotten.held_by)
    assert episodes == tuple(forgotten.to_dict()["held_by"])
    assert [] != files_holding(tmp_path, WORD)
    assert () == entries.forget(VISITOR, kind="episode").held_by
    assert [] == files_holding(tmp_path, WORD)


@pytest.fixture
def merged(tmp_path: Path) -> Iterator[Entries]:
    """Two entries that say the same, one of which gave way to the other with a tag and a link."""
    with entries_in(tmp_path / "memory", rules=EntryRules(budget=Budget(max_entries=3))) as opened:
        drafts = [
            Draft("stays", "tea at four", tags=["own", "both"], importance=0.9),
            Draft("goes", "tea at four", tags=["both", WORD], links=[f"{WORD}/link"]),
            Draft("other", "cake"),
        ]
        opened.save_many(VISITOR, drafts)
        opened.apply(VISITOR, opened.plan(VISITOR, share=0.7))
        yield opened


def test_labels_that_an_entry_has_of_a_forgotten_one_alone_go_with_it(merged: Entries, tmp_path: Path) -> None:
    """Its own stay as they were; nothing finds it by the others, and no file holds them."""
    before: Any = merged.get(VISITOR, "stays")
    merged.search(VISITOR, WORD)
    forgotten = merged.forget(VISITOR, key="goes")
    after: Any = merged.get(VISITOR, "stays")

    assert (("own", "both", WORD), (f"{WORD}/link",)) == (before.tags, before.links)
    assert (("own", "both"), (), before.updated_at) == (after.tags, after.links, after.updated_at)
    assert (1, ("goes",), ("stays",)) == (forgotten.count, forgotten.keys, forgotten.held_by)
    assert [] == files_holding(tmp_path, WORD)
    assert () == merged.search(VISITOR, WORD).matches


def test_an_entry_that_others_gave_way_to_names_them_when_it_is_forgotten(merged: Entries) -> None:
    """They say the same, and are only hidden."""

    assert ("goes",) == merged.forget(VISITOR, key="stays").held_by


def test_what_was_hidden_long_ago_takes_no_note_with_it(tmp_path: Path) -> None:
    """Its place was needed, and nobody asked for its content to go."""
    with entries_in(tmp_path, rules=FEW) as entries:
        for number in range(90):
            entries.save(VISITOR, f"day/{number}", f"Topic {number} came up. " * 9, kind="episode")
            if number % 6 == 5:
                entries.apply(VISITOR, entries.plan(VISITOR, share=0.2))
    with entries_in(tmp_path, rules=FEW) as entries:
        notes = [found.key for found in entries.list(VISITOR).memories if found.kind == "note"]

        assert [] != notes
        assert notes == [key for key in notes if entries.get(VISITOR, key) is not None]
        assert "deleted" != entries.explain(VISITOR, "day/0").reason
