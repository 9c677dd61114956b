"""Put the index card into a system prompt: the request that would go to the Anthropic Messages API.

Run it: python examples/system_prompt.py
"""

import json
from pathlib import Path

import memfiles

WORKFLOW = Path(__file__).with_name("workflow.yaml")
ROLE = "You answer customers of a small software company. Keep what the next shift must know in your memory files."


def request(session: memfiles.Session, message: str) -> dict[str, object]:
    """The body of one request, with the card and the tools of this moment."""
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "system": f"{ROLE}\n\n{session.system_prompt()}",
        "tools": session.tools("anthropic"),
        "messages": [{"role": "user", "content": message}],
    }


def main() -> None:
    """Print the request, then the result of a tool call as the API expects it."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        print(json.dumps(request(session, "I was charged twice."), indent=2))

        # What the model sends back, and the result it gets; a failure is a result too.
        result = session.call("read_memory", {"file": "playbook"}, call_id="toolu_01")
        answer = {"tool_use_id": "toolu_01", "content": result.text, "is_error": result.is_error}
        print(json.dumps({"type": "tool_result", **answer}, indent=2))


if __name__ == "__main__":
    main()
