"""``demo``: the steps of its story, and how it is played, on a terminal or as JSON.

The rules this file guards: every claim is checked, and one that fails raises ``DemoFailed``. Nothing is removed that
the demo did not write itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import Struct

import memfiles
from memfiles.cli import output
from memfiles.cli.commands.deploy import SCHEMA, refuse_url, write_new
from memfiles.cli.demo import support_desk
from memfiles.cli.demo.support_desk import ADA, AMBIGUOUS, ANSWER, DELICATE, KNOWN, LOG, NOTES, REFUSED, SCRIPT, TASK
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.options import command, current, filled, option
from memfiles.errors import MemfilesError
from memfiles.records import NamedTuple
from memfiles.records.graphemes import harmless
from memfiles.records.keys import temp_path
from memfiles.tools.json_schemas import as_text, workflow_schema
from memfiles.tools.results import ToolResult
from memfiles.tools.session import Session

MARK = ".memfiles-demo"
_OWN_FILES = {MARK, "workflow.yaml", temp_path("workflow.yaml")}
_OWN_FOLDERS = {".memory", "mirror", "schemas"}
_WIDEST = 100  # columns
_PREFIX = {"text": "", "person": "", "call": "-> ", "result": "<- ", "error": "<- error: "}
_COLOR = {"call": "cyan", "error": "yellow"}
ACKNOWLEDGED = 60
PATIENCE = 60.0  # seconds for the writer to get there, on a slow disk and a busy machine
LineKind = Literal["text", "call", "result", "error", "person"]


@command("demo", "memfiles demo --dir demo")
@option("--dir", "directory", type=click.Path(file_okay=False), callback=filled, help="Directory to work in and keep.")
def demo_command(directory: str | None) -> None:
    """Show an agent with memory: tool calls, a crash, an undo, a lost disk.

    It runs offline and in seconds, in a temporary directory that is removed at the end. With --dir it uses and keeps
    a new or empty directory, or empties one that an earlier demo left.
    """
    if directory is not None:
        refuse_url(directory, command="demo")
    with prepared(Path(directory) if directory else None) as workflow, closing(tell(workflow)) as story:
        if current().json:
            output.data({"ok": True, "directory": directory, "steps": collected(story)})
            return
        output.line("A support desk whose agent has memory. No network; everything happens in one directory.")
        print_story(story)
    _say_what_next(directory)


def collected(story: Story) -> list[dict[str, Any]]:
    """The steps of the story with what they show, for JSON."""
    steps: list[dict[str, Any]] = []
    for told in story:
        if isinstance(told, StoryStep):
            steps.append({**told._asdict(), "shown": []})
        else:
            steps[-1]["shown"].append({"kind": told.kind, "text": told.text})
    return steps


def print_story(story: Story) -> None:
    """Print the story on a terminal of any width, or to a pipe: numbered steps, and what they show after a bar."""
    number, columns = 0, min(output.width(), _WIDEST)
    for told in story:
        if isinstance(told, StoryStep):
            number += 1
            click.echo()
            click.echo(click.style(f"{number}. {told.title}", bold=True))
            output.line(textwrap.fill(told.explanation, columns, initial_indent="   ", subsequent_indent="   "))
        else:
            _print_shown(told, columns=columns)


def _print_shown(shown: Shown, *, columns: int) -> None:
    """Print a text after a bar; its lines are wrapped and keep their indentation."""
    prefix, color = _PREFIX[shown.kind], _COLOR.get(shown.kind)
    for line in harmless(shown.text).rstrip("\n").split("\n"):
        text = line.lstrip(" ")
        first, further = prefix + " " * (len(line) - len(text)), " " * len(prefix)
        for part in textwrap.wrap(text, columns - 5, initial_indent=first, subsequent_indent=further) or [""]:
            click.echo(("   | " + (click.style(part, fg=color) if color else part)).rstrip())
        prefix = further


def _say_what_next(directory: str | None) -> None:
    click.echo()
    click.echo(click.style("What next", bold=True))
    look = f"cd {directory} && memfiles log customer-notes" if directory else "memfiles demo --dir demo"
    why = "look at what the demo left" if directory else "run it again and keep the files"
    width = max(len(look), len("memfiles init my-agents"))
    output.line(f"   {look:<{width}}  {why}")
    if directory:
        output.line(f"   {'memfiles ui':<{width}}  see it in a browser (needs memfiles[ui])")
    output.line(f"   {'memfiles init my-agents':<{width}}  create a workflow of your own")


@contextmanager
def prepared(directory: Path | None) -> Iterator[Path]:
    """The path of a new demo workflow; without a directory it is temporary."""
    if directory is not None:
        _empty(directory)
        yield _written(directory)
        return
    with tempfile.TemporaryDirectory(prefix="memfiles-demo-") as made:
        yield _written(Path(made))


def _empty(directory: Path) -> None:
    """Create the directory, or remove what an earlier demo left in it."""
    directory.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in directory.iterdir()}
    foreign = there - _OWN_FILES - _OWN_FOLDERS if MARK in there else there
    if foreign:
        raise AlreadyThere(f"{directory} is not empty (it has {sorted(foreign)[0]}); give the demo a new directory")
    for name in sorted(there & _OWN_FOLDERS):
        path = directory / name
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    for name in sorted(there & _OWN_FILES):
        (directory / name).unlink()


def _written(directory: Path) -> Path:
    (directory / MARK).write_text("created by memfiles demo, which empties this directory when it runs here again\n")
    mirror = directory / "mirror"
    mirror.mkdir(mode=0o700)
    write_new(directory, {"workflow.yaml": support_desk.workflow_text(mirror), SCHEMA: as_text(workflow_schema())})
    return directory / "workflow.yaml"


class DemoFailed(MemfilesError, code="demo_failed"):
    """A claim of the demo did not hold."""


class StoryStep(NamedTuple):
    """The beginning of a step: its name and a line of explanation."""

    title: str
    explanation: str


class Shown(Struct, frozen=True):
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
        for change in reversed(memory.manager.log(NOTES)):
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
        results = yield from play(SCRIPT, session)
        yield Shown(ANSWER)
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


def _call(session: Session, tool: str, **arguments: object) -> Generator[Shown, None, dict[str, Any]]:
    """Make one tool call that succeeds, and return the data of its result."""
    result = yield from _shown_call(session, tool, arguments)
    _expect(not result.is_error, result.text)
    return result.data or {}


def _shown_call(
    session: Session, tool: str, arguments: Mapping[str, object], call_id: str | None = None
) -> Generator[Shown, None, ToolResult]:
    result = session.call(tool, arguments, call_id=call_id)
    yield Shown(f"{tool} {json.dumps(arguments, ensure_ascii=False)}", kind="call")
    yield Shown(result.text, kind="error" if result.is_error else "result")
    return result


def _restart(memory: memfiles.Memory, *, acknowledged: int) -> Story:
    yield StoryStep("Restart", "Opening the workflow recovers what the dead process left.")
    content = memory.manager.read(LOG)
    lines = content.count("\n")
    _expect(content == "".join(map(support_desk.ticket, range(1, lines + 1))), "the log has a torn or missing line")
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as writer:
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
    acknowledged = [int(line) for line in lines if line.endswith(b"\n")]
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


def play(script: Iterable[support_desk.ScriptedCall], session: Session) -> Generator[Shown, None, list[ToolResult]]:
    """Make the calls of a model in turn, and return their results; ``DemoFailed`` if a tool is not offered then."""
    results = []
    for number, (tool, arguments) in enumerate(script, 1):
        _expect(tool in {each["name"] for each in session.tools("anthropic")}, f"the model was not offered {tool}")
        results.append((yield from _shown_call(session, tool, arguments, f"toolu_{number:02}")))
    return results
