"""The steps of the demo, and the agent loop in it. Every claim is checked; one that fails raises ``DemoFailed``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import memfiles
from memfiles.cli.demo.support_desk import ADA, AMBIGUOUS, DELICATE, KNOWN, LOG, NOTES, REFUSED, SCRIPT, TASK, ticket
from memfiles.errors import MemfilesError
from memfiles.tools.results import ToolResult
from memfiles.tools.session import Session

ACKNOWLEDGED = 60
PATIENCE = 60.0  # seconds for the writer to get there, on a slow disk and a busy machine
Block = dict[str, Any]
LineKind = Literal["text", "call", "result", "error", "person"]


class DemoFailed(MemfilesError, code="demo_failed"):
    """A claim of the demo did not hold."""


class StoryStep(NamedTuple):
    """The beginning of a step: its name and a line of explanation."""

    title: str
    explanation: str


class Shown(NamedTuple):
    """A text of a step, a tool call, its result, or an error result."""

    text: str
    kind: LineKind = "text"


Story = Generator[StoryStep | Shown, None, None]


def tell(workflow: Path) -> Story:
    """Play the whole story on the workflow at ``workflow``, step by step."""
    with memfiles.open(workflow, watch=False) as memory:
        yield from _declare(memory)
        yield from _work(memory)
        yield from _remember(memory)
        yield from _forget(memory)
    yield StoryStep("Kill", "A process appends to ticket-log at full speed and is killed in mid-write.")
    acknowledged = acknowledged_by_a_killed_writer(workflow)
    yield Shown(f"SIGKILL after {acknowledged} acknowledged appends")
    with memfiles.open(workflow, watch=False) as memory:
        yield from _restart(memory, acknowledged=acknowledged)
        yield StoryStep("History", "The record itself keeps every change and who made it.")
        for change in memory.manager.log(NOTES):
            by = f"{change.by.agent or 'memfiles'} {change.by.call or ''}".strip()
            yield Shown(f"revision {change.revision}  {change.op:<6} by {by}")
        yield from _undo(memory)
        yield from _mirror(memory)
    yield from cold_start(workflow)


def _declare(memory: memfiles.Memory) -> Story:
    yield StoryStep("Declare", "workflow.yaml declares memory files and who may use them.")
    for file in memory.workflow.memory.files:
        state = memory.report[file.uid].status
        yield Shown(f"{file.name} ({state}, cap {file.max_size_bytes} bytes): {file.description}")
    yield StoryStep("Card", "The system prompt lists the files, not their content.")
    with closing(memory.session("support")) as session:
        yield Shown(session.system_prompt())


def _work(memory: memfiles.Memory) -> Story:
    yield StoryStep("Work", "The model calls tools; a failure is an error result, never a crash.")
    yield Shown(TASK, kind="person")
    with closing(memory.session("support", run="monday")) as session:
        results = yield from run_agent(ScriptedModel(SCRIPT), session, task=TASK)
        _expect(results[REFUSED].is_error, "text over the cap was not refused")
        _expect("first of 2" in results[AMBIGUOUS].text, "an ambiguous edit did not say so")
        yield StoryStep("Card again", "The cap held, and the edit with two matches reported them.")
        yield Shown(session.system_prompt())


def _remember(memory: memfiles.Memory) -> Story:
    yield StoryStep("Remember", "Other facts are saved as entries under keys, at the session's level.")
    with closing(memory.session("support", run="monday")) as session:
        yield from _call(session, "memory_save", key=ADA, content=KNOWN, tags=["billing"])
        before = session.system_prompt()
        session.raise_level("CONFIDENTIAL")
        yield from _call(session, "memory_save", key=ADA, content=DELICATE)
        yield Shown(memory.entries.hydrate(session).text)
        _expect(KNOWN in before and DELICATE in session.system_prompt(), "a saved entry is not in the system prompt")
    with closing(memory.session("support", run="tuesday")) as session:
        yield Shown("Tuesday, back at INTERNAL: entries above that level are not visible.", kind="person")
        found = yield from _call(session, "memory_search", query="What do we know about Ada?", max_results=3)
        _expect(
            [result["content"] for result in found["results"]] == [KNOWN],
            "a search found an entry above the session's level",
        )


def _forget(memory: memfiles.Memory) -> Story:
    yield StoryStep("Forget", "A deleted entry can be restored; a forgotten one is gone from every file.")
    with closing(memory.session("support", level="CONFIDENTIAL")) as session:
        forgotten = memory.entries.forget(session, key=ADA, why="Ada asked us to")
        files = [path for path in memory.workflow.directory.rglob("*") if path.is_file()]
        holding = [path for path in files if DELICATE.encode() in _bytes_of(path)]
        _expect((forgotten.count, holding) == (1, []), "a forgotten text is still on the disk")
        yield Shown(f"{len(files)} files searched, none holds the text; a tombstone says who, when and why")


def _call(session: Session, tool: str, **arguments: object) -> Generator[Shown, None, Block]:
    """Make one tool call as a model would, and return the data of its result."""
    yield Shown(f"{tool} {json.dumps(arguments, ensure_ascii=False)}", kind="call")
    result = session.call(tool, arguments)
    _expect(not result.is_error, result.text)
    yield Shown(result.text, kind="result")
    return result.data or {}


def _restart(memory: memfiles.Memory, *, acknowledged: int) -> Story:
    yield StoryStep("Restart", "Opening the workflow recovers what the dead process left.")
    content = memory.manager.read(LOG)
    lines = content.count("\n")
    _expect(content == "".join(map(ticket, range(1, lines + 1))), "the log has a torn or missing line")
    is_right = acknowledged <= lines <= acknowledged + 1
    _expect(is_right, f"{acknowledged} appends were acknowledged, but {lines} lines are there")
    unacknowledged = f", and {lines - acknowledged} more that was not acknowledged yet" if lines > acknowledged else ""
    yield Shown(f"all {acknowledged} acknowledged lines are there, in order, none torn{unacknowledged}")


def _undo(memory: memfiles.Memory) -> Story:
    yield StoryStep("Undo", "A person undoes the last change; the undo is a new revision.")
    before = memory.manager.read(NOTES)
    receipt = memory.manager.undo(NOTES, by=memfiles.Actor(session="person"))
    _expect(memory.manager.read(NOTES) != before, "the undo changed nothing")
    yield Shown(memory.manager.diff(NOTES, receipt.revision - 1, receipt.revision))


def _mirror(memory: memfiles.Memory) -> Story:
    yield StoryStep("Mirror", "In the background everything went to a mirror: a directory here, or S3.")
    _expect(memory.sync.flush(PATIENCE), "the mirror did not take what was changed")
    status = memory.sync.status()
    _expect((status.pending, status.last_error) == (0, None), "the mirror is behind")
    yield Shown(f"{len(memory.manager.uids())} memory files are mirrored, nothing is pending")


def cold_start(workflow: Path) -> Story:
    """Delete the memory directory, open the workflow again, and check that all of it is back."""
    yield StoryStep("Cold start", "The directory is deleted, as on a new machine; opening fetches it.")
    directory = workflow.parent / ".memory"
    before = _records_in(directory)
    shutil.rmtree(directory)
    with memfiles.open(workflow, watch=False) as memory:
        for file in memory.report.files:
            _expect(file.status == "hydrated", f"{file.name} was {file.status}, not fetched from the mirror")
            yield Shown(f"{file.name}: {file.status}")
    _expect(_records_in(directory) == before, "the fetched records differ from the deleted ones")
    yield Shown(f"the same {len(before)} records with all their history, byte for byte")


def _records_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.json")}


def acknowledged_by_a_killed_writer(workflow: Path) -> int:
    """Start the writer, kill it while it works, and return how many appends it had acknowledged."""
    command = [sys.executable, "-m", "memfiles.cli.demo.support_desk", str(workflow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as writer:
        watchdog = threading.Timer(PATIENCE, writer.kill)
        watchdog.start()
        try:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(ACKNOWLEDGED)]
            writer.kill()
            lines += writer.stdout.readlines()
        finally:
            watchdog.cancel()
            writer.kill()
    acknowledged = [int(line) for line in lines if line.endswith("\n")]
    _expect(len(acknowledged) >= ACKNOWLEDGED, f"the writer acknowledged only {len(acknowledged)} appends")
    return acknowledged[-1]


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(f"the demo failed: {otherwise}; please report this")


def _bytes_of(path: Path) -> bytes:
    """The bytes of a file; empty if it has been removed meanwhile, as often happens to the ledger's journal."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class ScriptedModel:
    """A model that answers like the Messages API, from a script; it fails if a tool it calls was not offered."""

    def __init__(self, script: Iterable[list[Block]]) -> None:
        self._turns = iter(script)

    def create(self, *, system: str, tools: list[Block], messages: list[Block]) -> Block:
        """The next message of the model; a real model would work from the three arguments."""
        content = next(self._turns)
        offered = {tool["name"] for tool in tools}
        calls = [block for block in content if block["type"] == "tool_use"]
        missing = sorted({block["name"] for block in calls} - offered)
        if missing or not system or not messages:
            raise ValueError(f"the model was not offered {', '.join(missing) or 'a system prompt and a message'}")
        return {"role": "assistant", "content": content, "stop_reason": "tool_use" if calls else "end_turn"}


def run_agent(model: ScriptedModel, session: Session, *, task: str) -> Generator[Shown, None, dict[str, ToolResult]]:
    """Let the model work on ``task`` until it calls no more tools; returns the results by the ids of their calls.

    A result goes back to the model also when it is an error.
    """
    messages: list[Block] = [{"role": "user", "content": task}]
    results: dict[str, ToolResult] = {}
    while True:
        reply = model.create(system=session.system_prompt(), tools=session.tools("anthropic"), messages=messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        if reply["stop_reason"] != "tool_use":
            yield Shown(reply["content"][0]["text"])
            return results
        answers: list[Block] = []
        for block in reply["content"]:
            result = results[block["id"]] = session.call(block["name"], block["input"], call_id=block["id"])
            answer = {"type": "tool_result", "content": result.text, "is_error": result.is_error}
            answers.append(answer | {"tool_use_id": block["id"]})
            yield Shown(f"{block['name']} {json.dumps(block['input'], ensure_ascii=False)}", kind="call")
            yield Shown(result.text, kind="error" if result.is_error else "result")
        messages.append({"role": "user", "content": answers})
