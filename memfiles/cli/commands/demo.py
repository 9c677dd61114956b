"""``demo``: tell the story of ``memfiles.cli.demo`` on a terminal, or as JSON."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from memfiles.cli import output
from memfiles.cli.demo import prepared, tell
from memfiles.cli.demo.story import LineKind
from memfiles.cli.help_text import example
from memfiles.cli.settings import current, shared_options

_WIDEST = 100
_PREFIX = {"text": "", "person": "", "call": "-> ", "result": "<- ", "error": "<- error: "}
_COLOR = {"call": "cyan", "error": "yellow"}


@click.command("demo", epilog=example("memfiles demo --dir demo"))
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Work here and keep it.")
@shared_options
def demo_command(directory: str | None) -> None:
    """Show an agent with lasting memory: calls, a kill, an undo, a lost disk.

    Offline, in seconds, in a temporary directory that is removed at the end; with --dir in a new or empty
    directory that stays (or in one that an earlier demo made, which is emptied first).
    """
    with prepared(Path(directory) if directory else None) as workflow:
        if current().json:
            audience = Collected()
            tell(audience, workflow)
            output.data({"ok": True, "directory": directory, "steps": audience.steps})
            return
        output.line("A support desk whose agent remembers. No network; everything happens in one directory.")
        tell(Printed(), workflow)
    _say_what_next(directory)


class Collected:
    """An audience that keeps what it is told, for JSON."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def step(self, title: str, explanation: str) -> None:
        """A new step, with nothing shown yet."""
        self.steps.append({"title": title, "explanation": explanation, "shown": []})

    def show(self, text: str, *, kind: LineKind = "text") -> None:
        """One more thing in the step."""
        self.steps[-1]["shown"].append({"kind": kind, "text": text})


class Printed:
    """An audience at a terminal, however narrow, or behind a pipe."""

    def __init__(self) -> None:
        self._steps = 0
        self._width = min(output.width(), _WIDEST)

    def step(self, title: str, explanation: str) -> None:
        """A numbered heading and its explanation."""
        self._steps += 1
        output.line("")
        output.line(click.style(f"{self._steps}. {title}", bold=True))
        output.line(textwrap.fill(explanation, self._width, initial_indent="   ", subsequent_indent="   "))

    def show(self, text: str, *, kind: LineKind = "text") -> None:
        """The text, wrapped and set off by a bar."""
        prefix, color = _PREFIX[kind], _COLOR.get(kind)
        for line in output.harmless(text).rstrip("\n").split("\n"):
            for part in self._wrapped(line, prefix=prefix):
                output.line(("   | " + (click.style(part, fg=color) if color else part)).rstrip())
            prefix = " " * len(prefix)

    def _wrapped(self, line: str, *, prefix: str) -> list[str]:
        """The line behind ``prefix`` in as many lines as it takes; what it begins with stays."""
        text = line.lstrip(" ")
        start = prefix + " " * (len(line) - len(text))
        return textwrap.wrap(text, self._width - 5, initial_indent=start, subsequent_indent=" " * len(prefix)) or [""]


def _say_what_next(directory: str | None) -> None:
    output.line("")
    output.line(click.style("What next", bold=True))
    look = f"cd {directory} && memfiles log customer-notes" if directory else "memfiles demo --dir demo"
    why = "look around in what the demo left" if directory else "the same again, kept for you to look around"
    width = max(len(look), len("memfiles init my-agents"))
    output.line(f"   {look:<{width}}  {why}")
    output.line(f"   {'memfiles init my-agents':<{width}}  a workflow of your own")
