"""``demo``: play the story in a directory of its own, on a terminal or as JSON.

The rule this file guards: nothing is removed that the demo did not write itself.
"""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from memfiles.cli import output
from memfiles.cli.demo.story import Shown, Story, StoryStep, tell
from memfiles.cli.demo.support_desk import workflow_text
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.options import command, current
from memfiles.tools.json_schemas import as_text, workflow_schema

MARK = ".memfiles-demo"
_OWN_FILES = {MARK, "workflow.yaml"}
_OWN_FOLDERS = {".memory", "mirror", "schemas"}
_WIDEST = 100  # columns
_PREFIX = {"text": "", "person": "", "call": "-> ", "result": "<- ", "error": "<- error: "}
_COLOR = {"call": "cyan", "error": "yellow"}


@command("demo", "memfiles demo --dir demo")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Directory to work in and keep.")
def demo_command(directory: str | None) -> None:
    """Show an agent with memory: tool calls, a crash, an undo, a lost disk.

    It runs offline and in seconds, in a temporary directory that is removed at the end. With --dir it uses and keeps
    a new or empty directory, or empties one that an earlier demo left.
    """
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
            output.line("")
            output.line("", mark=click.style(f"{number}. {told.title}", bold=True))
            output.line(textwrap.fill(told.explanation, columns, initial_indent="   ", subsequent_indent="   "))
        else:
            _print_shown(told, columns=columns)


def _print_shown(shown: Shown, *, columns: int) -> None:
    """Print a text after a bar; its lines are wrapped and keep their indentation."""
    prefix, color = _PREFIX[shown.kind], _COLOR.get(shown.kind)
    for line in output.harmless(shown.text).rstrip("\n").split("\n"):
        text = line.lstrip(" ")
        first, further = prefix + " " * (len(line) - len(text)), " " * len(prefix)
        for part in textwrap.wrap(text, columns - 5, initial_indent=first, subsequent_indent=further) or [""]:
            output.line("", mark=("   | " + (click.style(part, fg=color) if color else part)).rstrip())
        prefix = further


def _say_what_next(directory: str | None) -> None:
    output.line("")
    output.line("", mark=click.style("What next", bold=True))
    look = f"cd {directory} && memfiles log customer-notes" if directory else "memfiles demo --dir demo"
    why = "look at what the demo left" if directory else "run it again and keep the files"
    width = max(len(look), len("memfiles init my-agents"))
    output.line(f"   {look:<{width}}  {why}")
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
    workflow, schema = directory / "workflow.yaml", directory / "schemas" / "workflow.schema.json"
    (directory / MARK).write_text("created by memfiles demo, which empties this directory when it runs here again\n")
    schema.parent.mkdir()
    schema.write_text(as_text(workflow_schema()), encoding="utf-8")
    mirror = directory / "mirror"
    mirror.mkdir(mode=0o700)
    workflow.write_text(workflow_text(mirror), encoding="utf-8")
    return workflow
