"""``memfiles entries`` as the tests of its commands run it, and the workflow that they run it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.command_line import Ran, files_under, run

WORKFLOW = """\
name: desk
memory:
  durability: os
  files:
    - {uid: notes-1, name: notes, description: What is known., level: INTERNAL, content: "# Notes\\n"}
  entries: {max_entries: 20}
agents:
  desk: {level: INTERNAL, memory: [{id: notes-1, mode: rw}]}
"""


def entries(*args: str, **how: Any) -> Ran:
    return run("entries", *args, **how)


def saved(key: str = "plan", text: str = "Ada is on Pro", *options: str) -> None:
    ran = entries("save", key, text, *options)
    assert 0 == ran.code, ran.err


def records(project: Path) -> dict[str, bytes | None]:
    """What is on the disk, but for what is derived."""
    return {name: data for name, data in files_under(project).items() if "/.state" not in name}
