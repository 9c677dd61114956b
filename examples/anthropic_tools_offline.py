"""Give Claude a session's tools through the tool runner of Anthropic's SDK, offline: a script stands in for the API.

Needs memfiles[anthropic]. Run it: python examples/anthropic_tools_offline.py
"""

import json
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic

import memfiles
from memfiles.adapters.anthropic_tools import tools

WORKFLOW = Path(__file__).with_name("workflow.yaml")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_memory", {"file": "playbook"}),
    ("append_memory", {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}),
    ("append_memory", {"file": "playbook", "content": "- Ask no questions.\n"}),
]


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Stand in for Anthropic's API: one call a turn, then an answer."""
    asked = json.loads(request.content)
    last, turn = asked["messages"][-1]["content"], 0
    if isinstance(last, list):  # the result of the last call, as the model sees it
        print(last[0].get("is_error", False), last[0]["content"].strip())
        turn = int(last[0]["tool_use_id"].removeprefix("toolu_")) + 1
    else:
        print([tool["name"] for tool in asked["tools"]])
    content: dict[str, Any] = {"type": "text", "text": "I have refunded the second charge, Ada."}
    if turn < len(CALLS):
        name, sent = CALLS[turn]
        content = {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": sent}
    reason = "tool_use" if turn < len(CALLS) else "end_turn"
    message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "claude", "content": [content]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json={**message, "stop_reason": reason, "stop_sequence": None, "usage": usage})


def main() -> None:
    """Run the vendor's tool runner on a session, then show what it remembers."""
    client = Anthropic(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(scripted)))
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        asked: Any = [{"role": "user", "content": "I was charged twice. Ada"}]
        offered, told = tools(session), session.system_prompt()
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=1024, system=told, messages=asked, tools=offered
        )
        runner.until_done()
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
