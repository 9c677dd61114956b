"""``memfiles export`` and ``import``."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import Ran, files_under, run
from tests.support.workflows import write_workflow

WORKFLOW = """\
name: desk
memory:
  durability: os
  entries: {max_entries: 100}
agents:
  desk: {level: INTERNAL}
  other: {level: INTERNAL}
"""
AS_DESK = ["--agent", "desk"]
AS_OTHER = ["--agent", "other"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow and two entries; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    for key, text, *more in (("ada/plan", "Ada is on Pro\n", "--tag", "ada"), ("refund", "At once", "--kind", "fact")):
        assert 0 == entries("save", key, text, *more, *AS_DESK).code
    return tmp_path


def entries(*args: str, **how: Any) -> Ran:
    return run("entries", *args, **how)


@pytest.mark.parametrize("target", ["backup", "backup.jsonl"])
def test_there_and_back(target: str) -> None:
    """What was exported can be imported elsewhere, text and all."""
    exported = run("export", target, *AS_DESK)
    imported = run("import", target, *AS_OTHER, "--take-over")

    assert (0, f"wrote 2 entries to {target}\n") == (exported.code, exported.err)
    assert (0, "added: 2, updated: 0, unchanged: 0, skipped: 0\nthey come from agent desk\n") == (
        imported.code, imported.err
    )  # fmt: skip
    assert "Ada is on Pro\n" == entries("get", "ada/plan", *AS_OTHER).out


def test_importing_what_is_there() -> None:
    """An export of the same entries changes nothing."""
    run("export", "backup", *AS_DESK)

    shown = run("import", "backup", *AS_DESK, "--json").data

    assert (0, 0, 2, []) == tuple(shown[name] for name in ("added", "updated", "unchanged", "skipped"))


def test_a_dry_run(project: Path) -> None:
    """It tells what would be taken, and takes nothing."""
    run("export", "backup", *AS_DESK)
    before = {name: data for name, data in files_under(project).items() if "/.state" not in name}

    ran = run("import", "backup", *AS_OTHER, "--dry-run")

    assert (0, "would be added: 2, updated: 0, unchanged: 0, skipped: 0\nthey come from agent desk\n") == (
        ran.code, ran.err
    )  # fmt: skip
    assert before == {name: data for name, data in files_under(project).items() if "/.state" not in name}


def test_what_is_left_out_is_said(project: Path) -> None:
    """Each with its place and reason."""
    lines = [{"key": "good", "content": "x"}, {"key": "\n", "content": "x"}, {"content": "x"}]
    (project / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    ran = run("import", "all.jsonl", *AS_DESK)

    assert 0 == ran.code
    assert "added: 1, updated: 0, unchanged: 0, skipped: 2" in ran.err
    assert ["all.jsonl:2", "all.jsonl:3"] == [
        line.split()[1].rstrip(":") for line in ran.err.splitlines() if line.startswith("warning:")
    ]


@pytest.mark.parametrize("how", [[], ["--json"]])
@pytest.mark.parametrize("format", ["jsonl", "mem0", "memory-server", "chatgpt", "claude"])
def test_a_file_of_which_nothing_could_be_read(project: Path, format: str, how: list[str]) -> None:
    """It is an error, so that a script which imports a backup does not go on without it."""
    (project / "broken.jsonl").write_text('{"key": "cut off in the mid')

    ran = run("import", "broken.jsonl", "--from", format, *AS_DESK, *how)

    assert (2, True) == (ran.code, "nothing in broken.jsonl could be imported" in ran.err)
    assert "this is not JSON" in ran.err + ran.out


def test_nothing_there() -> None:
    """A path that does not exist is not found."""
    ran = run("import", "nowhere", *AS_DESK)

    assert (3, "error: there is nothing at nowhere\n") == (ran.code, ran.err)


def test_other_files_are_left_alone(project: Path) -> None:
    """An export replaces its own files, and names those whose entries are gone."""
    (project / "backup").mkdir()
    (project / "backup" / "mine.txt").write_text("mine")
    run("export", "backup", *AS_DESK)
    entries("delete", "refund", *AS_DESK)

    ran = run("export", "backup", *AS_DESK)

    assert 0 == ran.code
    assert "wrote 1 entry to backup" in ran.err
    assert "its entry is gone" in ran.err
    assert "mine" == (project / "backup" / "mine.txt").read_text()


def test_a_format_that_cannot_be_told(project: Path) -> None:
    """It is asked for, with the choices."""
    (project / "some").mkdir()

    ran = run("import", "some", *AS_DESK)

    assert 2 == ran.code
    assert "memory-directory" in ran.err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nobody_to_ask_whose_entries_they_are(more: list[str]) -> None:
    """Behind a pipe an import refuses another agent's entries, names the flag, and imports nothing."""
    run("export", "backup", *AS_DESK)
    ran = run("import", "backup", *AS_OTHER, *more)

    assert 2 == ran.code
    assert "the entries were those of agent desk; import them for agent other with --take-over" in ran.err
    assert 3 == entries("get", "refund", *AS_OTHER).code


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 130)])
def test_asking_whose_entries_they_are(answer: str, code: int) -> None:
    """On a terminal a person is asked, who may say no."""
    run("export", "backup", *AS_DESK)
    person, terminal = pty.openpty()
    os.write(person, answer.encode())
    command = [sys.executable, "-m", "memfiles", "import", "backup", *AS_OTHER]
    ran = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=180, check=False)
    os.close(person)
    os.close(terminal)

    assert code == ran.returncode
    assert "the entries were those of agent desk\nImport them for agent other? [y/N]" in ran.stderr
    assert bool(code) == ran.stderr.endswith("error: not confirmed: nothing was changed\n")
    assert (3 if code else 0) == entries("get", "refund", *AS_OTHER).code


def test_a_format_can_be_named(project: Path) -> None:
    """By --from, and still by --format."""
    (project / "vault").mkdir()
    (project / "vault" / "a.md").write_text("plain")
    assert 2 == run("import", "vault", *AS_DESK).code
    for option in ("--from", "--format"):
        assert 0 == run("import", "vault", option, "notes", *AS_DESK).code

    assert "plain" == entries("get", "a", *AS_DESK).out.rstrip("\n")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("notes.txt", "it is there and is not a folder; name another one"),
        ("nowhere/all.jsonl", "there is no folder nowhere"),
        ("nowhere/all.zip", "there is no folder nowhere"),
    ],
)
def test_an_export_that_cannot_be_written_says_what_is_in_the_way(project: Path, target: str, why: str) -> None:
    """Not what the system calls it, which is "File exists" where a folder was to be made."""
    (project / "notes.txt").write_text("mine")
    exported = run("export", target, *AS_DESK)

    assert (1, f"error: {target} cannot be written: {why}") == (
        exported.code,
        exported.err[: len(f"error: {target} cannot be written: {why}")],
    )
    assert "mine" == (project / "notes.txt").read_text()


def test_an_import_without_a_path() -> None:
    """As a variable of a shell that is not set."""
    imported = run("import", "", *AS_DESK)

    assert (3, "error: PATH is empty: name what to import\n") == (imported.code, imported.err)
