"""Forgetting a user: nothing of what was kept is left, here, in the mirror, and on machines that come back later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memfiles import InvalidArgument, Memory
from memfiles.records.keys import next_epoch, user_hash
from tests.support.saved import files_holding
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  levels: [PUBLIC, INTERNAL]
  entries: {max_entries: 3, categories: {playbook: {scope: agent, from_users: true}}}
agents: {support: {}, sales: {}}
"""
SECRET = "zebra-violet"


def mirrored(mirror: Path) -> str:
    """The workflow of each machine that shares this mirror."""
    mirror.mkdir(exist_ok=True)
    return WORKFLOW.replace("memory:\n", f"memory:\n  mirror: {{url: 'file://{mirror}', pull: restore}}\n", 1)


def fill(memory: Memory) -> None:
    """Let Ada tell two agents at two levels something, in a run and for others too, and Bob something else."""
    for agent in ("support", "sales"):
        for level in ("PUBLIC", "INTERNAL"):
            session = memory.session(agent, user="ada", level=level, run="r-ada", thread="t-ada")
            for number in range(5):  # more than the budget allows: some are evicted
                memory.entries.save(session, f"k{number}", f"{SECRET} {agent} {level} {number}")
            memory.entries.update(session, "k4", content=f"{SECRET} again")
            memory.entries.delete(session, "k3")
            memory.entries.save(session, "now", f"{SECRET} now", category="conversation")
            memory.entries.save(session, f"how-to {level}", f"{SECRET} for all", category="playbook")
            memory.entries.apply(session, memory.entries.plan(session, share=0.3))
    memory.entries.save(memory.session("support", user="bob"), "plan", "Bob is on Free")
    memory.entries.save(memory.session("support"), "hours", "The desk opens at nine")


def seen(memory: Memory, user: str | None) -> list[str]:
    """The contents that a session of the user sees."""
    session = memory.session("support", user=user)
    keys = [each.key for each in memory.entries.list(session).memories]
    return [found.content for key in keys if (found := memory.entries.get(session, key)) is not None]


def test_nothing_of_a_user_is_left(tmp_path: Path) -> None:
    """In every agent, level and category, deleted and evicted ones too; others keep theirs, and no file names her."""
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        assert memory.users.forget("ada", dry_run=True).count == memory.users.forget("ada", why="asked to").count > 8

        assert ["The desk opens at nine"] == seen(memory, "ada")
        assert ["Bob is on Free", "The desk opens at nine"] == sorted(seen(memory, "bob"))
        assert [] == files_holding(tmp_path / ".memory", SECRET, '"ada"', "r-ada", "t-ada")
    assert [] == files_holding(tmp_path / ".memory", SECRET, '"ada"', "r-ada", "t-ada")


def test_what_remains_is_a_tombstone_of_a_hash(tmp_path: Path) -> None:
    """It says when, who and why, and names nobody; no session sees it."""
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        memory.users.forget("ada", why="asked to", actor="grace")
    mark = json.loads((tmp_path / f".memory/entries/@ids/{user_hash('ada')}.json").read_text())

    assert ("tombstone", {"actor": "grace"}, "asked to", user_hash("ada")) == (
        mark["type"],
        mark["by"],
        mark["why"],
        mark["user"],
    )
    events = [json.loads(line) for line in next((tmp_path / ".memory/audit").glob("*.jsonl")).read_text().splitlines()]
    assert ("forget-user", user_hash("ada"), "grace") == tuple(events[-1][name] for name in ("op", "user", "actor"))
    assert {""} == {event.get("run", "") for event in events if event.get("user") == user_hash("ada")}


def test_a_user_may_come_back_with_nothing(tmp_path: Path) -> None:
    """What is saved from then on stays, also over the same keys, through restarts and another forget."""
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        memory.users.forget("ada")
        memory.entries.save(memory.session("support", user="ada"), "k4", "I am back")
    with opened(tmp_path, WORKFLOW) as memory:
        assert ["I am back", "The desk opens at nine"] == sorted(seen(memory, "ada"))
        assert next_epoch(user_hash("ada")) == memory.session("support", user="ada").provenance.epoch
        assert 1 == memory.users.forget("ada").count
        assert ["The desk opens at nine"] == seen(memory, "ada")


def test_a_session_from_before_saves_nothing_more(tmp_path: Path) -> None:
    """It is told why, in a tool result too; a session that is asked for anew may."""
    with opened(tmp_path, WORKFLOW) as memory:
        before = memory.session("support", user="ada")
        memory.entries.save(before, "plan", SECRET)
        memory.users.forget("ada")

        with pytest.raises(InvalidArgument, match="the user of this session was forgotten: ask the memory for a new"):
            memory.entries.save(before, "plan", SECRET)
        refused = before.call("memory_save", {"key": "plan", "content": SECRET})
        assert (True, "invalid_argument") == (refused.is_error, refused.code)
        assert [] == files_holding(tmp_path / ".memory", SECRET)


def test_forgetting_twice_and_forgetting_a_stranger_do_nothing(tmp_path: Path) -> None:
    """Each says that there was nothing."""
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        memory.users.forget("ada")

        assert (0, 0) == (memory.users.forget("ada").count, memory.users.forget("Ada").count)
        assert ["bob"] == [each.user for each in memory.users.list()]


def test_a_machine_that_was_offline_forgets_too(tmp_path: Path) -> None:
    """What it has, and what it saved meanwhile; nothing is left there, in the mirror, or on a third one."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        fill(memory)
    with opened(tmp_path / "two", workflow):
        pass
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
        session = offline.session("support", user="ada", run="r-ada")
        offline.entries.save(session, "meanwhile", f"{SECRET} meanwhile")
        offline.entries.update(session, "k4", content=f"{SECRET} changed meanwhile")

    with opened(tmp_path / "one", workflow) as memory:
        memory.users.forget("ada")
        assert memory.sync.flush(30)
    assert [] == files_holding(tmp_path / "mirror", SECRET, '"ada"')

    with opened(tmp_path / "two", workflow) as memory:
        memory.sync.pull()
        memory.sync.flush(30)
        assert ["The desk opens at nine"] == seen(memory, "ada")
    with opened(tmp_path / "one", workflow) as memory:
        memory.sync.pull()
    with opened(tmp_path / "three", workflow) as memory:
        assert ["The desk opens at nine"] == seen(memory, "ada")
    for place in ("mirror", "one", "two", "three"):
        assert [] == files_holding(tmp_path / place, SECRET), place


def test_two_machines_that_forget_agree_on_the_next_epoch(tmp_path: Path) -> None:
    """A user who came back on one of them keeps what was said since."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        fill(memory)
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
        offline.users.forget("ada")
        offline.entries.save(offline.session("support", user="ada"), "hello", "back on two")
    with opened(tmp_path / "one", workflow) as memory:
        memory.users.forget("ada")
        memory.entries.save(memory.session("support", user="ada"), "hi", "back on one")
    for place in ("two", "one", "two"):
        with opened(tmp_path / place, workflow) as memory:
            memory.sync.pull()
            memory.sync.flush(30)

    for place in ("one", "two"):
        with opened(tmp_path / place, workflow) as memory:
            memory.sync.pull()
            assert ["The desk opens at nine", "back on one", "back on two"] == sorted(seen(memory, "ada")), place


def test_the_list_counts_what_is_kept_for_each(tmp_path: Path) -> None:
    """By name, with the agents, the visible entries and their bytes."""
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        shown: list[dict[str, Any]] = [each.to_dict() for each in memory.users.list()]

    assert ["ada", "bob"] == [each["user"] for each in shown]
    assert [["sales", "support"], ["support"]] == [each["agents"] for each in shown]
    assert (1, len("Bob is on Free")) == (shown[1]["entries"], shown[1]["size_bytes"])


def test_an_export_of_a_user_can_be_imported(tmp_path: Path) -> None:
    """One file for each agent, and one for what was said for others; nothing of anybody else."""
    with opened(tmp_path / "one", WORKFLOW) as memory:
        fill(memory)
        report = memory.users.export("ada", tmp_path / "ada")

    assert ("sales.jsonl", "sales.shared.jsonl", "support.jsonl", "support.shared.jsonl") == report.files
    assert report.count == sum(len((tmp_path / "ada" / name).read_text().splitlines()) for name in report.files)
    assert [] == files_holding(tmp_path / "ada", "Bob", "desk")
    with opened(tmp_path / "two", WORKFLOW) as memory:
        session = memory.session("support", user="ada", level="INTERNAL")
        imported = memory.entries.import_(session, tmp_path / "ada/support.jsonl")
        assert (1, {"k4"}) == (imported.added, {each.key for each in memory.entries.list(session).memories})
        assert [] == seen(memory, "bob")
