"""``memfiles sync conflicts`` and ``resolve``: the copy that lost a merge, listed, taken or dropped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command_line import run
from tests.cli.two_machines import away, back

pytestmark = pytest.mark.usefixtures("installed", "here")


def in_conflict(there: Path, other: list[str]) -> None:
    """Change the same line on both machines, the other one first; the mirror knows the other's."""
    run("restore")
    run("restore", *other)
    away(there)
    run("edit", "notes", "--old", "Notes", "--new", "Ours")
    back(there)
    run("edit", "notes", "--old", "Notes", "--new", "Theirs", *other)


def test_no_conflict() -> None:
    """It is said, in place of a table without rows."""
    run("restore")
    ran = run("sync", "conflicts")

    assert (0, "", "no conflict\n") == (ran.code, ran.out, ran.err)


def test_a_conflict_ends_with_4(here: Path, there: Path, other: list[str]) -> None:
    """The code is 4, the copy that lost is where the answer says, and the next push has nothing to do."""
    in_conflict(there, other)

    pushed = run("sync", "push", "--json")

    (kept,) = pushed.data["conflicts"]
    assert (4, "conflict") == (pushed.code, pushed.data["records"]["notes-1.json"])
    assert "Theirs" in (here / ".memory" / kept).read_text()
    assert "# Ours\n" == run("read", "notes").out
    assert (0, [kept]) == (run("sync", "push").code, run("sync", "status", "--json").data["conflicts"])
    assert "1 losing copy in conflicts/" in run("status").out


@pytest.mark.slow
def test_a_conflict_is_settled(here: Path, there: Path, other: list[str]) -> None:
    """It is listed, its text printed and taken; then it is gone, and the other machine has the text as well."""
    in_conflict(there, other)
    run("sync", "push")
    listed, (conflict,) = run("sync", "conflicts"), run("sync", "conflicts", "--json").data["conflicts"]

    assert conflict["path"] in listed.out
    assert ("notes", "remote", "open", 1) == tuple(conflict[name] for name in ("name", "lost", "state", "new_lines"))
    assert "# Theirs\n" == run("sync", "conflicts", "notes").out
    assert 4 == run("sync", "resolve", "notes", "--take", "copy", "--expected-revision", "1").code
    assert 0 == run("sync", "resolve", "notes", "--take", "copy", "--actor", "grace").code
    assert "# Theirs\n" == run("read", "notes").out
    assert "grace as cli" in run("log", "notes").out
    assert [] == run("sync", "conflicts", "--json").data["conflicts"]
    assert 3 == run("sync", "resolve", "notes", "--take", "record").code


def test_keys_in_conflict_that_look_alike_are_told_apart(here: Path, there: Path, other: list[str]) -> None:
    """A blank at the end is in quotes, in the list and in what was settled."""
    for workflow in (here / "workflow.yaml", Path(other[1])):
        workflow.write_text(workflow.read_text().replace("memory:\n", "memory:\n  entries: {}\n", 1))
    run("entries", "save", "plan ", "Pro", "--agent", "desk")
    run("restore", *other)
    away(there)
    run("entries", "save", "plan ", "Max", "--agent", "desk")
    back(there)
    run("entries", "save", "plan ", "Free", "--agent", "desk", *other)
    run("sync", "push")

    assert "  'plan '  " in run("sync", "conflicts").out
    assert run("sync", "resolve", "plan ", "--take", "record").err.startswith("'plan ' stays as it is; ")


def test_a_conflict_is_settled_with_another_text(here: Path, there: Path, other: list[str]) -> None:
    """From stdin; a call that does not say what to take changes nothing."""
    in_conflict(there, other)
    run("sync", "push")

    assert (2, 2) == (run("sync", "resolve", "notes").code, run("sync", "resolve", "notes", "--take", "x").code)
    assert 0 == run("sync", "resolve", "notes", "--text", "-", stdin="# Both\n").code
    assert "# Both\n" == run("read", "notes").out


def test_a_conflict_met_by_another_command(here: Path, there: Path, other: list[str]) -> None:
    """A command that writes says where the copy that lost is kept, and ends with 0."""
    in_conflict(there, other)

    written = run("append", "rules", "x")

    assert 0 == written.code
    (kept,) = re.findall(r"the losing copy is kept in (.+)", written.err)
    assert "Theirs" in Path(kept).read_text()
