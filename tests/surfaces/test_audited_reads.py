"""Reads in the audit: every way by which a session reads leaves a line, where the workflow says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfiles import Memory, Session
from memfiles.adapters.shapes.memory_tool import MemoryCommands
from memfiles.adapters.shapes.notebook import Notebook
from memfiles.errors import WorkflowError
from memfiles.storage.events import AuditEvent
from tests.server.mcp_clients import Offer, client_of, in_loop
from tests.support.records import files_under
from tests.support.workflows import opened

WORKFLOW = """
memory:
  levels: [LOW, HIGH]
  audit: {reads: true}
  files: [{uid: notes-1, name: notes, content: "# Notes\\n"}]
  entries: {}
agents: {desk: {level: LOW, memory: [{id: notes-1, mode: rw}]}}
"""
FILE = "notes-1.json"


def read_through_mcp(memory: Memory, session: Session) -> None:
    """A client reads both resources."""

    async def asked() -> None:
        async with client_of(Offer(memory, session)) as client:
            await client.read_resource("memory://files/notes")
            await client.read_resource("memory://entries/plan")

    in_loop(asked)


Read = Callable[[Memory, Session], Any]
WAYS: dict[str, tuple[Read, set[str], set[str]]] = {
    "get": (lambda memory, session: memory.entries.get(session, "plan"), {"get"}, {"plan"}),
    "search": (lambda memory, session: memory.entries.search(session, "pro"), {"search"}, {"plan"}),
    "list": (lambda memory, session: memory.entries.list(session), {"list"}, {"plan"}),
    "hydrate": (lambda memory, session: memory.entries.hydrate(session), {"hydrate"}, {"plan"}),
    "recall": (lambda memory, session: session.recall("pro"), {"recall"}, {"plan"}),
    "prompt": (lambda memory, session: session.system_prompt(), {"hydrate"}, {"plan"}),
    "read_memory": (lambda memory, session: session.call("read_memory", {"file": "notes"}), {"read"}, {FILE}),
    "memory_get": (lambda memory, session: session.call("memory_get", {"key": "plan"}), {"get"}, {"plan"}),
    "commands": (lambda memory, session: MemoryCommands(session).view("/memories/notes"), {"read"}, {FILE}),
    "notebook": (lambda memory, session: list(Notebook(session).texts("")), {"list"}, {"plan"}),
    "mcp": (read_through_mcp, {"read", "get"}, {FILE, "plan"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_is_in_the_audit(tmp_path: Path, way: str) -> None:
    """Who read, at which level, and the records that were returned: no key, no query, no content."""
    read, ops, names = WAYS[way]
    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("desk", run="r1", actor="grace")
        memory.entries.save(session, "plan", "Ada is on Pro")
        before = memory.audit().events
        read(memory, session)
        found = [event for event in memory.audit().events if event not in before]

        assert ops == {event.op for event in found} & {"get", "search", "list", "hydrate", "recall", "read"}
        assert {("desk", "r1", "grace", "LOW")} == {(it.agent, it.run, it.actor, it.level) for it in found}
        for name in names:
            assert [event for event in found if event in memory.audit(record=name).events], name
        log = "".join(map(bytes.decode, files_under(tmp_path / ".memory/audit").values()))
        assert ("plan" in log, "Pro" in log, "pro" in log) == (False, False, False)


def test_a_read_of_nothing_tells_no_key(tmp_path: Path) -> None:
    """It is a line without a record, whether the entry is hidden or not there."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.entries.save(memory.session("desk", level="HIGH"), "secret", "x")
        session = memory.session("desk")
        for key in ("secret", "nothing"):
            memory.entries.get(session, key)
        events = memory.audit(op="get").events

    assert [(0, ())] * 2 == [(event.count, event.paths) for event in events]


def test_without_asking_reads_leave_no_line(tmp_path: Path) -> None:
    """The default; an export is always in the audit."""
    with opened(tmp_path, WORKFLOW.replace("  audit: {reads: true}\n", "")) as memory:
        session = memory.session("desk")
        memory.entries.save(session, "plan", "Ada is on Pro")
        for read, _, _ in WAYS.values():
            read(memory, session)
        memory.entries.export(session, tmp_path / "out.jsonl", format="jsonl")
        events = memory.audit().events

    assert ["export", "save"] == [event.op for event in events]
    assert AuditEvent("export", "ok", None, "LOW", "desk", count=1, at=events[0].at) == events[0]


def test_reads_is_a_switch(tmp_path: Path) -> None:
    """Anything else is refused with its place."""
    with pytest.raises(WorkflowError, match="memory.audit.reads"):
        opened(tmp_path, WORKFLOW.replace("reads: true", "reads: yes"))
