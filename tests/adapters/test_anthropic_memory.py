"""Anthropic's memory tool works on a session, with the vendor's own client, at once or asynchronously."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import anthropic
import anyio
import httpx2 as httpx
import pytest
from anthropic.lib.tools import ToolError

from memfiles.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Held
from tests.support.memory_desk import ENTRIES, FILES, Opening, calls


@pytest.fixture
def session(open_memory: Opening) -> Session:
    """Of a workflow that declares memory files alone."""
    return open_memory(FILES).session("support", run="monday")


@pytest.fixture
def with_entries(open_memory: Opening) -> Session:
    return open_memory(ENTRIES).session("support", run="monday")


def test_a_closed_session_is_a_tool_error(session: Session, with_entries: Session) -> None:
    """For files and entries alike."""
    for each in (session, with_entries):
        each.close()
        said = calls(each, {"command": "view", "path": "/memories"}, {"command": "view", "path": "/memories/x"})
        assert [True, True] == ["session of agent support is closed" in text for text in said]
    with pytest.raises(InvalidArgument):
        session.check_open()


def test_the_asynchronous_tool_does_the_same(session: Session) -> None:
    """One thread a command."""
    tool = AsyncMemoryTool(session)

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
    assert {"type": "memory_20250818", "name": "memory"} == tool.to_dict() == MemoryTool(session).to_dict()


def test_a_cancelled_command_leaves_the_record_whole(session: Session) -> None:
    """It was carried out or not, and the next one goes on from there."""
    tool = AsyncMemoryTool(session)

    async def cancelled() -> None:
        for number in range(5):
            with anyio.move_on_after(0.001 * number):
                await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"})
        await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "end"})

    anyio.run(cancelled)
    text = session.manager.read("u-notes")

    assert "end\n" + "x\n" * text.count("x") == text
    assert session.manager.snapshot("u-notes").revision == 1 + len(text.splitlines())


def test_a_cancelled_task_waits_for_its_command(open_memory: Opening) -> None:
    """Also where the loop itself cancels it: the change that had begun is made before the task is over."""
    memory = open_memory(FILES)
    held, tool = Held(memory), AsyncMemoryTool(memory.session("support"))

    async def cancelled() -> tuple[bool, bool]:
        command = {"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"}
        running = asyncio.create_task(tool.call(command))
        await asyncio.to_thread(held.wait)
        running.cancel()
        await asyncio.wait([running], timeout=0.1)
        was_over = running.done()
        held.go_on.set()
        await asyncio.wait([running])
        return was_over, running.cancelled()

    assert (False, True) == asyncio.run(cancelled())
    assert "x\n" == memory.manager.read("u-notes")


def test_the_vendor_s_tool_runner_drives_it(session: Session) -> None:
    """A conversation with the real client and a server that answers from a script: results and errors come back."""
    asked = [
        {"command": "create", "path": "/memories/notes", "file_text": "- Ada is on Pro\n"},
        {"command": "delete", "path": "/memories/playbook"},
    ]
    turns: list[list[dict[str, Any]]] = [
        [{"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": command}]
        for number, command in enumerate(asked)
    ]
    turns.append([{"type": "text", "text": "Done."}])
    requests: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(json.loads(request.content))
        content = turns[len(requests) - 1]
        said = {"id": "msg", "type": "message", "role": "assistant", "model": "claude", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1}
        reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        return httpx.Response(200, json={**said, "usage": usage, "stop_reason": reason, "stop_sequence": None})

    client = anthropic.Anthropic(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(answer)))
    runner = client.beta.messages.tool_runner(
        model="claude", max_tokens=9, messages=[{"role": "user", "content": "Remember."}], tools=[MemoryTool(session)]
    )
    runner.until_done()
    results = [request["messages"][-1]["content"][0] for request in requests[1:]]

    assert [{"type": "memory_20250818", "name": "memory"}] == requests[0]["tools"]
    assert ["File created successfully at: /memories/notes", True] == [results[0]["content"], results[1]["is_error"]]
    assert "playbook is read-only here" in results[1]["content"]
    assert "- Ada is on Pro\n" == session.manager.read("u-notes")


def test_without_the_extra_the_error_says_which() -> None:
    """And nothing of the vendor's is loaded by anything else."""
    program = (
        "import sys; sys.modules['anthropic'] = None\nimport memfiles\n"
        "try:\n    import memfiles.adapters.anthropic_memory\nexcept memfiles.ExtraMissing as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)

    assert "Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'\n" == done.stdout
