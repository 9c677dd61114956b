"""Long output on a terminal is shown in the pager that the user chose, as git does it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import memfiles
from tests.cli.command_line import WORKFLOW
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

MARKED = "sed s/^/page:/"
LINES = 60


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a long file, a long history and many entries, and a short file."""
    folder = tmp_path_factory.mktemp("paged")
    large = WORKFLOW.replace("memory:\n", "memory:\n  entries: {}\n", 1).replace("bytes: 20}", "bytes: 900000}")
    write_workflow(folder, large)
    with memfiles.open(folder / "workflow.yaml", watch=False) as memory:
        for number in range(LINES):
            memory.manager.append("notes-1", f"- note {number}\n")
        memory.manager.append("notes-1", "".join(f"+ tea {number}\n" for number in range(LINES)))
        memory.manager.append("small-1", "- one line of many\n" * 40_000)
        session = memory.session("desk")
        for number in range(50):
            memory.entries.save(session, "long", "".join(f"{number} {line}\n" for line in range(50)))
        memory.entries.save_many(session, [{"key": f"k{number}", "content": "green tea"} for number in range(50)])
    return folder


def at_terminal(
    project: Path, *arguments: str, wait_for: str = "", keys: bytes = b"", **environment: str
) -> tuple[int, str]:
    """How a command ended at a terminal of 20 lines, and all it printed there.

    ``keys`` are typed once ``wait_for`` is on the screen.
    """
    dropped = {"NO_COLOR", "FORCE_COLOR", "PAGER", "MEMFILES_PAGER", "LESS", "LESSOPEN"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "memfiles", *arguments],
        cwd=project,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "20", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    printed, until = b"", time.monotonic() + 60
    with suppress(OSError):  # the end of a terminal
        while time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                if not (part := os.read(ours, 65536)):
                    break
                printed += part
            if keys and wait_for.encode() in printed:
                os.write(ours, keys)
                keys = b""
    os.close(ours)
    process.kill() if time.monotonic() >= until else None
    return process.wait(), printed.decode(errors="replace").replace("\r\n", "\n")


COMMANDS = [
    *(["read", "notes"], ["log", "notes"], ["diff", "notes", "1"]),
    ["entries", "search", "tea", "-n", "50", "--agent", "desk"],
    *(["entries", name, "long", "--agent", "desk"] for name in ("log", "diff")),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_long_output_goes_through_the_pager(project: Path, command: list[str]) -> None:
    """All of it, unless it is asked not to, and never into a file or for a program."""
    code, shown = at_terminal(project, *command, PAGER=MARKED)
    plain = at_terminal(project, *command, "--no-pager", PAGER=MARKED)
    piped = subprocess.run([sys.executable, "-m", "memfiles", *command], cwd=project, capture_output=True, text=True)
    told = shown.split("note: ")[0].removesuffix("\n").split("\n")

    assert (0, 0, True) == (code, plain[0], len(told) > 45)
    assert [] == [line for line in told if not line.startswith("page:")]
    assert plain[1] == shown.replace("page:", "")
    assert "page:" not in at_terminal(project, *command, "--json", PAGER=MARKED)[1]
    assert "page:" not in piped.stdout + piped.stderr


def test_what_fits_the_screen_is_printed(project: Path) -> None:
    """A line that is wider than the screen takes several of it."""

    assert (0, "- Be kind.\n") == at_terminal(project, "read", "rules", PAGER=MARKED)
    assert "page:" not in at_terminal(project, "log", "notes", "-n", "18", PAGER=MARKED)[1]
    assert "page:" in at_terminal(project, "log", "notes", "-n", "19", PAGER=MARKED)[1]
    assert "page:" in at_terminal(project, "log", "notes", "-n", "18", PAGER=MARKED, LINES="19")[1]


def test_colours_are_kept_where_they_are_wanted(project: Path) -> None:
    """By less as well, for which the user set nothing."""
    added = "\x1b[32m"

    assert f"page:{added}" in at_terminal(project, "diff", "notes", PAGER=MARKED)[1]
    assert added in at_terminal(project, "diff", "notes", wait_for="tea 10", keys=b"q")[1]
    assert "ESC" not in at_terminal(project, "diff", "notes", wait_for="tea 10", keys=b"q", LESS="-X")[1]
    assert "\x1b[3" not in at_terminal(project, "diff", "notes", PAGER=MARKED, NO_COLOR="1")[1]
    assert "\x1b[3" not in at_terminal(project, "diff", "notes", "--no-color", PAGER=MARKED)[1]


@pytest.mark.parametrize("none", [{"PAGER": ""}, {"PAGER": "cat"}, {"MEMFILES_PAGER": "", "PAGER": MARKED},
                                  {"PAGER": MARKED, "TERM": "dumb"}, {"PAGER": "/nowhere/pager"}])  # fmt: skip
def test_a_user_may_want_no_pager(project: Path, none: dict[str, Any]) -> None:
    """Or have one that is not there."""
    code, shown = at_terminal(project, "log", "notes", **none)

    assert (0, False, True) == (code, "page:" in shown, "REVISION" in shown)


def test_our_own_variable_comes_first(project: Path) -> None:
    """As GIT_PAGER does."""
    shown = at_terminal(project, "log", "notes", PAGER="sed s/^/no:/", MEMFILES_PAGER=MARKED)[1]

    assert (True, False) == ("page:" in shown, "no:" in shown)


def test_a_pager_that_is_no_command_is_an_error(project: Path) -> None:
    """In one line, that says which."""
    code, shown = at_terminal(project, "log", "notes", PAGER='less "')

    assert (2, "error: the pager is not a command: No closing quotation, in 'less \"'\n") == (
        code,
        shown.replace("\x1b[31m\x1b[1m", "").replace("\x1b[0m", ""),
    )


@pytest.mark.parametrize("pager", ["head -n 1", "true", "sh -c 'exit 3'"])
def test_a_pager_that_ends_early_is_no_error(project: Path, pager: str) -> None:
    """Nobody wanted to see more, of what no pipe holds at once."""
    code, shown = at_terminal(project, "read", "small", PAGER=pager)

    assert (0, False, True) == (code, "Traceback" in shown or "error" in shown, len(shown.splitlines()) <= 1)


def test_less_is_the_pager_and_may_be_quit(project: Path) -> None:
    """After the first screen; and what it showed stays on the screen."""
    code, shown = at_terminal(project, "read", "notes", wait_for="note 17", keys=b"q")

    assert 0 == code
    assert "note 17" in shown
    assert "note 59" not in shown
    assert "\x1b[?1049" not in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("wide", ["東", "\u1100\u1161\u11a8", "\u304b\u3099"], ids=["one", "jamo", "kana"])
def test_wide_characters_are_cut_off_and_counted_by_their_columns(tmp_path: Path, wide: str) -> None:
    """A row stays on its line, and a text that fills the screen is shown in the pager; also if written in parts."""
    text = "東京の本社に請求書を送る。" * 20
    write_workflow(
        tmp_path, WORKFLOW.replace("memory:\n", "memory:\n  entries: {}\n", 1).replace("bytes: 20}", "bytes: 9000}")
    )
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        memory.entries.save(memory.session("desk"), "k", text)
        memory.manager.append("small-1", wide * 49 + "\n" + (wide * 51 + "\n") * 9)
    row = at_terminal(tmp_path, "entries", "search", "東京", "--agent", "desk", PAGER="cat")[1].splitlines()[1]
    paged = [at_terminal(tmp_path, "read", "small", PAGER=MARKED, LINES=str(lines))[1] for lines in (19, 20)]

    assert (99, "…") == (sum(1 if each.isascii() or each == "…" else 2 for each in row), row[-1])
    assert [True, False] == ["page:" in shown for shown in paged]


def test_marks_take_no_column_of_a_row_that_is_cut_off(tmp_path: Path) -> None:
    """A row with many of them goes on to the end of its line."""
    write_workflow(tmp_path, WORKFLOW.replace("memory:\n", "memory:\n  entries: {}\n", 1))
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        memory.entries.save(memory.session("desk"), "k", "plan " + "ที่นี่" * 60)
    row = at_terminal(tmp_path, "entries", "search", "plan", "--agent", "desk", PAGER="cat")[1].splitlines()[1]

    assert (100, "…") == (sum(unicodedata.category(each) != "Mn" for each in row), row[-1])


def test_a_tab_takes_the_columns_up_to_the_next_stop(tmp_path: Path) -> None:
    """A text that fills the screen by its tabs is shown in the pager."""
    write_workflow(tmp_path, WORKFLOW.replace("bytes: 20}", "bytes: 9000}"))
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        memory.manager.append("small-1", ("\t" * 12 + "12345\n") * 9)

    assert "page:" in at_terminal(tmp_path, "read", "small", PAGER=MARKED, LINES="15")[1]
