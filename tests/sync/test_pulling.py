"""What changed elsewhere arrives: at the start, now and then, when asked for, and whatever was made of it here."""

from __future__ import annotations

import shutil

import pytest

from memfiles.errors import MirrorRefused
from memfiles.storage.events import RecordChanged
from mirrors.memory import MemoryMirror
from mirrors.urls import open_mirror
from tests.mirrors.older_service import KEY, OlderService, serving
from tests.sync.conftest import Opener, content_in, in_mirror, on_disk, wait_for
from tests.sync.mirrors_for_tests import AbsentMirror, CountingMirror


def test_a_pull_takes_what_changed_elsewhere(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A record that was not changed here becomes the mirror's, byte for byte, and whoever subscribed is told."""
    one = open_machine("one")
    one.sync.flush(60)
    two = open_machine("two")
    told: list[RecordChanged] = []
    two.manager.subscribe(told.append)
    one.manager.append("notes", "- by one\n")
    one.sync.flush(60)
    report = two.sync.pull(60)

    assert {"notes.json": "pulled"} == dict(report.outcomes)
    assert on_disk(one) == on_disk(two) == in_mirror(mirror)
    assert "# notes\n- by one\n" == two.manager.read("notes")
    assert [("notes", "mirror")] == [(event.uid, event.origin) for event in told]


def test_a_pull_asks_only_for_what_changed(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What is at the version last known is not fetched."""
    uids = ("a", "b", "c")
    one, counting = open_machine("one", uids=uids), CountingMirror(mirror)
    one.sync.flush(60)
    two = open_machine("two", uids=uids, through=counting)
    two.sync.flush(60)
    one.manager.append("b", "- x\n")
    one.sync.flush(60)
    counting.calls.clear()
    two.sync.pull(60)

    assert {"list": 1, "get": 1} == dict(counting.calls)


def test_the_start_pulls_if_that_is_declared(open_machine: Opener) -> None:
    """With ``pull: restore`` a start fetches what changed while nothing ran here; with ``cold-start`` it does not."""
    one, two, three = open_machine("one"), open_machine("two"), open_machine("three")
    for memory in (one, two, three):
        memory.sync.flush(60)
        memory.sync.pull(60)
    two.close()
    three.close()
    one.manager.append("notes", "- by one\n")
    one.sync.flush(60)
    two = open_machine("two", pull="restore")
    three = open_machine("three", pull="cold-start")

    assert wait_for(lambda: two.manager.read("notes") == "# notes\n- by one\n")
    three.sync.flush(60)
    assert "# notes\n" == three.manager.read("notes")


@pytest.mark.slow
def test_an_interval_pulls_again_and_again(open_machine: Opener) -> None:
    """With an interval, changes made elsewhere arrive without a restart."""
    one, two = open_machine("one"), open_machine("two", pull="1s")
    for line in ("- first\n", "- second\n"):
        one.manager.append("notes", line)
        one.sync.flush(60)
        assert wait_for(lambda: two.manager.read("notes") == one.manager.read("notes"))


def test_a_provisional_seed_gives_way_to_the_mirror_s_copy(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A file that was seeded while the mirror was away becomes the mirror's, once that answers."""
    one = open_machine("one")
    one.manager.append("notes", "- real\n")
    one.sync.flush(60)
    absent = AbsentMirror(mirror)
    two = open_machine("two", through=absent)
    report, provisional = two.report["notes"].status, two.manager.card("notes").provisional
    absent.is_away = False

    assert ("provisional", True) == (report, provisional)
    assert two.sync.flush(60)
    assert "# notes\n- real\n" == two.manager.read("notes")
    assert on_disk(one) == on_disk(two) == in_mirror(mirror)


def test_a_provisional_seed_that_was_written_to_is_merged(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What was appended to such a seed meanwhile is put after the mirror's text."""
    one = open_machine("one")
    one.manager.append("notes", "- real\n")
    one.sync.flush(60)
    absent = AbsentMirror(mirror)
    two = open_machine("two", through=absent)
    two.manager.append("notes", "- meanwhile\n")
    absent.is_away = False

    assert two.sync.flush(60)
    assert "# notes\n- real\n- meanwhile\n" == two.manager.read("notes") == content_in(mirror)
    assert not two.manager.card("notes").provisional
    assert on_disk(two) == in_mirror(mirror)


def test_a_provisional_seed_is_a_seed_where_there_is_no_copy(open_machine: Opener, mirror: MemoryMirror) -> None:
    """If the mirror, once it answers, has no copy, the seed goes there and is provisional no more."""
    absent = AbsentMirror(mirror)
    memory = open_machine(through=absent)
    memory.manager.append("notes", "- first\n")
    absent.is_away = False

    assert memory.sync.flush(60)
    assert not memory.manager.card("notes").provisional
    assert b"provisional" not in on_disk(memory)
    assert on_disk(memory) == in_mirror(mirror)


def test_two_deploys_that_declare_a_file_differently_come_to_rest(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Each keeps its own description and takes the other's content; they do not answer each other for ever."""
    counting = CountingMirror(mirror)
    one = open_machine("one", through=counting, description="as one sees it")
    two = open_machine("two", through=counting, description="as two sees it")
    for memory, line in ((one, "- by one\n"), (two, "- by two\n")):
        memory.manager.append("notes", line)
        memory.sync.flush(60)
    for _ in range(3):
        for memory in (one, two):
            memory.sync.pull(60)
    counting.calls.clear()
    for _ in range(3):
        for memory in (one, two):
            memory.sync.pull(60)

    assert 0 == counting.calls["put"]
    assert one.manager.read("notes") == two.manager.read("notes") == "# notes\n- by one\n- by two\n"
    assert ["as one sees it", "as two sees it"] == [m.manager.card("notes").description for m in (one, two)]


def test_a_copied_directory_loses_and_doubles_nothing(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Two machines whose directories are copies of one, ``.state`` and all, are merged like any others."""
    one = open_machine("one")
    one.manager.append("notes", "- before\n")
    one.close()
    shutil.copytree(one.manager.directory.parent, one.manager.directory.parents[1] / "two")
    one, two = open_machine("one"), open_machine("two")
    for number in range(3):
        one.manager.append("notes", f"- one {number}\n")
        two.manager.append("notes", f"- two {number}\n")
    one.sync.flush(60)
    two.sync.flush(60)
    one.sync.pull(60)
    two.sync.pull(60)  # it may have been the first to push
    expected = ["# notes", "- before", *(f"- {who} {number}" for who in ("one", "two") for number in range(3))]

    assert sorted(expected) == sorted(one.manager.read("notes").splitlines())
    assert on_disk(one) == on_disk(two) == in_mirror(mirror)


@pytest.mark.usefixtures("aws_environment")
def test_the_older_service_keeps_the_content(open_machine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that knows nothing but content gets it, gives it back to a cold start, and settles down."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", KEY)
    with serving(OlderService()) as service:
        service.declare("notes", "# notes\n")
        counting = CountingMirror(open_mirror(service.url))
        one = open_machine("one", through=counting)
        one.manager.append("notes", "- kept\n")
        assert one.sync.flush(60)
        two = open_machine("two", through=counting)
        two.sync.flush(60)
        assert "# notes\n- kept\n" == two.manager.read("notes")
        two.manager.append("notes", "- by two\n")
        two.sync.flush(60)
        one.sync.pull(60)
        counting.calls.clear()
        for memory in (two, one):
            memory.sync.pull(60)

        assert 0 == counting.calls["put"]
        assert "# notes\n- kept\n- by two\n" == one.manager.read("notes")


@pytest.mark.usefixtures("aws_environment")
def test_the_older_service_cannot_carry_a_redaction(open_machine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done here and in the service's copy, and an error says what is left to do."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", KEY)
    with serving(OlderService()) as service:
        service.declare("notes", "# notes\n")
        one = open_machine("one", through=open_mirror(service.url))
        one.manager.append("notes", "- a needle\n")
        assert one.sync.flush(60)
        with pytest.raises(MirrorRefused, match="other machines do not learn"):
            one.manager.redact("notes", "needle")
        assert one.sync.flush(60)

        assert "# notes\n- a [redacted]\n" == one.manager.read("notes") == service.files["notes"]["content"]
