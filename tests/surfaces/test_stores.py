"""A workflow in a directory and in PostgreSQL: the same calls and commands, with the same results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

import memfiles
from memfiles.errors import StorageRefused, WorkflowError
from memfiles.records.keys import entry_path, entry_uid
from memfiles.records.record import Actor
from memfiles.storage.events import RecordChanged
from memfiles.storage.home import MemoryHome, home_of
from memfiles.storage.migration import migrate
from memfiles.storage.postgres.migrations import VERSION
from memfiles.sync.status import kept_conflicts, status_on_disk
from memfiles.tools.session import Session
from tests.cli.command_line import Ran, run
from tests.support import ROOT
from tests.support.postgres import OUTSIDER, ROLE, PostgresServer, postgres_server
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

TEXT = """
name: desk
memory:
  {place}
  {mirror}
  files:
    - {{uid: notes-1, name: notes, description: What is known., content: "# Notes\\n"}}
    - {{uid: mine-1, name: mine, content: "# Mine\\n", per: user}}
  entries: {{}}
agents: {{desk: {{memory: [{{id: notes-1, mode: rw}}, {{id: mine-1, mode: rw}}]}}}}
"""
Declare = Callable[..., Path]
AT = "2026-11-21T09:00:00.000Z"
VALUES = {"text": "made-up", "bytea": b"x", "bigint": 1, "integer": 1, "ARRAY": ["a"], "timestamp with time zone": AT}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(params=["directory", pytest.param("postgresql", marks=pytest.mark.slow)])
def declare(request: pytest.FixtureRequest, tmp_path: Path) -> Declare:
    """``declare(mirror)`` writes the workflow of an empty memory; the same one every time."""
    place = "directory: .memory"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("server")
        place = f"store: {json.dumps(server.url(server.workspace()))}"

    def declare(mirror: Path | None = None, *, pull: str = "cold-start") -> Path:
        if mirror is not None:
            mirror.mkdir(exist_ok=True)
        declared = f'mirror: {{url: "file://{mirror}", pull: {pull}}}' if mirror is not None else ""
        return write_workflow(tmp_path / "desk", TEXT.format(place=place, mirror=declared))

    return declare


@pytest.fixture
def opened(declare: Declare) -> Iterator[Callable[..., memfiles.Memory]]:
    """``opened()`` opens the memory once more, until the end of the test."""
    with ExitStack() as stack:

        def opened(mirror: Path | None = None, *, watch: bool = False) -> memfiles.Memory:
            return stack.enter_context(memfiles.open(declare(mirror), watch=watch))

        yield opened


def commands(path: Path) -> Callable[..., Ran]:
    def command(*args: str, stdin: str | None = None) -> Ran:
        return run("-w", str(path), *args, stdin=stdin)

    return command


def until(condition: Callable[[], object], *, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.slow
def test_every_command(declare: Declare, tmp_path: Path) -> None:
    """The whole command line works, says the same, and a command that reads makes nothing."""
    path = declare()
    command = commands(path)
    before = [command(*args).code for args in (("status",), ("plan",), ("read", "notes"), ("audit",), ("stats",))]
    made = sorted(each.name for each in path.parent.iterdir())
    did = [
        command(*args).code
        for args in (
            ("restore",),
            ("append", "notes", "- Bob is on Free\n"),
            ("edit", "notes", "--old", "Free", "--new", "Pro"),
            ("undo", "notes"),
            ("append", "notes", "swordfish"),
            ("redact", "notes", "swordfish"),
            ("append", "mine", "- a\n", "--user", "ada"),
            ("entries", "save", "plan", "Bob is on Free"),
            ("entries", "save", "color", "blue zebra", "--user", "ada"),
            ("entries", "update", "plan", "--content", "Bob is on Pro"),
            ("entries", "undo", "plan"),
            ("entries", "delete", "plan"),
            ("entries", "restore", "plan"),
            ("users", "export", "ada", str(tmp_path / "ada")),
            ("export", str(tmp_path / "export")),
            ("import", str(tmp_path / "export"), "--take-over"),
            ("purge",),
            ("card", "desk"),
            ("tools", "desk"),
            ("check",),
        )
    ]

    assert ([0] * 5, ["workflow.yaml"]) == (before, made)
    assert [0] * 20 == did
    assert "# Notes\n- Bob is on Free\n[redacted]" == command("read", "notes").out
    assert "# Mine\n- a\n" == command("read", "mine", "--user", "ada").out
    assert ["redact", "append", "undo", "edit", "append", "seed"] == [
        change["op"] for change in command("--json", "log", "notes").data["changes"]
    ]
    assert "+- Bob is on Free" in command("diff", "notes", "1", "2").out
    found = command("--json", "call", "desk", "memory_search", json.dumps({"query": "bob"})).data
    assert ["plan"] == [each["key"] for each in found["data"]["results"]]
    assert ["plan"] == [each["key"] for each in command("--json", "entries", "list").data["memories"]]
    assert ["ada"] == [each["user"] for each in command("--json", "users", "list").data["users"]]
    ops = [event["op"] for event in command("--json", "audit").data["events"]]
    assert {"append", "edit", "undo", "redact", "save", "update", "delete", "restore", "export"} <= {*ops}
    assert (1, 0) == (
        command("--json", "stats").data["entries"][0]["users"],
        command("users", "forget", "ada", "--yes").code,
    )
    assert [] == command("--json", "users", "list").data["users"]
    assert 0 == command("entries", "forget", "--key", "plan", "--yes").code
    doctor = command("--json", "doctor").data
    assert [] == [check for check in doctor["checks"] if check["state"] == "fail"]
    status = command("--json", "status").data
    assert (0, 0, True) == (status["entries"]["entries"], status["quarantined"], status["exists"])
    is_store = status["directory"] is None
    assert is_store == (not (path.parent / ".memory").exists())
    if is_store:
        assert (VERSION, True) == (status["store"]["schema_version"], status["store"]["may_erase"])


def test_sessions_of_several_memories(opened: Callable[..., memfiles.Memory]) -> None:
    """Each sees what the other did before: files, entries, prompt, users and levels."""
    one, other = opened(), opened()
    ann, bob = one.session("desk"), other.session("desk")
    ann.call("append_memory", {"file": "notes", "content": "- Ada likes tea\n"})
    bob.call("memory_save", {"key": "tea", "content": "zebra tea"})
    bob.call("append_memory", {"file": "notes", "content": "- Bob too\n"})
    found = keys(ann)
    mine = one.session("desk", user="ada")
    mine.call("memory_save", {"key": "mine", "content": "zebra of ada"})

    assert "# Notes\n- Ada likes tea\n- Bob too\n" == bob.call("read_memory", {"file": "notes"}).text
    assert ["tea"] == found == keys(bob)
    assert "zebra tea" in ann.system_prompt() and "zebra" in ann.recall("zebra").text
    assert ann.system_prompt() == bob.system_prompt()
    assert ["mine", "tea"] == keys(other.session("desk", user="ada"))
    one.users.forget("ada", why="asked to")
    again = other.session("desk", user="ada")
    assert (None, 1) == (other.entries.get(again, "mine"), len(other.users.tombstones("ada")))


def keys(session: Session) -> list[str]:
    """The keys of the entries that say something of zebras."""
    found = session.call("memory_search", {"query": "zebra"}).data
    assert found is not None
    return sorted(each["key"] for each in found["results"])


def test_who_watches_hears_of_the_others(opened: Callable[..., memfiles.Memory]) -> None:
    """A change by another memory is told to subscribers, with its origin."""
    one, other = opened(watch=True), opened()
    heard: list[RecordChanged] = []
    one.manager.subscribe(heard.append)
    other.manager.append("notes", "- hello\n")
    other.session("desk").call("memory_save", {"key": "tea", "content": "green"})

    assert until(lambda: {"notes", "tea"} <= {event.name for event in heard})
    assert {"process"} == {event.origin for event in heard}


def test_a_mirror_works_with_either(opened: Callable[..., memfiles.Memory], declare: Declare, tmp_path: Path) -> None:
    """What two memories of one place write is in the mirror, merged with what others put there."""
    mirror = tmp_path / "mirror"
    one, other = opened(mirror), opened(mirror)
    one.manager.append("notes", "- one\n")
    other.session("desk").call("memory_save", {"key": "tea", "content": "green"})
    assert one.sync.flush() and other.sync.flush()
    elsewhere = write_workflow(
        tmp_path / "elsewhere", TEXT.format(place="directory: .memory", mirror=f'mirror: {{url: "file://{mirror}"}}')
    )
    with memfiles.open(elsewhere, watch=False) as third:
        third.manager.append("notes", "- third\n")
        third.entries.save(third.session("desk"), "coffee", "black")
        assert third.sync.flush()
    other.manager.append("notes", "- other\n")
    report = one.sync.pull()

    assert (0, []) == (one.sync.status().pending, kept_conflicts(one.workflow.place))
    assert not report.pending
    lines = one.manager.read("notes").splitlines()
    assert ["# Notes", "- one", "- other", "- third"] == sorted(lines) and len(lines) == 4
    assert other.manager.read("notes") == one.manager.read("notes")
    assert "black" == other.entries.get(other.session("desk"), "coffee").content  # type: ignore[union-attr]
    assert other.sync.flush() and (mirror / "notes-1.json").read_bytes() == _record(one, "notes-1.json")
    told = status_on_disk(one.workflow)
    assert (0, None) == (told.pending, told.last_error)


def test_a_conflict_is_kept_and_settled(opened: Callable[..., memfiles.Memory], tmp_path: Path) -> None:
    """The losing copy is shown with its text, taken back as a change, and removed then."""
    mirror = tmp_path / "mirror"
    one = opened(mirror)
    one.manager.append("notes", "- color: blue\n")
    assert one.sync.flush()
    elsewhere = write_workflow(
        tmp_path / "elsewhere", TEXT.format(place="directory: .memory", mirror=f'mirror: {{url: "file://{mirror}"}}')
    )
    with memfiles.open(elsewhere, watch=False) as third:
        third.manager.edit("notes", "blue", "green")
        assert third.sync.flush()
    one.manager.edit("notes", "blue", "red")
    one.sync.pull()
    (conflict,) = one.sync.conflicts()
    done = one.sync.resolve("notes", take="copy", by=Actor(actor="grace"))

    assert ("notes", "open", True) == (conflict.name, conflict.state, "green" in conflict.content)
    assert ([], True, done.revision) == (one.sync.conflicts(), "green" in one.manager.read("notes"), done.revision)
    assert "resolve" in [event.op for event in one.audit().events]


def test_what_is_forgotten_is_in_no_table(
    opened: Callable[..., memfiles.Memory], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Neither in records, kept copies, the ledger of the mirror nor the audit; nor in the mirror."""
    mirror = tmp_path / "mirror"
    memory = opened(mirror)
    session = memory.session("desk")
    memory.entries.save(session, "secret", "xylophone quagmire")
    assert memory.sync.flush()
    memory.entries.save(session, "secret", "xylophone quagmire two")
    assert memory.sync.flush()
    memory.entries.forget(session, key="secret", why="asked to")
    assert memory.sync.flush()
    memory.manager.append("notes", "the password is quagmire\n")
    assert memory.sync.flush()
    memory.manager.redact("notes", "quagmire")
    assert memory.sync.flush()

    assert [] == [path for path in mirror.rglob("*.json") if b"quagmire" in path.read_bytes()]
    if isinstance(memory.workflow.place, str):
        server: PostgresServer = request.getfixturevalue("server")
        assert [] == server.pages_holding(b"quagmire")


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
    assert _records(source) == _records(back) == _records(there)
    assert [("notes-1.json", "why", AT, "local")] == [it[1:] for it in back.kept.notes("conflicts")]
    assert _lines(source) == _lines(back)


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
            found += [body for path, body in _records(home_of(tmp_path / "there")).items() if b'"k"' in body]
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
        held = b"".join(_records(home_of(tmp_path / "there")).values())
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
    assert b"quagmire" not in b"".join(_records(home_of(tmp_path / "there")).values())


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
    for number, (path, body) in enumerate(_records(source).items()):
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
    everything = b"".join([*_records(there).values(), *_lines(there)])
    assert (False, False) == (b"quagmire" in everything, b"run-of-ada" in everything)
    assert sorted(_lines(source)) == sorted(_lines(there))


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

    assert (True, 2) == (done.is_complete, _records(there)["notes-1.json"].count(b"- 2\\n"))


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

    assert (2, True) == (blank.code, "--to is blank" in blank.err)
    assert (2, True, False) == (empty.code, "nothing is kept" in empty.err, (tmp_path / "there").exists())
    assert (2, True) == (same.code, "there already" in same.err)
    if isinstance(place, Path):
        nested = [command("migrate", "--to", str(each)) for each in (place / "copy", place.parent)]
        assert [(2, True)] * 2 == [(each.code, "of its own" in each.err) for each in nested]
        assert {".memory", "workflow.yaml"} == {each.name for each in place.parent.iterdir()}


@pytest.mark.slow
def test_a_wrong_role_sees_nothing_of_a_workspace(server: PostgresServer, tmp_path: Path) -> None:
    """Not in any table, and it is refused; a store that cannot be reached says so."""
    workspace = server.workspace()
    text = TEXT.format(place=f"store: {json.dumps(server.url(workspace))}", mirror="")
    with memfiles.open(write_workflow(tmp_path / "own", text), watch=False) as memory:
        memory.manager.append("notes", "- hello\n")
        memory.entries.save(memory.session("desk"), "tea", "green")
    wrong = text.replace("user=memfiles_app", f"user={OUTSIDER}")
    with pytest.raises(StorageRefused, match="does not belong to the workspace"):
        memfiles.open(write_workflow(tmp_path / "wrong", wrong))
    command = commands(tmp_path / "wrong" / "workflow.yaml")
    tables = ("records", "commits", "audit", "quarantine", "notes", "lease", "mirror_meta", "mirror_note")
    with server.admin() as admin:
        counts = [admin.execute(f"SELECT count(*) FROM memfiles.{it}").fetchone() for it in tables[:3]]
        admin.execute(f"SET ROLE {OUTSIDER}")
        seen = [admin.execute(f"SELECT count(*) FROM memfiles.{it}").fetchone() for it in tables]
        with pytest.raises(Exception, match="row-level security"):
            admin.execute("INSERT INTO memfiles.lease VALUES (%s, 1, now())", (workspace,))
        admin.execute("RESET ROLE")
    gone = commands(write_workflow(tmp_path / "gone", text.replace("host=", "host=%2Fnowhere")))("--json", "doctor")

    assert [(0,)] * 8 == seen and (0,) not in counts
    assert [1, 1] == [command("read", "notes").code, command("doctor").code]
    assert (1, "fail") == (gone.code, gone.data["checks"][-1]["state"])


@pytest.mark.slow
def test_row_level_security_is_on_every_table_of_a_workspace(server: PostgresServer) -> None:
    """The catalog names the tables, so none is left out: a row of another's workspace is not seen, changed or made."""
    workspace, seen = server.workspace(), {}
    with server.admin() as admin:
        columns = admin.execute(
            "SELECT table_name, array_agg(column_name::text || ' ' || data_type) FROM information_schema.columns"
            " WHERE table_schema = 'memfiles' AND is_nullable = 'NO' AND is_identity = 'NO'"
            " AND (column_default IS NULL OR column_name = 'workspace')"
            " GROUP BY 1 HAVING bool_or(column_name = 'workspace') AND table_name <> 'members' ORDER BY 1"
        ).fetchall()
        for table, needed in columns:
            names, kinds = zip(*(each.split(" ", 1) for each in needed), strict=True)
            values = [
                workspace if name == "workspace" else VALUES[kind] for name, kind in zip(names, kinds, strict=True)
            ]
            row = f"INSERT INTO memfiles.{table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
            admin.execute("SELECT set_config('memfiles.workspace', %s, false)", (workspace,))
            admin.execute(row, values)
            admin.execute(f"SET ROLE {OUTSIDER}")
            count = admin.execute(f"SELECT count(*) FROM memfiles.{table}").fetchone()
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                admin.execute(row, [f"{value}2" if value == "made-up" else value for value in values])
            admin.execute("RESET ROLE")
            seen[table] = (admin.execute(f"SELECT count(*) FROM memfiles.{table}").fetchone() != (0,), count)

    assert {"records", "commits", "audit", "quarantine", "notes", "lease", "mirror_meta", "mirror_note"} <= seen.keys()
    assert dict.fromkeys(seen, (True, (0,))) == seen


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("store: 'postgresql://host/db', directory: .memory", "there is no directory of them"),
        ("store: 'postgresql://host/db', directory: other", "there is no directory of them"),
        ("store: 'postgresql://ada:secret@host/db'", "contains a password"),
        ("store: 'postgresql://host/db?password=secret'", "contains a password"),
        ("store: 'mysql://host/db'", "must be a URL such as postgresql://host/database"),
        ("cache: .cache", "only a store needs this"),
    ],
)
def test_a_declaration_that_cannot_be(declared: str, why: str) -> None:
    """The problem is told with its place, and never with a password."""
    with pytest.raises(WorkflowError, match=why) as told:
        memfiles.Workflow.parse(f"name: desk\nmemory: {{{declared}}}")

    assert "secret" not in str(told.value)


def test_a_store_needs_the_name_of_a_workspace() -> None:
    """The name of the workflow, or one in the URL; that of the file may differ on each machine."""
    with pytest.raises(WorkflowError, match="give the workflow a name"):
        memfiles.Workflow.parse("memory: {store: 'postgresql://host/db'}")
    named = memfiles.Workflow.parse("name: a desk\nmemory: {store: 'postgresql://host/db?schema=x'}")
    given = memfiles.Workflow.parse("memory: {store: 'postgresql://host/db?workspace=y'}")

    assert "postgresql://host/db?schema=x&workspace=a%20desk" == named.place
    assert "postgresql://host/db?workspace=y" == given.place


@pytest.mark.slow
def test_a_purge_removes_old_notes_of_commits(server: PostgresServer, tmp_path: Path) -> None:
    """The store needs them for a day; the search that comes next finds everything all the same."""
    place = f"store: {json.dumps(server.url(workspace := server.workspace()))}"
    path = write_workflow(tmp_path, TEXT.format(place=place, mirror=""))
    with memfiles.open(path, watch=False) as memory, server.admin() as admin:
        session = memory.session("desk")
        memory.entries.save(session, "tea", "green")
        count = "SELECT count(*) FROM memfiles.commits WHERE workspace = %s AND paths <> '{}'"
        before = admin.execute(count, (workspace,)).fetchone()
        admin.execute("UPDATE memfiles.commits SET at = at - interval '2 days' WHERE workspace = %s", (workspace,))
        memory.purge()
        after = admin.execute(count, (workspace,)).fetchone()
        found = [match.found.key for match in memory.entries.search(session, "green").matches]

    assert ((2,), (0,), ["tea"]) == (before, after, found)


@pytest.mark.slow
def test_a_purge_ends_well_where_notes_of_commits_stay(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A role from before notes were removed may not remove them: that is said, and all else is done."""
    place = f"store: {json.dumps(server.url(server.workspace()))}"
    path = write_workflow(tmp_path, TEXT.format(place=place, mirror=""))
    with memfiles.open(path, watch=False) as memory, server.admin() as admin:
        memory.entries.save(memory.session("desk"), "tea", "green")
        admin.execute(f"REVOKE DELETE ON memfiles.commits FROM {ROLE}")
        try:
            purged = memory.purge()
        finally:
            admin.execute(f"GRANT DELETE ON memfiles.commits TO {ROLE}")

    assert (0, 0) == (purged.expired, purged.deleted)
    assert "old notes of commits are not removed yet" in caplog.text


def test_nothing_of_psycopg_is_loaded_without_a_store(tmp_path: Path) -> None:
    """A memory in a directory is opened, used, searched and closed without it."""
    path = write_workflow(
        tmp_path, TEXT.format(place="directory: .memory", mirror=f'mirror: {{url: "file://{tmp_path}/mirror"}}')
    )
    (tmp_path / "mirror").mkdir()
    program = """
import sys, memfiles
with memfiles.open(sys.argv[1]) as memory:
    session = memory.session("desk")
    session.call("memory_save", {"key": "tea", "content": "green"})
    session.call("memory_search", {"query": "green"})
    memory.audit(); memory.stats(); memory.status(); memory.sync.flush(); memory.users.list()
print([name for name in sys.modules if name.startswith(("psycopg", "memfiles.storage.postgres."))])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "[]\n" == done.stdout


def _record(memory: memfiles.Memory, path: str) -> bytes:
    found = memory.manager.records.find(path)
    assert found is not None
    return found[0]


def _records(home: MemoryHome) -> dict[str, bytes]:
    with home.reading() as records:
        assert records is not None
        found = {path: records.find(path) for path in records.changes().records}
    return {path: each[0] for path, each in found.items() if each is not None}


def _lines(home: MemoryHome) -> list[bytes]:
    return [line for _, _, line in home.audit.backwards(lambda _: True) if line]
