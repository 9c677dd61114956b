"""An entry that gets another owner or key moves as a whole, in one commit, and keeps its times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, InvalidArgument, ReadOnly, RevisionConflict, SecretRefused
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry
from memfiles.records.history import contents
from memfiles.tools.session import Session
from tests.support.another_process import in_a_child
from tests.support.records import files_under
from tests.support.saved import Clock, Visitor, entries_in, files_holding
from tests.support.workflows import opened

MATE = Visitor("billing")


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

    assert {**before.to_dict(), "category": "workspace", "revision": 4} == after.to_dict()
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


@pytest.mark.directory("only files can be changed by hand")
def test_it_moves_on_from_a_place_that_was_noted_at_a_time_that_is_none(entries: Entries, tmp_path: Path) -> None:
    """A record that another program wrote may say so: the move is noted at the time of the clock."""
    entries.save(Visitor(), "where", "x")
    entries.relocate(Visitor(), {"where": "there"})
    (place,) = (tmp_path / "memory/entries/@ids").iterdir()
    at = Clock().at
    place.write_text(place.read_text("utf-8").replace(f'"at":"{at}"', '"at":"2026-02-30T25:00:00.000Z"'), "utf-8")
    entries.relocate(Visitor(), {"there": "elsewhere"})

    assert "x" == getattr(entries.get(Visitor(), "elsewhere"), "content", None)
    assert f'"at":"{at}"' in place.read_text("utf-8")


def test_a_kill_leaves_it_in_one_place(tmp_path: Path) -> None:
    """After the first commit there is no other to be made."""
    with entries_in(tmp_path, durability="fsync") as entries:
        entries.save(Visitor(), "where", "x")
    in_a_child(lambda: _move_and_die(tmp_path))
    with entries_in(tmp_path, durability="fsync") as entries:
        assert (1, 0) == (len(entries.list(MATE).memories), _own(entries))


def _move_and_die(directory: Path) -> None:
    with entries_in(directory, durability="fsync") as entries:
        store = type(entries._db.store)
        change = store.change

        def change_and_die(*args: Any, **options: Any) -> Any:
            result, written = change(*args, **options)
            if written:
                os._exit(9)
            return result, written

        store.change = change_and_die  # type: ignore[method-assign]
        entries.update(Visitor(), "where", category="workspace")


def _own(entries: Entries) -> int:
    """How many live entries the agent has for itself."""
    return sum(counted.entries for counted in entries.counts() if counted.folder == "support")


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


WORKFLOW = """\
memory: {durability: os, entries: {max_entries: 3, categories: {daily: {ttl: 72h}}}}
agents: {a: {level: INTERNAL}, b: {level: INTERNAL}}
"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("a", run="monday")


def keys(memory: memfiles.Memory, session: Session) -> list[str]:
    return [found.key for found in memory.entries.list(session).memories]


def test_all_of_it_is_one_change(memory: memfiles.Memory, session: Session) -> None:
    """Nobody sees a state in between, and whoever watches is told of each."""
    memory.entries.save_many(session, [{"key": key, "content": key} for key in ("a", "b", "c")])
    told: list[str] = []
    memory.manager.subscribe(lambda change: told.append(f"{change.op} {change.name}"))
    memory.entries.relocate(session, {"a": "x/a", "c": "x/c"})

    assert ["b", "x/a", "x/c"] == keys(memory, session)
    assert ["move "] * 4 + ["update x/a", "update x/c"] == sorted(told)


def test_an_entry_keeps_its_times_and_what_is_said_of_it(memory: memfiles.Memory, session: Session) -> None:
    """Another key makes it no newer, and lets it live no longer."""
    entries = memory.entries
    entries.save(session, "a", "text", tags=["t"], category="daily", kind="procedure", importance=0.75, links=["z"])
    entries.update(session, "a", outcome="success")
    before = entries.get(session, "a")
    entries.relocate(session, {"a": "b"})
    after = entries.get(session, "b")

    assert before is not None
    assert after is not None
    for facet in ("content", "tags", "category", "kind", "importance", "links", "expires_at", "updated_at"):
        assert getattr(before, facet) == getattr(after, facet)
    assert (before.created_at, 1) == (after.created_at, after.successes)


@pytest.mark.parametrize(
    ("moves", "error"),
    [
        ({"a": "x", "b": "c"}, RevisionConflict),
        ({"a": "x", "never": "y"}, EntryNotFound),
        ({"a": "x", "b": "k" * 256}, InvalidArgument),
        ({"a": "x", "b": " "}, InvalidArgument),
        ({"a": "x", "b": "AKIAIOSFODNN7EXAMPL3"}, SecretRefused),
    ],
)
def test_what_cannot_be_done_leaves_all_as_it_was(
    memory: memfiles.Memory, session: Session, moves: dict[str, str], error: type[Exception]
) -> None:
    """Also what stood before it in the list."""
    memory.entries.save_many(session, [{"key": key, "content": key} for key in ("a", "b", "c")])
    with pytest.raises(error):
        memory.entries.relocate(session, moves)

    assert ["a", "b", "c"] == keys(memory, session)


def test_a_key_that_was_used_before_may_be_used_again(memory: memfiles.Memory, session: Session) -> None:
    """What was deleted or forgotten there does not come back with it."""
    entries = memory.entries
    for key, end in (("deleted", entries.delete), ("forgotten", None)):
        entries.save(session, key, "old", tags=["old"], pinned=True)
        if end is None:
            entries.forget(session, key=key, why="asked to")
        else:
            end(session, key)
    entries.save(session, "a", "new")
    for source, target in (("a", "deleted"), ("deleted", "forgotten")):
        entries.relocate(session, {source: target})
        found = entries.get(session, target)
        assert found is not None
        assert ("new", (), False) == (found.content, found.tags, found.pinned)


def test_an_entry_of_a_run_stays_one(memory: memfiles.Memory, session: Session) -> None:
    """It belongs to the same ones as before, and goes when they would have gone."""
    memory.entries.save(session, "a", "text", category="conversation")
    memory.entries.relocate(session, {"a": "b"})

    assert [["b"], []] == [keys(memory, session), keys(memory, memory.session("a"))]


def test_a_key_that_was_moved_away_is_used_again_without_its_past(
    memory: memfiles.Memory, session: Session, tmp_path: Path
) -> None:
    """What the new entry under it says has nothing to do with what was there, which goes with what it became."""
    memory.entries.save(session, "log", "a zebrafish")
    memory.entries.relocate(session, {"log": "log.old"})
    memory.entries.save(session, "log", "a day without")
    memory.entries.forget(session, key="log.old")

    assert ["log"] == keys(memory, session)
    assert [] == files_holding(tmp_path, "zebrafish")


def test_an_entry_that_takes_the_key_of_a_deleted_one_keeps_all_that_this_one_said(
    memory: memfiles.Memory, session: Session, tmp_path: Path
) -> None:
    """Also what was superseded before it was deleted, in the history."""
    for content in ("first", "second"):
        memory.entries.save(session, "key", content)
    memory.entries.delete(session, "key")
    memory.entries.save(session, "other", "now")
    memory.entries.relocate(session, {"other": "key"})
    kept = files_under(tmp_path)
    paths = [path for path, body in kept.items() if "entries/" in path and b'"key":"key",\n"content"' in body]
    records = [decode_entry(kept[path], path=path[path.index("entries/") :]) for path in paths]
    (entry,) = [record for record in records if isinstance(record, Entry)]

    assert ["now", "second", "first", "now"] == [text.decode() for _, text in contents(entry.text)]


@pytest.mark.parametrize("key", ["newest", "oldest"])
def test_what_was_moved_is_forgotten_where_it_was_as_well(
    memory: memfiles.Memory, session: Session, tmp_path: Path, key: str
) -> None:
    """Under its newest key, with all that it was before; what has one of its earlier keys only goes alone."""
    memory.entries.save(session, "oldest", "a zebrafish")
    memory.entries.relocate(session, {"oldest": "older"})
    memory.entries.relocate(session, {"older": "newest"})
    forgotten = memory.entries.forget(session, key=key)

    assert (("newest",) if key == "newest" else ()) == forgotten.keys
    assert (key == "newest") == ([] == files_holding(tmp_path, "zebrafish"))


def test_what_changed_hands_is_forgotten_where_it_was_as_well(
    memory: memfiles.Memory, session: Session, tmp_path: Path
) -> None:
    """Another category gives an entry to all agents; what it was told by is no longer said of its first record."""
    memory.entries.save(session, "key", "a zebrafish", tags=["old"])
    memory.entries.update(session, "key", category="workspace", tags=["new"])
    forgotten = memory.entries.forget(session, tag="new")

    assert 1 == forgotten.count
    assert [] == files_holding(tmp_path, "zebrafish")


@pytest.mark.parametrize("agent", ["a", "b"])
def test_what_was_of_another_agent_or_run_is_forgotten_there_as_well(
    memory: memfiles.Memory, session: Session, tmp_path: Path, agent: str
) -> None:
    """Who forgets it may see nothing there, and is not told of it."""
    memory.entries.save(session, "private", "a zebrafish", category="conversation")
    memory.entries.relocate(session, {"private": "key"})
    memory.entries.update(session, "key", category="workspace")
    other = memory.session(agent, level="INTERNAL", run="tuesday")
    told = memory.entries.forget(other, key="key", dry_run=True)
    forgotten = memory.entries.forget(other, key="key")

    assert (1, ("key",), 1, ("key",)) == (told.count, told.keys, forgotten.count, forgotten.keys)
    assert [] == files_holding(tmp_path, "zebrafish")


def test_a_selector_means_nothing_where_its_caller_sees_nothing(memory: memfiles.Memory, session: Session) -> None:
    """What was moved from there goes, and nothing else that fits."""
    memory.entries.save(session, "key", "shared", category="workspace", tags=["t"])
    memory.entries.save_many(session, [{"key": key, "content": "own", "tags": ["t"]} for key in ("a", "b")])
    memory.entries.apply(session, memory.entries.plan(session, share=0.4))
    memory.entries.forget(memory.session("b", level="INTERNAL"), tag="t")

    assert ["b"] == keys(memory, session)


def test_a_key_in_between_that_is_used_again_hides_nothing_from_a_forget(
    memory: memfiles.Memory, session: Session, tmp_path: Path
) -> None:
    """What the entry was under its first key goes with it, and what the other key holds now stays."""
    memory.entries.save(session, "first", "a zebrafish")
    memory.entries.relocate(session, {"first": "second"})
    memory.entries.relocate(session, {"second": "third"})
    memory.entries.save(session, "second", "new")
    memory.entries.forget(session, key="third")

    assert ([], ["second"]) == (files_holding(tmp_path, "zebrafish"), keys(memory, session))


def test_a_key_that_is_used_again_where_it_was_given_away_hides_nothing_from_a_forget(
    memory: memfiles.Memory, session: Session, tmp_path: Path
) -> None:
    """Another category is another place, from which what it was before leads on as well."""
    memory.entries.save(session, "first", "a zebrafish")
    memory.entries.relocate(session, {"first": "second"})
    memory.entries.update(session, "second", category="workspace")
    memory.entries.save(session, "second", "new", category="general")
    memory.entries.forget(memory.session("b", level="INTERNAL"), key="second")

    assert ([], ["second"]) == (files_holding(tmp_path, "zebrafish"), keys(memory, session))


def test_forgetting_an_earlier_key_says_where_the_content_is_now(memory: memfiles.Memory, session: Session) -> None:
    """As it is not gone: it has another key."""
    memory.entries.save(session, "oldest", "a zebrafish")
    memory.entries.relocate(session, {"oldest": "older"})
    memory.entries.relocate(session, {"older": "newest"})

    assert ("newest",) == memory.entries.forget(session, key="oldest").held_by


def test_what_was_moved_is_not_restored_where_it_was(memory: memfiles.Memory, session: Session) -> None:
    """It would be there twice, and a forget of one would leave the other."""
    memory.entries.save(session, "old", "a zebrafish")
    memory.entries.relocate(session, {"old": "new"})

    with pytest.raises(EntryNotFound):
        memory.entries.restore(session, "old")


def test_what_maps_no_keys_is_refused(memory: memfiles.Memory, session: Session) -> None:
    """A list of pairs is no mapping."""
    with pytest.raises(InvalidArgument, match="moves must map keys"):
        memory.entries.relocate(session, [("a", "b")])  # type: ignore[arg-type]
