"""An index that was damaged, replaced or deleted is rebuilt, and a change by hand is found."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.index import catch_up, record_source
from memfiles.index.database import index_database
from memfiles.records.entry_codec import encode_entry
from tests.index.indexed import INDEX, LATER, LOG, SUPPORT, Memory, expected_texts, live_keys, many, reopened
from tests.support.saved import resaved, saved


def _add(memory: Memory) -> None:
    memory.write(saved("added"))


def _replace(memory: Memory) -> None:
    memory.write(resaved(saved("key-000001", "content number 1"), "changed", at=LATER))


def _delete(memory: Memory) -> None:
    os.unlink(memory.directory / saved("key-000001").path)


def _spoil(memory: Memory) -> None:
    (memory.directory / saved("key-000001").path).write_bytes(b"{")


def _edit_in_place(memory: Memory) -> None:
    path = memory.directory / saved("key-000001").path
    changed = resaved(saved("key-000001", "content number 1"), "edited", at=LATER)
    with open(path, "r+b") as file:
        file.write(encode_entry(changed))
        file.truncate()


def _remove_folder(memory: Memory) -> None:
    shutil.rmtree(memory.directory / "entries")


CHANGES = [_add, _replace, _delete, _spoil, _edit_in_place, _remove_folder]


@pytest.mark.parametrize("change", CHANGES)
def test_a_person_s_change_is_found_when_a_process_looks_once(memory: Memory, change: Callable[[Memory], None]) -> None:
    """Nobody announced it: the first search of a process compares every file."""
    memory.save(*many(5))
    memory.keys()
    again = reopened(memory)
    change(again)
    again.index.verify(once=True)

    assert expected_texts(again) == again.texts()
    assert len(expected_texts(again)) == again.index.totals(SUPPORT).count
    again.close()


@pytest.mark.parametrize("change", [_add, _replace, _delete, _remove_folder])
def test_a_file_that_came_or_went_while_nothing_ran_is_found_at_open(
    memory: Memory, change: Callable[[Memory], None]
) -> None:
    """The folder's time has changed."""
    memory.save(*many(5))
    memory.index.close()
    change(memory)
    again = Memory(memory.directory)

    assert expected_texts(again) == again.texts()
    again.close()


def _remove(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def _fill(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def _scramble(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)


def _link(path: Path) -> None:
    _remove(path)
    path.symlink_to("/etc/passwd")


def _folder(path: Path) -> None:
    _remove(path)
    path.mkdir()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _other_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _other_boot(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('boot', 'another')")
    connection.execute("DELETE FROM entry WHERE key = 'key-000001'")
    connection.commit()
    connection.close()


DAMAGES = [_remove, _fill, _scramble, _link, _folder, _empty, _other_version, _other_boot]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_that_was_damaged_between_two_runs_is_built_anew(
    memory: Memory, damage: Callable[[Path], None]
) -> None:
    """It is derived from the records, and nobody notices."""
    memory.save(*many(30))
    memory.index.close()
    damage(memory.directory / INDEX)
    again = Memory(memory.directory)

    assert expected_texts(again) == again.texts()
    assert 30 == again.index.totals(SUPPORT).count
    again.close()


@pytest.mark.parametrize("damage", [_remove, _link, _folder])
def test_an_index_that_is_replaced_while_it_is_used_is_built_anew(
    memory: Memory, damage: Callable[[Path], None]
) -> None:
    """What was in memory and what was in the file are both in the records."""
    memory.save(*many(30))
    memory.keys()
    memory.save(saved("pending"))
    damage(memory.directory / INDEX)

    assert expected_texts(memory) == memory.texts()
    assert 31 == memory.index.totals(SUPPORT).count


def _replace_after(monkeypatch: pytest.MonkeyPatch, name: str, memory: Memory) -> None:
    """Have another process build the index anew right after the next call of this function of the maintenance."""
    owner = next(it for it in (catch_up, record_source, catch_up.Maintenance) if hasattr(it, name))
    original = getattr(owner, name)

    def then_replaced(*given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        result = original(*given, **more)
        result = list(result) if isinstance(result, Iterator) else result
        _remove(memory.directory / INDEX)
        other = index_database(memory.directory, memory.descriptor)
        other.connection()
        other.close()
        return result

    monkeypatch.setattr(owner, name, then_replaced)


@pytest.mark.parametrize("ask", [Memory.texts, lambda memory: live_keys(memory.index)], ids=["caught up", "asked"])
@pytest.mark.parametrize("step", ["open", "files", "folder_times"])
def test_an_index_that_is_replaced_in_the_middle_of_a_step_is_not_believed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, step: str, ask: Callable[[Memory], list[str]]
) -> None:
    """Neither does it count as compared: the next process would not look again."""
    memory.save(*many(30))
    memory.keys()
    memory.index.verify()
    _replace_after(monkeypatch, step, memory)
    if step != "open":
        memory.index.verify()
    found = ask(memory)
    again = Memory(memory.directory)

    assert (30, 30) == (len(found), len(again.keys()))
    again.close()


def test_all_derived_state_may_go_while_two_processes_work(memory: Memory) -> None:
    """Each goes on with what the other makes, and no change is lost to either."""
    other = Memory(memory.directory)
    memory.save(saved("before"))
    assert ["before"] == other.keys()
    shutil.rmtree(memory.directory / ".state")
    token = memory.index.intend([saved("between").path])
    other.save(saved("after"))
    other.keys()
    memory.write(saved("between"))
    memory.index.put((), token)

    assert ["after", "before", "between"] == memory.keys() == other.keys()
    other.close()


@pytest.mark.parametrize("damage", [_remove, _fill, _link, _folder, _empty])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_log_that_was_damaged_costs_a_look_at_everything(
    memory: Memory, damage: Callable[[Path], None], is_running: bool
) -> None:
    """Changes made in the meantime are then found."""
    memory.save(*many(5))
    memory.keys()
    again = memory if is_running else reopened(memory)
    damage(memory.directory / LOG)
    again.write(saved("unannounced"))
    if damage is _fill and is_running:
        again.save(saved("announced"))

    assert expected_texts(again) == again.texts()
    if again is not memory:
        again.close()


def test_a_read_that_an_interrupt_left_open_may_end_after_the_close(memory: Memory) -> None:
    """It is ended by the garbage collector then, which would print an error."""
    memory.save(saved("color", "blue"))
    memory.keys()
    left = memory.index._maintenance.snapshot()
    left.__enter__()
    memory.close()

    left.gen.close()  # what the collector does
