"""A small memory for the tests of adapters, and stand-ins for the models that use it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import httpx2

import memfiles
from memfiles.storage.events import RecordChanged

PATIENCE_SECONDS = 60
WORKFLOW = """\
name: desk
memory:
  durability: os
  entries: {}
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, max_size_bytes: 1000}
    - {uid: u-play, name: playbook, description: Refunds., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "- secret deal\\n"}
agents:
  support:
    level: INTERNAL
    memory: [{id: u-notes, mode: rw}, {id: u-play, mode: r}, {id: u-deals, mode: rw}]
  late: {level: INTERNAL, memory: [{id: u-deals, mode: rw}]}
"""
_numbers = count()


class Call(NamedTuple):
    """A tool call of a scripted model; without an id it has one of its own."""

    name: str
    arguments: Any
    id: str = ""

    @property
    def known_as(self) -> str:
        """The id, which the framework passes on."""
        return self.id or f"call_{next(_numbers)}"


class Answer(NamedTuple):
    """The result of a call: its text, and whether it is marked as an error (None: the framework has no mark)."""

    text: str
    is_error: bool | None


Turn = Sequence[Call] | Callable[[], Sequence[Call]]


class Script:
    """The turns of a scripted model, and the tools and the prompt that it was given at each.

    A turn is its calls, or a function that is called when the model is asked. After the last turn the model is done.
    """

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self.offered: list[list[str]] = []
        self.prompts: list[str] = []

    def __len__(self) -> int:
        return len(self._turns)

    def next_calls(self, offered: Iterable[str], prompt: str = "") -> list[tuple[str, Any, str]]:
        """The calls of the next turn with their ids; none at the end."""
        self.offered.append([*offered])
        self.prompts.append(prompt)
        at = len(self.offered) - 1
        turn = self._turns[at] if at < len(self._turns) else ()
        return [(call.name, call.arguments, call.known_as) for call in (turn() if callable(turn) else turn)]


def append(text: str, *, file: str = "notes", id: str = "") -> Call:
    """A call that appends to a memory file."""
    return Call("append_memory", {"file": file, "content": text}, id)


class Held:
    """Stops a change between its commit and its return, so that a test can look on or cancel it."""

    def __init__(self, memory: memfiles.Memory) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        memory.manager.subscribe(self._hold)

    def wait(self) -> None:
        """Return when the change is where it is held."""
        assert self.began.wait(PATIENCE_SECONDS)

    def _hold(self, _: RecordChanged) -> None:
        self.began.set()
        assert self.go_on.wait(PATIENCE_SECONDS)


class ScriptedClaude:
    """Stands in for Anthropic's API: a script as the responses, and the requests that they answered."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[dict[str, Any]] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """The response to one request; without another turn the model says that it is done."""
        sent = json.loads(request.content)
        self.requests.append(sent)
        calls = self._script.next_calls((tool["name"] for tool in sent.get("tools", [])), str(sent.get("system", "")))
        content: list[dict[str, Any]] = [
            {"type": "tool_use", "id": id, "name": name, "input": arguments} for name, arguments, id in calls
        ]
        said = {"id": "msg", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
        reason = {"stop_reason": "tool_use" if content else "end_turn"}
        usage = {"usage": {"input_tokens": 1, "output_tokens": 1}}
        content = content or [{"type": "text", "text": "Done."}]
        return httpx2.Response(200, json={**said, **reason, **usage, "content": content})

    async def answer_later(self, request: httpx2.Request) -> httpx2.Response:
        """As ``answer``, for asynchronous clients."""
        return self.answer(request)

    @property
    def results(self) -> list[dict[str, Any]]:
        """What the model was told of its calls, in order."""
        last = [request["messages"][-1]["content"] for request in self.requests[1:]]
        return [block for content in last for block in content if isinstance(block, dict)]


def output_of(program: str) -> str:
    """What a program prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout
