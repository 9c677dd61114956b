"""``memfiles entries forget`` and ``consolidate``: for good, or on trial."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memfiles
from tests.cli.command_line import Ran, files_under, run
from tests.support.workflows import write_workflow

WORKFLOW = """\
name: desk
memory:
  durability: os
  entries: {max_entries: 100}
agents:
  desk: {level: INTERNAL}
"""
SECRET = "Ada lives in Riga"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow and some entries; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    saved("ada/home", SECRET, "--tag", "ada", "--kind", "fact", "--run", "monday")
    saved("ada/plan", "Ada is on Pro", "--tag", "ada", "--run", "tuesday")
    saved("refund", "Refund at once", "--kind", "procedure")
    return tmp_path


def entries(*args: str, **how: Any) -> Ran:
    return run("entries", *args, **how)


def saved(key: str, text: str, *options: str) -> None:
    ran = entries("save", key, text, *options)
    assert 0 == ran.code, ran.err


def keys(*options: str) -> list[str]:
    return [each["key"] for each in entries("list", *options, "--json").data["memories"]]


def holding(folder: Path, text: str) -> list[str]:
    return [name for name, data in files_under(folder).items() if data is not None and text.encode() in data]


def test_forgetting_a_key(project: Path) -> None:
    """The entry is gone, and its text is in no file any more."""
    ran = entries("forget", "--key", "ada/home", "--why", "Ada asked us to", "--yes")

    assert (0, "", "forgot 1 entry\n") == (ran.code, ran.out, ran.err)
    assert ["ada/plan", "refund"] == keys()
    assert [] == holding(project, SECRET)


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        (["--tag", "ada"], ["refund"]),
        (["--kind", "procedure"], ["ada/home", "ada/plan"]),
        (["--from-run", "monday"], ["ada/plan", "refund"]),
        (["--from-source", "cli"], []),
        (["--tag", "ada", "--from-run", "tuesday"], ["ada/home", "refund"]),
    ],
)
def test_other_selectors(selector: list[str], left: list[str]) -> None:
    """By tag, kind or where it came from; several together mean all of them."""
    assert 0 == entries("forget", *selector, "--yes").code
    assert left == keys()


def test_a_dry_run_counts_first() -> None:
    """It names what would go, and nothing goes."""
    ran = entries("forget", "--tag", "ada", "--dry-run")

    assert (0, "2 entries would be forgotten\n  ada/home\n  ada/plan\n") == (ran.code, ran.err)
    assert {"forgotten": 2, "keys": ["ada/home", "ada/plan"], "dry_run": True} == entries(
        "forget", "--tag", "ada", "--dry-run", "--json"
    ).data
    assert 3 == len(keys())


def test_nothing_selected() -> None:
    """An empty selector is refused."""
    ran = entries("forget", "--yes")

    assert 2 == ran.code
    assert "--key" in ran.err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nobody_to_ask(more: list[str]) -> None:
    """Behind a pipe it must be told --yes, and nothing is forgotten without."""
    assert 2 == entries("forget", "--tag", "ada", *more).code
    assert 3 == len(keys())


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 3), ("\x04", 3)])
def test_asking(answer: str, left: int) -> None:
    """On a terminal the keys are shown and a person is asked; the end of the input is no."""
    person, terminal = pty.openpty()
    os.write(person, answer.encode())
    command = [sys.executable, "-m", "memfiles", "entries", "forget", "--tag", "ada"]
    ran = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=180, check=False)
    os.close(person)
    os.close(terminal)

    assert (0 if left == 1 else 130) == ran.returncode
    assert "  ada/home\n  ada/plan\nForget 2 entries for good? [y/N]" in ran.stderr
    assert (answer == "n\n") == ran.stderr.endswith("error: not confirmed: nothing was changed\n")
    assert left == len(keys())


@pytest.mark.parametrize("more", [[], ["--yes"], ["--dry-run"]])
def test_what_is_not_there(more: list[str]) -> None:
    """A key without an entry at this level is not found, whatever there is at another level."""
    saved("high", "x", "--level", "RESTRICTED")
    ran = [entries("forget", "--key", key, *more) for key in ("nothing", "high")]

    assert [(3, "no such entry at this session's level\n")] * 2 == [(each.code, each.err) for each in ran]


def test_forgetting_again() -> None:
    """A forget that is repeated finds nothing any more, and says so in JSON as well."""
    entries("forget", "--key", "ada/home", "--yes")
    again = entries("forget", "--key", "ada/home", "--yes", "--json")

    assert (3, 0, True) == (again.code, again.data["forgotten"], again.data["mirror_is_clean"])


def test_forgetting_as_json() -> None:
    """What was forgotten, and whether the mirror is clean."""
    shown = entries("forget", "--key", "refund", "--yes", "--json").data

    assert {"forgotten": 1, "keys": ["refund"], "dry_run": False, "mirror_is_clean": True} == shown


@pytest.fixture
def mirror(project: Path) -> Iterator[Path]:
    """The workflow again, now with a mirror that has everything."""
    folder = project / "mirror"
    folder.mkdir()
    with_mirror = WORKFLOW.replace("memory:\n", f"memory:\n  mirror: {{url: '{folder.as_uri()}'}}\n")
    write_workflow(project, with_mirror)
    assert 0 == run("sync", "push").code
    assert holding(folder, SECRET)
    yield folder


@pytest.mark.usefixtures("installed")
def test_the_mirror_forgets_as_well(project: Path, mirror: Path) -> None:
    """When the command ends with 0, no byte of the text is left there either."""
    ran = entries("forget", "--key", "ada/home", "--yes", "--json")

    assert (0, True) == (ran.code, ran.data["mirror_is_clean"])
    assert [] == holding(project, SECRET)


@pytest.mark.usefixtures("installed")
def test_a_mirror_that_is_away(project: Path, mirror: Path) -> None:
    """It is forgotten here, the exit code is 7, and what to do is said."""
    shutil.move(mirror, project / "elsewhere")

    ran = entries("forget", "--key", "ada/home", "--yes")

    assert 7 == ran.code
    assert "memfiles sync push" in ran.err
    assert [] == holding(project / ".memory", SECRET)


@pytest.mark.slow
def test_a_purge_counts_and_then_erases(project: Path) -> None:
    """What a dry run counts is what the purge reports, also if opening the memory erased it already."""
    retaining = WORKFLOW.replace("  entries:", "  retention: {deleted: RETENTION}\n  entries:")
    write_workflow(project, retaining.replace("RETENTION", "1h"))
    entries("delete", "refund")
    early = run("purge", "--dry-run", "--json").data
    write_workflow(project, retaining.replace("RETENTION", "1s"))
    time.sleep(1.1)
    counted = run("purge", "--dry-run", "--json").data
    before = holding(project, "Refund at once")
    ran = run("purge")
    again = run("purge", "--json").data
    refused = entries("restore", "refund")

    assert [0, 1, 0] == [each["deleted"] for each in (early, counted, again)]
    assert "erased: 0 expired and 1 deleted or evicted entries, 0 months of the audit" in ran.err
    assert before
    assert [] == holding(project, "Refund at once")
    assert 3 == refused.code
    assert "was erased on" in refused.err


def test_a_list_as_long_as_may_be_advises_no_longer_one(project: Path) -> None:
    """There are more, and no limit shows them."""
    write_workflow(project, WORKFLOW.replace("100", "2000"))
    with memfiles.open("workflow.yaml", watch=False) as memory:
        desk = memory.session("desk")
        saved_here = memory.entries.save_many(desk, [{"key": f"k{number}", "content": "x"} for number in range(1001)])
        memory.entries.delete_many(desk, [each.key for each in saved_here])

    assert "there are more: raise --limit" in entries("deleted", "--limit", "999").err
    assert "there are more\n" == entries("deleted", "--limit", "1000").err
