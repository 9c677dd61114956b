"""Runs the command line in the test's own process, in a directory with a small workflow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from memfiles.cli.program import program

WORKFLOW = """\
name: desk
memory:
  files:
    - {uid: notes-1, name: notes, description: What is known., level: INTERNAL, content: "# Notes\\n"}
    - {uid: small-1, name: small, description: Nearly nothing., level: INTERNAL, max_size_bytes: 20}
    - {uid: rules-1, name: rules, description: How to work., content: "- Be kind.\\n"}
agents:
  desk:
    level: INTERNAL
    memory: [{id: notes-1, mode: rw}, {id: rules-1, mode: r}]
  idle: {}
"""


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Stdout, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must be the one JSON document on stderr."""
        error: dict[str, Any] = json.loads(self.err)["error"]
        return error


def run(*args: str, stdin: str | bytes | None = None, env: dict[str, str | None] | None = None) -> Ran:
    """Run one command in the current directory."""
    plain = {"NO_COLOR": None, "FORCE_COLOR": None, "MEMFILES_DEBUG": None, "COLUMNS": "200"}
    result = CliRunner(env=plain).invoke(program, list(args), input=stdin, env=env)
    return Ran(result.exit_code, result.stdout, result.stderr)


def files_under(directory: Path) -> dict[str, bytes | None]:
    """Every path under a directory with the bytes of its file, None for a directory."""
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}
