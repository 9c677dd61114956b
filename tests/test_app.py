"""``memfiles.open`` turns a workflow into a memory that is restored, watched and ready for sessions."""

from __future__ import annotations

import logging
import textwrap
import threading
from pathlib import Path

import pytest

import memfiles
from memfiles.app import Memory
from memfiles.errors import InvalidArgument, WorkflowError

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
    return written(tmp_path, WORKFLOW)


def written(folder: Path, text: str) -> Path:
    path = folder / "workflow.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def opened(path: Path) -> Memory:
    return memfiles.open(path, watch=False)


def test_opening_restores_what_is_declared(workflow: Path) -> None:
    """The workflow, the manager and the report of the restore are at hand."""
    with opened(workflow) as memory:
        assert memory.workflow.name == "support-desk"
        assert ["deals-1", "notes-1"] == sorted(memory.manager.uids())
        assert {"notes-1": "seeded", "deals-1": "seeded"} == {row.uid: row.status for row in memory.report.files}


def test_what_was_written_is_there_at_the_next_opening(workflow: Path) -> None:
    """Content survives; the declaration is only the first content."""
    with opened(workflow) as memory:
        memory.session("support").call("append_memory", {"file": "notes", "content": "- Ada\n"})

    with opened(workflow) as memory:
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
def test_where_a_session_starts(workflow: Path, agent: str, level: str | None, expected: str) -> None:
    """At the level given, else the agent's, else the lowest: the agent's own level is no ceiling."""
    with opened(workflow) as memory:
        assert memory.session(agent, level=level).level == expected


def test_a_session_sees_its_agents_files(workflow: Path) -> None:
    """References, modes and levels are those of the workflow."""
    with opened(workflow) as memory:
        session = memory.session("support", run="evt-1", channel="email", thread="t-1")

        assert "- notes (RW, 12B of 16384B): Customers." == session.system_prompt().splitlines()[-1]
        assert ("support", "evt-1", "email", "t-1") == (
            session.agent,
            session.provenance.run,
            session.provenance.channel,
            session.provenance.thread,
        )


@pytest.mark.parametrize("agent", ["sales", "", None, ["support"]])
def test_an_unknown_agent_is_told_the_known_ones(workflow: Path, agent: str) -> None:
    """The error lists the declared agents."""
    with opened(workflow) as memory, pytest.raises(InvalidArgument, match="declared are: support, visitor"):
        memory.session(agent)


def test_an_unknown_level_is_told_the_known_ones(workflow: Path) -> None:
    """The error lists the levels that this workflow declares."""
    with opened(workflow) as memory, pytest.raises(InvalidArgument, match="use one of LOW, MIDDLE, HIGH"):
        memory.session("support", level="INTERNAL")


def test_closing_ends_everything_and_may_be_repeated(workflow: Path) -> None:
    """Sessions answer with errors, the manager refuses writes, and no new session starts."""
    memory = opened(workflow)
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
    path = written(workflow.parent, WORKFLOW.replace("mode: rw", "mode: w"))
    with pytest.raises(WorkflowError, match=r"workflow\.yaml:\d+:\d+: "):
        opened(path)

    assert [path] == list(path.parent.iterdir())


def test_a_missing_workflow_is_named(tmp_path: Path) -> None:
    """The path that was looked for stands in the error."""
    with pytest.raises(WorkflowError, match=r"nowhere\.yaml"):
        opened(tmp_path / "nowhere.yaml")


def test_a_declared_mirror_is_never_ignored_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The memory works from its directory; the log, the memory and its status say that the mirror is not in use."""
    path = written(tmp_path, WORKFLOW.replace("memory:\n", 'memory:\n      mirror: {url: "s3://bucket/prefix"}\n', 1))
    note = "the declared mirror is not available in this version: memory is kept in the local directory only"
    with caplog.at_level(logging.WARNING, logger="memfiles"), opened(path) as memory:
        assert (note, note) == (memory.mirror_note, memory.status()["mirror"])
        assert memory.session("support").call("append_memory", {"file": "notes", "content": "x"}).is_error is False

    assert [note] == [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_without_a_mirror_there_is_nothing_to_note(workflow: Path) -> None:
    """The status says so too."""
    with opened(workflow) as memory:
        assert (None, None) == (memory.mirror_note, memory.status()["mirror"])


def test_what_a_person_changes_is_noticed_while_it_is_open(workflow: Path) -> None:
    """The watcher is on unless refused: a hand edit becomes a revision before anyone asks for the file."""
    noticed = threading.Event()
    with memfiles.open(workflow) as memory:
        memory.manager.subscribe(lambda change: noticed.set())
        record = memory.workflow.directory / "notes-1.json"
        edited = record.with_name("by-hand")
        edited.write_bytes(record.read_bytes().replace(b"# Customers", b"# By hand"))
        edited.replace(record)

        assert noticed.wait(timeout=20)
        assert memory.session("support").call("read_memory", {"file": "notes"}).text == "# By hand\n"
        assert memory.manager.log("notes-1")[-1].op == "external"
