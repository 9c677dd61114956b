"""A shell completes commands and the names of what is in the memory, quickly, and without a word if it cannot."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import memfiles
from tests.cli.command_line import WORKFLOW, files_under, run
from tests.support.workflows import write_workflow

HOSTILE = ("a $(touch pwned)", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "-x", "=ls", "~", "*", "a'b", "!1")
DESK = "entries get --agent desk"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with entries of several levels and users, and a program called memfiles."""
    folder = tmp_path_factory.mktemp("completed")
    entries = "  entries: {max_entries: 20, categories: {billing: {}}}\n"
    write_workflow(folder, WORKFLOW.replace("memory:\n", f"memory:\n{entries}", 1))
    with memfiles.open(folder / "workflow.yaml", watch=False) as memory:
        for level in ("INTERNAL", "RESTRICTED"):
            memory.entries.save(memory.session("desk", level=level), f"plan/{level.lower()}", "Pro")
        for user in ("ada", "bob", "$(touch pwned)"):
            memory.entries.save(memory.session("desk", user=user), f"of-{user[:3]}", "tea")
        memory.entries.save(memory.session("idle", level="INTERNAL"), "idle/one", "x", category="billing")
        session = memory.session("idle", level="INTERNAL")
        memory.entries.save_many(session, [{"key": key, "content": f"text {key}"} for key in HOSTILE])
        public = memory.session("idle", level="PUBLIC")
        memory.entries.save(public, "gone/one", "tea")
        memory.entries.delete(public, "gone/one")
        memory.entries.save_many(public, [{"key": f"same{n}", "content": "the same"} for n in range(2)])
        memory.entries.apply(public, memory.entries.plan(public, share=0.05))
    program = folder / "memfiles"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m memfiles \"$@\"\n")
    program.chmod(0o755)
    return folder


def offered(line: str, *, shell: str = "bash") -> list[str]:
    """What a shell is told in the current directory when TAB is pressed at the end of a line; nothing on stderr."""
    words = line.split(" ")
    asked: dict[str, str | None] = {
        "COMP_WORDS": f"memfiles {line}",
        "COMP_CWORD": str(len(words)),
        "_MEMFILES_COMPLETE": f"{shell}_complete",
    }
    ran = run(env=asked)
    assert "" == ran.err
    return ran.out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("re", ["restore", "read", "redact"]),
        ("read n", ["notes"]),
        ("read ", ["notes", "rules", "small"]),
        *((f"{command} r", ["rules"]) for command in ("log", "diff", "edit", "undo", "redact", "open", "append")),
        ("card ", ["desk", "idle"]),
        ("entries list --agent d", ["desk"]),
        ("entries list --level ", ["CONFIDENTIAL", "INTERNAL", "PUBLIC", "RESTRICTED"]),
        ("entries save x y --category ", ["billing", "conversation", "core", "daily", "general", "workspace"]),
        (f"{DESK} ", ["plan/internal"]),
        (f"{DESK} --level RESTRICTED plan", ["plan/internal", "plan/restricted"]),
        (f"{DESK} --level PUBLIC ", []),
        (f"{DESK} --user ada o", ["of-ada"]),
        (f"{DESK} --user eve o", []),
        ("entries list --user ", ["ada", "bob"]),
        ("users forget a", ["ada"]),
        ("entries restore --agent idle --level PUBLIC gone", ["gone/one"]),
        ("entries get --agent idle --level PUBLIC gone", []),
        ("entries get --agent idle --level INTERNAL idle", ["idle/one"]),
        ("-w workflow.yaml read n", ["notes"]),
        ("-w none.yaml read n", []),
        ("entries get ", []),
        ("nonsense r", ["restore", "read", "redact"]),
        ("entries nonsense zz", []),
        ("read --no", ["--no-color", "--no-pager"]),
    ],
)
def test_what_is_offered(project: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]) -> None:
    """What the command would take there, and of entries what its session sees."""
    monkeypatch.chdir(project)
    plain = [f"plain,{name}" for name in expected]

    assert sorted(plain) == sorted(offered(line))


def test_no_name_is_offered_that_a_shell_would_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents choose the keys of their entries."""
    monkeypatch.chdir(project)
    shown = offered("entries get --agent idle --level INTERNAL ")

    assert {"plain,idle/one"} == {name for name in shown if "same" not in name}


def test_the_plans_that_can_be_undone_are_offered(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their ids."""
    monkeypatch.chdir(project)
    (found,) = offered("entries consolidate --agent idle --level PUBLIC --undo plan")

    assert (
        0 == run("entries", "consolidate", "--agent", "idle", "--level", "PUBLIC", "--undo", found.split(",")[1]).code
    )


def test_the_other_shells_get_the_same(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their own form."""
    monkeypatch.chdir(project)

    assert ["plain", "notes", "_"] == offered("read n", shell="zsh")
    fish = run(env={"COMP_WORDS": "memfiles read n", "COMP_CWORD": "n", "_MEMFILES_COMPLETE": "fish_complete"})
    assert ("plain,notes\n", "") == (fish.out, fish.err)
    for shell in ("zsh", "fish"):
        assert "_MEMFILES_COMPLETE" in run(env={"_MEMFILES_COMPLETE": f"{shell}_source"}).out


def test_a_tab_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, and no state of one."""
    write_workflow(tmp_path, WORKFLOW.replace("memory:\n", "memory:\n  entries: {}\n", 1))
    monkeypatch.chdir(tmp_path)
    before = files_under(tmp_path)

    assert [["plain,notes"], [], []] == [offered(line) for line in ("read n", f"{DESK} ", "entries list --user ")]
    assert before == files_under(tmp_path)


def test_the_names_of_very_many_users_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take longer than typing one."""
    write_workflow(tmp_path, WORKFLOW.replace("memory:\n", "memory:\n  durability: os\n  entries: {}\n", 1))
    monkeypatch.chdir(tmp_path)
    with memfiles.open("workflow.yaml", watch=False) as memory:
        memory.entries.save(memory.session("desk", user="ada"), "k", "tea")
    (folder,) = Path(".memory/entries/desk/users").iterdir()
    for number in range(999):
        folder.with_name(f"{number:040}").mkdir()
    few = offered("entries list --user a")
    folder.with_name("f" * 40).mkdir()

    assert (["plain,ada"], []) == (few, offered("entries list --user a"))


@pytest.mark.slow
def test_bash_completes_at_a_terminal(project: Path) -> None:
    """With the one line of the documentation; and a key that an agent chose is never run."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PATH": f"{project}:{os.environ['PATH']}", "PS1": "$ ", "TERM": "dumb", "HISTFILE": ""}
    bash = ["bash", "--norc", "--noprofile", "-i"]
    shell = subprocess.Popen(
        bash, cwd=project, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)

    def typed(text: str, until: str) -> str:
        os.write(ours, text.encode())
        shown, end = "", time.monotonic() + 60
        while until not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536).decode(errors="replace")
        return shown

    typed('eval "$(_MEMFILES_COMPLETE=bash_source memfiles)"; echo rea""dy\n', "ready\r\n")
    command = typed("memfiles rea\t", "memfiles read ")
    name = typed("no\t", "notes ")
    content = typed("\n", "# Notes")
    key = typed("memfiles entries get --agent desk pl\t", "plan/internal ")
    text = typed("\n", "Pro")
    hostile = typed('memfiles entries get --agent idle "$(echo x)\t\t"; echo do""ne\n', "done\r\n")
    with suppress(OSError):
        os.write(ours, b"exit\n")
    os.close(ours)
    shell.wait()

    assert ("read ", "notes ", "# Notes", "plan/internal ", "Pro") == tuple(
        part
        for part, shown in (
            *(("read ", command), ("notes ", name), ("# Notes", content)),
            *(("plan/internal ", key), ("Pro", text)),
        )
        if part in shown
    )
    assert "Traceback" not in command + name + content + key + text + hostile
    assert not (project / "pwned").exists()
