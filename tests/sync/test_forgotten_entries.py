"""What was forgotten on one machine is gone on all, and nothing brings it back."""

from __future__ import annotations

import pytest

from memfiles.records.marks import Mark
from memfiles.sync.mirror import Mirror
from tests.support.saved import Visitor, saved
from tests.sync.conftest import Machines, in_a_bucket_too
from tests.sync.entry_machine import AGENT, bodies_of, objects_holding, record_in
from tests.sync.mirrors_for_tests import AbsentMirror

pytestmark = pytest.mark.slow

SECRET = "the needle in it"


@in_a_bucket_too
def test_a_forget_leaves_nothing_anywhere(machine: Machines, shared: Mirror) -> None:
    """After a forget and a flush neither a file here, nor the mirror, nor another machine has the content."""
    one, two = machine("one"), machine("two")
    one.save_all({f"key-{number}": f"value {number}" for number in range(250)})
    one.save("color", SECRET)
    one.sync.push(60)
    two.pull()
    two.sync.push(60)
    one.forget("color")
    one.flush()
    two.pull()
    two.flush()

    assert [] == one.holding(SECRET)
    assert [] == two.holding(SECRET)
    assert [] == objects_holding(shared, SECRET)
    assert isinstance(two.record("color"), Mark)


@in_a_bucket_too
def test_a_machine_that_was_offline_brings_nothing_back(machine: Machines, shared: Mirror) -> None:
    """Its own unsynced changes of what was forgotten elsewhere are forgotten as well, and leave its disk."""
    absent = AbsentMirror(shared, is_away=False)
    one, two = machine("one"), machine("two", through=absent)
    one.save("color", SECRET)
    one.flush()
    two.pull()
    absent.is_away = True
    for number in range(5):
        two.save("color", f"{SECRET}, changed {number}")
    one.forget("color")
    one.flush()
    absent.is_away = False
    two.flush(60)
    two.pull()
    one.pull()

    assert isinstance(one.record("color"), Mark)
    assert one.bodies() == two.bodies() == bodies_of(shared)
    assert [] == [*one.holding(SECRET), *two.holding(SECRET), *objects_holding(shared, SECRET)]


@in_a_bucket_too
def test_an_earlier_mirror_brings_nothing_back(machine: Machines, shared: Mirror) -> None:
    """A bucket that was restored from a backup, with a later revision of what was forgotten, is put right."""
    one = machine("one")
    one.save("color", SECRET)
    for number in range(5):
        one.save("color", f"{SECRET} {number}")
    one.flush()
    backup = bodies_of(shared)
    two = machine("two")
    one.forget("color")
    one.flush()
    for path, body in backup.items():
        shared.put(path, body)
    one.pull()
    two.pull()

    assert isinstance(record_in(shared, "color"), Mark)
    assert one.bodies() == two.bodies() == bodies_of(shared)
    assert [] == [*one.holding(SECRET), *two.holding(SECRET), *objects_holding(shared, SECRET)]


def test_a_file_from_a_backup_brings_nothing_back(machine: Machines, shared: Mirror) -> None:
    """A forgotten entry whose file somebody copies back into the directory is a tombstone again."""
    one = machine("one")
    one.save("color", SECRET)
    one.flush()
    backup = one.bodies()
    one.forget("color")
    one.flush()
    one.close()
    for path, body in backup.items():
        (one.directory / path).write_bytes(body)
    one = machine("one")
    one.flush()

    assert isinstance(one.record("color"), Mark)
    assert isinstance(record_in(shared, "color"), Mark)
    assert [] == objects_holding(shared, SECRET)


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_mark_from_a_backup_takes_no_later_entry_away(machine: Machines, shared: Mirror, is_moved: bool) -> None:
    """What was saved under the key of an entry that was forgotten, or got another key, came after that mark."""
    one, two = machine("one"), machine("two")
    one.save("color", "red")
    if is_moved:
        one.entries.relocate(Visitor(AGENT), {"color": "hue"})
    else:
        one.forget("color")
    one.flush()
    two.pull()
    mark = one.body("color")
    one.save("color", "blue")
    one.flush()
    one.close()
    (one.directory / saved("color", agent=AGENT).path).write_bytes(mark)
    one = machine("one")
    one.flush()
    two.pull()

    assert ["blue", "blue"] == [each.content("color") for each in (one, two)]


def test_a_save_after_a_forget_stands(machine: Machines, shared: Mirror) -> None:
    """What is saved under a forgotten key is news, also for machines that never heard of the forgetting."""
    absent = AbsentMirror(shared, is_away=False)
    one, two = machine("one"), machine("two", through=absent)
    one.save("color", SECRET)
    one.flush()
    two.pull()
    absent.is_away = True
    two.save("color", f"{SECRET} too")
    one.forget("color")
    one.flush()
    one.save("color", "green")
    one.flush()
    absent.is_away = False
    two.flush(60)
    two.pull()
    one.pull()

    assert ("green", "green") == (one.content("color"), two.content("color"))
    assert one.bodies() == two.bodies() == bodies_of(shared)
    assert [] == [*one.holding(SECRET), *two.holding(SECRET), *objects_holding(shared, SECRET)]


def test_a_conflict_is_kept_until_it_is_forgotten(machine: Machines, shared: Mirror) -> None:
    """The losing content is kept beside the record; a forget takes it away there as well, on every machine."""
    one, two = machine("one"), machine("two")
    one.save("color", f"{SECRET} of one")
    two.save("color", f"{SECRET} of two")
    one.flush()
    two.flush()
    two.pull()
    kept = two.sync.status().conflicts
    one.pull()
    one.forget("color")
    one.flush()
    two.pull()

    assert 1 == len(kept)
    assert () == two.sync.status().conflicts
    assert [] == [*one.holding(SECRET), *two.holding(SECRET), *objects_holding(shared, SECRET)]


def test_what_was_made_of_an_entry_that_another_machine_forgot_goes_as_well(machine: Machines, shared: Mirror) -> None:
    """Whether the note or the tombstone comes first: no machine and no mirror keeps what was in the note."""
    one, two, three = machine("one"), machine("two"), machine("three")
    for number in range(6):
        what = SECRET if number == 2 else f"topic {number}"
        said = f"{what} came up on day {number}. " * 9
        one.entries.save(Visitor("support"), f"day/{number}", said, kind="episode")
    one.flush()
    for each in (two, three):
        each.pull()
    one.entries.apply(Visitor("support"), one.entries.plan(Visitor("support"), share=0.00001))
    two.entries.forget(Visitor("support"), key="day/2")
    for each in (one, two, three, two, one, three):
        each.pull()
        each.entries.search(Visitor("support"), "day")
        each.flush()

    assert [] == objects_holding(shared, SECRET)
    for each in (one, two, three):
        each.pull()
        assert () == each.entries.search(Visitor("support"), SECRET).matches
        assert [] == each.holding(SECRET)
