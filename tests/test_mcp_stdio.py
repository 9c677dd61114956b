"""The MCP server over stdin and stdout, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_clients import (
    ERAS,
    NOTES,
    changed_by_hand,
    command,
    environment,
    in_loop,
    listening,
    over_stdio,
    text_of,
)

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
PING = '{"jsonrpc":"2.0","id":9,"method":"ping"}'


def request(number: int, method: str, params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


class Talk:
    """A server after the handshake, spoken to line by line."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            command(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        self.ask(request(1, "initialize", HELLO), '{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, *lines: str) -> dict[str, Any]:
        """The next line that comes back for these lines."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> tuple[int, str]:
        """Go away; the server's exit code, and what else was on its stdout."""
        out, _ = self.process.communicate(timeout=180)
        return self.process.returncode, out


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """One server for all that shall not end it."""
    talk = Talk(tmp_path_factory.mktemp("stdio"))
    yield talk
    assert (0, "") == talk.end()


@pytest.mark.parametrize("era", ERAS)
def test_a_client_of_the_official_sdk(tmp_path: Path, era: str) -> None:
    """It lists, calls and reads, hears of a change by hand, and what it wrote is there after it went."""

    async def used() -> tuple[list[str], str, ServerEvent]:
        async with listening(over_stdio(tmp_path), era, [NOTES]) as (client, news):
            names = [tool.name for tool in (await client.list_tools()).tools]
            await client.call_tool("memory_save", {"key": "k", "content": "c"})
            changed_by_hand(tmp_path / ".memory" / "notes-1.json", added="- hand\n")
            while (event := await news()) != ResourceUpdated(NOTES):
                pass
            return names, text_of(await client.call_tool("read_memory", {"file": "notes"})), event

    names, content, event = in_loop(used)
    assert ("# Notes\n- hand\n", ResourceUpdated(NOTES)) == (content, event)
    assert ["read_memory", "append_memory", "edit_memory", "memory_save"] == names[:4]


def test_200_calls_at_once_lose_nothing(tmp_path: Path) -> None:
    """Every call that was answered is on the disk, once."""

    async def called() -> list[bool]:
        errors: list[bool] = []

        async def append(client: Client, number: int) -> None:
            line = {"file": "notes", "content": f"- {number}\n"}
            errors.append((await client.call_tool("append_memory", line)).is_error)

        async with Client(over_stdio(tmp_path)) as client, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(append, client, number)
        return errors

    errors = in_loop(called)
    content: str = json.loads((tmp_path / ".memory" / "notes-1.json").read_text())["content"]
    assert [False] * 200 == errors
    assert sorted(["# Notes", *(f"- {number}" for number in range(200))]) == sorted(content.splitlines())


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("this is no JSON", -32700),
        ('{"jsonrpc":"2.0","id":2,"method":', -32700),
        ("[1, 2]", -32600),
        ('{"id": 2}', -32600),
        (request(2, "nothing/there", {}), -32601),
        (request(2, "tools/call", {"name": 5}), -32602),
        (request(2, "tools/call", {"name": "read_memory", "arguments": [1]}), -32602),
        (request(2, "resources/read", {"uri": "memory://files/nothing"}), -32602),
        (request(2, "prompts/get", {"name": "nothing"}), -32602),
        (request(2, "resources/list", {"cursor": "\x00"}), -32602),
    ],
)
def test_a_malformed_request_is_answered_and_the_server_lives_on(talk: Talk, line: str, code: int) -> None:
    """An error of the protocol comes back, and the next request is served; stdout holds nothing else."""

    assert (code, {}) == (talk.ask(line)["error"]["code"], talk.ask(PING)["result"])


def test_a_large_call_is_judged_by_the_tool(talk: Talk) -> None:
    """A megabyte on one line is read, and is too much for the file."""
    sent = {"name": "append_memory", "arguments": {"file": "notes", "content": "x" * 2**20}}

    result = talk.ask(request(2, "tools/call", sent))["result"]

    assert (True, "size_exceeded") == (result["isError"], result["_meta"]["memfiles/code"])
