"""An agent loop as one writes it for the Anthropic API, with a scripted model in place of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from memfiles.tools.session import Session

Block = dict[str, Any]
Heard = Callable[[Block, Block], None]


class ScriptedModel:
    """Answers as the Messages API would, from a script; refuses to call a tool it was not offered."""

    def __init__(self, script: Iterable[list[Block]]) -> None:
        self._turns = iter(script)

    def create(self, *, system: str, tools: list[Block], messages: list[Block]) -> Block:
        """The next message of the model (the three arguments are what a real model would work from)."""
        content = next(self._turns)
        offered = {tool["name"] for tool in tools}
        calls = [block for block in content if block["type"] == "tool_use"]
        missing = sorted({block["name"] for block in calls} - offered)
        if missing or not system or not messages:
            raise ValueError(f"the model was not offered {', '.join(missing) or 'a system prompt and a message'}")
        return {"role": "assistant", "content": content, "stop_reason": "tool_use" if calls else "end_turn"}


def run_agent(model: ScriptedModel, session: Session, *, task: str, heard: Heard) -> list[Block]:
    """Let the model work on ``task`` until it calls no more tools; returns the messages.

    ``heard`` is told of every call with its result.
    """
    messages: list[Block] = [{"role": "user", "content": task}]
    while True:
        reply = model.create(system=session.system_prompt(), tools=session.tools("anthropic"), messages=messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        if reply["stop_reason"] != "tool_use":
            return messages
        messages.append({"role": "user", "content": [_answer(session, block, heard) for block in reply["content"]]})


def _answer(session: Session, block: Block, heard: Heard) -> Block:
    """Carry out one call: the result goes back to the model, also when it is an error."""
    result = session.call(block["name"], block["input"], call_id=block["id"])
    answer = {"type": "tool_result", "tool_use_id": block["id"], "content": result.text, "is_error": result.is_error}
    heard(block, answer)
    return answer
