"""What the README has MCP clients start, starts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.mcp_clients import environment, workflow_in
from tests.support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("Claude Code, on the command line") : README.index("## Security model")]
SNIPPETS = dict(re.findall(r"in `([^`]+)`:\n\n```json\n(.*?)^```$", SECTION, re.M | re.S))
PLACES = {
    "claude_desktop_config.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".vscode/mcp.json": "servers",
}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.M | re.S)


def started(command: list[str], folder: Path) -> Any:
    """What the server that a client is told to start answers to its first request, on the way out."""
    assert ["memfiles", "mcp"] == command[:2]
    args = [str(workflow_in(folder)) if arg == "/path/to/workflow.yaml" else arg for arg in command[1:]]
    program = [sys.executable, "-m", "memfiles.cli", *args]
    asked = json.dumps(HELLO) + "\n"
    ran = subprocess.run(program, input=asked, env=environment(), capture_output=True, text=True, timeout=60)
    assert (0, "") == (ran.returncode, ran.stderr)
    return json.loads(ran.stdout)["result"]["serverInfo"]["name"]


def test_there_is_a_snippet_for_each_client() -> None:
    """Each names the file that it is for, and has the outer key that this client knows."""

    assert {place: [*json.loads(text)] for place, text in SNIPPETS.items()} == {
        place: [key] for place, key in PLACES.items()
    }
    assert 4 == len(blocks("json"))
    assert "`.mcp.json` in the folder of a project:" in SECTION


@pytest.mark.parametrize("text", blocks("json"), ids=["claude-code", "claude-desktop", "cursor", "vs-code"])
def test_what_a_snippet_starts(text: str, tmp_path: Path) -> None:
    """It is JSON, and its command serves the memory over stdio."""
    ((_, servers),) = json.loads(text).items()
    server = servers["memory"]

    assert "stdio" == server.get("type", "stdio")
    assert "memfiles" == started([server["command"], *server["args"]], tmp_path)


def test_what_claude_code_is_told_on_the_command_line(tmp_path: Path) -> None:
    """What stands behind the two dashes is the command."""
    (line,) = blocks("sh")
    words = shlex.split(line)

    assert ["claude", "mcp", "add", "--transport", "stdio", "memory", "--"] == words[:7]
    assert "memfiles" == started(words[7:], tmp_path)
