"""Memory files ``per: user``: each user has a record of their own, and nobody else sees anything of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from memfiles import (
    FileNotDeclared,
    InvalidArgument,
    Memory,
    RevisionConflict,
    SecretRefused,
    SizeExceeded,
    WorkflowError,
)
from memfiles.adapters.shapes.memory_tool import MemoryCommands
from memfiles.files.manager import MemoryManager
from memfiles.records.keys import user_file_path
from memfiles.storage import quarantine
from memfiles.storage.events import RecordChanged
from memfiles.storage.home import home_of
from memfiles.workflow.workflow import Workflow
from tests.cli.command_line import run
from tests.secrets.secret_corpus import SECRETS
from tests.support.another_process import in_a_child
from tests.support.records import files_under
from tests.support.saved import files_holding
from tests.support.stores import place_of, put_by_hand
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  levels: [PUBLIC, INTERNAL]
  files:
    - {uid: diary-1, name: diary, description: Who it is., per: user, content: "# Diary\\n", max_size_bytes: 200}
    - {uid: secret-1, name: secret, per: user, level: INTERNAL}
    - {uid: rules-1, name: rules, content: "- Be kind.\\n"}
agents:
  support: {memory: [{id: diary-1, mode: rw}, {id: secret-1, mode: rw}, {id: rules-1, mode: rw}]}
  reader: {memory: [{id: diary-1, mode: r}]}
"""
SECRET = "zebra-violet"


def mirrored(mirror: Path, workflow: str = WORKFLOW) -> str:
    """The workflow of each machine that shares this mirror."""
    mirror.mkdir(exist_ok=True)
    return workflow.replace("memory:\n", f"memory:\n  mirror: {{url: 'file://{mirror}', pull: restore}}\n", 1)


def synced(memory: Memory) -> None:
    memory.sync.pull()
    assert memory.sync.flush(30)


def test_each_user_has_a_file_of_their_own(tmp_path: Path) -> None:
    """In tools, prompt and index card; a user who changed nothing sees the declared content, and costs no record."""
    with opened(tmp_path, WORKFLOW) as memory:
        ada, bob = (memory.session("support", user=name) for name in ("ada", "bob"))
        assert not ada.call("append_memory", {"file": "diary", "content": f"- {SECRET}\n"}).is_error
        ada.call("edit_memory", {"file": "diary", "old_string": SECRET, "new_string": f"{SECRET}!"})

        assert f"# Diary\n- {SECRET}!\n" == ada.call("read_memory", {"file": "diary"}).text
        assert "# Diary\n" == bob.call("read_memory", {"file": "diary"}).text
        assert "- diary (RW, 24B of 200B): Who it is." in ada.system_prompt()
        assert "- diary (RW, 8B of 200B): Who it is." in bob.system_prompt()
        assert 1 == len(
            [path for path in files_under(tmp_path / ".memory") if path.startswith("entries/@files/users/")]
        )
    with opened(tmp_path, WORKFLOW) as memory:
        assert f"# Diary\n- {SECRET}!\n" == memory.manager.read("diary", user="ada")
        assert ["edit", "append", "seed"] == [change.op for change in memory.manager.log("diary-1", user="ada")]


def test_a_session_without_a_user_has_no_such_file(tmp_path: Path) -> None:
    """Not on its card and in no schema; a call says why, but not of a file above its level."""
    with opened(tmp_path, WORKFLOW) as memory:
        nobody = memory.session("support")
        assert ("diary" in nobody.system_prompt(), "diary" in str(nobody.tools("anthropic"))) == (False, False)
        for call in (
            ("read_memory", {"file": "diary"}),
            ("append_memory", {"file": "diary-1", "content": "x"}),
            ("edit_memory", {"file": "diary", "old_string": "x", "new_string": "y"}),
        ):
            refused = nobody.call(*call)
            assert (True, "file_not_declared") == (refused.is_error, refused.code)
            assert "is kept for each user, and this session is for no user" in refused.text
        assert "unknown memory file 'secret': use one of rules" == nobody.call("read_memory", {"file": "secret"}).text
        assert [] == [path for path in files_under(tmp_path / ".memory") if path.startswith("entries/@files/")]


def test_a_level_and_a_mode_hold_for_a_users_file(tmp_path: Path) -> None:
    """As for any other memory file."""
    with opened(tmp_path, WORKFLOW) as memory:
        low, high = (memory.session("support", user="ada", level=level) for level in ("PUBLIC", "INTERNAL"))
        assert not high.call("append_memory", {"file": "secret", "content": SECRET}).is_error

        assert "unknown memory file" in low.call("read_memory", {"file": "secret"}).text
        assert "level_denied" == high.call("append_memory", {"file": "diary", "content": "x"}).code
        appended = memory.session("reader", user="ada").call("append_memory", {"file": "diary", "content": "x"})
        assert "read_only" == appended.code


VERBS: list[Callable[[MemoryManager, str | None, str], object]] = [
    lambda manager, user, name: manager.card(name, user=user),
    lambda manager, user, name: manager.read(name, user=user),
    lambda manager, user, name: manager.append(name, "x", user=user),
    lambda manager, user, name: manager.edit(name, "#", "##", user=user),
    lambda manager, user, name: manager.replace(name, "x", user=user),
    lambda manager, user, name: manager.log(name, user=user),
    lambda manager, user, name: manager.diff(name, 1, 1, user=user),
    lambda manager, user, name: manager.undo(name, user=user),
    lambda manager, user, name: manager.redact(name, "x", user=user),
]


@pytest.mark.parametrize("verb", VERBS)
def test_the_manager_wants_to_know_whose_file_it_is(
    tmp_path: Path, verb: Callable[[MemoryManager, str | None, str], object]
) -> None:
    """A missing or superfluous user is refused, and nothing has changed; nor is a name known that is not declared."""
    with opened(tmp_path, WORKFLOW) as memory:
        with pytest.raises(InvalidArgument, match="diary is kept for each user: name the user"):
            verb(memory.manager, None, "diary")
        with pytest.raises(InvalidArgument, match="rules is one file for all users: leave out the user"):
            verb(memory.manager, "ada", "rules")
        with pytest.raises(FileNotDeclared, match="'none' is declared"):
            verb(memory.manager, "ada", "none")
        with pytest.raises(InvalidArgument, match="1 to 128 characters"):
            verb(memory.manager, "", "diary")
        assert (1, 1) == (memory.manager.card("rules").revision, memory.manager.card("diary", user="ada").revision)


def test_a_users_file_has_a_history_and_a_cap(tmp_path: Path) -> None:
    """Receipts, replays, expected revisions and undo are those of any other memory file."""
    with opened(tmp_path, WORKFLOW) as memory:
        manager = memory.manager
        first = manager.append("diary", "- Pro\n", user="ada", call_id="c1")
        assert (2, 14, 200) == (first.revision, first.size_bytes, first.max_size_bytes)
        assert manager.append("diary", "- Pro\n", user="ada", call_id="c1").replayed
        with pytest.raises(SizeExceeded, match="200"):
            manager.append("diary", "x" * 190, user="ada")
        with pytest.raises(RevisionConflict):
            manager.replace("diary", "", user="ada", expected_revision=1)
        assert 2 == manager.undo("diary", user="ada").undone_revision
        assert "# Diary\n" == manager.read("diary", user="ada")
        manager.undo("diary", user="ada", to_revision=2)
        assert "# Diary\n- Pro\n" == manager.read("diary", user="ada")
        assert "+- Pro" in manager.diff("diary", 1, 2, user="ada")


def test_a_redeploy_counts_at_the_next_use(tmp_path: Path) -> None:
    """Name, description, cap and level are as declared now; the content stays, and new users get the new one."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.manager.append("diary", "- Pro\n", user="ada")
    changed = WORKFLOW.replace("name: diary, description: Who it is.", "name: about, level: INTERNAL")
    changed = changed.replace("# Diary", "# New").replace("max_size_bytes: 200", "max_size_bytes: 20")
    with opened(tmp_path, changed) as m:
        card = m.manager.card("about", user="ada")
        assert ("about", "", "INTERNAL", 20, 14) == (
            *(card.name, card.description, card.level, card.max_size_bytes, card.size_bytes),
        )
        assert ("# Diary\n- Pro\n", "# New\n") == tuple(m.manager.read("about", user=it) for it in ("ada", "bob"))
        with pytest.raises(SizeExceeded):
            m.manager.append("about", "- more than 20\n", user="ada")


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("per: user, max_size_bytes: 70000", "a file per user holds at most 65536 bytes"),
        ("per: user, from_users: true", "its own user may change it; remove this"),
        ("per: agent", "user"),
    ],
)
def test_a_contradictory_declaration_is_refused(declared: str, problem: str) -> None:
    """With the place and the way out."""
    with pytest.raises(WorkflowError, match=problem) as refused:
        Workflow.parse(f"memory: {{files: [{{uid: a-1, name: a, {declared}}}]}}")
    assert "memory.files[0]" in str(refused.value)


def test_a_redaction_leaves_nothing_of_the_text(tmp_path: Path) -> None:
    """In content, history, index, journals, here, in the mirror, and on a machine that changed the file meanwhile."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        memory.manager.append("diary", f"- {SECRET} is on Pro\n", user="ada")
        memory.manager.edit("diary", "Pro", "Free", user="ada")
        synced(memory)
    with opened(tmp_path / "two", workflow) as memory:
        synced(memory)
        assert SECRET in memory.manager.read("diary", user="ada")
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
        offline.manager.append("diary", "- she called\n", user="ada")
    with opened(tmp_path / "one", workflow) as memory:
        assert 1 == memory.manager.redact("diary", SECRET, user="ada").in_content
        synced(memory)
        assert [] == files_holding(tmp_path / "one/.memory", SECRET)
    for place in ("two", "one"):
        with opened(tmp_path / place, workflow) as memory:
            synced(memory)
            assert "# Diary\n- [redacted] is on Free\n- she called\n" == memory.manager.read("diary", user="ada")
    assert [[], [], []] == [files_holding(tmp_path / place, SECRET) for place in ("one", "two", "mirror")]


@pytest.mark.directory("its index has the notes of redactions in the files of users")
def test_a_redaction_that_was_cut_off_is_finished_though_its_note_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes the index with the note of it: whoever builds a new one looks through the kept copies."""

    def redacted_until_the_copies() -> None:
        with opened(tmp_path, WORKFLOW) as memory:
            monkeypatch.setattr(quarantine.Quarantine, "remove", lambda *_, **__: os._exit(9))
            memory.manager.redact("diary", SECRET, user="ada")

    kept, path = home_of(tmp_path / ".memory").kept, user_file_path("ada", "diary-1")
    with opened(tmp_path, WORKFLOW) as memory:
        memory.manager.append("diary", f"- {SECRET} is on Pro\n", user="ada")
    body = (tmp_path / ".memory" / path).read_bytes()
    kept.keep(path, body, reason="test", at="2026-11-22T00:00:00.000Z", folder="conflicts", lost="local")
    in_a_child(redacted_until_the_copies)
    for file in (tmp_path / ".memory/.state").glob("index.sqlite*"):
        file.unlink()
    with opened(tmp_path, WORKFLOW) as memory:
        memory.users.list()

    assert "[redacted]" in (tmp_path / ".memory" / path).read_text()
    assert [] == files_holding(tmp_path / ".memory", SECRET)


@pytest.mark.slow
def test_first_changes_on_two_machines_are_one_file(tmp_path: Path) -> None:
    """Both texts are kept, with the declared content once, also by a user who was forgotten and came back."""
    workflow = mirrored(tmp_path / "mirror")
    for epoch in ("first", "second"):
        with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
            offline.manager.append("diary", f"- {epoch} on two\n", user="ada")
        with opened(tmp_path / "one", workflow) as memory:
            memory.manager.append("diary", f"- {epoch} on one\n", user="ada")
            synced(memory)
        for place in ("two", "one", "two"):
            with opened(tmp_path / place, workflow) as memory:
                synced(memory)
        texts = []
        for place in ("one", "two"):
            with opened(tmp_path / place, workflow) as memory:
                texts.append(memory.manager.read("diary", user="ada"))
        assert texts[0] == texts[1]
        assert ["# Diary", f"- {epoch} on one", f"- {epoch} on two"] == sorted(texts[0].splitlines())
        with opened(tmp_path / "one", workflow) as memory:
            memory.users.forget("ada")
            synced(memory)
        with opened(tmp_path / "two", workflow) as memory:
            synced(memory)


def test_a_new_machine_gets_the_files_of_all_users(tmp_path: Path) -> None:
    """From the mirror, before she comes."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        memory.manager.append("diary", f"- {SECRET}\n", user="ada")
    with opened(tmp_path / "two", workflow) as memory:
        assert f"# Diary\n- {SECRET}\n" == memory.manager.read("diary", user="ada")


@pytest.mark.slow
def test_nothing_of_a_forgotten_user_is_left(tmp_path: Path) -> None:
    """Here, in the mirror, and on a machine that was offline and wrote meanwhile; others keep theirs."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        memory.manager.append("diary", f"- {SECRET}\n", user="ada")
        memory.manager.edit("diary", SECRET, f"{SECRET} again", user="ada")
        memory.manager.append("diary", "- Bob is on Free\n", user="bob")
        synced(memory)
    with opened(tmp_path / "two", workflow) as memory:
        synced(memory)
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
        offline.manager.append("diary", f"- {SECRET} meanwhile\n", user="ada")
        offline.manager.append("secret", f"- {SECRET} too\n", user="ada")
        offline.manager.append("diary", "- he called\n", user="bob")
    with opened(tmp_path / "one", workflow) as memory:
        assert 1 == memory.users.forget("ada", why="asked to").count
        assert [] == files_holding(tmp_path / "one/.memory", SECRET, '"ada"')
        assert memory.sync.flush(30)
    assert [] == files_holding(tmp_path / "mirror", SECRET, '"ada"')

    for place in ("two", "one", "three"):
        with opened(tmp_path / place, workflow) as memory:
            synced(memory)
            assert "# Diary\n" == memory.manager.read("diary", user="ada")
            assert "# Diary\n- Bob is on Free\n- he called\n" == memory.manager.read("diary", user="bob")
    for place in ("mirror", "one", "two", "three"):
        assert [] == files_holding(tmp_path / place, SECRET, '"ada"'), place


def test_a_session_from_before_a_forget_changes_nothing_more(tmp_path: Path) -> None:
    """Nor does it see what a new one writes; the new one begins with the declared content."""
    with opened(tmp_path, WORKFLOW) as memory:
        before = memory.session("support", user="ada")
        before.call("append_memory", {"file": "diary", "content": SECRET})
        memory.users.forget("ada")

        refused = before.call("append_memory", {"file": "diary", "content": SECRET})
        assert (True, "invalid_argument") == (refused.is_error, refused.code)
        assert "ask the memory for a new session" in refused.text
        after = memory.session("support", user="ada")
        after.call("append_memory", {"file": "diary", "content": "- back\n"})
        assert "# Diary\n- back\n" == after.call("read_memory", {"file": "diary"}).text
        assert "# Diary\n" == before.call("read_memory", {"file": "diary"}).text
        assert [] == files_holding(tmp_path / ".memory", SECRET)


def test_an_old_copy_of_a_forgotten_users_file_is_not_shown(tmp_path: Path) -> None:
    """Put back from a backup while she has a session of the time after: neither the session nor its tools see it."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.manager.append("diary", f"- {SECRET}\n", user="ada")
        kept = files_under(tmp_path / ".memory")
        (backup,) = [path for path, body in kept.items() if path.endswith(".json") and SECRET.encode() in body]
        memory.users.forget("ada")
        memory.manager.append("secret", "- back\n", user="ada")  # the next epoch begins
    put_by_hand(tmp_path / ".memory", backup, kept[backup])

    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("support", user="ada")
        assert "# Diary\n" == session.call("read_memory", {"file": "diary"}).text
        assert SECRET not in session.system_prompt()
        session.call("append_memory", {"file": "diary", "content": "- anew\n"})
        assert "# Diary\n- anew\n" == memory.manager.read("diary", user="ada")
    assert [] == files_holding(tmp_path / ".memory", SECRET)


def test_the_operator_lists_and_exports_users_with_their_files(tmp_path: Path) -> None:
    """Under ``users``; an agent's entries and counts hold none of it."""
    with opened(tmp_path, WORKFLOW.replace("agents:", "  entries: {}\nagents:")) as memory:
        memory.manager.append("diary", f"- {SECRET}\n", user="ada")
        memory.entries.save(memory.session("support", user="ada"), "plan", "Pro")
        [found] = memory.users.list()
        assert (("support",), 1, 1) == (found.agents, found.entries, found.files)
        exported = memory.users.export("ada", tmp_path / "ada")
        assert (2, ("diary-1.md", "support.jsonl")) == (exported.count, exported.files)
        assert f"# Diary\n- {SECRET}\n" == (tmp_path / "ada/diary-1.md").read_text()
        assert [] == files_holding(tmp_path / "ada", "@files")
        assert ["support"] == [each.agent for each in memory.stats().entries]
        for user in ("ada", "bob", None):
            session = memory.session("support", user=user)
            assert () == memory.entries.search(session, SECRET).matches
            assert SECRET not in str(memory.entries.list(session)) + session.recall(SECRET).text


def test_only_the_user_hears_of_a_change(tmp_path: Path) -> None:
    """Sessions of others, and those without a user, do not learn that there was one."""
    with opened(tmp_path, WORKFLOW) as memory:
        sessions = {name: memory.session("support", user=name) for name in ("ada", "bob", None)}
        changes: list[RecordChanged] = []
        memory.manager.subscribe(changes.append)
        memory.manager.append("diary", "- x\n", user="ada")

        heard = {name: [it.uid for it in changes if each.may_know(it)] for name, each in sessions.items()}
        assert {"ada": ["diary-1"], "bob": [], None: []} == heard


@pytest.mark.directory("only files can be changed by hand")
def test_a_change_by_hand_is_a_revision(tmp_path: Path) -> None:
    """Of that user's file; subscribers hear of it."""
    with opened(tmp_path, WORKFLOW, watch=True) as memory:
        memory.manager.append("diary", "- Pro\n", user="ada")
        noticed = threading.Event()
        memory.manager.subscribe(lambda change: noticed.set() if change.op == "external" else None)
        path = tmp_path / ".memory" / user_file_path("ada", "diary-1")
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"content": "by hand"}))
        assert noticed.wait(60)
        assert "by hand" == memory.manager.read("diary", user="ada")
        assert "external" == memory.manager.log("diary", user="ada")[0].op


def test_a_conflict_of_a_users_file_can_be_settled(tmp_path: Path) -> None:
    """The losing text is kept, and can be taken, under the cap of the file."""
    workflow = mirrored(tmp_path / "mirror")
    with opened(tmp_path / "one", workflow) as memory:
        memory.manager.append("diary", "- on Pro\n", user="ada")
        synced(memory)
    with opened(tmp_path / "two", workflow):
        pass
    with opened(tmp_path / "two", workflow.replace(f"{tmp_path}/mirror", f"{tmp_path}/nowhere")) as offline:
        offline.manager.edit("diary", "on Pro", "on Free", user="ada")
    with opened(tmp_path / "one", workflow) as memory:
        memory.manager.edit("diary", "on Pro", "on Team", user="ada")
        synced(memory)
    with opened(tmp_path / "two", workflow) as memory:
        synced(memory)
        [conflict] = memory.sync.conflicts()
        assert "ada" == conflict.user
        memory.sync.resolve(conflict.path, take="copy")
        assert conflict.content == memory.manager.read("diary", user="ada")
        assert [] == memory.sync.conflicts()


def test_a_credential_as_the_name_of_a_user_is_refused(tmp_path: Path) -> None:
    """Whoever changes the file: the record would say the name. What is kept under such a name can still be read."""
    token = next(secret.value for secret in SECRETS if secret.rule == "aws-access-key-id")
    with opened(tmp_path, WORKFLOW) as memory:
        changes: list[Callable[[], object]] = [
            lambda: memory.manager.append("diary", "- x\n", user=token),
            lambda: memory.manager.edit("diary", "Diary", "diary", user=token),
            lambda: memory.manager.undo("diary", to_revision=1, user=token),
        ]
        for change in changes:
            with pytest.raises(SecretRefused):
                change()

        assert [] == files_holding(tmp_path, token)
        assert "# Diary\n" == memory.manager.read("diary", user=token)


def test_a_credential_is_refused_and_redacted(tmp_path: Path) -> None:
    """By the policy of the workflow, with nothing left of it under the directory."""
    token = next(secret.value for secret in SECRETS if secret.rule == "openai-key")
    with opened(tmp_path, WORKFLOW.replace("durability: os", "durability: os\n  secrets: redact")) as memory:
        memory.manager.append("diary", f"- the key is {token[:12]}", user="ada")
        memory.manager.append("diary", f"{token[12:]}\n", user="ada")
        assert "[redacted" in memory.manager.read("diary", user="ada")
        assert [] == files_holding(tmp_path / ".memory", token[:12])


def test_the_folder_of_a_session_has_the_file(tmp_path: Path) -> None:
    """Adapters that show memory as files write to the user's own."""
    with opened(tmp_path, WORKFLOW) as memory:
        ada = MemoryCommands(memory.session("support", user="ada"))
        ada.insert("/memories/diary", 1, "- Pro")
        ada.str_replace("/memories/diary", "Pro", "Free")
        assert "# Diary\n- Free\n" == memory.manager.read("diary", user="ada")
        assert "Free" not in MemoryCommands(memory.session("support", user="bob")).view("/memories/diary")


def test_the_command_line_names_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of memory files takes ``--user``; without it, or with one too many, it says so."""
    with opened(tmp_path, WORKFLOW):
        monkeypatch.chdir(tmp_path)
    assert 0 == run("append", "diary", "- Pro\n", "--user", "ada").code
    assert 0 == run("edit", "diary", "--old", "Pro", "--new", "Free", "--user", "ada").code
    assert "# Diary\n- Free\n" == run("read", "diary", "--user", "ada").out
    assert "# Diary\n" == run("read", "diary", "--user", "bob").out
    assert 0 == run("undo", "diary", "--user", "ada").code
    assert "-- Free" in run("diff", "diary", "--user", "ada").out
    assert ["undo", "edit", "append", "seed"] == [
        it["op"] for it in run("log", "diary", "--user", "ada", "--json").data["changes"]
    ]
    assert ["rules", "diary", "secret"] == [it["name"] for it in run("ls", "--user", "ada", "--json").data["files"]]
    assert ["rules"] == [it["name"] for it in run("ls", "--json").data["files"]]
    assert "- diary (RW, 14B of 200B)" in run("card", "support", "--user", "ada").out
    assert 0 == run("redact", "diary", "Pro", "--user", "ada").code
    assert "[redacted]" in run("call", "support", "read_memory", '{"file": "diary"}', "--user", "ada").out
    assert [2, 2] == [run("read", "diary").code, run("read", "rules", "--user", "ada").code]
    assert "diary is kept for each user; add --user NAME" in run("append", "diary", "x").err
    doctor = run("doctor", "--json").data
    assert {"ok": True} == {"ok": doctor["ok"]}
    assert "1 record of 2 files" in str(doctor["checks"])
    assert "wrote 1 record to of-ada" in run("users", "export", "ada", "of-ada").err
    assert "1 record would be forgotten" in run("users", "forget", "ada", "--dry-run").err
    assert "this forgets 1 record for good" in run("users", "forget", "ada").err
    assert (0, "forgot 1 record\n") == ((ran := run("users", "forget", "ada", "--yes")).code, ran.err)
    assert "# Diary\n" == run("read", "diary", "--user", "ada").out
    assert 0 == run("doctor").code


def test_a_manager_alone_has_no_users(tmp_path: Path) -> None:
    """It restores the other files; whoever asks for a user's is told what is missing."""
    with MemoryManager(place_of(tmp_path / "memory")) as manager:
        manager.restore(Workflow.parse(WORKFLOW))
        assert ["rules-1"] == manager.uids()
        with pytest.raises(InvalidArgument, match="a memory that is open"):
            manager.read("diary", user="ada")
        assert 2 == manager.append("rules", "x").revision


@pytest.mark.directory("only files can be changed by hand")
def test_a_change_by_hand_between_runs_is_warned_of_and_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is noticed at once, for the file of a user and for one of all users; the names stay out of it."""
    token = next(secret for secret in SECRETS if secret.rule == "openai-key").value
    with opened(tmp_path, WORKFLOW) as memory:
        memory.manager.append("diary", "- Pro\n", user="ada")
    paths = ["rules-1.json", user_file_path("ada", "diary-1")]
    for path in paths:
        record = json.loads((tmp_path / ".memory" / path).read_text())
        (tmp_path / ".memory" / path).write_text(json.dumps(record | {"content": f"by hand {token}\n"}))
    with opened(tmp_path, WORKFLOW) as memory:
        memory.manager.append("diary", "- Free\n", user="ada")
        audited = [event.path for event in memory.audit(op="external").events]

    told = [message for message in caplog.messages if "credential" in message]
    assert paths == audited[::-1]
    assert ["rules: a change by hand", f"diary-1, in {paths[1]}: a change by hand"] == [
        message.partition(" appears to contain a credential: openai-key at byte 8")[0] for message in told
    ]
