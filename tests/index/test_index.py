"""The index answers as the records do, whoever changed them and whatever happened to its files."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.index import catch_up, record_source
from memfiles.index.database import index_database
from memfiles.index.rows import Sum
from memfiles.records.entry import Entry, Retired
from memfiles.records.entry_codec import encode_entry
from memfiles.records.keys import temp_path
from memfiles.records.marks import EntryRecord
from memfiles.storage import atomic
from tests.index.indexed import LIMIT, SUPPORT, Memory, live_keys, many
from tests.support.another_process import another_process
from tests.support.records import many_times, wait_until
from tests.support.saved import buried, resaved, saved

LATER = "2026-11-22T09:00:00.000Z"
INDEX = ".state/index.sqlite"
LOG = ".state/entries.log"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(tmp_path / "memory")
    yield memory
    memory.close()


def reopened(memory: Memory) -> Memory:
    """The same directory as the next process has it."""
    memory.index.close()
    return Memory(memory.directory)


def test_what_was_saved_is_found_at_once(memory: Memory) -> None:
    """The next question counts, in the same process."""
    memory.save(saved("color", "blue", tags=("sky",)), saved("size", "big"))

    assert ["color\nblue\nsky", "size\nbig"] == memory.texts()
    assert 0 == memory.reads


def test_a_changed_entry_has_one_row_and_one_text(memory: Memory) -> None:
    """Its path tells that it is the same."""
    memory.save(saved("color", "blue"))
    memory.keys()
    memory.save(resaved(saved("color", "blue"), "green", at=LATER))

    assert ["color\ngreen"] == memory.texts()
    assert 1 == memory.index.totals(SUPPORT).count


@pytest.mark.parametrize("asked_between", [False, True])
def test_totals_are_right_after_everything(memory: Memory, asked_between: bool) -> None:
    """They count what is in memory and what is in the database together."""
    color = saved("color", "blue", kind="fact")
    steps: list[tuple[EntryRecord, tuple[int, int, int]]] = [
        (color, (1, 4, 0)),
        (saved("size", "big"), (2, 7, 0)),
        (resaved(color, "yellow", at=LATER), (2, 9, 0)),
        (replace(color, retired=Retired("evicted", LATER)), (1, 3, 1)),
        (color, (2, 7, 0)),
        (buried(color), (1, 3, 0)),
    ]
    found = []
    for record, _ in steps:
        memory.save(record)
        totals = memory.index.totals(SUPPORT)
        found.append((totals.count, totals.size, sum(totals.retired.values())))
        if asked_between:
            memory.keys()

    assert [expected for _, expected in steps] == found


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["save", "catch up", "load", "count"]), st.integers(0, 5)),
        max_size=24,
    )
)
@many_times
def test_totals_are_right_over_batches_of_two_processes(steps: list[tuple[str, str, int]]) -> None:
    """Totals that were loaded once stay valid over own batches, and are loaded again after those of another."""
    with TemporaryDirectory() as folder:
        machines = {name: Memory(Path(folder) / "memory") for name in "ab"}
        kept: dict[int, Entry] = {}
        for number, (name, step, key) in enumerate(steps):
            memory = machines[name]
            if step == "save":
                content = f"{number} " * (key + 1)
                entry = resaved(kept[key], content, at=LATER) if key in kept else saved(f"key-{key}", content)
                memory.save(entry)
                kept[key] = entry
            elif step == "catch up":
                memory.index.catch_up()
            elif step == "load":
                memory.index.totals(SUPPORT)
            else:
                memory.index.catch_up()
                totals = memory.index.totals(SUPPORT)
                assert (len(kept), sum(entry.size_bytes for entry in kept.values())) == (totals.count, totals.size)
        for memory in machines.values():
            memory.close()


def test_a_save_after_a_batch_asks_the_database_nothing(memory: Memory) -> None:
    """The totals stay known when this process's own rows were written."""
    memory.save(saved("one", "1"))
    memory.index.totals(SUPPORT)
    memory.save(saved("two", "22"))
    memory.index.catch_up()
    asked: list[str] = []
    memory.index.ask(lambda connection: connection.set_trace_callback(asked.append))
    asked.clear()

    assert (2, 3) == (memory.index.totals(SUPPORT).count, memory.index.totals(SUPPORT).size)
    assert [] == [statement for statement in asked if "total" in statement]


def test_totals_tell_kinds_and_categories_and_keep_runs_apart(memory: Memory) -> None:
    """Budgets are set for each of them, and a run learns nothing of another's entries by what is evicted."""
    memory.save(
        saved("a", "1", kind="fact", run="r1", category="conversation"),
        saved("a", "22", kind="fact", run="r2", category="conversation"),
        saved("b", "333"),
        saved("c", "4444", level="PUBLIC"),
    )
    one, own = (memory.index.totals((*SUPPORT[:2], run)) for run in ("r1", ""))

    assert {("fact", "conversation"): Sum(1, 1)} == one.by_sort
    assert {("note", "general"): Sum(1, 3)} == own.by_sort


def test_many_saves_go_into_the_database_on_their_own(memory: Memory) -> None:
    """What is kept in memory is bounded, and no save waits for it."""
    memory.save(*many(600))
    memory.save(saved("last"))

    def written() -> int:
        other = sqlite3.connect(memory.directory / INDEX)
        try:
            return int(other.execute("SELECT count(*) FROM entry").fetchone()[0])
        finally:
            other.close()

    wait_until(lambda: written() >= 600)

    assert 601 == memory.index.totals(SUPPORT).count


def test_a_clean_index_is_believed_and_nothing_is_read(memory: Memory) -> None:
    """After a close the folders' times tell that nothing changed; not even the files are looked at."""
    memory.save(*many(20))
    memory.keys()
    again = reopened(memory)

    assert 20 == len(again.keys())
    assert (0, 20) == (again.reads, again.index.totals(SUPPORT).count)
    again.close()


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


def expected_texts(memory: Memory) -> list[str]:
    """The texts that a look at every file gives: the model."""
    paths = sorted(path.relative_to(memory.directory).as_posix() for path in memory.directory.glob("entries/*/*.json"))
    rows = [row for path in paths if (row := memory.read(path)) is not None and row.state == "live"]
    return sorted("\n".join((row.key, row.content, *row.tags)) for row in rows)


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

    def then_replaced(*given: Any) -> Any:
        monkeypatch.undo()
        result = original(*given)
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


def test_forgotten_entries_leave_no_byte(memory: Memory) -> None:
    """Neither in the database nor in its side files, even while another process has it open."""
    other = Memory(memory.directory)
    secret = saved("needle-key", "needle-content", tags=("needle-tag",))
    memory.save(secret, *many(50))
    other.save(resaved(secret, "needle-content two", at=LATER))
    other.keys()
    memory.save(buried(secret))
    memory.index.forget([secret.path])
    other.save(saved("more"))
    found = [path.name for path in memory.directory.rglob("*") if path.is_file() and b"needle" in path.read_bytes()]

    assert [] == found
    assert 51 == len(other.keys()) == len(memory.keys())
    other.close()


def test_a_row_that_waits_in_another_process_does_not_come_back(memory: Memory) -> None:
    """When it is written at last, it is compared with the file."""
    other = Memory(memory.directory)
    secret = saved("secret", "needle")
    other.save(secret)
    memory.save(buried(secret))
    memory.index.forget([secret.path])
    other.index.catch_up()

    assert [] == other.texts()
    assert 0 == other.index.totals(SUPPORT).count
    other.close()


def test_an_outcome_that_is_not_known_is_looked_at(memory: Memory) -> None:
    """The change may be there or not: the file tells."""
    entry = saved("perhaps")
    token = memory.index.intend([entry.path])
    memory.write(entry)
    memory.index.settle(token)

    assert ["perhaps"] == memory.keys()


def test_left_over_temp_files_are_told(memory: Memory) -> None:
    """The entries' code removes them."""
    entry = saved("color")
    memory.save(entry)
    atomic.stage(memory.descriptor, entry.path, b"half", flush=False)

    assert [temp_path(entry.path)] == memory.index.verify()


def test_nothing_is_asked_of_the_database_when_nothing_is_new(memory: Memory) -> None:
    """A search has no time to lose, and a save leaves the database alone."""
    memory.save(*many(3))
    memory.keys()
    statements: list[str] = []
    memory.index.totals(SUPPORT)
    memory.index.ask(lambda connection: connection.set_trace_callback(statements.append))
    statements.clear()
    memory.index.catch_up()
    memory.save(saved("another"))
    memory.index.totals(SUPPORT)

    assert [] == statements


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.index.indexed import Memory
from tests.support.saved import saved
memory = Memory(Path(sys.argv[1]))
memory.save(saved("first"))
if sys.argv[2] == "asked":
    memory.keys()
token = memory.index.intend([saved("second").path])
print("announced")
input()
memory.write(saved("second"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["asked", "not asked"])
def test_a_process_killed_between_record_and_index_is_seen_by_another(memory: Memory, asked: str) -> None:
    """It announced the change, so the record is read again until the change is known to be over."""
    memory.save(saved("mine"))
    with another_process(KILLED, memory.directory, asked) as other:
        assert "announced" == other.hear()
        assert ["first", "mine"] == memory.keys()
        other.tell()
        other.process.wait(60)

    assert ["first", "mine", "second"] == memory.keys()


@pytest.mark.slow
def test_a_process_killed_alone_is_seen_by_the_next(memory: Memory) -> None:
    """The next to open the index finds what it announced."""
    with another_process(KILLED, memory.directory, "asked") as other:
        other.hear()
        other.tell()
        other.process.wait(60)
    again = Memory(memory.directory)

    assert ["first", "second"] == again.keys()
    assert 2 == again.index.totals(SUPPORT).count
    again.close()


SAVER = """
import sys
from pathlib import Path
from tests.index.indexed import Memory
from tests.support.saved import saved
memory = Memory(Path(sys.argv[1]))
for number in range(40):
    memory.save(saved(f"{sys.argv[2]}-{number:03}"))
    if number % 7 == 0:
        memory.keys()
print(len(memory.keys()))
input()
print(len(memory.keys()))
memory.close()
"""


@pytest.mark.slow
def test_processes_that_save_at_once_see_all(memory: Memory) -> None:
    """None of them loses a row to another."""
    with another_process(SAVER, memory.directory, "a") as one, another_process(SAVER, memory.directory, "b") as two:
        for each in (one, two):
            each.hear()
        for each in (one, two):
            each.tell()
        found = [one.hear(), two.hear()]

    assert ["80", "80"] == found
    assert 80 == len(memory.keys()) == memory.index.totals(SUPPORT).count


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_the_parent_s_rows_and_connection_alone(memory: Memory) -> None:
    """Parent and child go on as two processes do."""
    memory.save(saved("stored"))
    memory.keys()
    memory.save(saved("pending"))
    child = os.fork()
    if child == 0:
        try:
            memory.save(saved("child"))
            is_right = memory.keys() in (["child", "pending", "stored"], ["child", "stored"])
            memory.index.close()
            os._exit(0 if is_right else 1)
        except BaseException:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert 0 == code
    assert ["child", "pending", "stored"] == memory.keys()


def test_closing_empties_the_log_and_may_be_repeated(memory: Memory) -> None:
    """Alone, a process leaves nothing to catch up with."""
    memory.save(*many(30))
    memory.keys()
    memory.index.close()
    memory.index.close()

    assert 14 == (memory.directory / LOG).stat().st_size
    assert not (memory.directory / f"{INDEX}-wal").exists()
    assert LIMIT > (memory.directory / INDEX).stat().st_size


def test_reads_are_noted_and_survive_a_change(memory: Memory) -> None:
    """They are hints for evictions."""
    entry = saved("color")
    memory.save(entry)
    memory.keys()
    memory.index.touch(entry.path, at=LATER)
    memory.save(resaved(entry, "green", at=LATER))
    memory.keys()
    found = memory.index.ask(lambda connection: connection.execute("SELECT reads, read_at FROM entry").fetchall())

    assert [(1, LATER)] == found


def test_a_partition_without_entries_is_gone(memory: Memory) -> None:
    """What belonged to one run leaves nothing behind when the run is over."""
    entry = saved("color", run="r1", category="conversation")
    memory.save(entry)
    memory.keys()
    os.unlink(memory.directory / entry.path)
    memory.index.verify()
    left = memory.index.ask(lambda connection: connection.execute("SELECT count(*) FROM part").fetchone()[0])

    assert ([], 0) == (live_keys(memory.index), left)


def test_reads_are_known_to_the_next_process(tmp_path: Path) -> None:
    """Also of one that did nothing else, and of more entries than are noted at once."""

    def reads() -> list[int]:
        memory = Memory(tmp_path)
        memory.index.catch_up()
        rows = memory.index.ask(lambda connection: connection.execute("SELECT reads FROM entry").fetchall())
        memory.close()
        return [count for (count,) in rows]

    memory, paths = Memory(tmp_path), [record.path for record in many(5)]
    memory.save(*many(5))
    memory.close()
    for _ in range(2):
        memory = Memory(tmp_path)
        memory.index.catch_up()
        for path in paths:
            memory.index.touch(path, at="2026-11-21T09:00:00.000Z")
        memory.close()

    assert [2] * 5 == reads()
