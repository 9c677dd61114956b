"""Entries and tombstones travel through the mirror like memory files, and what was forgotten never comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import memfiles
from memfiles import Workflow
from memfiles.records.entry import Entry
from memfiles.records.marks import Mark
from memfiles.storage.atomic import Signature, is_settled
from memfiles.sync.mirror import Mirror
from memfiles.sync.status import pending_records
from mirrors.memory import MemoryMirror
from tests.support.saved import Visitor, files_holding
from tests.support.workflows import opened
from tests.sync.conftest import Machines, in_a_bucket_too, wait_for
from tests.sync.entry_machine import EntryMachine, bodies_of, objects_holding, record_in
from tests.sync.mirrors_for_tests import AbsentMirror, CountingMirror
from tests.sync.sync_machines import write_shared_workflow

pytestmark = pytest.mark.slow

SECRET = "the needle in it"


@in_a_bucket_too
def test_a_save_reaches_the_mirror_and_the_other_machine(machine: Machines, shared: Mirror) -> None:
    """The mirror has the same bytes under the same path, and a pull brings them to another machine."""
    one, two = machine("one"), machine("two")
    one.save("color", "blue")
    one.flush()
    two.pull()

    assert one.bodies() == bodies_of(shared) == two.bodies()
    assert ["blue"] == [match.found.content for match in two.entries.search(Visitor("support"), "color").matches]
    assert ["mirror"] == [event.origin for event in two.told]


def test_a_change_is_pushed_by_itself(machine: Machines, shared: Mirror) -> None:
    """Soon after a save the mirror has it, without anything being asked for."""
    one = machine("one")
    one.save("color", "blue")

    assert wait_for(lambda: one.bodies() == bodies_of(shared) != {})


def test_changes_on_both_sides_are_merged(machine: Machines, shared: Mirror) -> None:
    """Of two that changed the same entry apart, both keep the lines and the tags of both."""
    one, two = machine("one"), machine("two")
    one.save("steps", "first\nsecond\nthird\n")
    one.flush()
    two.pull()
    one.save("steps", "first, by one\nsecond\nthird\n")
    two.save("steps", "first\nsecond\nthird, by two\n")
    one.say("steps", tags=("one",))
    two.say("steps", tags=("two",), pinned=True)
    for each in (one, two, one):
        each.flush()
        each.pull()
    found = one.record("steps")

    assert isinstance(found, Entry)
    assert "first, by one\nsecond\nthird, by two\n" == found.content
    assert ({"one", "two"}, True) == (set(found.tags), found.pinned)
    assert one.bodies() == two.bodies() == bodies_of(shared)


def test_a_delete_travels_as_what_it_is(machine: Machines, shared: Mirror) -> None:
    """A deleted entry is hidden on every machine, and its content kept on each."""
    one, two = machine("one"), machine("two")
    one.save("color", "blue")
    one.delete("color")
    one.flush()
    two.pull()
    found = two.record("color")

    assert isinstance(found, Entry)
    assert found.retired is not None
    assert "blue" == found.content


def test_what_belongs_to_one_run_stays_here(machine: Machines, shared: Mirror) -> None:
    """An entry of a conversation is never mirrored, and nothing waits for it to be."""
    one = machine("one")
    one.save("mood", "cheerful", run="evt-1", category="conversation")
    one.save("color", "blue")

    assert one.flush()
    assert [] == objects_holding(shared, "cheerful")
    assert (0, 1) == (one.sync.status().pending, len(bodies_of(shared)))


@in_a_bucket_too
def test_a_new_machine_starts_with_everything(machine: Machines, shared: Mirror) -> None:
    """A start in an empty directory has all entries and tombstones when it returns, and nothing to push."""
    one = machine("one")
    one.save_all({f"key-{number}": f"value {number}" for number in range(60)})
    one.forget("key-7")
    one.flush()
    counting = CountingMirror(shared)
    two = machine("two", through=counting)

    assert one.bodies() == two.bodies()
    assert two.flush()
    assert 0 == len([key for key in counting.puts if key.startswith("entries/")])
    assert 0 == two.sync.status().pending


def test_a_pack_brings_thousands_in_a_few_requests(machine: Machines, shared: Mirror) -> None:
    """With a pack, a cold start of many entries asks for the list, the pack, and hardly anything else."""
    one = machine("one")
    one.save_all({f"key-{number}": f"value {number}" for number in range(300)})
    one.sync.push(60)
    counting = CountingMirror(shared)
    two = machine("two", through=counting)

    assert one.bodies() == two.bodies()
    assert sum(counting.calls.values()) < 12


def test_a_start_goes_on_without_a_mirror_that_is_away(machine: Machines, shared: Mirror) -> None:
    """Entries come by themselves once the mirror answers, and are merged with what was saved meanwhile."""
    one = machine("one")
    one.save_all({"color": "blue", "size": "XL"})
    one.flush()
    absent = AbsentMirror(shared)
    two = machine("two", through=absent)
    two.save("color", "red")
    two.save("shape", "round")
    absent.is_away = False
    two.pull()
    one.pull()

    assert one.bodies() == two.bodies() == bodies_of(shared)
    assert ("XL", "round") == (two.content("size"), one.content("shape"))
    assert {"blue", "red"} & {two.content("color")}


def test_what_a_start_was_killed_over_is_fetched_by_the_next(machine: Machines, shared: Mirror) -> None:
    """Entries that were not fetched yet come after the next start, though some are here, unasked."""
    one = machine("one")
    one.save_all({"color": "blue", "size": "XL"})
    one.flush()
    absent = AbsentMirror(shared)
    two = machine("two", through=absent)
    two.save("shape", "round")
    two.close()
    two = machine("two")

    assert wait_for(lambda: two.content("size") == "XL")


def test_a_wiped_directory_is_filled_from_the_mirror(machine: Machines, shared: Mirror) -> None:
    """Losing all records on a disk, or the whole directory, deletes nothing in the mirror, and all comes back."""
    one = machine("one")
    one.save_all({"color": "blue", "size": "XL"})
    one.flush()
    before = bodies_of(shared)
    for lost in (one.directory / "entries", one.directory):
        one.close()
        shutil.rmtree(lost)
        one = machine("one")
        one.flush()

        assert before == one.bodies() == bodies_of(shared)


def test_a_wiped_mirror_is_filled_from_the_directory(machine: Machines, shared: Mirror) -> None:
    """Tombstones go back there as well."""
    one = machine("one")
    one.save_all({"color": "blue", "size": "XL"})
    one.forget("size")
    one.flush()
    for key, _ in list(shared.list()):
        shared.delete(key)
    one.pull()

    assert one.bodies() == bodies_of(shared)
    assert isinstance(record_in(shared, "size"), Mark)


def test_a_lost_copy_that_the_mirror_does_not_take_back_is_pending(machine: Machines, shared: Mirror) -> None:
    """The entry has not changed since it was pushed, and neither has its folder; the mirror lacks it nevertheless."""
    picky = AbsentMirror(shared, is_away=False)
    one = machine("one", through=picky)
    one.save("color", "blue")
    one.flush()
    (path,) = one.bodies()
    folder = (one.directory / path).parent
    assert wait_for(lambda: is_settled(Signature(0, 0, folder.stat().st_mtime_ns)))
    assert 0 == one.sync.status().pending
    shared.delete(path)
    picky.takes_nothing = True

    assert (path,) == one.sync.push(2).pending
    assert 1 == one.sync.status().pending
    picky.takes_nothing = False
    assert () == one.sync.push(60).pending
    assert 0 == one.sync.status().pending


def test_what_is_no_entry_is_left_in_the_mirror(machine: Machines, shared: Mirror) -> None:
    """An object that is not what its path says is not taken, and nothing else is held up by it."""
    one = machine("one")
    one.save_all({"color": "blue", "size": "XL"})
    one.flush()
    (foreign, _), (moved, _) = list(shared.list("entries/"))
    other = foreign.replace("support", "other")
    stored = shared.get(foreign)
    assert stored is not None
    shared.put(other, stored.body)
    shared.put(f"entries/support/{'0' * 40}.json", b"{ not a record")
    two = machine("two")

    assert {foreign, moved} == set(two.bodies())


def test_a_broken_file_is_replaced_by_the_mirror_s(machine: Machines, shared: Mirror) -> None:
    """What cannot be read here goes to quarantine, and the mirror's copy takes its place."""
    one = machine("one")
    one.save("color", "blue")
    one.flush()
    before = one.bodies()
    one.close()
    for path in before:
        (one.directory / path).write_bytes(b"{ not a record")
    one = machine("one")
    one.flush()

    assert before == one.bodies() == bodies_of(shared)
    assert 1 == len(list((one.directory / "quarantine").glob("*[!n]")))


def test_a_restart_asks_for_nothing_that_is_here(machine: Machines, shared: Mirror) -> None:
    """What was fetched or acknowledged is known after a restart: it is listed once, and nothing is got or put."""
    one = machine("one")
    one.save_all({f"key-{number}": "x" for number in range(50)})
    one.flush()
    two = machine("two")
    two.flush()
    for each in (one, two):
        each.close()
        counting = CountingMirror(shared)
        again = machine(each.directory.name, through=counting)
        again.sync.push(60)

        assert {"list"} == set(counting.calls)


def test_two_open_memories_share_their_entries(tmp_path: Path) -> None:
    """With entries and a mirror declared, a save on one machine is found on another, and a forget is as well."""
    mirror = MemoryMirror()
    paths = [write_shared_workflow(tmp_path / name, "file:///not/used") for name in ("one", "two")]
    for path in paths:
        declared = json.loads(path.read_text("utf-8"))
        declared["memory"]["entries"] = {}
        path.write_text(json.dumps(declared), "utf-8")
    with memfiles.open(paths[0], mirror=mirror, watch=False) as one:
        session = one.session("writer")
        one.entries.save(session, "color", SECRET)
        one.sync.flush(60)
        with memfiles.open(paths[1], mirror=mirror, watch=False) as two:
            found = two.entries.get(two.session("writer"), "color")
            one.entries.forget(session, key="color")
            one.sync.flush(60)
            two.sync.pull(60)
            gone = two.entries.get(two.session("writer"), "color")
            pending = two.sync.status().pending

    assert found is not None
    assert (SECRET, None, 0) == (found.content, gone, pending)
    assert [] == [*files_holding(tmp_path, SECRET), *objects_holding(mirror, SECRET)]
    assert [] == pending_records(Workflow.load(paths[1]))


UNDECLARED = """
memory: {directory: .memory, durability: os}
agents: {support: {}}
"""


def test_the_first_use_of_undeclared_entries_waits_for_those_of_the_mirror(tmp_path: Path, shared: Mirror) -> None:
    """A program on a new machine does not see an empty memory because nobody declared that it has one."""
    with opened(tmp_path / "one", UNDECLARED, mirror=shared) as one:
        one.entries.save(one.session("support"), "color", "blue")
        assert one.sync.flush()
    with opened(tmp_path / "two", UNDECLARED, mirror=shared) as two:
        found = two.entries.search(two.session("support"), "color").matches

    assert ["blue"] == [match.found.content for match in found]


def test_a_look_at_the_mirror_before_entries_are_used_takes_nothing_from_the_first_use(
    tmp_path: Path, shared: Mirror
) -> None:
    """What nobody asked for yet was not fetched."""
    with opened(tmp_path / "one", UNDECLARED, mirror=shared) as one:
        one.entries.save(one.session("support"), "color", "blue")
        assert one.sync.flush()
    with opened(tmp_path / "two", UNDECLARED, mirror=shared) as two:
        two.sync.pull()
        found = two.entries.search(two.session("support"), "color").matches

    assert ["blue"] == [match.found.content for match in found]


def test_the_first_use_goes_on_without_a_mirror_that_is_away(
    tmp_path: Path, shared: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and what is saved then is kept."""
    with opened(tmp_path / "two", UNDECLARED, mirror=AbsentMirror(shared)) as two:
        saved = two.entries.save(two.session("support"), "color", "blue")
        assert "the entries are not here yet" in caplog.text

    assert 1 == saved.revision


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_copied_directory_loses_no_entry(tmp_path: Path, *, is_put_back: bool) -> None:
    """One that was copied with ``.state``, or put back from a snapshot, saves under keys that the first saves under."""
    shared, one, two = MemoryMirror(), tmp_path / "one", tmp_path / "two"
    with EntryMachine(one, shared) as machine:
        machine.save_all({"a": "first\n", "b": "second\n"})
        assert machine.flush()
    shutil.copytree(one, two)
    with EntryMachine(one, shared) as machine:
        machine.save("new", "saved by one\n")
        machine.save("b", "changed by one\n")
        assert machine.flush()
    if is_put_back:
        shutil.rmtree(one)
        two = two.rename(one)
    with EntryMachine(two, shared) as machine:
        machine.save("new", "by two\n")
        machine.entries.relocate(Visitor("support"), {"a": "b", "b": "a"})
        assert machine.flush()
        machine.pull()

        assert ["by two\n", "changed by one\n", "first\n"] == [machine.content(key) for key in ("new", "a", "b")]
        assert any(path.startswith("conflicts/") for path in machine.holding("saved by one"))
