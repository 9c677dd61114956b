"""The MCP server, used by clients of another implementation: the Inspector's command line and the TypeScript SDK.

They need node and npm, which fetches them once into pytest's cache.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.server.mcp_clients import NOTES, changed_by_hand, command, environment

pytestmark = pytest.mark.node
PACKAGES = ["@modelcontextprotocol/inspector@2", "@modelcontextprotocol/client@2"]
ERAS = ["legacy", "modern"]

HEAR = """
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
const [uri, era, command, ...args] = process.argv.slice(1);
const options = era === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
const client = new Client({ name: "test", version: "1" }, options);
client.setNotificationHandler("notifications/resources/updated", async (news) => {
  console.log(JSON.stringify(news.params.uri));
  await client.close();
  process.exit(0);
});
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
if (era === "modern") await client.listen({ resourceSubscriptions: [uri] });
else await client.subscribeResource({ uri });
console.log(JSON.stringify("listening"));
"""


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest, require_tool: Callable[[str], str]) -> Path:
    """The folder with the clients, installed by npm."""
    require_tool("node")
    npm, folder = require_tool("npm"), Path(request.config.cache.mkdir("node"))
    if not (folder / "installed").exists():
        wanted = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
        ran = subprocess.run(wanted, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            unavailable(f"npm could not install the MCP Inspector: {ran.stderr[-500:]}")
        (folder / "installed").touch()
    return folder / "node_modules"


@pytest.fixture
def inspect(node_modules: Path, tmp_path: Path) -> Callable[..., Any]:
    """``inspect(era, method, ...)`` returns the result of one request that the Inspector makes."""

    def run(era: str, method: str, *args: str) -> Any:
        program = str(node_modules / ".bin" / "mcp-inspector")
        how = ["--cli", "--protocol-era", era, "--format", "json", "--quiet", "--method", method, *args]
        passed = ["-e", f"PYTHONPATH={environment()['PYTHONPATH']}"]
        env = environment() | {"HOME": str(tmp_path)}
        ran = subprocess.run(
            [program, *how, *passed, *command(tmp_path)], env=env, capture_output=True, text=True, timeout=120
        )
        assert 0 == ran.returncode, ran.stdout + ran.stderr
        return json.loads(ran.stdout)["result"]

    return run


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_the_tools(inspect: Callable[..., Any], era: str) -> None:
    """It finds no fault with their schemas, which it looks for with --strict."""
    names = [tool["name"] for tool in inspect(era, "tools/list", "--strict")["tools"]]

    assert ["read_memory", "append_memory", "edit_memory"] == names[:3]


def test_the_inspector_calls_and_reads(inspect: Callable[..., Any]) -> None:
    """Its requests are answered as the session answers them, and what it wrote is what it reads."""
    line = json.dumps({"file": "notes", "content": "- by the Inspector\n"})
    called = inspect("modern", "tools/call", "--tool-name", "append_memory", "--tool-args-json", line)
    uris = [resource["uri"] for resource in inspect("legacy", "resources/list")["resources"]]
    (read,) = inspect("modern", "resources/read", "--uri", NOTES)["contents"]
    (prompt,) = inspect("legacy", "prompts/get", "--prompt-name", "memory")["messages"]

    assert called["content"][0]["text"].startswith("Added to the end of notes.")
    assert ([NOTES, "memory://files/rules"], "# Notes\n- by the Inspector\n") == (uris, read["text"])
    assert "- notes (RW, 27B of 16384B): What is known." in prompt["content"]["text"]


@pytest.mark.parametrize("uri", [NOTES, "memory://files/%6Eotes"])
@pytest.mark.parametrize("era", ERAS)
def test_the_typescript_client_hears_of_a_change_by_hand(
    node_modules: Path, tmp_path: Path, era: str, uri: str
) -> None:
    """Whoever changes a record, a client of another implementation that subscribed is told, under its own URI."""
    asked = ["node", "--input-type=module", "-e", HEAR, uri, era, *command(tmp_path)]
    with subprocess.Popen(
        asked, cwd=node_modules.parent, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "listening" == json.loads(process.stdout.readline())
        changed_by_hand(tmp_path / ".memory" / "notes-1.json", added="- hand\n")

        assert uri == json.loads(process.stdout.readline())
