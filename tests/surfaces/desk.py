"""A small memory, in a directory or in PostgreSQL, and what is looked at in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memfiles.storage.home import MemoryHome
from tests.cli.command_line import Ran, run

TEXT = """
name: desk
memory:
  {place}
  {mirror}
  files:
    - {{uid: notes-1, name: notes, description: What is known., content: "# Notes\\n"}}
    - {{uid: mine-1, name: mine, content: "# Mine\\n", per: user}}
  entries: {{}}
agents: {{desk: {{memory: [{{id: notes-1, mode: rw}}, {{id: mine-1, mode: rw}}]}}}}
"""
Declare = Callable[..., Path]
AT = "2026-11-21T09:00:00.000Z"


def commands(path: Path) -> Callable[..., Ran]:
    """``command("read", "notes")`` runs a command on the workflow at ``path``."""

    def command(*args: str, stdin: str | None = None) -> Ran:
        return run("-w", str(path), *args, stdin=stdin)

    return command


def records_of(home: MemoryHome) -> dict[str, bytes]:
    """The bytes of all records, by path."""
    with home.reading() as records:
        assert records is not None
        found = {path: records.find(path) for path in records.changes().records}
    return {path: each[0] for path, each in found.items() if each is not None}


def lines_of(home: MemoryHome) -> list[bytes]:
    """The lines of the audit, newest first."""
    return [line for _, _, line in home.audit.backwards(lambda _: True) if line]
