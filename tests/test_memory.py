"""``memfiles.open`` turns a workflow into a memory that is restored, watched and ready for sessions."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.entries.drafts import Draft
from memfiles.errors import InvalidArgument, SecretRefused, WorkflowError
from memfiles.memory import look
from memfiles.records.record import Actor
from memfiles.workflow.workflow import Workflow
from mirrors.directory import DirectoryMirror
from tests.support import ROOT
from tests.support.records import no_thread_starts, wait_until
from tests.support.workflows import opened, write_workflow

WORKFLOW = """
    name: support-desk
    memory:
      levels: [LOW, MIDDLE, HIGH]
      files:
        - {uid: notes-1, name: notes, description: Customers., level: MIDDLE, content: "# Customers\\n"}
        - {uid: deals-1, name: deals, level: HIGH}
    agents:
      support: {level: MIDDLE, memory: [{id: notes-1, mode: rw}, {id: deals-1, mode: r}]}
      visitor: {memory: [{id: notes-1, mode: r}]}
"""


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    return write_workflow(tmp_path, WORKFLOW)


def mirrored_at(folder: Path, url: str) -> Path:
    """The workflow, with a mirror at ``url``."""
    return write_workflow(folder, WORKFLOW.replace("memory:\n", f'memory:\n      mirror: {{url: "{url}"}}\n', 1))


def test_opening_restores_what_is_declared(tmp_path: Path) -> None:
    """The workflow, the manager and the report of the restore are at hand."""
    with opened(tmp_path, WORKFLOW) as memory:
        assert memory.workflow.name == "support-desk"
        assert ["deals-1", "notes-1"] == sorted(memory.manager.uids())
        assert {"notes-1": "seeded", "deals-1": "seeded"} == {row.uid: row.status for row in memory.report.files}


def test_changes_are_made_where_no_thread_can_be_started(tmp_path: Path) -> None:
    """Each is acknowledged, audited and found; whoever waits does the work of the threads."""
    (tmp_path / "bucket").mkdir()
    workflow = mirrored_at(tmp_path, (tmp_path / "bucket").as_uri())
    text = workflow.read_text("utf-8").replace("memory:\n", "memory:\n  entries: {}\n", 1)
    workflow.write_text(text, "utf-8")
    with no_thread_starts():
        memory = memfiles.open(workflow, watch=False)
        session = memory.session("support")
        done = [
            session.call("append_memory", {"file": "notes", "content": "- Bob is on hunter2\n"}),
            session.call("memory_save", {"key": "tea", "content": "Ada drinks green tea."}),
            session.call("memory_save", {"key": "cup", "content": "A cup of coffee."}),
        ]
        memory.manager.redact("notes-1", "hunter2")
        memory.entries.forget(session, key="cup")
        found = session.call("memory_search", {"query": "tea"})
        pulled, is_pushed = memory.sync.pull().outcomes, memory.sync.flush(60)
    ops = [event.op for event in memory.audit(limit=20).events]
    memory.close()

    assert [False] * 3 == [each.is_error for each in done], done
    assert ["tea"] == [each["key"] for each in (found.data or {})["results"]]
    assert (set(), True) == ({"append", "save", "redact", "forget"} - {*ops}, is_pushed)
    assert "failed" not in pulled.values()
    copies = [path.read_bytes() for path in (tmp_path / "bucket").rglob("*.json")]
    assert (True, False) == (any(b"green tea" in it for it in copies), any(b"hunter2" in it for it in copies))


def test_what_was_written_is_there_at_the_next_opening(workflow: Path) -> None:
    """Content survives; the declaration is only the first content."""
    with memfiles.open(workflow, watch=False) as memory:
        memory.session("support").call("append_memory", {"file": "notes", "content": "- Ada\n"})

    with memfiles.open(workflow, watch=False) as memory:
        assert memory.session("support").call("read_memory", {"file": "notes"}).text == "# Customers\n- Ada\n"
        assert memory.report["notes-1"].status == "kept"


def test_the_default_workflow_lies_in_the_working_directory(workflow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``open()`` alone finds ``workflow.yaml``."""
    monkeypatch.chdir(workflow.parent)
    with memfiles.open(watch=False) as memory:
        assert memory.workflow.name == "support-desk"


@pytest.mark.parametrize(
    ("agent", "level", "expected"),
    [("support", None, "MIDDLE"), ("visitor", None, "LOW"), ("support", "LOW", "LOW"), ("support", "HIGH", "HIGH")],
)
def test_where_a_session_starts(tmp_path: Path, agent: str, level: str | None, expected: str) -> None:
    """At the level given, else the agent's, else the lowest: the agent's own level is no ceiling."""
    with opened(tmp_path, WORKFLOW) as memory:
        assert memory.session(agent, level=level).level == expected


def test_a_session_sees_its_agents_files(tmp_path: Path) -> None:
    """References, modes and levels are those of the workflow."""
    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("support", run="evt-1", channel="email", thread="t-1")

        assert "- notes (RW, 12B of 16384B): Customers." == session.system_prompt().splitlines()[-1]
        assert ("support", "evt-1", "email", "t-1") == (
            session.agent,
            session.provenance.run,
            session.provenance.channel,
            session.provenance.thread,
        )


@pytest.mark.parametrize("agent", ["sales", "", None, ["support"]])
def test_an_unknown_agent_is_told_the_known_ones(tmp_path: Path, agent: str) -> None:
    """The error lists the declared agents."""
    with opened(tmp_path, WORKFLOW) as memory, pytest.raises(InvalidArgument, match="declared: support, visitor"):
        memory.session(agent)


def test_an_unknown_level_is_told_the_known_ones(tmp_path: Path) -> None:
    """The error lists the levels that this workflow declares."""
    with opened(tmp_path, WORKFLOW) as memory, pytest.raises(InvalidArgument, match="use one of LOW, MIDDLE, HIGH"):
        memory.session("support", level="INTERNAL")


def test_closing_ends_everything_and_may_be_repeated(tmp_path: Path) -> None:
    """Sessions answer with errors, the manager refuses writes, and no new session starts."""
    memory = opened(tmp_path, WORKFLOW)
    session = memory.session("support")
    memory.close()
    memory.close()

    assert session.call("append_memory", {"file": "notes", "content": "x"}).code == "session_closed"
    with pytest.raises(InvalidArgument):
        memory.manager.append("notes-1", "x")
    with pytest.raises(InvalidArgument, match="memory is closed"):
        memory.session("support")


def test_a_workflow_that_cannot_be_used_changes_nothing(workflow: Path) -> None:
    """The error says where, and the directory is not even made."""
    path = write_workflow(workflow.parent, WORKFLOW.replace("mode: rw", "mode: w"))
    with pytest.raises(WorkflowError, match=r"workflow\.yaml:\d+:\d+: "):
        memfiles.open(path, watch=False)

    assert [path] == list(path.parent.iterdir())


def test_a_missing_workflow_is_named(tmp_path: Path) -> None:
    """The path that was looked for stands in the error."""
    with pytest.raises(WorkflowError, match=r"nowhere\.yaml"):
        memfiles.open(tmp_path / "nowhere.yaml")


@pytest.mark.usefixtures("installed")
def test_a_declared_mirror_gets_what_was_written(tmp_path: Path) -> None:
    """What is declared is mirrored by the time the memory is closed, and a new directory starts with it."""
    (tmp_path / "there").mkdir()
    with memfiles.open(mirrored_at(tmp_path, f"file://{tmp_path}/there"), watch=False) as memory:
        memory.session("support").call("append_memory", {"file": "notes", "content": "- Ada\n"})
    shutil.rmtree(tmp_path / ".memory")

    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        assert ("hydrated", "# Customers\n- Ada\n") == (memory.report["notes-1"].status, memory.manager.read("notes-1"))
        assert f"file://{tmp_path}/there" == memory.status()["mirror"]["mirror"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://host/path", "no installed package offers mirrors of ftp://"),
        ("s3://bucket?colour=red", "takes no parameter 'colour'"),
        ("s3://me:hush@bucket", "holds credentials before '@'"),
        ("s3://bucket?token=hush", "takes no parameter 'token'"),
    ],
)
def test_a_mirror_that_cannot_be_is_told_with_its_place(tmp_path: Path, url: str, why: str) -> None:
    """The error names file, line and column of the URL and never what stands in it, and nothing is made."""
    path = mirrored_at(tmp_path, url)

    with pytest.raises(WorkflowError, match=r"workflow\.yaml:4:17: memory\.mirror\.url: ") as caught:
        memfiles.open(path, watch=False)

    assert (True, False) == (why in str(caught.value), "hush" in str(caught.value))
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["file:///srv/mirror", b"", 5, DirectoryMirror])
def test_what_is_no_mirror_is_refused_at_once(workflow: Path, given: Any) -> None:
    """A URL in place of a mirror would open, and only the log would say that nothing is mirrored."""
    before = sorted(workflow.parent.iterdir())
    with pytest.raises(InvalidArgument, match=r"mirrors\.open_mirror\(url\) makes one"):
        memfiles.open(workflow, mirror=given)
    with pytest.raises(InvalidArgument, match=r"mirrors\.open_mirror\(url\) makes one"):
        memfiles.MemoryManager(workflow.parent / "alone", given)

    assert before == sorted(workflow.parent.iterdir())


class PathOfBytes:
    """A path that is bytes, as ``os.fsencode`` makes them."""

    def __fspath__(self) -> bytes:
        return b"memory"


@pytest.mark.parametrize("directory", [None, b"memory", 5, PathOfBytes()])
def test_what_is_no_path_is_refused_at_once(directory: Any) -> None:
    """As an environment variable that is not set, which is None."""
    with pytest.raises(InvalidArgument, match="the path of a directory as text, not"):
        memfiles.MemoryManager(directory)


@pytest.mark.parametrize("url", ["s3://bucket/memory", "postgresql://host/memory"])
def test_a_url_made_a_path_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """``Path`` makes one slash of two; a folder "s3:" is only used if it is there already."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="is not a store: write postgresql://host/database as text"):
        memfiles.MemoryManager(Path(url))
    assert [] == list(tmp_path.iterdir())
    (tmp_path / url.partition("/")[0]).mkdir()

    assert tmp_path / Path(url) == memfiles.MemoryManager(Path(url)).place.directory


@pytest.mark.parametrize("name", ["x y:/z", "Jahr:2026/q", "ключ:/z", "1:/z"])
def test_the_name_of_a_folder_that_is_no_scheme_is_a_path(name: str) -> None:
    """A colon is a letter of a name like any other."""

    assert Path(name).absolute() == memfiles.MemoryManager(Path(name)).place.directory


@pytest.mark.usefixtures("installed")
def test_a_long_start_tells_how_far_it_is(tmp_path: Path) -> None:
    """Where many records are fetched, it is told how many of how many are here."""
    (tmp_path / "there").mkdir()
    files = ", ".join(f"{{uid: f{number}, name: f{number}}}" for number in range(100))
    text = f'memory:\n  mirror: {{url: "file://{tmp_path}/there"}}\n  files: [{files}]\n'
    with opened(tmp_path, text) as memory:
        assert memory.sync.flush(60)
    shutil.rmtree(tmp_path / ".memory")

    told: list[tuple[int, int]] = []
    with memfiles.open(tmp_path / "workflow.yaml", watch=False, progress=lambda *so_far: told.append(so_far)):
        assert (100, 100) == told[-1]


@pytest.mark.usefixtures("installed")
def test_a_long_start_tells_how_many_entries_are_here(tmp_path: Path) -> None:
    """Entries that a start fetches are counted like memory files."""
    (tmp_path / "there").mkdir()
    text = f'memory:\n  mirror: {{url: "file://{tmp_path}/there"}}\n  entries: {{}}\nagents: {{ada: {{}}}}\n'
    with opened(tmp_path, text) as memory:
        memory.entries.save_many(memory.session("ada"), [Draft(f"k{number}", "x") for number in range(100)])
        assert memory.sync.flush(30)
    shutil.rmtree(tmp_path / ".memory")

    told: list[tuple[int, int]] = []
    with memfiles.open(tmp_path / "workflow.yaml", watch=False, progress=lambda *so_far: told.append(so_far)):
        assert (100, 100) == told[-1]


def test_without_a_mirror_nothing_is_behind(tmp_path: Path) -> None:
    """The status says that there is none, and every call of the synchronisation is done at once."""
    with opened(tmp_path, WORKFLOW) as memory:
        assert (None, 0) == (memory.status()["mirror"]["mirror"], memory.sync.status().pending)
        assert (True, True) == (memory.sync.flush(0, insist=False), memory.sync.close(timeout=0))


def test_what_a_person_changes_is_noticed_while_it_is_open(workflow: Path) -> None:
    """The watcher is on unless refused: a hand edit becomes a revision before anyone asks for the file."""
    noticed = threading.Event()
    with memfiles.open(workflow) as memory:
        memory.manager.subscribe(lambda change: noticed.set())
        record = memory.workflow.directory / "notes-1.json"
        edited = record.with_name("by-hand")
        edited.write_bytes(record.read_bytes().replace(b"# Customers", b"# By hand"))
        edited.replace(record)

        assert noticed.wait(timeout=60)
        assert memory.session("support").call("read_memory", {"file": "notes"}).text == "# By hand\n"
        assert memory.manager.log("notes-1")[0].op == "external"


ENTRIES = """
    memory:
      entries: {}
      files: [{uid: notes, name: notes, content: ""}]
    agents:
      guide: {memory: [{id: notes, mode: rw}]}
    """


def _ours() -> tuple[list[str], int]:
    """The threads of memfiles, and how many files, folders and connections are open, after a collection of garbage."""
    gc.collect()
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("memfiles-")]
    return names, len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("has_mirror", [False, True])
def test_a_memory_that_is_dropped_without_a_close_leaves_nothing_running(tmp_path: Path, *, has_mirror: bool) -> None:
    """Once nobody has it or a session of it, its threads, files and connections go; Python warns, if asked to."""
    mirror = f'mirror: {{url: "file://{tmp_path}/mirror"}}' if has_mirror else ""
    workflow = write_workflow(tmp_path, ENTRIES.replace("entries: {}", f"entries: {{}}\n      {mirror}"))
    (tmp_path / "mirror").mkdir()

    def use(number: int) -> None:
        session = memfiles.open(workflow).session("guide")
        gc.collect()  # the session keeps its memory open
        assert not session.call("append_memory", {"file": "notes", "content": f"- line {number}\n"}).is_error
        assert not session.call("memory_save", {"key": f"key {number}", "content": "a plan"}).is_error
        assert not session.call("memory_search", {"query": "plan"}).is_error

    before = _ours()
    for number in range(5):
        with pytest.warns(ResourceWarning, match="never closed"):
            use(number)
            gc.collect()
    # a worker in the middle of a push has what it works for until it ends
    wait_until(lambda: gc.collect() >= 0 and _ours() <= before, what="the end of all threads and descriptors")
    with memfiles.open(workflow) as memory:
        lines = memory.manager.read("notes").splitlines()

    assert [f"- line {number}" for number in range(5)] == lines


def test_the_manager_of_a_memory_that_nobody_has_any_more_works_on(tmp_path: Path) -> None:
    """Nothing is watched for it: its next read notices what a person changed, as with ``watch=False``."""
    before = set(threading.enumerate())  # what interrupted tests left in this process may watch as well
    with pytest.warns(ResourceWarning, match="never closed"):
        manager = opened(tmp_path, ENTRIES, watch=True).manager
        gc.collect()

    def watchers() -> list[threading.Thread]:
        gc.collect()
        return [it for it in threading.enumerate() if it.name == "memfiles-watch" and it not in before]

    wait_until(lambda: not watchers(), what="the end of the watchers")
    record = tmp_path / ".memory" / "notes.json"
    record.write_bytes(record.read_bytes().replace(b'"content":""', b'"content":"by hand\\n"'))
    manager.append("notes", "by a program\n")

    assert ("by hand\nby a program\n", "external") == (manager.read("notes"), manager.log("notes")[1].op)
    manager.close()


def test_a_session_of_a_memory_that_nobody_has_any_more_is_pushed(tmp_path: Path) -> None:
    """Who keeps a session has all of its memory, also its mirror."""
    (tmp_path / "mirror").mkdir()
    with pytest.warns(ResourceWarning, match="never closed"):
        session = opened(tmp_path, ENTRIES, mirror=DirectoryMirror(tmp_path / "mirror")).session("guide")
        gc.collect()
        session.call("append_memory", {"file": "notes", "content": "- a line"})
        copy = tmp_path / "mirror/notes.json"
        wait_until(lambda: copy.exists() and b"- a line" in copy.read_bytes(), what="a push")
        del session
        gc.collect()


AT_THE_END = """
import memfiles, sys

class Reporter:
    def __del__(self):
        memory.manager.append("notes", "at the end\\n")
        memory.entries.save(session, "end", "at the end")

memory = memfiles.open(sys.argv[1])
session = memory.session("support")
reporter = Reporter()
memory.manager.append("notes", "before\\n")
memory.entries.save(session, "before", "what is imported for it")
"""


@pytest.mark.parametrize("has_mirror", [False, True])
@pytest.mark.slow
def test_a_change_while_python_ends_is_made(tmp_path: Path, *, has_mirror: bool) -> None:
    """As in the finaliser of an object: no thread can be started then, and on Python 3.11 its start hung for ever."""
    (tmp_path / "mirror").mkdir()
    mirror = f"  mirror: {{url: 'file://{tmp_path}/mirror'}}\n" if has_mirror else ""
    files = "  files: [{uid: notes, name: notes}]\n  entries: {}\n"
    path = write_workflow(tmp_path, f"memory:\n{mirror}{files}agents: {{support: {{}}}}\n")
    command = [sys.executable, "-c", AT_THE_END, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    with memfiles.open(path) as memory:
        kept = memory.manager.read("notes"), memory.entries.get(memory.session("support"), "end")

    assert (0, "") == (done.returncode, done.stderr)
    assert ("before\nat the end\n", "at the end") == (kept[0], getattr(kept[1], "content", None))


def test_a_look_shows_what_a_restore_would_do_and_makes_nothing(workflow: Path) -> None:
    """Before the first restore there is no directory after it either, and the declared content is shown."""
    declared = Workflow.load(workflow)
    with look(declared) as memory:
        rows = {row.uid: row.status for row in memory.report.files}
        view = memory.manager.view(declared.memory.files[0], memory.report["notes-1"])
        found = memory.session("support").call("read_memory", {"file": "notes"})

    assert {"notes-1": "seeded", "deals-1": "seeded"} == rows
    assert ("# Customers\n", None) == (view.record.content, view.stored)
    assert found.is_error
    assert [workflow] == list(workflow.parent.iterdir())


def test_a_look_reads_a_memory_that_is_open_elsewhere(workflow: Path) -> None:
    """It shows the stored record under the declared metadata, changes no byte, and does not wait for the writer."""
    with memfiles.open(workflow, watch=False) as memory:
        memory.manager.append("notes-1", "- Ada\n")
        before = {path: path.read_bytes() for path in memory.workflow.directory.glob("*.json")}
        with look(memory.workflow) as seen:
            view = seen.manager.view(memory.workflow.memory.files[0], seen.report["notes-1"])

        assert ("# Customers\n- Ada\n", "kept", 2) == (view.record.content, view.report.status, view.card.revision)
        assert before == {path: path.read_bytes() for path in memory.workflow.directory.glob("*.json")}


def test_a_session_that_cannot_be_closed_leaves_nothing_else_open(
    workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager is checkpointed and closed whatever a session raises."""
    memory = memfiles.open(workflow, watch=False)
    session = memory.session("support")
    session.call("append_memory", {"file": "notes", "content": "- Ada\n"})
    monkeypatch.setattr(session, "close", raising)
    with pytest.raises(RuntimeError, match="unforeseen"):
        memory.close()

    assert [] == list((workflow.parent / ".memory").glob(".journal/*"))
    with pytest.raises(InvalidArgument, match="closed"):
        memory.manager.read("notes-1")


def raising() -> None:
    raise RuntimeError("unforeseen")


TOKEN = "gh" + "p_" + "1B2Dq8Zk4RmT7xWc9VnL3sYh6Jg5Fp0aKeUiOoXy"  # of the newer kind, whose checksum is not published


@pytest.mark.parametrize("label", ["run", "channel", "thread"])
@pytest.mark.parametrize("policy", ["block", "redact", "warn", "off"])
def test_a_credential_as_a_label_of_a_session(
    tmp_path: Path, label: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Labels are recorded, so the gate judges them; none can be replaced in part, so ``redact`` refuses them too."""
    declared = WORKFLOW.replace("memory:\n", f"memory:\n      secrets: {policy}\n", 1)
    given: dict[str, Any] = {label: f"call {TOKEN}"}
    with opened(tmp_path, declared) as memory:
        if policy in {"block", "redact"}:
            with pytest.raises(
                SecretRefused, match=rf"^{label} appears to contain a credential \(github-token at byte 5"
            ):
                memory.session("support", **given)
        else:
            memory.session("support", **given)

    assert [policy == "warn"] == [f"{label} appears to contain a credential" in caplog.text]
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("policy", ["block", "redact"])
def test_a_credential_as_a_call_id(tmp_path: Path, policy: str) -> None:
    """It is refused in every way to change something, and is nowhere on the disk afterwards."""
    declared = WORKFLOW.replace("memory:\n", f"memory:\n      secrets: {policy}\n      entries: {{}}\n", 1)
    with opened(tmp_path, declared) as memory:
        session = memory.session("support")
        session.call("memory_save", {"key": "k", "content": "x"})
        results = [
            session.call("append_memory", {"file": "notes", "content": "x"}, call_id=TOKEN),
            session.call("edit_memory", {"file": "notes", "old_string": "C", "new_string": "x"}, call_id=TOKEN),
            session.call("memory_save", {"key": "k", "content": "y"}, call_id=TOKEN),
            session.call("memory_update", {"key": "k", "content": "y"}, call_id=TOKEN),
            session.call("memory_delete", {"key": "k"}, call_id=TOKEN),
        ]
        calls: list[Callable[[], object]] = [
            lambda: memory.manager.append("notes-1", "x", call_id=TOKEN),
            lambda: memory.manager.append("notes-1", "x", by=Actor(agent="a", session=TOKEN)),
            lambda: memory.manager.undo("notes-1", call_id=TOKEN),
            lambda: memory.entries.save(session, "k", "y", call_id=TOKEN),
        ]
        for call in calls:
            with pytest.raises(SecretRefused):
                call()
        kept = (memory.manager.read("notes-1"), memory.entries.get(session, "k"))

    assert ("# Customers\n", "x", 1) == (kept[0], kept[1] and kept[1].content, kept[1] and kept[1].revision)
    assert {"secret_refused"} == {result.code for result in results}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
