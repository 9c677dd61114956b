"""Give Claude its own memory tool on declared files, offline: a script stands in for the API.

Needs memfiles[anthropic]. Run it: python examples/anthropic_memory_offline.py
"""

import json
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic

import memfiles
from memfiles.adapters.anthropic_memory import MemoryTool

WORKFLOW = Path(__file__).with_name("workflow.yaml")
COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "insert", "path": "/memories/customer-notes", "insert_line": 1, "insert_text": "- Ada is on Pro."},
    {"command": "delete", "path": "/memories/playbook"},
]


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Stand in for Anthropic's API: one command a turn, then an answer."""
    last, turn = json.loads(request.content)["messages"][-1]["content"], 0
    if isinstance(last, list):  # the result of the last command, as the model sees it
        print(last[0]["content"], end="\n\n")
        turn = int(last[0]["tool_use_id"].removeprefix("toolu_")) + 1
    content: dict[str, Any] = {"type": "text", "text": "Noted, Ada."}
    if turn < len(COMMANDS):
        content = {"type": "tool_use", "id": f"toolu_{turn}", "name": "memory", "input": COMMANDS[turn]}
    reason = "tool_use" if turn < len(COMMANDS) else "end_turn"
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "claude", "content": [content]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json={**message, "stop_reason": reason, "stop_sequence": None, "usage": usage})


def main() -> None:
    """Run the vendor's tool runner on a session, then show what it remembers."""
    client = Anthropic(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(scripted)))
    with memfiles.open(WORKFLOW, watch=False) as memory:
        runner = client.beta.messages.tool_runner(
            model="claude",
            max_tokens=1024,
            messages=[{"role": "user", "content": "I moved to Pro. Ada"}],
            tools=[MemoryTool(memory.session("support", run="email-1"))],
        )
        runner.until_done()
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
