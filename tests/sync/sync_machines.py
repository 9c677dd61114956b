"""Machines that share a mirror, as the tests drive them: a directory and a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.workflows import write_workflow

LONGEST_SECONDS = 180.0


def write_shared_workflow(
    folder: Path, url: str, *, uids: Sequence[str] = ("notes",), description: str = "", content: str = "", **mirror: str
) -> Path:
    """Write a workflow whose memory is mirrored at ``url`` (not at all if empty); ``mirror`` has more settings."""
    known = {"description": description, "max_size_bytes": 1 << 20}
    files = [{"uid": uid, "name": uid, "content": content or f"# {uid}\n", **known} for uid in uids]
    agents = {"writer": {"memory": [{"id": uid, "mode": "rw"} for uid in uids]}}
    memory = {"files": files} | ({"mirror": {"url": url, **mirror}} if url else {})
    declared = {"name": "shared", "memory": memory, "agents": agents}
    return write_workflow(folder, json.dumps(declared))


def record_bytes(workflow: Path, uid: str = "notes") -> bytes:
    """A record as it lies on the disk of a machine."""
    return (workflow.parent / ".memory" / f"{uid}.json").read_bytes()


def content(workflow: Path, uid: str = "notes") -> str:
    """The content of a record on the disk of a machine."""
    return str(json.loads(record_bytes(workflow, uid))["content"])


class Machine:
    """A process on a workflow; a context manager that ends it."""

    def __init__(self, workflow: Path, name: str) -> None:
        """Start it and wait until it is open."""
        self.workflow = workflow
        self.name = name
        self.acknowledged: list[int] = []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sync.machine", str(workflow), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.report: dict[str, Any] = self._answer("opened")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def begin(self, command: str, **arguments: Any) -> None:
        """Have it do something; ``result`` waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """What the command that was begun came to."""
        return self._answer("result")

    def do(self, command: str, **arguments: Any) -> Any:
        """Have it do something, and wait for the result."""
        self.begin(command, **arguments)
        return self.result()

    def close(self) -> None:
        """Let it close its memory and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._answer("closed")
        self.process.wait(LONGEST_SECONDS)

    def kill(self) -> list[int]:
        """Kill it; the numbers it had acknowledged."""
        self.process.kill()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._hear(line)
        return self.acknowledged

    def _answer(self, key: str) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = self._hear(line)
            if key in answer:
                return answer[key]
        raise AssertionError(f"machine {self.name} ended with {self.process.wait()}")

    def _hear(self, line: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(line)
        if "acknowledged" in answer:
            self.acknowledged.append(answer["acknowledged"])
        return answer
