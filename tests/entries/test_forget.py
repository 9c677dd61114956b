"""What is forgotten is gone from every file, also from what was made of it, and after a kill in the middle."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.callers import Caller
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.entries.forget import Forgetter
from memfiles.errors import StorageFailed
from memfiles.index.database import PATH
from memfiles.index.index import Index
from memfiles.index.text import fts as texts
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.keys import id_path
from memfiles.storage import quarantine
from memfiles.storage.derived_database import DerivedDatabase
from memfiles.storage.home import home_of
from memfiles.storage.store import Store
from tests.support.another_process import in_a_child
from tests.support.records import files_under
from tests.support.saved import Visitor, entries_in, files_holding, saved, tombstone
from tests.support.stores import place_of, put_by_hand
from tests.support.workflows import opened

WORD = "zebrafish"


FEW = EntryRules(budget=Budget(max_entries=6))


def save_episodes(entries: Entries, visitor: Visitor) -> None:
    """Save six of them, the third of which holds the word."""
    for number in range(6):
        what = WORD if number == 2 else f"topic {number} of {'many' * number}"
        entries.save(visitor, f"day/{number}", f"{what} came up on day {number}. " * 9, kind="episode")


def folded(entries: Entries, visitor: Visitor) -> str:
    """Have six episodes folded into a note; the plan that did it."""
    save_episodes(entries, visitor)
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
        entries.undo_plan(visitor, folded(entries, visitor))
        entries.forget(visitor, key="day/2")

        assert [] == files_holding(tmp_path, WORD)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Index, "forget"),
        (texts, "scrub"),
        (DerivedDatabase, "compact"),
        pytest.param(quarantine.Quarantine, "remove_if", marks=pytest.mark.directory("others keep copies elsewhere")),
        (Store, "scrub"),
    ],
)
@pytest.mark.slow
def test_a_kill_in_the_middle_is_made_good_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, method: str
) -> None:
    """Whichever step it was killed before, a look at the entries is enough to have the content gone."""
    visitor = Visitor()
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(visitor, "animal", f"a {WORD} swims")
        entries.save(visitor, "other", "stays")
        entries.search(visitor, WORD)
    in_a_child(lambda: _forget_until(tmp_path, monkeypatch, owner, method))
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.search(visitor, "stays")

        assert [] == files_holding(tmp_path, WORD)
        assert 0 == entries.forget(visitor, key="animal").count


@pytest.mark.parametrize("saves", [(), ("a fish",), ("a fish", "a bird")])
@pytest.mark.slow
def test_a_kill_in_the_middle_is_made_good_although_the_key_is_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: tuple[str, ...]
) -> None:
    """The first calls after the start are saves under the forgotten key, before anything looks at the entries."""
    visitor = Visitor()
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(visitor, "animal", f"a {WORD} swims")
        ((path, body),) = files_under(tmp_path / "entries").items()
        at, kept = "2026-11-22T00:00:00.000Z", home_of(place_of(tmp_path)).kept
        kept.keep(f"entries/{path}", body, reason="test", at=at, folder="quarantine")
        entries.search(visitor, WORD)
    in_a_child(lambda: _forget_until(tmp_path, monkeypatch, Index, "forget"))
    with entries_in(tmp_path, durability="fsync") as entries:
        for content in saves:
            entries.save(visitor, "animal", content)
        entries.search(visitor, "stays")

        assert [] == files_holding(tmp_path, WORD)
        found = entries.get(visitor, "animal")
        assert (saves or (None,))[-1] == (found.content if found is not None else None)


@pytest.mark.directory("its index is not flushed, and has the notes")
@pytest.mark.parametrize("folder", ["quarantine", "conflicts"])
@pytest.mark.slow
def test_a_power_cut_in_the_middle_is_made_good_though_it_takes_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """With the index goes the note of the forget, and the kept copies are no part of the index."""
    visitor, kept = Visitor(), home_of(tmp_path).kept
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(visitor, "animal", f"a {WORD} swims")
        entries.save(visitor, "other", "stays")
        for path, body in files_under(tmp_path / "entries").items():
            kept.keep(f"entries/{path}", body, reason="test", at="2026-11-22T00:00:00.000Z", folder=folder)
    in_a_child(lambda: _forget_until(tmp_path, monkeypatch, quarantine.Quarantine, "remove_if"))
    with closing(sqlite3.connect(tmp_path / PATH)) as index, index:
        index.execute("UPDATE meta SET value = 'an earlier boot' WHERE key = 'boot'")
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.search(visitor, "stays")

        assert ([], 1) == (files_holding(tmp_path, WORD), len(kept.notes(folder)))


@pytest.mark.directory("its index is deleted")
def test_kept_copies_that_cannot_be_read_keep_no_forget_of_another_machine_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is buried at once; what is kept of it is removed when it can be."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "animal", f"a {WORD} swims")
        ((path, body),) = files_under(tmp_path / "entries").items()
        entry = decode_entry(body, path=f"entries/{path}")
        assert isinstance(entry, Entry)
    home_of(tmp_path).kept.keep(entry.path, body, reason="test", at=entry.updated_at, folder="conflicts")
    put_by_hand(tmp_path, id_path(entry.id), encode_entry(tombstone(entry.id)))
    for file in (tmp_path / ".state").glob("index.sqlite*"):
        file.unlink()
    with monkeypatch.context() as patched, entries_in(tmp_path) as entries:
        patched.setattr(quarantine.Quarantine, "remove_if", fail)
        entries.search(Visitor(), "animal")
        left = files_holding(tmp_path, WORD)
    with entries_in(tmp_path) as entries:
        entries.search(Visitor(), "animal")

        assert (["conflicts"], []) == ([it.partition("/")[0] for it in left], files_holding(tmp_path, WORD))


def fail(*_: object) -> NoReturn:
    raise StorageFailed("the disk fails")


def _forget_until(directory: Path, monkeypatch: pytest.MonkeyPatch, owner: object, method: str) -> None:
    with entries_in(directory, durability="fsync") as entries:
        entries.search(Visitor(), "stays")
        monkeypatch.setattr(owned(entries, owner), method, lambda *_, **__: os._exit(9))
        entries.forget(Visitor(), key="animal")


def owned(entries: Entries, owner: object) -> object:
    """Whose method it is: for the directory store, that of the store which the entries are in."""
    return type(entries._db.store) if owner is Store else owner


@pytest.mark.slow
def test_a_kill_while_a_forget_of_another_machine_is_followed_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is a mark by then: only the note of it says that its content is elsewhere yet."""
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(Visitor(), "animal", f"a {WORD} swims")
        assert (entry := entries.get(Visitor(), "animal")) is not None
    put_by_hand(tmp_path, id_path(entry.id), encode_entry(tombstone(entry.id)))
    in_a_child(lambda: _follow_until(tmp_path, monkeypatch))
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.search(Visitor(), "stays")

        assert [] == files_holding(tmp_path, WORD)


def test_a_followed_forget_keeps_who_forgot_the_entry_and_why(tmp_path: Path) -> None:
    """Also in the tombstone of an id that the other machine did not know."""
    entry = saved("animal", WORD, given_id="a" * 32, aliases=("b" * 32,))
    with entries_in(tmp_path) as entries:
        put_by_hand(tmp_path, entry.path, encode_entry(entry))
        put_by_hand(tmp_path, id_path(entry.id), encode_entry(told := tombstone(entry.id)))
        entries.search(Visitor(), WORD)
        found = [entries._db.mark(path) for path in (entry.path, id_path(entry.aliases[0]))]

    assert [(told.by, ""), (told.by, told.why)] == [(mark.by, mark.why) for mark in found if mark is not None]


def _follow_until(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with entries_in(directory, durability="fsync") as entries:
        monkeypatch.setattr(Index, "forget", lambda *_, **__: os._exit(9))
        entries.search(Visitor(), "stays")


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


def folded_note(entries: Entries) -> tuple[str, str]:
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
    entries.undo_plan(VISITOR, plan)
    folded_note(entries)


def brought_back_by_hand(entries: Entries, note: str, plan: str) -> None:
    entries.undo_plan(VISITOR, plan)
    entries.restore(VISITOR, note)
    folded_note(entries)


def exported_and_taken_in(entries: Entries, note: str, plan: str) -> None:
    target = Path(tempfile.mkdtemp()) / "out.jsonl"
    entries.export(VISITOR, target, format="jsonl")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    renamed = [{**line, "key": "my own name"} for line in lines if line["key"] == note]
    target.write_text("".join(json.dumps(line) + "\n" for line in renamed))
    entries.import_(VISITOR, target)
    shutil.rmtree(target.parent)


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
    become(entries, *folded_note(entries))
    entries.search(VISITOR, WORD)
    entries.forget(VISITOR, key="day/2")

    assert [] == files_holding(tmp_path, WORD)
    assert () == entries.search(VISITOR, WORD).matches
    assert WORD not in entries.hydrate(VISITOR).text


def test_a_forgotten_note_says_what_still_holds_its_text(entries: Entries, tmp_path: Path) -> None:
    """The episodes are hidden, and kept until they are forgotten, too."""
    note, _ = folded_note(entries)
    told = entries.forget(VISITOR, key=note, dry_run=True)
    forgotten = entries.forget(VISITOR, key=note)

    episodes = tuple(f"day/{number}" for number in range(6))
    assert ((note,), episodes, episodes) == (forgotten.keys, told.held_by, forgotten.held_by)
    assert episodes == tuple(forgotten.to_dict()["held_by"])
    assert [] != files_holding(tmp_path, WORD)
    assert () == entries.forget(VISITOR, kind="episode").held_by
    assert [] == files_holding(tmp_path, WORD)


def merge(entries: Entries, caller: Caller) -> None:
    """Save two entries that say the same, one of which gives way to the other with a tag and a link."""
    drafts = [
        Draft("stays", "tea at four", tags=["own", "both"], importance=0.9),
        Draft("goes", "tea at four", tags=["both", WORD], links=[f"{WORD}/link"]),
        Draft("other", "cake"),
    ]
    entries.save_many(caller, drafts)
    entries.apply(caller, entries.plan(caller, share=0.7))


@pytest.fixture
def merged(tmp_path: Path) -> Iterator[Entries]:
    """Entries as of ``merge``."""
    with entries_in(tmp_path / "memory", rules=EntryRules(budget=Budget(max_entries=3))) as entries:
        merge(entries, VISITOR)
        yield entries


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


@pytest.mark.slow
def test_labels_of_a_forgotten_entry_go_after_a_kill_though_no_mirror_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ledger keeps of the other entry's copy there has them: the next start finds that one noted as well."""
    (mirror := tmp_path / "mirror").mkdir()
    text = f"memory: {{mirror: {{url: '{mirror.as_uri()}'}}, entries: {{max_entries: 3}}}}\nagents: {{support: {{}}}}\n"
    with opened(tmp_path, text) as memory:
        merge(memory.entries, memory.session("support"))
        assert memory.sync.flush(30)
    kept = files_holding(tmp_path / ".memory", WORD)

    def forget() -> None:
        with opened(tmp_path, text) as memory:
            monkeypatch.setattr(Index, "forget", lambda *_, **__: os._exit(9))
            memory.entries.forget(memory.session("support"), key="goes")

    in_a_child(forget)
    mirror.rename(tmp_path / "away")
    with opened(tmp_path, text) as memory:
        memory.entries.search(memory.session("support"), "tea")

        assert (True, []) == (any("mirror" in each for each in kept), files_holding(tmp_path / ".memory", WORD))


def test_an_entry_that_others_gave_way_to_names_them_when_it_is_forgotten(merged: Entries) -> None:
    """They say the same, and are only hidden."""

    assert ("goes",) == merged.forget(VISITOR, key="stays").held_by


def test_what_was_hidden_long_ago_takes_no_note_with_it(tmp_path: Path) -> None:
    """Its place was needed, and nobody asked for its content to go."""
    with entries_in(tmp_path, rules=FEW) as entries:
        for number in range(90):
            entries.save(VISITOR, f"day/{number}", f"Topic {number} came up. " * 9, kind="episode")
            if number % 5 == 4:
                entries.apply(VISITOR, entries.plan(VISITOR, share=0.2))
    with entries_in(tmp_path, rules=FEW) as entries:
        notes = [found.key for found in entries.list(VISITOR).memories if found.kind == "note"]

        assert [] != notes
        assert notes == [key for key in notes if entries.get(VISITOR, key) is not None]
        assert "deleted" != entries.explain(VISITOR, "day/0").reason


def test_the_mark_of_an_entry_of_a_run_alone_does_not_name_the_run(tmp_path: Path) -> None:
    """It says only that there was one, so that no mirror gets the mark."""
    visitor = Visitor(run="r-7")
    with entries_in(tmp_path) as entries:
        entries.save(visitor, "key", WORD, category="conversation")
        ((path, _),) = files_under(tmp_path / "entries").items()
        entries.forget(visitor, key="key")
        mark = entries._db.mark(f"entries/{path}")

    assert mark is not None
    assert mark.run not in ("", "r-7")


@pytest.mark.parametrize("by", ["key", "id"])
def test_an_entry_that_moves_while_it_is_forgotten_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Another process gave it a new key after it was found and before it was locked."""
    with entries_in(tmp_path) as entries, entries_in(tmp_path) as other:
        visitor = Visitor(run="r")
        entries.save(visitor, "key", WORD)
        id = entries.get(visitor, "key").id  # type: ignore[union-attr]
        find = Forgetter._find

        def find_and_move(*given: Any) -> Any:
            found = find(*given)
            other.relocate(visitor, {"key": "new"})
            return found

        monkeypatch.setattr(Forgetter, "_find", find_and_move)
        forgotten = entries.forget(visitor, key="key") if by == "key" else entries.forget(visitor, id=id)

        assert (1, ("new",)) == (forgotten.count, forgotten.keys)
        assert [] == files_holding(tmp_path, WORD)


def test_a_note_that_is_made_of_an_entry_while_it_is_forgotten_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process folded the entry after it was found and before it was locked."""
    with entries_in(tmp_path, rules=FEW) as entries, entries_in(tmp_path, rules=FEW) as other:
        find = Forgetter._find

        def find_and_fold(*given: Any) -> Any:
            found = find(*given)
            other.apply(VISITOR, other.plan(VISITOR, share=0.2))
            return found

        save_episodes(entries, VISITOR)
        monkeypatch.setattr(Forgetter, "_find", find_and_fold)
        forgotten = entries.forget(VISITOR, key="day/2")

        assert (2, "day/2") == (forgotten.count, forgotten.keys[0])
        assert [] == files_holding(tmp_path, WORD)
