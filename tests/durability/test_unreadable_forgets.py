"""Forgets while an entry, or a note made of it, cannot be read: it follows as soon as it can be, in every process."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.entries.forget import Forgetter
from memfiles.errors import StorageFailed
from memfiles.index.database import noted_forgets, noted_unread
from memfiles.records.entry_codec import encode_entry
from memfiles.records.keys import id_path
from tests.durability.rights import as_another_process, as_nobody, entry_of_bob, note_of_tea, settle
from tests.support.records import wait_until
from tests.support.saved import Visitor, files_holding, saved, tombstone
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow


def test_an_entry_of_another_user_that_cannot_be_read_keeps_no_forget_away(desk: Path) -> None:
    """It is not among those that may have to go, and nobody else is told of it."""
    with memfiles.open(desk, watch=False) as memory:
        ada, bob = (memory.session("support", user=user) for user in ("ada", "bob"))
        for session in (ada, bob):
            session.call("memory_save", {"key": "cup", "content": "A cup of coffee."})
        record = next(path for path in desk.parent.rglob("users/*/*.json") if b'"bob"' in path.read_bytes())
        memory.entries.forget(memory.session("support"), key="tea/milk")
    record.chmod(0)
    os.utime(record)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
        memory.entries.search(ada, "coffee")
        forgotten = [memory.entries.forget(session, kind="note").keys for session in (ada, nobody)]
        with pytest.raises(StorageFailed, match="nothing was forgotten"):
            memory.entries.forget(bob, kind="note")
        record.chmod(0o600)

    assert [("cup",), ("tea",)] == forgotten


@pytest.mark.parametrize("keys", [("tea",), ("cup", "tea")])
@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_note_of_others_that_cannot_be_read_follows_a_forget_as_soon_as_it_can_be(
    desk: Path, is_noticed: bool, keys: tuple[str, ...]
) -> None:
    """Nobody else's forget waits for it, and no search finds in it what was forgotten meanwhile."""
    bob = Visitor("bob")
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        record = entry_of_bob(desk, made_of=(tea.id,))
        assert memory.entries.search(bob, "green").matches
        memory.session("support").call("memory_save", {"key": "cup", "content": "A cup of coffee."})
        memory.entries.forget(memory.session("support"), key="tea/milk")
    record.chmod(0)
    if is_noticed:
        os.utime(record)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        support = memory.session("support")
        hidden = memory.entries.search(bob, "green").matches if is_noticed else ()
        forgotten = [memory.entries.forget(support, key=key).keys for key in keys]
        hidden += memory.entries.search(bob, "green").matches
        record.chmod(0o600)
        found = memory.entries.search(bob, "green").matches

    assert ([(key,) for key in keys], [], []) == (forgotten, [*hidden], [*found])
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("fails", [StorageFailed, KeyboardInterrupt])
def test_a_forget_that_could_not_be_followed_is_tried_again(
    desk: Path, fails: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a note in a folder that may not be written for a while; nobody has to start the program again for that."""
    bob = Visitor("bob")
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        for key in ("tea", "tea/milk"):
            memory.entries.forget(memory.session("support"), key=key)
    folder, hidden = entry_of_bob(desk, made_of=(tea.id,)).parent, list[object]([None])
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        if fails is StorageFailed:
            folder.chmod(0o500)
            hidden = [memory.entries.get(bob, "drinks"), *memory.entries.search(bob, "green").matches]
            hidden += memory.entries.list(bob).memories
            folder.chmod(0o700)
        else:
            opening = os.open

            def interrupt(path: Any, *given: Any, **more: Any) -> int:
                if given[0] & os.O_CREAT and "/bob/" in os.fspath(path):
                    signal.raise_signal(signal.SIGINT)
                return opening(path, *given, **more)

            monkeypatch.setattr(os, "open", interrupt)
            with pytest.raises(KeyboardInterrupt):
                memory.entries.search(bob, "green")
            monkeypatch.undo()
        monkeypatch.setattr("memfiles.entries.reader.monotonic", lambda: 1e9)  # much later
        found = memory.entries.search(bob, "green").matches

    assert ([None], []) == (hidden, [*found])
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_note", [False, True])
def test_what_another_machine_forgot_is_not_found_in_a_record_that_cannot_be_read(desk: Path, is_note: bool) -> None:
    """A search shows what the index read of such a record as long as it stays as it was, but not then."""
    bob, bucket = Visitor("bob"), desk.parent / "bucket"
    bucket.mkdir()
    text = desk.read_text("utf-8").replace("memory:\n", f'memory:\n  mirror: {{url: "{bucket.as_uri()}"}}\n', 1)
    desk.write_text(text, "utf-8")
    there = write_workflow(desk.parent / "there", text)
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        record = entry_of_bob(desk, made_of=(tea.id,))
        assert memory.entries.search(bob, "green").matches
        memory.entries.forget(memory.session("support"), key="tea/milk")
        assert memory.sync.flush(60)
    if not is_note:
        record = next(
            it for it in desk.parent.rglob(".memory/entries/support/*.json") if b"green tea" in it.read_bytes()
        )
    with memfiles.open(there, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea")
        assert memory.sync.flush(60)
    settle(record, is_changed=False)
    record.chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.sync.pull()
        callers = memory.session("support"), bob
        hidden = [match for caller in callers for match in memory.entries.search(caller, "green").matches]
        record.chmod(0o600)
        memory.sync.pull()
        found = [match for caller in callers for match in memory.entries.search(caller, "green").matches]

    assert ([], []) == (hidden, found)
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_note_that_another_process_could_not_read_follows_its_forget_in_every_process(
    desk: Path, is_killed: bool
) -> None:
    """Whoever finds it first once it can be read, also if the one that forgot was killed."""
    bob = Visitor("bob")
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        record = entry_of_bob(desk, made_of=(tea.id,))
        assert memory.entries.search(bob, "green").matches
        memory.entries.forget(memory.session("support"), key="tea/milk")
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        assert memory.entries.search(bob, "green").matches

        def forget_elsewhere() -> None:
            other = memfiles.open(desk, watch=False)
            other.entries.forget(other.session("support"), key="tea")
            if not is_killed:
                other.close()

        record.chmod(0)
        os.utime(record)
        as_another_process(forget_elsewhere, is_killed=is_killed)
        record.chmod(0o600)
        memory.entries._reader._db.index.verify()  # as the thread that watches does now and then
        found = memory.entries.search(bob, "green").matches

    assert [] == [*found]
    assert [] == files_holding(desk.parent, "green tea")


def test_a_note_that_another_process_could_not_read_is_looked_at_before_each_answer(desk: Path) -> None:
    """It follows its forget with the first question after it can be read, before anything compares all records."""
    bob = Visitor("bob")
    record = note_of_tea(desk)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        assert memory.entries.search(bob, "green").matches
        record.chmod(0)

        def forget_elsewhere() -> None:
            with memfiles.open(desk, watch=False) as other:
                other.entries.forget(other.session("support"), key="tea")

        as_another_process(forget_elsewhere, is_killed=False)
        found = list(memory.entries.search(bob, "green").matches)
        record.chmod(0o600)
        found += memory.entries.search(bob, "green").matches
        left = files_holding(desk.parent, "green tea")

    assert ([], []) == (found, left)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_note_that_another_process_reads_again_is_not_found_before_it_follows_its_forget(
    desk: Path, is_killed: bool
) -> None:
    """That one may have been killed since, or ask nothing for hours: whoever asks first has the note follow."""
    bob = Visitor("bob")
    record = note_of_tea(desk)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        assert memory.entries.search(bob, "green").matches

        def forget_elsewhere() -> None:
            other = memfiles.open(desk, watch=False)
            record.chmod(0)
            os.utime(record)
            other.entries.forget(other.session("support"), key="tea")
            record.chmod(0o600)
            other.entries._reader._db.index.verify()  # as the thread that watches does now and then

        as_another_process(forget_elsewhere, is_killed=is_killed)
        found = memory.entries.search(bob, "green").matches
        noted = memory.entries._reader._db.index.ask(noted_unread)

    assert [] == [*found]
    assert [] == files_holding(desk.parent, "green tea")
    assert (set(), set()) == noted


def test_no_thread_finds_a_note_while_another_one_has_it_follow_its_forget(desk: Path) -> None:
    """That may wait for a lock; a question that is asked meanwhile waits as well."""
    bob = Visitor("bob")
    record = note_of_tea(desk)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory, memfiles.open(desk, watch=False) as other:
        db, begun, done = memory.entries._reader._db, threading.Event(), threading.Event()

        def hold(records: Any) -> tuple[None, tuple[()]]:
            begun.set()
            done.wait(20)
            return None, ()

        assert memory.entries.search(bob, "green").matches
        record.chmod(0)
        os.utime(record)
        memory.entries.forget(memory.session("support"), key="tea")
        record.chmod(0o600)
        path = record.relative_to(desk.parent / ".memory").as_posix()
        with ThreadPoolExecutor() as threads:
            holder = threads.submit(other.entries._reader._db.repository.change, [path], hold)
            assert begun.wait(20)
            first = threads.submit(memory.entries.search, bob, "green")
            wait_until(lambda: bool(db.index.unfollowed))
            second = threads.submit(memory.entries.search, bob, "green")
            wait([second], 0.5)
            done.set()
            holder.result(20)
            found = [*first.result(20).matches, *second.result(20).matches]

    assert [] == found
    assert [] == files_holding(desk.parent, "green tea")


def test_a_note_is_followed_up_once_the_tombstone_can_be_read_too(desk: Path) -> None:
    """As while an operator gives all records back to their owner: the note comes first."""
    bob = Visitor("bob")
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        note = saved("drinks", "Ada drinks green tea.", agent="bob", given_id="a" * 32, made_of=(tea.id,))
        record, tombstone = (desk.parent / ".memory" / path for path in (note.path, id_path(tea.id)))
        record.parent.mkdir()
        record.write_bytes(encode_entry(note))
        assert memory.entries.search(bob, "green").matches
        memory.entries.forget(memory.session("support"), key="tea/milk")
    record.chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea")
    tombstone.chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.entries.search(bob, "green")
        record.chmod(0o600)
        memory.entries.search(bob, "green")
        tombstone.chmod(0o600)
        found = memory.entries.search(bob, "green").matches

    assert [] == [*found]
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("cannot_be", ["read", "written", "told"])
def test_a_forget_that_cannot_be_followed_yet_keeps_no_other_one_away(desk: Path, cannot_be: str) -> None:
    """Its note is found by nobody until then; the others are removed at once, also those of the same forget."""
    people = [Visitor(name) for name in ("bob", "carol", "dora")]
    with memfiles.open(desk, watch=False) as memory:
        tea, milk = (memory.entries.get(memory.session("support"), key) for key in ("tea", "tea/milk"))
        assert tea is not None and milk is not None
        for key in ("tea", "tea/milk"):
            memory.entries.forget(memory.session("support"), key=key)
    records = []
    for agent, id in (("bob", tea.id), ("carol", tea.id), ("dora", milk.id)):
        note = saved("drinks", "Ada drinks green tea.", agent=agent, given_id=agent[0] * 32, made_of=(id,))
        records.append(desk.parent / ".memory" / note.path)
        records[-1].parent.mkdir()
        records[-1].write_bytes(encode_entry(note))
    stuck = {"read": records[0], "written": records[0].parent, "told": desk.parent / ".memory" / id_path(tea.id)}
    mode, sizes = stuck[cannot_be].stat().st_mode, [path.stat().st_size for path in records]
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        stuck[cannot_be].chmod(0o500 if cannot_be == "written" else 0)
        found = [it for one in people for it in memory.entries.search(one, "green").matches]
        left = [path.parent.name for path, size in zip(records, sizes, strict=True) if path.stat().st_size == size]
        stuck[cannot_be].chmod(mode)
        with memfiles.open(desk, watch=False) as other:
            found += [it for one in people for it in other.entries.search(one, "green").matches]
            found += [it for one in people for it in memory.entries.search(one, "green").matches]

    assert [] == found
    assert (["bob", "carol"] if cannot_be == "told" else ["bob"]) == left
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_of_another_machine", [False, True])
def test_a_note_of_others_that_cannot_be_replaced_keeps_no_content_of_the_entry(
    desk: Path, is_of_another_machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was made while the entry was being forgotten; it follows as soon as it can be replaced."""
    bob, find = Visitor("bob"), Forgetter._find
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        memory.entries.forget(memory.session("support"), key="tea/milk")
    assert tea is not None
    path = saved("drinks", "", agent="bob").path
    folder = (desk.parent / ".memory" / path).parent

    def make_note() -> None:
        entry_of_bob(desk, made_of=(tea.id,)).parent.chmod(0o500)

    def find_while_it_is_made(self: Forgetter, *given: Any) -> Any:
        found = find(self, *given)
        make_note()
        self._db.index.verify()
        return found

    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        if is_of_another_machine:
            make_note()
            (desk.parent / ".memory" / id_path(tea.id)).write_bytes(encode_entry(tombstone(tea.id)))
            memory.entries.search(memory.session("support"), "green")
        else:
            monkeypatch.setattr(Forgetter, "_find", find_while_it_is_made)
            assert ("tea",) == memory.entries.forget(memory.session("support"), key="tea").keys
        left = [path for path in files_holding(desk.parent, "green tea") if "index" not in path]
        noted = memory.entries._reader._db.index.ask(noted_forgets)
        folder.chmod(0o700)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        found = memory.entries.search(bob, "green").matches

    assert ([f".memory/{path}"], {path}, []) == (left, {*noted}, [*found])
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_note_that_can_be_read_again_is_not_got_before_it_follows_its_forget(
    desk: Path, is_asked_before: bool
) -> None:
    """No question has to come before that, which would read the index: a get reads the note alone."""
    bob = Visitor("bob")
    record = note_of_tea(desk)
    record.chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea")
        if is_asked_before:
            memory.entries.search(bob, "green")
    record.chmod(0o600)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        found = memory.entries.get(bob, "drinks")

    assert found is None
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_an_entry_is_got_as_it_is_found_while_the_tombstones_cannot_be_read(desk: Path, is_asked_before: bool) -> None:
    """As in a folder that root made: an entry is shown, and a note is left out, as what it was made of may be gone."""
    bob = Visitor("bob")
    with memfiles.open(desk, watch=False) as memory:
        support = memory.session("support")
        tea = memory.entries.get(support, "tea")
        assert tea is not None
        entry_of_bob(desk, made_of=(tea.id,))
        memory.entries.forget(support, key="tea/milk")
    folder = (desk.parent / ".memory" / id_path(tea.id)).parent
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        both = (memory.session("support"), "tea"), (bob, "drinks")
        folder.chmod(0)
        found = [bool(memory.entries.search(who, "green").matches) for who, _ in both if is_asked_before]
        got = [memory.entries.get(who, key) is not None for who, key in both]
        found += [bool(memory.entries.search(who, "green").matches) for who, _ in both]
        folder.chmod(0o700)
        again = [memory.entries.get(who, key) is not None for who, key in both]

    assert ([True, False], [True, False] * (1 + is_asked_before), [True, True]) == (got, found, again)


def test_a_forget_whose_content_was_being_removed_is_finished_after_an_interrupt(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next question: the program goes on, and may do so for weeks."""
    bob = Visitor("bob")
    record = note_of_tea(desk)
    record.chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea")
        memory.entries.search(bob, "green")
        record.chmod(0o600)
        opening = os.open

        def interrupt(path: Any, *given: Any, **more: Any) -> int:
            if path == "quarantine":
                signal.raise_signal(signal.SIGINT)
            return opening(path, *given, **more)

        monkeypatch.setattr(os, "open", interrupt)
        with pytest.raises(KeyboardInterrupt):
            memory.entries.search(bob, "green")
        monkeypatch.undo()
        memory.entries.search(bob, "green")
        left, index = files_holding(desk.parent, "green tea"), memory.entries._reader._db.index
        noted = index.ask(noted_forgets)

    assert ([], {}) == (left, noted)


def test_a_note_whose_sources_are_there_is_shown_while_no_other_can_follow_its_forget(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: it could not be read for a while either, but nothing in it was forgotten."""
    bob, carol, records = Visitor("bob"), Visitor("carol"), list[Path]()
    with memfiles.open(desk, watch=False) as memory:
        tea, milk = (memory.entries.get(memory.session("support"), key) for key in ("tea", "tea/milk"))
        assert tea is not None and milk is not None
        memory.session("support").call("memory_save", {"key": "cup", "content": "A cup of coffee."})
        memory.entries.forget(memory.session("support"), key="cup")
        for agent, id in (("bob", tea.id), ("carol", milk.id)):
            note = saved("drinks", "A green drink.", agent=agent, given_id=agent[0] * 32, made_of=(id,))
            records.append(desk.parent / ".memory" / note.path)
            records[-1].parent.mkdir()
            records[-1].write_bytes(encode_entry(note))
            records[-1].chmod(0)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea")
        memory.entries.search(bob, "green")
        opening = os.open

        def fail(path: Any, *given: Any, **more: Any) -> int:
            if given[0] & os.O_CREAT and "/bob/" in os.fspath(path):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return opening(path, *given, **more)

        for record in records:
            record.chmod(0o600)
        monkeypatch.setattr(os, "open", fail)
        found = [bool(memory.entries.search(one, "green").matches) for one in (bob, carol)]
        got = [memory.entries.get(one, "drinks") is not None for one in (bob, carol)]
        monkeypatch.undo()

    assert [[False, True]] * 2 == [found, got]


def test_a_search_is_not_repeated_for_a_note_that_cannot_follow_its_forget_yet(desk: Path) -> None:
    """It is left out of each search for as long as that takes, and not looked for in it four times."""
    bob, rounds = Visitor("bob"), list[int]()
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        for key in ("tea", "tea/milk"):
            memory.entries.forget(memory.session("support"), key=key)
    folder = entry_of_bob(desk, made_of=(tea.id,)).parent
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        folder.chmod(0o500)
        assert not memory.entries.search(bob, "green").matches
        memory.entries._reader.answered(bob, "green", lambda them: rounds.append(len(them.found())), max_results=5)
        folder.chmod(0o700)

    assert [0] == rounds
