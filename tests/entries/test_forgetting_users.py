"""Forgetting a user: nothing of what was kept is left, here, in the mirror, and on machines that come back later."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memfiles import InvalidArgument, Memory, SecretRefused, Session
from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Category, EntryRules
from memfiles.memory import load, look
from memfiles.records.keys import id_path, next_epoch, user_hash
from tests.support.records import files_under
from tests.support.saved import Clock, Visitor, entries_in, files_holding
from tests.support.stores import put_by_hand
from tests.support.workflows import opened

pytestmark = pytest.mark.slow

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


def test_an_actor_that_holds_a_credential_is_refused(tmp_path: Path) -> None:
    """As in a history: the tombstone and the audit would keep it for good. Nothing is forgotten or exported then."""
    token = "glpat-" + "wK7tQz9mXv2LrB5nYc8H"
    with opened(tmp_path, WORKFLOW) as memory:
        fill(memory)
        for asked in (memory.users.forget, partial(memory.users.export, target=tmp_path / "out")):
            with pytest.raises(SecretRefused, match="actor appears to contain a credential"):
                asked("ada", actor=token)
            with pytest.raises(InvalidArgument, match="control character"):
                asked("ada", actor="two\nlines")

        assert (True, []) == (len(seen(memory, "ada")) > 2, [*memory.users.tombstones()])
    assert (False, []) == ((tmp_path / "out").exists(), files_holding(tmp_path, token))


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
    kept = files_under(tmp_path / ".memory")
    mark = json.loads(kept[f"entries/@ids/{user_hash('ada')}.json"])

    assert ("tombstone", {"actor": "grace"}, "asked to", user_hash("ada")) == (
        mark["type"],
        mark["by"],
        mark["why"],
        mark["user"],
    )
    events = [json.loads(line) for path in kept if path.startswith("audit/") for line in kept[path].splitlines()]
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


def test_a_user_may_come_back_where_no_entries_are_declared(tmp_path: Path) -> None:
    """Then a session does not open them, so that it has to look whether anybody was forgotten."""
    with opened(tmp_path, "name: w\nmemory: {directory: .memory}\nagents: {support: {}}\n") as memory:
        for _ in range(3):
            memory.entries.save(memory.session("support", user="ada"), "plan", SECRET)
            assert 1 == memory.users.forget("ada").count


@pytest.mark.directory("a folder of it cannot be looked into")
def test_a_session_begins_while_nobody_can_tell_whether_the_user_was_forgotten(tmp_path: Path) -> None:
    """Where no entries are declared it may need none of them; so does one of a memory that is only looked at."""
    with opened(tmp_path, "name: w\nmemory: {directory: .memory}\nagents: {support: {}}\n") as memory:
        ids = tmp_path / ".memory" / id_path(user_hash("ada"))
        ids.parent.parent.mkdir(exist_ok=True)
        ids.parent.symlink_to(ids.parent.name)
        session = memory.session("support", user="ada")
    with look(load(tmp_path / "workflow.yaml")) as looked:
        assert session.provenance == looked.session("support", user="ada").provenance


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


CHANGES: dict[str, Callable[[Memory, Session], object]] = {
    "update": lambda memory, session: memory.entries.update(session, "tips", content="and more"),
    "edit": lambda memory, session: memory.entries.edit(session, "tips", "greet", "wave"),
    "delete": lambda memory, session: memory.entries.delete(session, "tips"),
    "delete many": lambda memory, session: memory.entries.delete_many(session, ["tips"]),
    "restore": lambda memory, session: memory.entries.restore(session, "gone"),
    "relocate": lambda memory, session: memory.entries.relocate(session, {"tips": "advice"}),
    "feedback": lambda memory, session: memory.entries.update(session, "tips", outcome="success"),
    "tool": lambda memory, session: memory.entries.update(session, "tips", category="playbook", tags=["x"]),
}


@pytest.mark.parametrize("way", CHANGES)
def test_a_session_from_before_changes_nothing_for_others(tmp_path: Path, way: str) -> None:
    """Whichever way it takes: the entry stays as it was, and no file names the user."""
    with opened(tmp_path, WORKFLOW) as memory:
        before, bob = memory.session("support", user="ada", run="r-ada"), memory.session("support", user="bob")
        for key in ("tips", "gone"):
            memory.entries.save(bob, key, "First greet", category="playbook")
        memory.entries.delete(bob, "gone")
        memory.users.forget("ada")

        with pytest.raises(InvalidArgument, match="the user of this session was forgotten"):
            CHANGES[way](memory, before)
        assert ["First greet"] == seen(memory, "bob")
        assert [] == files_holding(tmp_path / ".memory/entries", '"ada"', "r-ada")


def write_together(memory: Memory) -> None:
    """Let Ada and Bob write in the same shared entries, each first in one, and Bob last in all but one."""
    ada, bob = memory.session("support", user="ada", run="r-ada"), memory.session("support", user="bob")
    memory.entries.save(ada, "hers", f"{SECRET} is hers", category="playbook")
    memory.entries.save(bob, "hers", "Nothing of it is left", category="playbook")
    memory.entries.save(bob, "both", "First greet. Then solve.", category="playbook")
    memory.entries.edit(ada, "both", "greet", f"greet {SECRET}")
    memory.entries.edit(bob, "both", "solve", "solve it fast")
    memory.entries.save(bob, "last", "A guide", category="playbook")
    memory.entries.update(ada, "last", tags=[SECRET])
    memory.entries.save(memory.session("sales", user="bob"), "his", "Ask first", category="playbook")
    memory.entries.update(memory.session("sales", user="ada", run="r-ada"), "his", outcome="success")


def test_what_she_wrote_with_others_goes_whole(tmp_path: Path) -> None:
    """An entry for all in which she ever wrote goes, whoever wrote last; one that she only found of use stays."""
    with opened(tmp_path, WORKFLOW) as memory:
        write_together(memory)
        assert 3 == memory.users.forget("ada", dry_run=True).count == memory.users.forget("ada").count

        assert [] == seen(memory, "bob")
        found = memory.entries.get(memory.session("sales", user="bob"), "his")
        assert found is not None and found.content == "Ask first"
    assert [] == files_holding(tmp_path / ".memory", SECRET, '"ada"')


def test_a_note_that_was_made_of_what_she_wrote_goes(tmp_path: Path) -> None:
    """Her episodes were folded into it for room, and purged since; others' notes stay."""
    categories = {"playbook": Category("playbook", scope="agent", from_users=True)}
    rules, clock = EntryRules(categories=categories, budget=Budget(max_entries=6)), Clock()
    with entries_in(tmp_path, rules=rules, now=clock) as entries:
        ada, bob = Visitor(user="ada"), Visitor(user="bob")
        for number in range(5):
            text = f"{SECRET} {number}. {'long words here ' * 10}"
            entries.save(ada, f"e{number}", text, category="playbook", kind="episode")
        folded = [entries.save(bob, key, key, category="playbook").folded for key in ("one", "two")][-1]
        assert 5 == len(folded)
        clock.go_on(100 * 86400)
        assert 5 == entries.purge().deleted
        assert files_holding(tmp_path / "entries", SECRET)

        assert 1 == entries.users.forget("ada").count
        assert ["one", "two"] == [each.key for each in entries.list(bob).memories]
    assert [] == files_holding(tmp_path, SECRET, '"ada"')


def test_a_kept_copy_of_a_conflict_goes(tmp_path: Path) -> None:
    """The side of a merge that lost is kept in a folder of its own, also what she wrote for others."""
    workflow = mirrored(tmp_path / "mirror")
    offline = workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")
    with opened(tmp_path / "one", workflow) as memory:
        memory.entries.save(memory.session("support", user="bob"), "tips", "line one base", category="playbook")
        assert memory.sync.flush(30)
    with opened(tmp_path / "two", workflow) as memory:
        memory.sync.pull()
    with opened(tmp_path / "two", offline) as memory:
        memory.entries.save(memory.session("support", user="bob"), "tips", "line one of Bob", category="playbook")
    with opened(tmp_path / "one", workflow) as memory:
        memory.entries.save(memory.session("support", user="ada"), "tips", f"line {SECRET} one", category="playbook")
        assert memory.sync.flush(30)
    with opened(tmp_path / "two", workflow) as memory:
        memory.sync.pull()
        memory.sync.flush(30)
        assert files_holding(tmp_path / "two/.memory/conflicts", SECRET)
        memory.users.forget("ada")
        assert memory.sync.flush(30)
    with opened(tmp_path / "one", workflow) as memory:
        memory.sync.pull()

    assert [] == files_holding(tmp_path, SECRET, '"ada"')


def test_an_offline_machine_forgets_what_she_wrote_for_others(tmp_path: Path) -> None:
    """New entries, and changes of those of others; neither comes back anywhere."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        memory.entries.save(memory.session("support", user="bob"), "tips", "First greet", category="playbook")
        memory.entries.save(memory.session("support", user="ada"), "k", SECRET)
        assert memory.sync.flush(30)
    with opened(tmp_path / "two", workflow) as memory:
        memory.sync.pull()
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as memory:
        session = memory.session("support", user="ada", run="r-ada")
        memory.entries.save(session, "new", f"{SECRET} new", category="playbook")
        memory.entries.edit(session, "tips", "greet", f"greet {SECRET}")
    with opened(tmp_path / "one", workflow) as memory:
        memory.users.forget("ada")
        assert memory.sync.flush(30)
    for place in ("two", "one", "three"):
        with opened(tmp_path / place, workflow) as memory:
            memory.sync.pull()
            memory.sync.flush(30)
            assert [] == seen(memory, "bob")

    assert [] == files_holding(tmp_path, SECRET, '"ada"')


def test_a_forget_that_is_killed_after_its_tombstone_is_finished(tmp_path: Path) -> None:
    """The tombstone alone is enough: the next start removes what she wrote for others, and tells nobody why."""
    with opened(tmp_path / "other", WORKFLOW) as memory:
        memory.entries.save(memory.session("support", user="ada"), "k", "x")
        memory.users.forget("ada", why="asked to", actor="grace")
    with opened(tmp_path / "one", WORKFLOW) as memory:
        write_together(memory)
    tombstone = f"entries/@ids/{user_hash('ada')}.json"
    put_by_hand(tmp_path / "one/.memory", tombstone, files_under(tmp_path / "other/.memory")[tombstone])

    with opened(tmp_path / "one", WORKFLOW) as memory:
        assert [] == seen(memory, "bob")
    assert [] == files_holding(tmp_path / "one/.memory", SECRET, '"ada"')
    told = list(files_holding(tmp_path / "one/.memory/entries", "grace", "asked to"))
    assert [f"{user_hash('ada')}.json"] == [Path(path).name for path in told]


@pytest.mark.directory("only files can be spoilt by hand")
@pytest.mark.parametrize("broken", ["torn", "folder", "foreign"])
def test_what_cannot_be_read_goes_too(tmp_path: Path, broken: str) -> None:
    """A torn record, a folder in the place of one, and a copy that an editor left: all in her folder is hers."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.entries.save(memory.session("support", user="ada"), "k", SECRET)
        memory.entries.save(memory.session("support", user="bob"), "k", "Bob is on Free")
    record = next((tmp_path / ".memory/entries/support/users" / user_hash("ada")).glob("*.json"))
    torn = record.read_bytes()[:-20]
    if broken == "torn":
        record.write_bytes(torn)
    elif broken == "folder":
        record.unlink()
        record.mkdir()
        (record / "copy").write_bytes(torn)
    else:
        record.with_suffix(".json~").write_bytes(torn)

    with opened(tmp_path, WORKFLOW) as memory:
        memory.users.forget("ada")
        assert ["Bob is on Free"] == seen(memory, "bob")
    assert [] == files_holding(tmp_path / ".memory", SECRET, '"ada"')


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
        assert [] == files_holding(tmp_path / place, SECRET, "r-ada"), place


def test_the_audit_loses_her_runs_after_a_kill_and_on_a_machine_that_has_nothing_of_hers(tmp_path: Path) -> None:
    """The next start takes them out, once; a machine that met the tombstone does, though her entries are gone."""
    with opened(tmp_path / "other", WORKFLOW) as memory:
        memory.users.forget("ada")
    with opened(tmp_path / "one", WORKFLOW) as memory:
        session = memory.session("support", user="ada", run="r-ada", actor="a-ada")
        memory.entries.save(session, "k", "x", call_id="c-ada")
        memory.entries.forget(session, key="k")
    tombstone = f"entries/@ids/{user_hash('ada')}.json"
    put_by_hand(tmp_path / "one/.memory", tombstone, files_under(tmp_path / "other/.memory")[tombstone])
    assert [] != files_holding(tmp_path / "one/.memory/audit", "r-ada", "a-ada", "c-ada")

    with opened(tmp_path / "one", WORKFLOW) as memory:
        assert [] == seen(memory, "bob")
    assert [] == files_holding(tmp_path / "one/.memory/audit", "r-ada", "a-ada", "c-ada")


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


def test_the_orders_of_the_list(tmp_path: Path) -> None:
    """In portions, the latest or the fullest budget first; one user is found by the name."""
    with opened(tmp_path, WORKFLOW) as memory:
        for number, user in enumerate(("ada", "bob", "eve", "ada")):
            time.sleep(0.002)  # changes in one millisecond are ordered by the name
            memory.entries.save(memory.session("support", user=user), f"k{number}", "text")
        latest = memory.users.list(order="updated")
        pages = [memory.users.list(order="updated", limit=2, skip=skip) for skip in (0, 2)]

        assert ["ada", "eve", "bob"] == [each.user for each in latest]
        assert list(latest) == [each for page in pages for each in page]
        assert ["bob", "eve"] == [each.user for each in memory.users.list(skip=1)]
        assert ["eve"] == [each.user for each in memory.users.list(user="eve")]
        assert [] == memory.users.list(user="ev")
        assert [0.6667, 0.3333, 0.3333] == [each.share for each in latest]
        memory.entries.save(memory.session("support", user="bob"), "one", "text")
        memory.entries.save(memory.session("support", user="bob"), "two", "text")
        assert ["bob", "ada"] == [each.user for each in memory.users.list(order="share", limit=2)]
        for wrong in ({"order": "size"}, {"limit": 0}, {"skip": -1}, {"user": ""}, {"level": "NONE"}):
            with pytest.raises(InvalidArgument):
                memory.users.list(**wrong)


def test_a_tombstone_proves_that_a_user_was_forgotten(tmp_path: Path) -> None:
    """By the name, each time she was; the list of all names nobody."""
    with opened(tmp_path, WORKFLOW) as memory:
        for why in ("asked to", "again"):
            memory.entries.save(memory.session("support", user="ada"), "plan", "Pro")
            memory.users.forget("ada", why=why, actor="grace")
        found = memory.users.tombstones("ada")

        assert [("again", "grace"), ("asked to", "grace")] == [(it.why, it.by.actor) for it in found]
        assert found == memory.users.tombstones()
        assert [] == memory.users.tombstones("bob")
        assert "ada" not in json.dumps([it.to_dict() for it in found])


def test_an_export_is_an_archive_where_the_name_says_so(tmp_path: Path) -> None:
    """With the same files as in a folder; the audit says who made it."""
    with opened(tmp_path / "one", WORKFLOW) as memory:
        fill(memory)
        report = memory.users.export("ada", tmp_path / "ada", actor="grace")
        zipped = memory.users.export("ada", tmp_path / "ada.zip")
        [exported, by_grace] = memory.audit(op="export-user").events

        with zipfile.ZipFile(tmp_path / "ada.zip") as archive:
            packed = {name: archive.read(name) for name in archive.namelist()}
        assert packed == {path.name: path.read_bytes() for path in (tmp_path / "ada").iterdir()}
        assert report.files == zipped.files
        assert (None, "grace") == (exported.actor, by_grace.actor)


def test_an_export_as_an_archive_can_be_imported(tmp_path: Path) -> None:
    """A zip archive of the files that a folder would have."""
    with opened(tmp_path / "one", WORKFLOW) as memory:
        session = memory.session("support")
        memory.entries.save(session, "hours", "nine to five")
        memory.entries.export(session, tmp_path / "all.zip", format="zip")
    with opened(tmp_path / "two", WORKFLOW) as memory:
        session = memory.session("support")

        assert 1 == memory.entries.import_(session, tmp_path / "all.zip").added
        assert ["nine to five"] == seen(memory, None)
