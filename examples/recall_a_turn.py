"""Give a model what its memory holds about each question, and let it save what the conversation taught.

Run it: python examples/recall_a_turn.py
"""

import tempfile
from pathlib import Path
from typing import Any

import memfiles

WORKFLOW = """\
name: desk
memory: {entries: {}}
agents: {support: {level: INTERNAL}}
"""
LESSON = {"key": "customers/ada/plan", "content": "Ada moved to the Pro plan in May.", "tags": ["ada"]}


def request(session: memfiles.Session, messages: list[dict[str, str]]) -> dict[str, Any]:
    """The body of one request. The system prompt stays the same from turn to turn, for the vendor's cache of it."""
    *before, question = messages
    recalled = {"role": "user", "content": str(session.recall(question["content"], budget_bytes=2048))}
    return {
        "system": session.system_prompt(budget_bytes=0),
        "messages": [*before, *([recalled] if recalled["content"] else []), question],
    }


def model(messages: list[dict[str, str]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stands in for a real model, which would get the messages and the save tool, and answer with its calls."""
    return [{"name": tools[0]["name"], "arguments": LESSON, "id": "toolu_01"}]


def main() -> None:
    """One conversation teaches something; the next one knows it."""
    folder = Path(tempfile.mkdtemp())
    (folder / "workflow.yaml").write_text(WORKFLOW)
    with memfiles.open(folder / "workflow.yaml", watch=False) as memory:
        with_ada = memory.session("support", run="call-1")
        taught = [{"role": "user", "content": "I moved to Pro in May."}, {"role": "assistant", "content": "Noted."}]
        print("saved:", *memfiles.remember(with_ada, taught, model).saved)
        print("again:", memfiles.remember(with_ada, taught, model).replayed)

        later = memory.session("support", run="call-2")
        for message in request(later, [{"role": "user", "content": "Which plan is Ada on?"}])["messages"]:
            print(f"--- {message['role']}\n{message['content']}")


if __name__ == "__main__":
    main()
