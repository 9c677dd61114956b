"""The steps of the demo, and the agent loop in it. Every claim is checked; one that fails raises ``DemoFailed``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Protocol

import memfiles
from memfiles.cli.demo.support_desk import ADA, AMBIGUOUS, DELICATE, KNOWN, LOG, NOTES, REFUSED, SCRIPT, TASK, ticket
from memfiles.errors import MemfilesError
from memfiles.tools.session import Session

ACKNOWLEDGED = 60
PATIENCE = 60.0  # seconds for the writer to get there, on a slow disk and a busy machine
Block = dict[str, Any]
OnCall = Callable[[Block, Block], None]
LineKind = Literal["text", "call", "result", "error", "person"]


class DemoFailed(MemfilesError, code="demo_failed"):
    """A claim of the demo did not hold."""


class Audience(Protocol):
    """The receiver of the story."""

    def step(self, title: str, explanation: str) -> None:
        """Begin a step, with its name and a line of explanation."""

    def show(self, text: str, *, kind: LineKind = "text") -> None:
        """Show a text, a tool call, its result, or an error result."""


def tell(audience: Audience, workflow: Path) -> None:
    """Play the whole story on the workflow at ``workflow``."""
    with memfiles.open(workflow, watch=False) as memory:
        _declare(audience, memory)
        _work(audience, memory)
        _remember(audience, memory)
        _forget(audience, memory)
    audience.step("Kill", "A process appends to ticket-log at full speed and is killed in mid-write.")
    acknowledged = acknowledged_by_a_killed_writer(workflow)
    audience.show(f"SIGKILL after {acknowledged} acknowledged appends")
    with memfiles.open(workflow, watch=False) as memory:
        _restart(audience, memory, acknowledged=acknowledged)
        audience.step("History", "The record itself keeps every change and who made it.")
        for change in memory.manager.log(NOTES):
            by = f"{change.by.agent or 'memfiles'} {change.by.call or ''}".strip()
            audience.show(f"revision {change.revision}  {change.op:<6} by {by}")
        _undo(audience, memory)
        _mirror(audience, memory)
    cold_start(audience, workflow)


def _declare(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Declare", "workflow.yaml declares memory files and who may use them.")
    for file in memory.workflow.memory.files:
        state = memory.report[file.uid].status
        audience.show(f"{file.name} ({state}, cap {file.max_size_bytes} bytes): {file.description}")
    audience.step("Card", "The system prompt lists the files, not their content.")
    with closing(memory.session("support")) as session:
        audience.show(session.system_prompt())


def _work(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Work", "The model calls tools; a failure is an error result, never a crash.")
    audience.show(TASK, kind="person")
    results: dict[str, dict[str, Any]] = {}

    def show_call(call: dict[str, Any], result: dict[str, Any]) -> None:
        results[call["id"]] = result
        audience.show(f"{call['name']} {json.dumps(call['input'], ensure_ascii=False)}", kind="call")
        audience.show(result["content"], kind="error" if result["is_error"] else "result")

    with closing(memory.session("support", run="monday")) as session:
        messages = run_agent(ScriptedModel(SCRIPT), session, task=TASK, on_call=show_call)
        audience.show(messages[-1]["content"][0]["text"], kind="text")
        _expect(results[REFUSED]["is_error"], "text over the cap was not refused")
        _expect("first of 2" in results[AMBIGUOUS]["content"], "an ambiguous edit did not say so")
        audience.step("Card again", "The cap held, and the edit with two matches reported them.")
        audience.show(session.system_prompt())


def _remember(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Remember", "Other facts are saved as entries under keys, at the session's level.")
    with closing(memory.session("support", run="monday")) as session:
        _call(audience, session, "memory_save", key=ADA, content=KNOWN, tags=["billing"])
        before = session.system_prompt()
        session.raise_level("CONFIDENTIAL")
        _call(audience, session, "memory_save", key=ADA, content=DELICATE)
        audience.show(memory.entries.hydrate(session).text)
        _expect(KNOWN in before and DELICATE in session.system_prompt(), "a saved entry is not in the system prompt")
    with closing(memory.session("support", run="tuesday")) as session:
        audience.show("Tuesday, back at INTERNAL: entries above that level are not visible.", kind="person")
        found = _call(audience, session, "memory_search", query="What do we know about Ada?", max_results=3)
        _expect(
            [result["content"] for result in found["results"]] == [KNOWN],
            "a search found an entry above the session's level",
        )


def _forget(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Forget", "A deleted entry can be restored; a forgotten one is gone from every file.")
    with closing(memory.session("support", level="CONFIDENTIAL")) as session:
        forgotten = memory.entries.forget(session, key=ADA, why="Ada asked us to")
        files = [path for path in memory.workflow.directory.rglob("*") if path.is_file()]
        holding = [path for path in files if DELICATE.encode() in _bytes_of(path)]
        _expect((forgotten.count, holding) == (1, []), "a forgotten text is still on the disk")
        audience.show(f"{len(files)} files searched, none holds the text; a tombstone says who, when and why")


def _call(audience: Audience, session: memfiles.Session, tool: str, **arguments: object) -> dict[str, Any]:
    """Make one tool call as a model would, and return the data of its result."""
    audience.show(f"{tool} {json.dumps(arguments, ensure_ascii=False)}", kind="call")
    result = session.call(tool, arguments)
    _expect(not result.is_error, result.text)
    audience.show(result.text, kind="result")
    return result.data or {}


def _restart(audience: Audience, memory: memfiles.Memory, *, acknowledged: int) -> None:
    audience.step("Restart", "Opening the workflow recovers what the dead process left.")
    content = memory.manager.read(LOG)
    lines = content.count("\n")
    _expect(content == "".join(map(ticket, range(1, lines + 1))), "the log has a torn or missing line")
    is_right = acknowledged <= lines <= acknowledged + 1
    _expect(is_right, f"{acknowledged} appends were acknowledged, but {lines} lines are there")
    unacknowledged = f", and {lines - acknowledged} more that was not acknowledged yet" if lines > acknowledged else ""
    audience.show(f"all {acknowledged} acknowledged lines are there, in order, none torn{unacknowledged}")


def _undo(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Undo", "A person undoes the last change; the undo is a new revision.")
    before = memory.manager.read(NOTES)
    receipt = memory.manager.undo(NOTES, by=memfiles.Actor(session="person"))
    _expect(memory.manager.read(NOTES) != before, "the undo changed nothing")
    audience.show(memory.manager.diff(NOTES, receipt.revision - 1, receipt.revision))


def _mirror(audience: Audience, memory: memfiles.Memory) -> None:
    audience.step("Mirror", "In the background everything went to a mirror: a directory here, or S3.")
    _expect(memory.sync.flush(PATIENCE), "the mirror did not take what was changed")
    status = memory.sync.status()
    _expect((status.pending, status.last_error) == (0, None), "the mirror is behind")
    audience.show(f"{len(memory.manager.uids())} memory files are mirrored, nothing is pending")


def cold_start(audience: Audience, workflow: Path) -> None:
    """Delete the memory directory, open the workflow again, and check that all of it is back."""
    audience.step("Cold start", "The directory is deleted, as on a new machine; opening fetches it.")
    directory = workflow.parent / ".memory"
    before = _records_in(directory)
    shutil.rmtree(directory)
    with memfiles.open(workflow, watch=False) as memory:
        for file in memory.report.files:
            _expect(file.status == "hydrated", f"{file.name} was {file.status}, not fetched from the mirror")
            audience.show(f"{file.name}: {file.status}")
    _expect(_records_in(directory) == before, "the fetched records differ from the deleted ones")
    audience.show(f"the same {len(before)} records with all their history, byte for byte")


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


def run_agent(model: ScriptedModel, session: Session, *, task: str, on_call: OnCall) -> list[Block]:
    """Let the model work on ``task`` until it calls no more tools; returns the messages.

    ``on_call`` is called with every call and its result.
    """
    messages: list[Block] = [{"role": "user", "content": task}]
    while True:
        reply = model.create(system=session.system_prompt(), tools=session.tools("anthropic"), messages=messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        if reply["stop_reason"] != "tool_use":
            return messages
        messages.append({"role": "user", "content": [_answer(session, block, on_call) for block in reply["content"]]})


def _answer(session: Session, block: Block, on_call: OnCall) -> Block:
    """Run one tool call; its result goes back to the model, also when it is an error."""
    result = session.call(block["name"], block["input"], call_id=block["id"])
    answer = {"type": "tool_result", "tool_use_id": block["id"], "content": result.text, "is_error": result.is_error}
    on_call(block, answer)
    return answer
