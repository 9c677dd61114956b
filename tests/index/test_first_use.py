"""Among many users, only the files of those are looked at who are active, and of folders that changed meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from memfiles.index.change_log import intent_line
from memfiles.index.database import LARGE
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import encode_entry
from memfiles.records.keys import temp_path, user_hash
from memfiles.storage import atomic
from tests.index.indexed import Memory, many
from tests.support.saved import resaved, saved

LATER = "2026-11-21T10:00:00.000Z"
USERS = 200


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A directory with one entry of each of some users, closed and opened again."""
    before = Memory(tmp_path / "memory")
    before.save(*(_entry(number) for number in range(USERS)))
    before.keys()
    before.close()
    again = Memory(before.directory)
    yield again
    again.close()


def _entry(user: int, key: str = "color", content: str = "blue") -> Entry:
    name = f"user-{user}"
    return saved(key, content, user=name, epoch=user_hash(name))


def _edit_in_place(memory: Memory, user: int, content: str) -> None:
    """As no folder's time tells of."""
    changed = resaved(_entry(user), content, at=LATER)
    with open(memory.directory / changed.path, "r+b") as file:
        file.write(encode_entry(changed))
        file.truncate()


def _new_texts(memory: Memory) -> list[str]:
    return [text.partition("\n")[2] for text in memory.texts() if not text.endswith("\nblue")]


def test_a_user_s_files_are_compared_at_her_first_use_and_nobody_else_s(memory: Memory) -> None:
    """What was edited in place while nothing ran is found once the user is active."""
    _edit_in_place(memory, 1, "red")
    _edit_in_place(memory, 2, "green")
    first = (memory.index.verify([_entry(1).folder], once=True), _new_texts(memory))
    second = (memory.index.verify([_entry(2).folder, _entry(1).folder], once=True), _new_texts(memory))

    assert (([], ["red"]), ([], ["green", "red"])) == (first, second)


def test_the_files_of_a_folder_that_changed_while_nothing_ran_are_compared_before_any_answer(memory: Memory) -> None:
    """Its time tells; the others are left alone."""
    memory.write(_entry(3, "size", "large"))
    memory.write(_entry(USERS, "size", "small"))
    (memory.directory / _entry(4).path).unlink()
    _edit_in_place(memory, 5, "unseen")

    assert ["large", "small"] == sorted(_new_texts(memory))
    assert USERS + 1 == len(memory.texts())


def test_a_temp_file_of_a_dead_writer_is_told_of_whoever_is_active(memory: Memory) -> None:
    """It may hold text that is forgotten later: its folder has another time than at the last close."""
    atomic.stage(memory.descriptor, _entry(7).path, b"half", flush=False)
    memory.texts()

    assert [temp_path(_entry(7).path)] == memory.index.verify([_entry(1).folder], once=True)
    assert [] == memory.index.verify([_entry(1).folder], once=True)


def test_the_rows_of_a_folder_are_read_only_if_its_files_do_not_add_up_to_them(memory: Memory) -> None:
    """Reading and comparing 100,000 rows took as long as asking the system for all files."""
    memory.keys()
    asked: list[str] = []
    memory.index.ask(lambda connection: connection.set_trace_callback(asked.append))
    memory.index.verify([_entry(1).folder], once=True)
    unchanged = [statement for statement in asked if "SELECT path, inode" in statement]
    _edit_in_place(memory, 2, "green")
    memory.index.verify([_entry(2).folder], once=True)
    changed = [statement for statement in asked if "SELECT path, inode" in statement]

    assert ([], 1, ["green"]) == (unchanged, len(changed), _new_texts(memory))


def test_a_look_at_all_files_finds_every_edit(memory: Memory) -> None:
    """In portions, so that others can use the index in between; afterwards nobody's first use looks again."""
    for user in range(0, USERS, 7):
        _edit_in_place(memory, user, f"red {user}")
    memory.index.verify()
    found = _new_texts(memory)
    _edit_in_place(memory, 1, "unseen")
    memory.index.verify([_entry(1).folder], once=True)

    assert sorted(f"red {user}" for user in range(0, USERS, 7)) == sorted(found) == sorted(_new_texts(memory))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """A directory with a folder of more files than a question waits for, closed."""
    memory = Memory(tmp_path_factory.mktemp("large") / "memory")
    memory.save(*many(LARGE + 1))
    memory.keys()
    memory.close()
    return memory


@pytest.mark.slow
def test_no_question_waits_for_a_look_at_each_of_very_many_files_if_they_are_watched(large: Memory) -> None:
    """The thread that watches them finds what was edited in place; without one, the first question does."""
    first, edited = saved("key-000000", "content number 0"), []
    for is_watched in (True, False):
        again = Memory(large.directory)
        again.index.is_followed = is_watched
        changed = resaved(first, f"edited while watched: {is_watched}", at=LATER)
        with open(again.directory / changed.path, "r+b") as file:
            file.write(encode_entry(changed))
            file.truncate()
        again.index.verify([first.folder], once=True)
        edited.append(f"key-000000\n{changed.content}" in again.texts())
        again.index.verify()
        edited.append(f"key-000000\n{changed.content}" in again.texts())
        again.close()

    assert [False, True, True, True] == edited


def test_nobody_waits_while_very_many_rows_and_files_are_compared(large: Memory) -> None:
    """Prompts of a memory with 100,000 entries waited a second for it, every time that one was saved meanwhile."""
    again = Memory(large.directory)
    number, first = len(again.keys()), "key-000000"
    changed, gone = resaved(saved(first, "content number 0"), "edited in place", at=LATER), saved("key-000001", "")
    with open(again.directory / changed.path, "r+b") as file:
        file.write(encode_entry(changed))
        file.truncate()
    (again.directory / gone.path).unlink()
    answered: list[int] = []
    with ThreadPoolExecutor() as others:

        def pause() -> None:
            if not answered:
                others.submit(again.save, saved("meanwhile")).result(10)
            answered.append(len(others.submit(again.keys).result(10)))

        again.index.verify(pause=pause)
    texts, left = again.texts(), again.keys()
    (again.directory / saved("meanwhile").path).unlink()
    again.close()

    assert len(answered) > 2 * number // 128
    assert {number + 1} == set(answered)
    assert (f"{first}\nedited in place" in texts, "key-000001" in left, number) == (True, False, len(left))


def test_an_index_that_is_lost_during_a_look_is_compared_again(large: Memory) -> None:
    """Nobody asks before the end of the look, which compared the files with rows that are gone."""
    again = Memory(large.directory)
    again.keys()
    edited, pauses = saved("key-000002", "content number 2"), count()
    changed = resaved(edited, "edited before it is lost", at=LATER)  # so that each file is compared with its row
    with open(again.directory / changed.path, "r+b") as file:
        file.write(encode_entry(changed))
        file.truncate()

    def pause() -> None:
        if next(pauses) == 25:
            (again.directory / ".state" / "index.sqlite").unlink()

    again.index.verify(pause=pause)
    keys, number = again.keys(), len(list((again.directory / edited.path).parent.glob("*.json")))
    again.close()

    assert next(pauses) > 26
    assert number == len(keys)


def test_the_first_use_of_a_few_files_compares_them_even_if_they_are_watched(memory: Memory) -> None:
    """That takes no time, so the first answer misses no edit."""
    memory.index.is_followed = True
    _edit_in_place(memory, 1, "red")
    memory.index.verify([_entry(1).folder], once=True)

    assert ["red"] == _new_texts(memory)


def test_nobody_waits_while_the_files_are_looked_at(memory: Memory) -> None:
    """A look at 100,000 files takes half a second; the thread that watches them does so every 30 seconds."""
    memory.keys()
    answered: list[list[str]] = []
    with ThreadPoolExecutor() as others, _each_look(lambda: answered.append(others.submit(memory.keys).result(10))):
        memory.index.verify([_entry(1).folder])

    assert [["color"] * USERS] == answered


_on_look: list[Callable[[], None]] = []


@contextmanager
def _each_look(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` before a folder is listed by this thread; auditing hooks stay for good, so there is one."""
    if not _on_look:
        sys.addaudithook(lambda event, _: _on_look[-1]() if event == "os.scandir" else None)
        _on_look.append(lambda: None)
    thread = threading.get_ident()
    _on_look.append(lambda: act() if threading.get_ident() == thread else None)
    try:
        yield
    finally:
        _on_look.pop()


@pytest.mark.slow
def test_the_totals_of_more_partitions_than_are_remembered_stay_right(tmp_path: Path) -> None:
    """They are loaded again once many were."""
    memory = Memory(tmp_path / "memory")
    memory.save(*(_entry(number) for number in range(1_100)))
    places = [(_entry(number).folder, "INTERNAL", "") for number in range(1_100)]
    memory.keys()
    found = [{memory.index.totals(place).count for place in places}]
    memory.save(_entry(5, "size"))
    found.append({memory.index.totals(places[5]).count})
    memory.keys()
    memory.save(_entry(5, "weight"))
    found.append({memory.index.totals(places[5]).count})
    memory.close()

    assert [{1}, {2}, {3}] == found


def test_a_memory_that_is_not_changed_leaves_its_index_as_it_was(memory: Memory) -> None:
    """Opened, compared with all files, asked and closed: nothing is written, and a killed process is noticed still."""
    memory.keys()
    memory.close()
    time.sleep(0.2)  # until the last change of a folder cannot be mistaken for the next one
    file, log = memory.directory / ".state/index.sqlite", memory.directory / ".state/entries.log"
    before = file.read_bytes(), file.stat().st_mtime_ns
    again = Memory(memory.directory)
    again.index.verify()
    found = len(again.keys())
    again.close()
    after = file.read_bytes(), file.stat().st_mtime_ns
    _edit_in_place(memory, 7, "green")
    log.write_bytes(log.read_bytes() + intent_line("0123456789ab:0", [_entry(7).path]))
    last = Memory(memory.directory)
    last.index.verify([])  # opens it
    last.index.catch_up()
    last.close()

    assert (before, USERS, 0, 1) == (after, found, again.reads, last.reads)
