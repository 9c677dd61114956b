"""A workflow in a directory and in PostgreSQL: the same calls and commands, with the same results."""

from __future__ import annotations

import json
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
from memfiles.records.record import Actor
from memfiles.storage.events import RecordChanged
from memfiles.storage.home import home_of
from memfiles.storage.postgres.migrations import VERSION
from memfiles.sync.status import kept_conflicts, status_on_disk
from memfiles.tools.session import Session
from tests.conftest import unavailable
from tests.support import ROOT
from tests.support.postgres import OUTSIDER, ROLE, PostgresServer, postgres_server
from tests.support.workflows import write_workflow
from tests.surfaces.desk import AT, TEXT, Declare, commands

pytestmark = pytest.mark.slow

VALUES = {"text": "made-up", "bytea": b"x", "bigint": 1, "integer": 1, "ARRAY": ["a"], "timestamp with time zone": AT}


@pytest.fixture
def opened(declare: Declare) -> Iterator[Callable[..., memfiles.Memory]]:
    """``opened()`` opens the memory once more, until the end of the test."""
    with ExitStack() as stack:

        def opened(mirror: Path | None = None, *, watch: bool = False) -> memfiles.Memory:
            return stack.enter_context(memfiles.open(declare(mirror), watch=watch))

        yield opened


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


def test_a_user_who_came_back_keeps_her_runs_in_the_audit(opened: Callable[..., memfiles.Memory]) -> None:
    """Whoever opens the memory next takes out the runs from before she was forgotten, if nobody did, and no others."""
    one = opened()
    for run in ("before", "since"):
        one.entries.save(one.session("desk", user="ada", run=run), "plan", "Pro")
        if run == "before":
            one.users.forget("ada")
    other = opened()
    other.entries.list(other.session("desk", user="bob"))
    runs = [event.run for event in other.audit().events if event.op == "save"]

    assert ["since", ""] == runs


def test_soon_after_a_sweep_a_start_opens_no_entries(declare: Declare) -> None:
    """Of a store they cost an index; only a forget of a dead process is finished by whoever comes next."""
    path, are_open = declare(), []
    for number in range(3):
        with memfiles.open(path, watch=False) as memory:
            memory.manager.append("notes", "- hello\n")
            are_open.append(memory._entries._entries is not None)
            if number == 1 and isinstance(memory.workflow.place, str):
                home_of(memory.workflow.place).notes.note_forgets({"entries/desk/1.json": 1})

    assert [True, False, isinstance(memory.workflow.place, str)] == are_open


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
    """A role from before notes were removed may not remove them: that is said, also by doctor, and all else is done."""
    place = f"store: {json.dumps(server.url(server.workspace()))}"
    path = write_workflow(tmp_path, TEXT.format(place=place, mirror=""))
    with memfiles.open(path, watch=False) as memory, server.admin() as admin:
        memory.entries.save(memory.session("desk"), "tea", "green")
        admin.execute(f"REVOKE DELETE ON memfiles.commits FROM {ROLE}")
        try:
            purged, doctor = memory.purge(), commands(path)("doctor")
        finally:
            admin.execute(f"GRANT DELETE ON memfiles.commits TO {ROLE}")

    assert (1, True) == (doctor.code, f"store rights: {ROLE} lacks delete on commits; the owner" in doctor.out)
    assert (0, 0) == (purged.expired, purged.deleted)
    assert "old notes of commits are not removed yet" in caplog.text


@pytest.mark.slow
def test_a_memory_closes_soon_while_the_server_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All questions of a close together wait as long as one, also those for the mirror; what was not done is said."""
    with postgres_server() as own:
        if own.folder is None:
            unavailable("MEMFILES_TEST_DSN names a server that is not ours")
        (tmp_path / "mirror").mkdir()
        place = f"store: {json.dumps(own.url(own.workspace()))}"
        text = TEXT.format(place=place, mirror=f'mirror: {{url: "file://{tmp_path}/mirror"}}')
        with memfiles.open(write_workflow(tmp_path, text)) as memory:
            memory.entries.save(memory.session("desk", run="r1"), "tea", "green")
            assert memory.sync.flush()
            monkeypatch.setattr("memfiles.storage.postgres.connections.PATIENCE_SECONDS", 2.0)
            memory.manager.append("notes", "one\n")
            own.stop()
            begun = time.monotonic()
        took = time.monotonic() - begun
    warned = {record.getMessage().partition(":")[0] for record in caplog.records}

    assert took < 5
    assert warned >= {
        "entries of run r1 were not removed and will expire",
        "content whose time is over is not erased yet; it is tried again later",
        "a change by others may not have been noticed before the memory closed",
    }


@pytest.mark.slow
def test_a_worker_takes_no_backup_that_was_put_back_for_hand_edits(server: PostgresServer, tmp_path: Path) -> None:
    """It shows the earlier revisions, changes them, and loses nothing that only the mirror has by then."""
    if server.folder is None:
        unavailable("MEMFILES_TEST_DSN names a server that is not ours")
    (tmp_path / "mirror").mkdir()
    place, mirror = json.dumps(server.url(server.workspace())), f'mirror: {{url: "file://{tmp_path}/mirror"}}'
    with memfiles.open(write_workflow(tmp_path, TEXT.format(place=f"store: {place}", mirror=mirror))) as memory:
        manager, entries, session = memory.manager, memory.entries, memory.session("desk")
        before = manager.append("notes", "one\n").revision, entries.save(session, "tea", "green").revision
        assert memory.sync.flush()
        with server.going_back():
            manager.append("notes", "two\n")
            entries.save(session, "tea", "black")
            assert memory.sync.flush()
        found = entries.get(session, "tea")
        assert found is not None and before == (manager.card("notes").revision, found.revision)
        manager.append("notes", "three\n")
        memory.sync.pull()
        assert memory.sync.flush()
        found = entries.get(session, "tea")

        assert ("# Notes\none\ntwo\nthree\n", "black") == (manager.read("notes"), found and found.content)
        assert [] == memory.sync.conflicts()


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
