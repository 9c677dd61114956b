"""``memfiles entries consolidate``: shown first, done when asked, and taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import Ran, files_under, run
from tests.support.workflows import write_workflow

WORKFLOW = """\
name: desk
memory:
  durability: os
  entries: {max_entries: 5}
agents:
  desk: {level: INTERNAL}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow and five entries, two of which say the same; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(
        ["Ada is on Pro.", "Ada is on Pro.", "Bob is on Free.", "Refund at once.", "Be kind."]
    ):
        assert 0 == entries("save", f"note-{number}", text).code
    return tmp_path


def entries(*args: str, **how: Any) -> Ran:
    return run("entries", *args, **how)


def keys() -> list[str]:
    return [each["key"] for each in entries("list", "--json").data["memories"]]


def test_a_plan_is_shown_and_nothing_is_done(project: Path) -> None:
    """What says the same is merged, with the reason, and --apply is named."""
    ran = entries("consolidate")

    assert 0 == ran.code
    assert ["STEP", "merge"] == [line.split()[0] for line in ran.out.splitlines()]
    assert "5 entries, 66 bytes would become 4 entries, 52 bytes; use --apply to do it" in ran.err
    assert 5 == len(keys())


def test_applying_and_taking_back() -> None:
    """The id that is printed takes it back."""
    applied = entries("consolidate", "--apply", "--json").data

    assert 4 == len(keys())
    assert 1 == len(applied["hidden"])
    undone = entries("consolidate", "--undo", applied["plan"])
    assert (0, "undone: 0 entries hidden, 1 entry shown again\n") == (undone.code, undone.err)
    assert 5 == len(keys())


def test_what_was_applied_is_said() -> None:
    """With how to take it back."""
    assert (
        "applied: 1 entry hidden, 0 entries shown again; undo with --undo plan-"
        in entries("consolidate", "--apply").err
    )


def test_nothing_to_do() -> None:
    """Within the budget there is nothing to do."""
    entries("delete", "note-0")
    entries("delete", "note-1")

    ran = entries("consolidate")

    assert (0, "", True) == (ran.code, ran.out, "nothing to do at level INTERNAL: 3 entries, " in ran.err)


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--undo", "plan-0"], 3), (["--undo", ""], 3), (["--apply", "--undo", "plan-0"], 2)],
)
def test_wrong_options(project: Path, options: list[str], code: int) -> None:
    """An unknown plan is not found, and both options at once are a usage error; neither changes anything."""
    before = {name: data for name, data in files_under(project).items() if "/.state" not in name}

    assert code == entries("consolidate", *options).code
    assert before == {name: data for name, data in files_under(project).items() if "/.state" not in name}


def test_keys_that_look_alike_are_told_apart() -> None:
    """A blank at the end is in quotes, in what a save hid and in what the log says an entry is made of."""
    for key in ("note-1", "note-4"):
        entries("forget", "--key", key, "--yes")
    for key in ("note-0 ", "note-9"):
        entries("save", key, "Ada is on Pro.")
    hidden = entries("save", "more", "Something else.").err.splitlines()[1]
    log = entries("log", "note-9").err

    assert "note-0, 'note-0 '" == hidden.rpartition(": ")[2]
    assert {"note-0", "'note-0 '"} == {*log.removeprefix("made of: ").rstrip("\n").split(", ")}
