"""A small memory for the tests of adapters, and stand-ins for the models that use it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
"""


@contextmanager
def opened(folder: Path) -> Iterator[memfiles.Memory]:
    """The memory, open in this process."""
    path = folder / "workflow.yaml"
    path.write_text(WORKFLOW)
    with memfiles.open(path, watch=False) as memory:
        yield memory


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
    """Stands in for Anthropic's API: the turns of a conversation, and the requests that they answered.

    A turn is the calls that the model makes, by tool name and input, or what makes them when it is asked. Without
    another turn the model says that it is done.
    """

    def __init__(self, *turns: Sequence[tuple[str, Any]] | Callable[[], Sequence[tuple[str, Any]]]) -> None:
        self._turns = turns
        self.requests: list[dict[str, Any]] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """The response to one request."""
        self.requests.append(json.loads(request.content))
        at = len(self.requests) - 1
        turn = self._turns[at] if at < len(self._turns) else ()
        calls = turn() if callable(turn) else turn
        content: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"toolu_{at}_{number}", "name": name, "input": sent}
            for number, (name, sent) in enumerate(calls)
        ]
        said = {"id": f"msg_{at}", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
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


def said_without(*modules: str, program: str) -> str:
    """What a program prints in a fresh interpreter in which these modules cannot be imported."""
    absent = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", absent + program], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout
