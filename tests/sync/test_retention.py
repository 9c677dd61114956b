"""What one machine erases for its age is gone from the mirror and from all machines, unless one has news of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import memfiles
from memfiles.entries.drafts import DAY_SECONDS, EntryRules
from memfiles.errors import EntryNotFound
from memfiles.sync.mirror import Mirror
from memfiles.sync.pack import refresh_pack
from mirrors.urls import open_mirror
from tests.entries.test_purge import NEEDLES, let_it_be_over
from tests.support.saved import Clock, Visitor, files_holding
from tests.support.workflows import write_workflow
from tests.sync.conftest import in_a_bucket_too
from tests.sync.entry_machine import EntryMachine, objects_holding
from tests.sync.mirrors_for_tests import AbsentMirror

pytestmark = pytest.mark.slow

AGENT = Visitor("support")
KEY, TEXT = "animals/striped", "a zebrafish swims"
RETAINED = {"expired": 10 * DAY_SECONDS, "deleted": 90 * DAY_SECONDS}
Machines = Callable[..., EntryMachine]


@pytest.fixture
def clock() -> Clock:
    """The clock of all machines."""
    return Clock()


@pytest.fixture
def machine(tmp_path: Path, shared: Mirror, clock: Clock) -> Iterator[Machines]:
    """``machine(name, ...)`` opens the memory of a machine; ``through`` is the way to the mirror."""
    with ExitStack() as ending:

        def open_machine(name: str, *, through: Mirror | None = None) -> EntryMachine:
            rules = EntryRules(secrets="off")
            return ending.enter_context(EntryMachine(tmp_path / name, through or shared, rules=rules, now=clock))

        yield open_machine


def come_together(*machines: EntryMachine) -> None:
    """All sync, and do what a sync leaves to the background, until all have everything."""
    for each in machines * 2:
        each.flush(60)
        each.pull()
        each.sync.push(60)


def holding(mirror: Mirror, *machines: EntryMachine) -> list[str]:
    """Every file and object that holds the key or the text."""
    found = [name for each in machines for name in files_holding(each.directory, *NEEDLES)]
    return [*found, *(name for needle in NEEDLES for name in objects_holding(mirror, needle))]


@in_a_bucket_too
@pytest.mark.parametrize("how", list(RETAINED))
def test_nothing_is_left_anywhere(machine: Machines, shared: Mirror, clock: Clock, how: str) -> None:
    """Neither in the mirror and its pack, nor on a machine that never swept, nor in what a sync keeps for itself."""
    one, two = machine("one"), machine("two")
    one.entries.save(AGENT, "first", TEXT, category="daily" if how == "expired" else None)
    come_together(one, two)
    one.entries.relocate(AGENT, {"first": KEY})
    come_together(one, two)
    two.entries.search(AGENT, "zebrafish")
    if how == "deleted":
        two.entries.delete(AGENT, KEY)
    come_together(one, two)
    refresh_pack(one.replica, shared, one.book)
    clock.go_on(RETAINED[how] - 1)
    one.entries.sweep()
    before = holding(shared, one, two)
    clock.go_on(1)
    one.entries.sweep()
    come_together(one, two)

    assert before
    assert [] == holding(shared, one, two)
    assert one.bodies() == two.bodies()


@pytest.mark.parametrize("change", ["restore", "update", "relocate"])
def test_a_change_that_was_not_known_brings_it_back(
    machine: Machines,
    shared: Mirror,
    clock: Clock,
    change: str,
) -> None:
    """A machine that was offline, and changed it meanwhile, has it; then the others have it as well."""
    away = AbsentMirror(shared, is_away=False)
    one, two = machine("one"), machine("two", through=away)
    one.entries.save(AGENT, KEY, TEXT)
    come_together(one, two)
    away.is_away = True
    if change == "restore":
        two.entries.delete(AGENT, KEY)
        two.entries.restore(AGENT, KEY)
    elif change == "update":
        two.entries.update(AGENT, KEY, content=f"{TEXT} fast")
    else:
        two.entries.relocate(AGENT, {KEY: "animals/other"})
    clock.go_on(1)
    one.entries.delete(AGENT, KEY)
    clock.go_on(RETAINED["deleted"])
    one.entries.sweep()
    one.flush()
    away.is_away = False
    come_together(one, two)

    seen = [[found.key for found in each.entries.list(AGENT).memories] for each in (one, two)]
    assert [["animals/other" if change == "relocate" else KEY]] * 2 == seen
    assert one.bodies() == two.bodies()


def test_a_machine_that_was_offline_loses_what_the_mark_includes(
    machine: Machines,
    shared: Mirror,
    clock: Clock,
) -> None:
    """It neither brings it back nor keeps it, though its own clock stood still."""
    away = AbsentMirror(shared, is_away=False)
    one, two = machine("one"), machine("two", through=away)
    one.entries.save(AGENT, KEY, TEXT)
    come_together(one, two)
    away.is_away = True
    one.entries.delete(AGENT, KEY)
    clock.go_on(RETAINED["deleted"])
    one.entries.sweep()
    one.flush()
    away.is_away = False
    come_together(one, two)

    assert [] == holding(shared, one, two)
    assert one.bodies() == two.bodies()


def test_both_machines_erase_at_once(machine: Machines, shared: Mirror, clock: Clock) -> None:
    """They end with the same mark, and do not go on changing it; a new save under the key stands."""
    one, two = machine("one"), machine("two")
    one.entries.save(AGENT, KEY, TEXT)
    one.entries.delete(AGENT, KEY)
    come_together(one, two)
    clock.go_on(RETAINED["deleted"])
    one.entries.sweep()
    two.entries.sweep()
    come_together(one, two)
    bodies = one.bodies()
    come_together(one, two)
    with pytest.raises(EntryNotFound, match="erased on"):
        two.entries.restore(AGENT, KEY)
    two.entries.save(AGENT, KEY, "a crow")
    come_together(one, two)
    found = one.entries.get(AGENT, KEY)

    assert bodies == one.bodies() | {path: body for path, body in bodies.items() if b'"vacated"' in body}
    assert found is not None
    assert "a crow" == found.content


WORKFLOW = """\
    memory:
      mirror: {url: "URL"}
      retention: {expired: RETENTION, deleted: RETENTION}
      entries: {categories: {daily: {ttl: 1s}}}
    agents: {support: {}}
    """


@pytest.mark.parametrize("place", ["directory", pytest.param("s3", marks=pytest.mark.slow)])
def test_a_workflow_with_a_mirror_erases_by_itself(tmp_path: Path, place: str, request: pytest.FixtureRequest) -> None:
    """Opened, used, closed and opened again later, as an agent does, without a word about retention."""
    if place == "s3":
        endpoint = request.getfixturevalue("moto_url")
        url = f"s3://memory/{tmp_path.name}?endpoint={endpoint}&region=us-east-1"
    else:
        (tmp_path / "mirror").mkdir()
        url = (tmp_path / "mirror").as_uri()
    mirror = open_mirror(url)
    text = WORKFLOW.replace("URL", url)
    path = write_workflow(tmp_path, text.replace("RETENTION", "1h"))
    with memfiles.open(path) as memory:
        session = memory.session("support")
        memory.entries.save(session, KEY, TEXT)
        memory.entries.save(session, "animals/striped/too", TEXT, category="daily")
        memory.entries.delete(session, KEY)
        memory.sync.flush(60)
    before = objects_holding(mirror, "zebrafish")
    write_workflow(tmp_path, text.replace("RETENTION", "1s"))
    let_it_be_over()
    with memfiles.open(path):
        pass

    assert 2 == len(before)
    assert [] == [*files_holding(tmp_path, *NEEDLES), *objects_holding(mirror, "zebrafish")]
