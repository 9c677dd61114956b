"""The index answers as the records do, whoever changed them and whatever happened to its files."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.index.change_log import HEADER_BYTES
from memfiles.index.pending_writes import PendingWrites
from memfiles.index.rows import Sum
from memfiles.records.entry import Entry, Retired
from memfiles.records.keys import temp_path
from memfiles.records.marks import EntryRecord
from memfiles.storage import atomic
from tests.index.indexed import INDEX, LATER, LIMIT, LOG, SUPPORT, Memory, live_keys, many, reopened
from tests.support.records import many_times, wait_until
from tests.support.saved import buried, resaved, saved


def noted_reads(memory: Memory) -> list[tuple[int, str]]:
    """How often each entry was read, and when last, as far as the rows say."""
    return memory.index.ask(lambda connection: connection.execute("SELECT reads, read_at FROM entry").fetchall())


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
    before = noted_reads(memory)
    memory.index.catch_up(reads=True)

    assert ([(0, "")], [(1, LATER)]) == (before, noted_reads(memory))


@pytest.mark.parametrize("are_written", [False, True])
def test_an_entry_that_was_forgotten_leaves_no_reads(memory: Memory, *, are_written: bool) -> None:
    """What is saved under its key next was read by nobody yet."""
    entry = saved("color", given_id="a" * 32)
    memory.save(entry)
    memory.keys()
    memory.index.touch(entry.path, at=LATER)
    memory.index.catch_up(reads=are_written)
    memory.save(buried(entry))
    memory.save(saved("color", "blue", given_id="b" * 32, at=LATER))
    memory.index.catch_up(reads=True)

    assert [(0, "")] == noted_reads(memory)


def test_reads_that_wait_are_not_of_what_another_process_saved_since(tmp_path: Path) -> None:
    """It forgot what was read here, and saved something else under its key."""
    memory, other = Memory(tmp_path), Memory(tmp_path)
    entry = saved("color", given_id="a" * 32)
    memory.save(entry)
    memory.index.touch(entry.path, at=LATER)
    other.save(buried(entry))
    other.save(saved("color", "blue", given_id="b" * 32, at="2026-11-23T09:00:00.000Z"))
    memory.index.catch_up(reads=True)
    found = noted_reads(memory)
    other.close()
    memory.close()

    assert [(0, "")] == found


def test_reads_wait_for_a_minute_at_most(memory: Memory) -> None:
    """Unless many wait: the prompt after a recall and a save took a tenth longer, as it wrote the reads as well."""
    now = [1000.0]
    pending = PendingWrites(memory.descriptor, monotonic=lambda: now[0])
    log, told, taken = pending.open(), [], []
    for path, passed in (("first", 0.0), ("second", 59.0), ("third", 1.0), ("fourth", 0.0)):
        now[0] += passed
        told.append(pending.read(path, at=LATER))
        taken.append(list(pending.take(log, HEADER_BYTES, intents=None).reads))
    pending.close()

    assert [False, False, True, False] == told
    assert [[], [], ["first", "second", "third"], []] == taken


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
        found = noted_reads(memory)
        memory.close()
        return [count for count, _ in found]

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
