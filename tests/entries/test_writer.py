"""Writes of several entries: evictions for a save over a budget, and deletes of many keys at once."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import FrameType

import pytest

from memfiles.entries import purge
from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import (
    EditNoMatch,
    EmptyText,
    EntryNotFound,
    InvalidArgument,
    RevisionConflict,
    SecretRefused,
    StorageFailed,
)
from memfiles.storage.fork_safety import collector_paused
from tests.secrets.secret_corpus import TOKENS
from tests.support.saved import Clock, Visitor, entries_in
from tests.support.workflows import opened


def test_what_was_read_just_now_stays(tmp_path: Path) -> None:
    """Also where nobody has changed anything since, which would have brought the reads into the index."""
    clock = Clock()
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2)), now=clock) as entries:
        entries.save_many(Visitor(), [Draft("older", "x"), Draft("newer", "y")])
        entries.list(Visitor())
        clock.go_on(1)
        entries.get(Visitor(), "older")

        assert ("newer",) == entries.save(Visitor(), "newest", "z").evicted


def test_what_one_search_finds_is_read_at_one_time(tmp_path: Path) -> None:
    """However long it takes, so that of its results the one that was changed first goes first."""
    clock = Clock()

    def ticking() -> str:
        clock.go_on(1)
        return clock.at

    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2)), now=ticking) as entries:
        entries.save_many(Visitor(), [Draft("older", "x and a good deal more"), Draft("newer", "x x")])
        found = [match.found.key for match in entries.search(Visitor(), "x").matches]

        assert ["newer", "older"] == found
        assert ("older",) == entries.save(Visitor(), "newest", "z").evicted


@pytest.mark.parametrize(
    ("reader", "category"),
    [
        (Visitor(level="RESTRICTED"), "general"),
        (Visitor("sales"), "workspace"),
        (Visitor("sales", "RESTRICTED"), "workspace"),
        (Visitor(), "workspace"),
    ],
)
def test_a_read_that_others_may_not_notice_keeps_nothing(tmp_path: Path, reader: Visitor, category: str) -> None:
    """By key or by a search: what goes next, and what a plan says, would tell a lower level or another agent of it."""
    clock = Clock()
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=2)), now=clock) as entries:
        drafts = [Draft("older", "x y", category=category), Draft("newer", "z y", category=category)]
        entries.save_many(Visitor(), drafts)
        clock.go_on(1)
        entries.get(reader, "older")
        found = entries.search(reader, "x").matches
        plan = entries.plan(Visitor(), share=0.5)

        assert ["older"] == [match.found.key for match in found]
        assert [] == [step.why for step in plan.steps if "read 0 times" not in step.why]
        assert ("older",) == entries.save(Visitor(), "newest", "z", category=category).evicted


def test_an_update_is_not_refused_for_what_was_there(tmp_path: Path) -> None:
    """An entry that holds a credential can be updated around it; a further one is refused."""
    one, other = [secret.value for secret in TOKENS if secret.rule in {"anthropic-key", "openai-key"}][:2]
    with entries_in(tmp_path / "memory", rules=EntryRules(secrets="off")) as entries:
        entries.save(Visitor(), "k", f"see {one}")
    with entries_in(tmp_path / "memory", rules=EntryRules(secrets="block")) as entries:
        entries.update(Visitor(), "k", content=f"look at {one}")
        with pytest.raises(SecretRefused):
            entries.update(Visitor(), "k", content=f"look at {one} and {other}")
        with pytest.raises(SecretRefused):
            entries.save(Visitor(), "m", f"look at {one}")
        found = entries.get(Visitor(), "k")

    assert found is not None and f"look at {one}" == found.content


@pytest.mark.parametrize("way", ["save", "import", "export"])
def test_no_collection_walks_through_many_entries(tmp_path: Path, way: str) -> None:
    """They took a third of the time of saving 10,000, and find nothing; afterwards they go on."""
    begun: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    drafts = [Draft(f"note {number}", "x") for number in range(500)]
    file = tmp_path / "entries.jsonl"
    with entries_in(tmp_path / "first") as others, entries_in(tmp_path / "memory") as entries:
        others.save_many(Visitor(), drafts)
        others.export(Visitor(), file, format="jsonl")
        entries.save(Visitor(), "first", "x")
        ways: dict[str, Callable[[], object]] = {
            "save": lambda: entries.save_many(Visitor(), drafts),
            "import": lambda: entries.import_(Visitor(), file),
            "export": lambda: others.export(Visitor(), file, format="jsonl"),
        }
        gc.collect()
        gc.callbacks.append(note)
        try:
            ways[way]()
        finally:
            gc.callbacks.remove(note)

    assert (True, True) == (len(begun) <= 2, gc.isenabled()), begun  # before and after


@pytest.mark.directory("what one save costs there")
@pytest.mark.parametrize(("number", "most"), [(1, 332), (200, 182)])  # 4 of them once a second
def test_a_warm_save_calls_few_functions(tmp_path: Path, number: int, most: int) -> None:
    """Most of its time is spent in Python. The calls are counted, as the time itself depends on the machine."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    with entries_in(tmp_path, durability="fsync") as entries:
        for each in range(4):
            entries.save(Visitor(run="now"), f"key {each}", "some text")
        visitor = Visitor(run="now")
        drafts = [Draft(f"of {number}: {each}", "some text") for each in range(number)]  # keys that nothing knows yet
        entries.save_many(visitor, [Draft(f"first {each}", "some text") for each in range(number)])
        sys.setprofile(note)
        try:
            entries.save_many(visitor, drafts)
        finally:
            sys.setprofile(None)

    assert most >= len(called) / number, Counter(called).most_common(20)


def test_collections_go_on_in_a_child_forked_during_a_pause() -> None:
    """The thread that would end the pause may not be in the child."""
    with collector_paused():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_forked_during_the_first_save_of_another_thread_can_save(tmp_path: Path) -> None:
    """Python 3.11 locked the parts of all entries while a thread made one, and the child waited for it for ever."""
    making, goes_on = threading.Event(), threading.Event()

    def stop(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "LateParts.writer":
            making.set()
            goes_on.wait(60)

    def save_first() -> None:
        sys.setprofile(stop)
        shared.save(Visitor(), "ours", "text")

    with entries_in(tmp_path) as shared:
        thread = threading.Thread(target=save_first)
        thread.start()
        assert making.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends what waits
            os._exit(shared.save(Visitor(), "theirs", "text").revision)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        goes_on.set()
        thread.join()
        keys = keys_of(shared, Visitor())

    assert (1, ["ours", "theirs"]) == (ended, keys)


def keys_of(entries: Entries, visitor: Visitor) -> list[str]:
    return [each.key for each in entries.list(visitor).memories]


def test_what_is_meant_is_hidden_and_can_be_restored(entries: Entries) -> None:
    """What is not there is left out, and a key counts once."""
    for key in ("a", "b", "c"):
        entries.save(Visitor(), key, "text")
    gone = entries.delete_many(Visitor(), ["c", "a", "a", "nothing"])

    assert [("a", 2), ("c", 2)] == [(each.key, each.revision) for each in gone]
    assert ["b"] == keys_of(entries, Visitor())
    entries.restore(Visitor(), "a")
    assert ["a", "b"] == keys_of(entries, Visitor())


def test_one_of_those_who_restore_it_at_the_same_time_does(entries: Entries) -> None:
    """The others are told that there is nothing to restore, as they would be a moment later."""
    entries.save(Visitor(), "plan", "text")
    start, told = Barrier(4), Counter[int]()

    def restore(_: int) -> bool:
        start.wait()
        try:
            entries.restore(Visitor(), "plan")
        except EntryNotFound:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            entries.delete(Visitor(), "plan")
            told[sum(threads.map(restore, range(4)))] += 1
    assert {1: 50} == told


def test_a_restore_that_is_repeated_changes_nothing(entries: Entries) -> None:
    """The same call gets the same answer, another one is told that nothing is hidden."""
    entries.save(Visitor(), "plan", "text")
    entries.delete(Visitor(), "plan")
    first = entries.restore(Visitor(), "plan", call_id="c1")
    again = entries.restore(Visitor(), "plan", call_id="c1")

    assert (3, False, 3, True) == (first.revision, first.replayed, again.revision, again.replayed)
    with pytest.raises(EntryNotFound, match="not deleted"):
        entries.restore(Visitor(), "plan", call_id="c2")


def test_nothing_is_deleted_below_the_session(entries: Entries) -> None:
    """What is seen there stays, and is told of as what is not there."""
    entries.save(Visitor(level="PUBLIC"), "low", "text")

    assert [] == entries.delete_many(Visitor(level="RESTRICTED"), ["low"])
    assert ["low"] == keys_of(entries, Visitor(level="PUBLIC"))


def test_a_key_that_cannot_be_changes_nothing(entries: Entries) -> None:
    """The others are not deleted either."""
    entries.save(Visitor(), "a", "text")
    with pytest.raises(InvalidArgument):
        entries.delete_many(Visitor(), ["a", "line\nfeed"])

    assert ["a"] == keys_of(entries, Visitor())


def test_nothing_to_delete_is_nothing_done(entries: Entries) -> None:
    """No lock is taken and nothing written."""

    assert [] == entries.delete_many(Visitor(), [])


def test_a_search_can_be_kept_to_some_keys(entries: Entries) -> None:
    """Before the limit, so that others that answer better take no place."""
    for key in ("a/one", "a/two", "b/one"):
        entries.save(Visitor(), key, "tea" if key == "a/two" else "tea tea tea")

    def found(**said: object) -> list[str]:
        return [match.found.key for match in entries.search(Visitor(), "tea", max_results=1, **said).matches]  # type: ignore[arg-type]

    assert ["b/one"] == found(prefix="b/")
    assert ["a/two"] == found(among=["a/two", "nothing"])
    assert [] == found(prefix="b/", among=["a/two"])
    assert [] == found(among=[])


def _delete_each(entries: Entries, key: str) -> None:
    entries.delete(Visitor(), key)


def _move_each(entries: Entries, key: str) -> None:
    entries.relocate(Visitor(), {key: f"{key} moved"})
    entries.update(Visitor(), f"{key} moved", category="workspace")


@pytest.mark.slow
@pytest.mark.parametrize("hide", [_delete_each, _move_each])
def test_what_is_hidden_is_not_kept_without_end(tmp_path: Path, hide: Callable[[Entries, str], None]) -> None:
    """As many as there may be live ones, and some; the oldest go first, and nothing was over a budget."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=5))) as entries:
        for number in range(90):
            entries.save(Visitor(), f"k{number}", f"text{number}text")
            hide(entries, f"k{number}")
        hidden = max(counted.retired for counted in entries.counts())

        assert 5 <= hidden <= 5 + 65
        with pytest.raises(EntryNotFound):
            entries.restore(Visitor(), "k0")


def test_what_was_deleted_is_deleted_though_older_ones_cannot_go(
    entries: Entries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller is not told that nothing changed."""

    def full(*_: object, **__: object) -> None:
        raise StorageFailed("the disk is full")

    entries.save(Visitor(), "a", "text")
    monkeypatch.setattr(purge.Purger, "_erase_surplus", full)

    assert "a" == entries.delete(Visitor(), "a").key
    assert "the disk is full" in caplog.text


def test_threads_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    """Also where a budget is measured anew, as it may be near, and turns out to have room."""
    keys = [[f"{thread}/{number}" for number in range(60)] for thread in range(6)]
    with opened(tmp_path, "memory: {durability: os, entries: {}}\nagents: {desk: {}}\n") as memory:
        sessions = [memory.session("desk") for _ in keys]

        def save(thread: int) -> None:
            for key in keys[thread]:
                memory.entries.save(sessions[thread], key, f"what {key} says")

        with ThreadPoolExecutor(len(keys)) as threads:
            list(threads.map(save, range(len(keys))))
        lost = [key for mine in keys for key in mine if memory.entries.get(sessions[0], key) is None]

    assert [] == lost


def test_an_edit_replaces_the_first_match(entries: Entries) -> None:
    """And says how often the text occurs, and where it was replaced."""
    entries.save(Visitor(), "plan", "Ada is on Free.\nBob is on Free.\n")

    saved = entries.edit(Visitor(), "plan", "Free", "Pro")

    assert ("Ada is on Pro.\nBob is on Free.\n", 2, 1) == (_content(entries, "plan"), saved.matches, saved.line)


def test_an_edit_that_does_not_fit_changes_nothing(entries: Entries) -> None:
    """The reason names the key and the nearest line; an entry of another level is not there to be edited."""
    entries.save(Visitor(), "plan", "Ada is on Free.\n")

    with pytest.raises(EditNoMatch, match="does not occur in 'plan'; the nearest is line 1: 'Ada is on Free.'"):
        entries.edit(Visitor(), "plan", "Ada is on Pro.", "x")
    with pytest.raises(EmptyText, match="nothing to find in 'plan'"):
        entries.edit(Visitor(), "plan", "", "x")
    for old, new in ((5, "x"), ("Ada", None), ("Ada", "\ud800"), ("\ud800", "x")):
        with pytest.raises(InvalidArgument, match="the text"):
            entries.edit(Visitor(), "plan", old, new)  # type: ignore[arg-type]
    with pytest.raises(EntryNotFound, match="there is no entry 'plan' at this session's level"):
        entries.edit(Visitor(level="RESTRICTED"), "plan", "Free", "Pro")
    with pytest.raises(RevisionConflict, match="revision 1, not 7"):
        entries.edit(Visitor(), "plan", "Free", "Pro", expected_revision=7)
    assert "Ada is on Free.\n" == _content(entries, "plan")


def test_an_edit_that_completes_a_credential_is_refused(entries: Entries) -> None:
    """The result counts, not the text that is put in."""
    token = next(secret.value for secret in TOKENS if secret.rule == "anthropic-key")
    entries.save(Visitor(), "plan", f"see {token[:6]}\n")

    with pytest.raises(SecretRefused):
        entries.edit(Visitor(), "plan", f"{token[:6]}\n", f"{token}\n")


def test_a_repeated_edit_is_made_once(entries: Entries) -> None:
    """Even if its text still occurs, and another change came meanwhile."""
    entries.save(Visitor(), "plan", "a a a")
    first = entries.edit(Visitor(), "plan", "a", "b", call_id="call_1")
    entries.edit(Visitor(), "plan", "a", "c", call_id="call_2")

    again = entries.edit(Visitor(), "plan", "a", "b", call_id="call_1")

    assert ("b c a", first.revision, True) == (_content(entries, "plan"), again.revision, again.replayed)


def test_edits_at_the_same_time_are_all_kept(entries: Entries) -> None:
    """Each is made on what the others left."""
    words = [f"word-{number}" for number in range(6)]
    entries.save(Visitor(), "plan", " ".join(words))
    with ThreadPoolExecutor(len(words)) as pool:
        list(pool.map(lambda word: entries.edit(Visitor(), "plan", word, word.upper()), words))

    assert " ".join(words).upper() == _content(entries, "plan")


def _content(entries: Entries, key: str) -> str:
    found = entries.get(Visitor(), key)
    assert found is not None
    return found.content


@pytest.mark.parametrize("number", [0, 70])
@pytest.mark.parametrize("where", ["content", "source", "key", "links", "tags", "tags of a generator"])
def test_a_credential_among_many_drafts_is_found_wherever_it_is(entries: Entries, where: str, number: int) -> None:
    """Many drafts are looked at together, and then each of them if there may be something."""
    token = next(secret.value for secret in TOKENS if secret.rule == "github-token" and len(secret.value) <= 64)
    given: dict[str, object] = {"key": f"note-{number}", "content": "harmless"}
    given |= {"tags": (tag for tag in [token])} if "generator" in where else {}
    given |= {where: [token] if where in ("links", "tags") else token} if "generator" not in where else {}
    drafts: list[dict[str, object]] = [{"key": f"note-{n}", "content": "harmless"} for n in range(100)]
    drafts[number] = given
    with pytest.raises(SecretRefused):
        entries.save_many(Visitor(), drafts)

    assert () == entries.list(Visitor()).memories


def test_many_drafts_cost_one_look_for_credentials(entries: Entries) -> None:
    """One look at a draft is as dear as one at a hundred; the calls are counted."""
    looks = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code.co_name == "_ranks"

    sys.setprofile(count)
    try:
        entries.save_many(Visitor(), [{"key": f"note-{n}", "content": "harmless", "tags": ["a"]} for n in range(128)])
    finally:
        sys.setprofile(None)

    assert 2 == looks
