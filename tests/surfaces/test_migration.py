"""Migrations of a whole memory to another directory or store: what is taken, what is left, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import memfiles
from memfiles.records.keys import entry_path, entry_uid
from memfiles.storage.home import home_of
from memfiles.storage.migration import migrate
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.workflows import write_workflow
from tests.surfaces.desk import AT, TEXT, Declare, commands, lines_of, records_of

pytestmark = pytest.mark.slow


def test_a_migration_takes_everything_and_can_be_repeated(
    declare: Declare, tmp_path: Path, server: PostgresServer
) -> None:
    """Records byte for byte, kept copies, conflicts and the audit; there and back again."""
    with memfiles.open(declare(), watch=False) as memory:
        session = memory.session("desk")
        memory.manager.append("notes", "- hello\n")
        memory.entries.save_many(
            session, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(120)]
        )
        memory.entries.forget(session, key="k7")
        memory.entries.delete(session, "k8")
    source, there = home_of(memory.workflow.place), home_of(server.url(server.workspace()))
    source.kept.keep("notes-1.json", b"broken", reason="why", at=AT, folder="conflicts", lost="local")
    back, seen = home_of(tmp_path / "back"), []
    first = migrate(source, there, now=lambda: AT, progress=lambda *done: seen.append(done))
    again = migrate(source, there, now=lambda: AT)
    returned = migrate(there, back, now=lambda: AT)

    assert (first.records, 0) == (first.copied, again.copied)
    assert [True] * 3 == [first.is_complete, again.is_complete, returned.is_complete]
    assert ((first.records, first.records), 1, 0) == (seen[-1], first.kept, again.kept)
    assert (True, 0) == (first.audit_lines >= 3, again.audit_lines)
    assert records_of(source) == records_of(back) == records_of(there)
    assert [("notes-1.json", "why", AT, "local")] == [it[1:] for it in back.kept.notes("conflicts")]
    assert lines_of(source) == lines_of(back)


def test_a_migration_has_no_two_kept_copies_in_memory(declare: Declare, tmp_path: Path) -> None:
    """Each may have 64 MiB; they are told apart all the same, also by a repeated migration."""
    with memfiles.open(declare(), watch=False) as memory:
        memory.manager.append("notes", "- hello\n")
    source, there = home_of(memory.workflow.place), home_of(tmp_path / "there")
    for number in range(24):
        source.kept.keep("notes-1.json", bytes(4 << 20) + b"%d" % number, reason="why", at=AT, folder="conflicts")
    first = migrate(source, there, now=lambda: AT)
    tracemalloc.start()
    again = migrate(source, there, now=lambda: AT)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (24, 0, 24) == (first.kept, again.kept, len(there.kept.notes("conflicts")))
    assert most < 100 << 20, most  # a read takes room for the largest record, 64 MiB


def test_a_migration_leaves_what_is_newer(declare: Declare, tmp_path: Path) -> None:
    """A record that was changed in the target since is told, and stays; what cannot be read is told as well."""
    path, command = declare(), commands(declare())
    assert [0, 0] == [command(*args).code for args in (("restore",), ("migrate", "--to", str(tmp_path / "there")))]
    with memfiles.open(path, watch=False) as memory:
        memory.manager.append("notes", "- changed here\n")
    assert 0 == command("migrate", "--to", str(tmp_path / "there")).code
    elsewhere = write_workflow(tmp_path / "new", TEXT.format(place="directory: ../there", mirror=""))
    with memfiles.open(elsewhere, watch=False) as memory:
        assert "# Notes\n- changed here\n" == memory.manager.read("notes")
        memory.manager.append("notes", "- changed there\n")
    left = command("--json", "migrate", "--to", str(tmp_path / "there"))

    assert (4, ["notes-1.json"]) == (left.code, left.data["newer"])
    with memfiles.open(elsewhere, watch=False) as memory:
        assert "# Notes\n- changed here\n- changed there\n" == memory.manager.read("notes")


def test_a_migration_leaves_what_was_changed_there_as_well(declare: Declare, tmp_path: Path) -> None:
    """A line that was acknowledged in the target stays, however often the source was changed since; others go on."""
    command = commands(declare())
    elsewhere = write_workflow(tmp_path / "new", TEXT.format(place="directory: ../there", mirror=""))
    with memfiles.open(elsewhere, watch=False):
        pass  # its seeds are nobody's change
    with memfiles.open(declare(), watch=False) as memory:
        memory.manager.append("notes", "- before\n")
        memory.entries.save_many(session := memory.session("desk"), [{"key": it, "content": "one"} for it in "abc"])
    assert 0 == command("migrate", "--to", str(tmp_path / "there")).code
    with memfiles.open(elsewhere, watch=False) as memory:
        memory.manager.append("notes", "- changed there\n")
        memory.entries.update(memory.session("desk"), "a", content="changed there")
    with memfiles.open(declare(), watch=False) as memory:
        session = memory.session("desk")
        for number in range(3):
            memory.manager.append("notes", f"- changed here {number}\n")
            memory.entries.update(session, "a", content=f"changed here {number}")
        for number in range(120):  # more than a history holds
            memory.entries.update(session, "b", content=f"changed here {number}")
    left = command("--json", "migrate", "--to", str(tmp_path / "there"))

    assert (4, 2, "notes-1.json") == (left.code, len(left.data["newer"]), left.data["newer"][1])
    with memfiles.open(elsewhere, watch=False) as memory:
        session = memory.session("desk")
        found = {key: each.content for key in "abc" if (each := memory.entries.get(session, key)) is not None}
        assert "# Notes\n- before\n- changed there\n" == memory.manager.read("notes")
        assert {"a": "changed there", "b": "changed here 119", "c": "one"} == found


def test_a_migration_takes_what_a_run_saved_after_the_one_before_it_ended(declare: Declare, tmp_path: Path) -> None:
    """Its entry begins at revision 1 again, while the target has one of the run before at revision 3."""
    command, found = commands(declare()), []
    with memfiles.open(declare(), watch=False) as memory:
        for contents in (["one", "two", "three"], ["four"]):
            session = memory.session("desk", run="r-1")
            for content in contents:
                memory.entries.save(session, "k", content, category="conversation")
            assert 0 == command("migrate", "--to", str(tmp_path / "there")).code
            found += [body for path, body in records_of(home_of(tmp_path / "there")).items() if b'"k"' in body]
            session.close()

    assert [b'"content":"three"', b'"content":"four"'] == [re.findall(rb'"content":"[a-z]+"', it)[0] for it in found]


@pytest.mark.parametrize("later", ["updated", "renamed"])
@pytest.mark.parametrize("there", ["forgotten", "renamed"])
def test_a_migration_leaves_what_was_forgotten_or_renamed_there(
    there: str, later: str, declare: Declare, tmp_path: Path
) -> None:
    """However often the source changed it since; an entry that the source renamed and brought back is taken again."""
    command = commands(declare())
    elsewhere = write_workflow(tmp_path / "new", TEXT.format(place="directory: ../there", mirror=""))
    with memfiles.open(declare(), watch=False) as memory:
        memory.entries.save_many(memory.session("desk"), [{"key": it, "content": "quagmire"} for it in "kb"])
        memory.entries.relocate(memory.session("desk"), {"b": "away"})
    assert 0 == command("migrate", "--to", str(tmp_path / "there")).code
    with memfiles.open(elsewhere, watch=False) as memory:
        if there == "forgotten":
            memory.entries.forget(memory.session("desk"), key="k")
        else:
            memory.entries.relocate(memory.session("desk"), {"k": "other"})
    with memfiles.open(declare(), watch=False) as memory:
        session = memory.session("desk")
        for number in range(120):  # more than a history holds
            memory.entries.update(session, "k", content=f"quagmire {number}")
        if later == "renamed":
            memory.entries.relocate(session, {"k": "new"})
        memory.entries.relocate(session, {"away": "b"})
    left = command("--json", "migrate", "--to", str(tmp_path / "there"))

    with memfiles.open(elsewhere, watch=False) as memory:
        found = {each.key: each.content for each in memory.entries.list(memory.session("desk")).memories}
    assert ({"b": "quagmire"}, {"k"}) == ({key: found[key] for key in "b"}, {"k"} - found.keys())
    if there == "forgotten":
        assert (["b"], 4) == ([*found], left.code)
        held = b"".join(records_of(home_of(tmp_path / "there")).values())
        assert 1 == held.count(b'"content":"quagmire')


def test_a_migration_leaves_what_was_changed_there_where_the_source_has_no_entry_any_more(
    declare: Declare, tmp_path: Path
) -> None:
    """An entry that the source renamed, forgot or erased gives way there, but for what was acknowledged there since."""
    command = commands(declare())
    elsewhere = write_workflow(tmp_path / "new", TEXT.format(place="directory: ../there", mirror=""))
    with memfiles.open(declare(), watch=False) as memory:
        before = dict.fromkeys(("renamed", "changed", "forgotten", "lost"), "one")
        memory.entries.save_many(memory.session("desk"), [{"key": key, "content": it} for key, it in before.items()])
    assert 0 == command("migrate", "--to", str(tmp_path / "there")).code
    with memfiles.open(elsewhere, watch=False) as memory:
        session = memory.session("desk")
        memory.entries.update(session, "changed", content="changed there")
        memory.entries.update(session, "lost", content="quagmire of there")
        memory.entries.save(session, "reused", "saved there")
    with memfiles.open(declare(), watch=False) as memory:
        session = memory.session("desk")
        for content in ("one", "two", "three"):
            memory.entries.save(session, "reused", f"quagmire {content}")
            memory.entries.update(session, "changed", content=content)
        memory.entries.relocate(session, {"renamed": "new name", "changed": "new"})
        for key in ("forgotten", "lost", "reused"):
            memory.entries.forget(session, key=key)
    left = command("--json", "migrate", "--to", str(tmp_path / "there"))

    with memfiles.open(elsewhere, watch=False) as memory:
        found = {each.key: each.content for each in memory.entries.list(memory.session("desk")).memories}
    paths = {entry_path("desk", entry_uid("desk", "PUBLIC", key)) for key in ("changed", "new", "reused")}
    assert {"changed": "changed there", "new name": "one", "reused": "saved there"} == found
    assert (4, True) == (left.code, paths <= {*json.loads(left.out)["newer"]})
    assert b"quagmire" not in b"".join(records_of(home_of(tmp_path / "there")).values())


@pytest.mark.parametrize("kind", ["directory", "postgresql"])
def test_a_repeated_migration_removes_what_was_taken_away_since(
    kind: str, declare: Declare, tmp_path: Path, server: PostgresServer
) -> None:
    """Kept copies lose what was redacted or forgotten; the audit has each event once, without her runs."""
    with memfiles.open(declare(), watch=False) as memory:
        ada = memory.session("desk", user="ada", run="run-of-ada")
        memory.entries.save(ada, "hers", "quagmire of hers")
        memory.manager.append("mine", "quagmire of a file\n", user="ada")
        memory.entries.save(memory.session("desk"), "k", "quagmire of an entry")
        memory.entries.save(memory.session("desk"), "stays", "what stays")
        memory.manager.append("notes", "- quagmire of notes\n")
    there = home_of(tmp_path / "there" if kind == "directory" else server.url(server.workspace()))
    source = home_of(memory.workflow.place)
    for number, (path, body) in enumerate(records_of(source).items()):
        folder = ("conflicts", "quarantine")[number % 2]
        source.kept.keep(path, body, reason="why", at=AT, folder=folder)
    migrate(source, there, now=lambda: AT)
    with memfiles.open(declare(), watch=False) as memory:
        memory.manager.redact("notes", "quagmire of notes")
        memory.entries.forget(memory.session("desk"), key="k")
        memory.users.forget("ada")
    done = migrate(source, there, now=lambda: AT)
    text = TEXT.format(place=f"{'directory' if kind == 'directory' else 'store'}: {json.dumps(there.title)}", mirror="")
    with memfiles.open(write_workflow(tmp_path / "new", text), watch=False) as memory:
        assert [1, 1] == [len(memory.users.tombstones()), len(memory.entries.list(memory.session("desk")).memories)]

    kept = [it.kept for folder in ("conflicts", "quarantine") for it in there.kept.notes(folder)]
    assert (True, []) == (done.is_complete, done.newer)
    assert [] == [name for name in kept if b"quagmire" in (there.kept.read(name) or b"")]
    assert 1 == sum(b"what stays" in (there.kept.read(name) or b"") for name in kept)
    everything = b"".join([*records_of(there).values(), *lines_of(there)])
    assert (False, False) == (b"quagmire" in everything, b"run-of-ada" in everything)
    assert sorted(lines_of(source)) == sorted(lines_of(there))


def test_a_migration_takes_what_is_in_the_journal_of_a_dead_process_alone(tmp_path: Path) -> None:
    """A power cut can leave an earlier version in the file of a record: the journal has what was acknowledged."""
    path = write_workflow(tmp_path / "desk", TEXT.format(place="directory: .memory", mirror=""))
    record, there = tmp_path / "desk/.memory/notes-1.json", home_of(tmp_path / "there")
    write = "import memfiles, os, sys; notes = memfiles.open(sys.argv[1], watch=False).manager"
    append = "[notes.append('notes', f'- {number}\\n') for number in range(3)]"
    keep = "os.link(sys.argv[2], sys.argv[2] + '.before')"
    script = f"{write}; {append}; {keep}; {append}; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(path), str(record)], cwd=ROOT, check=False)
    record.with_name("notes-1.json.before").replace(record)
    done = migrate(home_of(tmp_path / "desk/.memory"), there, now=lambda: AT)

    assert (True, 2) == (done.is_complete, records_of(there)["notes-1.json"].count(b"- 2\\n"))


def test_a_program_that_has_the_target_open_finds_what_a_migration_brings(declare: Declare, tmp_path: Path) -> None:
    """At once, also if it watches nothing: as after any other process's change."""
    with memfiles.open(declare(), watch=False) as memory:
        memory.entries.save(memory.session("desk"), "k", "a zebra")
    elsewhere = write_workflow(tmp_path / "new", TEXT.format(place="directory: ../there", mirror=""))
    with memfiles.open(elsewhere, watch=False) as there:
        session = there.session("desk")
        before = len(there.entries.search(session, "zebra").matches)
        assert 0 == commands(declare())("migrate", "--to", str(tmp_path / "there")).code
        found = len(there.entries.search(session, "zebra").matches)
        there.manager.append("notes", "- hello\n")
        changes = [change.op for change in there.manager.log("notes")]

    assert (0, 1) == (before, found)
    assert ["append", "seed"] == changes  # a file that nobody had changed is not replaced under it


def test_a_migration_does_not_take_a_change_for_a_redacted_one_of_the_same_millisecond(tmp_path: Path) -> None:
    """The redacted text may have been any, and so the target's: one change alone does not tell."""
    paths = [write_workflow(tmp_path / name, TEXT.format(place="directory: .memory", mirror="")) for name in "ab"]
    with memfiles.open(paths[0], watch=False) as source:
        source.manager.append("notes", "- quagmire\n")
        source.manager.redact("notes", "quagmire")
        source.manager.append("notes", "- last\n")
        (redacted,) = [it.at for it in source.manager.log("notes") if it.op == "append" and it.redacted]
    with memfiles.open(paths[1], watch=False) as target:
        target.manager.append("notes", "- of the target\n")
        target.manager.append("notes", "- again\n")
        at = target.manager.log("notes")[0].at
    record = tmp_path / "b/.memory/notes-1.json"
    record.write_text(record.read_text().replace(at, redacted))
    places = [home_of(path.parent / ".memory") for path in paths]
    left = migrate(*places, now=lambda: AT).newer

    assert (["notes-1.json"], True) == (left, "- of the target" in record.read_text())


def test_nothing_to_migrate_and_the_same_place_are_refused(declare: Declare, tmp_path: Path) -> None:
    """Nothing is made then."""
    path, command = declare(), commands(declare())
    empty = command("migrate", "--to", str(tmp_path / "there"))
    assert 0 == command("restore").code
    place = memfiles.Workflow.load(path).place
    same, blank = command("migrate", "--to", str(place)), command("migrate", "--to", " ")

    bucket = command("migrate", "--to", "s3://ada:pass@bucket/desk")
    made = {each.name for each in tmp_path.iterdir()}

    assert (2, True) == (blank.code, "--to is blank" in blank.err)
    assert (2, True, False) == (bucket.code, "s3:// is not a store" in bucket.err, "pass" in bucket.err)
    assert not any("s3:" in name for name in {*made, *os.listdir()})
    assert (2, True, False) == (empty.code, "nothing is kept" in empty.err, (tmp_path / "there").exists())
    assert (2, True) == (same.code, "there already" in same.err)
    if isinstance(place, Path):
        nested = [command("migrate", "--to", str(each)) for each in (place / "copy", place.parent)]
        assert [(2, True)] * 2 == [(each.code, "of its own" in each.err) for each in nested]
        assert {".memory", "workflow.yaml"} == {each.name for each in place.parent.iterdir()}
