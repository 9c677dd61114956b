"""The MCP server over stdin and stdout, in a process of its own."""

from __future__ import annotations

import json
import subprocess
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


def answers(folder: Path, *lines: str) -> list[dict[str, Any]]:
    """What a server answers to these lines, after the handshake; then its client waits for all and goes."""
    done = request(1, "initialize", HELLO), '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    with subprocess.Popen(
        command(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join([*done, *lines, PING, ""]))
        process.stdin.flush()
        said = [json.loads(process.stdout.readline()) for _ in range(len(lines) + 2)]
        process.stdin.close()
        assert ("", 0) == (process.stdout.read(), process.wait())
    return said[1:]


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
def test_a_malformed_request_is_answered_and_the_server_lives_on(tmp_path: Path, line: str, code: int) -> None:
    """An error of the protocol comes back, and the next request is served; stdout holds nothing else."""
    found = {answer["id"]: answer for answer in answers(tmp_path, line)}

    assert {} == found.pop(9)["result"]
    assert [code] == [answer["error"]["code"] for answer in found.values()]


def test_a_large_call_is_one_line(tmp_path: Path) -> None:
    """A text of a megabyte is judged by the tool, as everywhere."""
    sent = request(2, "tools/call", {"name": "append_memory", "arguments": {"file": "notes", "content": "x" * 2**20}})

    found = {answer["id"]: answer for answer in answers(tmp_path, sent)}

    assert "size_exceeded" == found[2]["result"]["_meta"]["memfiles/code"]
