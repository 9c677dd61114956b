"""The README is true: its session runs, and what it shows of the program is what the program says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memfiles import Workflow
from memfiles.cli.failures import INTERRUPTED, USAGE
from memfiles.cli.program import COMMANDS
from memfiles.errors import MemfilesError
from tests.cli.command_line import run
from tests.support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in order."""
    return [text for kind, text in BLOCKS if kind == language]


def without_times(text: str) -> str:
    """The text with every timestamp replaced."""
    return TIME.sub("<time>", text)


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``memfiles`` is the command line of this interpreter."""
    program = tmp_path / "bin" / "memfiles"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memfiles.cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {key: value for key, value in os.environ.items() if "COLOR" not in key} | {"PATH": path, "COLUMNS": "80"}


def test_the_session(tmp_path: Path, shell_environment: dict[str, str]) -> None:
    """Every console and Python block, run in order in one directory, prints what the README shows."""
    folder = tmp_path / "session"
    folder.mkdir()

    def output_of(*command: str) -> str:
        ran = subprocess.run(
            command, cwd=folder, env=shell_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
        return ran.stdout.decode()

    for index, (kind, text) in enumerate(BLOCKS):
        if kind == "console":
            commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
            shown = "".join(f"$ {command}\n" + output_of("sh", "-c", command) for command in commands)
            assert without_times(text) == without_times(shown)
        if kind == "python":
            assert BLOCKS[index + 1] == ("text", output_of(sys.executable, "-c", text))


def test_the_workflow_it_shows() -> None:
    """The YAML in the README is a workflow, with a mirror and without one."""
    workflow, with_mirror, with_entries = map(Workflow.parse, blocks("yaml"))

    assert (["support"], None) == (list(workflow.agents), workflow.memory.mirror)
    assert with_entries.memory.entries is not None
    assert with_mirror.memory.mirror is not None
    assert {"s3", "file", "https"} == set(re.findall(r"^\| `(\w+)://", README, re.MULTILINE))


def test_the_exit_codes() -> None:
    """The table holds every exit code that an error has, and no other but 0 and 1."""
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}

    assert {0, 1, USAGE, INTERRUPTED} | {kind.exit_code for kind in MemfilesError.__subclasses__()} == listed


def test_the_commands_it_names() -> None:
    """Every command that the README names exists."""
    named = re.findall(r"(?:`|^\$ )memfiles ([a-z]+)", README, re.MULTILINE)

    assert set() == set(named) - {name for family in COMMANDS.values() for name in family}


@pytest.mark.parametrize("shell", ["bash_source", "zsh_source", "fish_source"])
def test_shell_completion(shell: str) -> None:
    """The line for shell completion prints a script for that shell."""
    assert "_MEMFILES_COMPLETE" in run(env={"_MEMFILES_COMPLETE": shell}).out
