"""Anthropic's memory tool works on a session, with the vendor's own client, at once or asynchronously."""

from __future__ import annotations

from typing import Any

import anthropic
import anyio
import httpx2
import pytest
from anthropic.lib.tools import ToolError

from memfiles.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Call, Script, ScriptedClaude
from tests.adapters.exam import TextExam
from tests.support.memory_desk import FILES, Opening, calls, said_by


class TestAnthropicMemory(TextExam):
    module = "memfiles.adapters.anthropic_memory"
    vendors = ("anthropic",)
    extra_error = "Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'"
    needs_entries = False

    def read(self, session: Session, name: str) -> str | None:
        said = said_by(MemoryTool(session), "view", path=f"/memories/{name}")
        return None if said.startswith("error: ") else said.partition("\t")[2]

    def write(self, session: Session, name: str, text: str) -> str | None:
        said = said_by(MemoryTool(session), "create", path=f"/memories/{name}", file_text=text)
        return said if said.startswith("error: ") else None

    async def awrite(self, session: Session, name: str, text: str) -> object:
        command = {"command": "create", "path": f"/memories/{name}", "file_text": text}
        return await AsyncMemoryTool(session).call(command)


@pytest.fixture
def files(open_memory: Opening) -> Session:
    """A session of a workflow that declares memory files alone."""
    return open_memory(FILES).session("support", run="monday")


def test_a_closed_session_is_a_tool_error(files: Session) -> None:
    """Where there are only files, too."""
    files.close()
    said = calls(files, {"command": "view", "path": "/memories"}, {"command": "view", "path": "/memories/x"})

    assert [True, True] == ["session of agent support is closed" in text for text in said]


def test_the_asynchronous_tool_does_the_same(files: Session) -> None:
    """One thread a command."""
    tool = AsyncMemoryTool(files)

    async def used() -> list[Any]:
        created = await tool.call({"command": "create", "path": "/memories/notes", "file_text": "x"})
        try:
            await tool.call({"command": "view", "path": "/memories/never"})
        except ToolError as error:
            return [created, str(error)]
        return [created]

    assert [
        "File created successfully at: /memories/notes",
        "The path /memories/never does not exist. Please provide a valid path.",
    ] == anyio.run(used)
    assert {"type": "memory_20250818", "name": "memory"} == tool.to_dict() == MemoryTool(files).to_dict()


def test_a_cancelled_command_leaves_the_record_whole(files: Session) -> None:
    """It was carried out or not, and the next one goes on from there."""
    tool = AsyncMemoryTool(files)

    async def cancelled() -> None:
        for number in range(5):
            with anyio.move_on_after(0.001 * number):
                await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"})
        await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "end"})

    anyio.run(cancelled)
    text = files.manager.read("u-notes")

    assert "end\n" + "x\n" * text.count("x") == text
    assert files.manager.snapshot("u-notes").revision == 1 + len(text.splitlines())


def test_the_vendor_s_tool_runner_drives_it(files: Session) -> None:
    """A conversation with the real client and a server that answers from a script: results and errors come back."""
    create = {"command": "create", "path": "/memories/notes", "file_text": "- Ada is on Pro\n"}
    delete = {"command": "delete", "path": "/memories/playbook"}
    claude = ScriptedClaude(Script([Call("memory", create)], [Call("memory", delete)]))
    transport = httpx2.MockTransport(claude.answer)
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    asked: Any = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Remember."}]}
    client.beta.messages.tool_runner(tools=[MemoryTool(files)], **asked).until_done()
    created, refused = claude.results

    assert [{"type": "memory_20250818", "name": "memory"}] == claude.requests[0]["tools"]
    assert ["File created successfully at: /memories/notes", True] == [created["content"], refused["is_error"]]
    assert "playbook is read-only here" in refused["content"]
    assert "- Ada is on Pro\n" == files.manager.read("u-notes")
