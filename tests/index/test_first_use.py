"""Among many users, only the files of those are looked at who are active, and of folders that changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.records.entry import Entry
from memfiles.records.entry_codec import encode_entry
from memfiles.records.keys import temp_path, user_hash
from memfiles.storage import atomic
from tests.index.indexed import Memory
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
