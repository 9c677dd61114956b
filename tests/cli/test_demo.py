"""The demo: what it shows is real, it leaves nothing behind, and it touches nothing that is not its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.cli.demo.command import (
    DemoFailed,
    acknowledged_by_a_killed_writer,
    cold_start,
    play,
    prepared,
)
from memfiles.cli.demo.support_desk import LOG, ticket, workflow_text
from tests.cli.command_line import files_under, run
from tests.support.workflows import write_workflow

pytestmark = [pytest.mark.usefixtures("installed"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made; commands run beside it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tmp"


def shown(steps: list[dict[str, Any]], title: str) -> list[tuple[str, str]]:
    """What one step of the story showed: kind and text."""
    step = next(step for step in steps if step["title"] == title)
    return [(item["kind"], item["text"]) for item in step["shown"]]


def test_the_story(temporary: Path) -> None:
    """The demo tells every step, shows a refusal and an ambiguous edit, and removes its directory."""
    told = run("demo", "--json")

    steps = told.data["steps"]
    titles = ["Declare", "Card", "Work", "Card again", "Remember", "Forget", "Kill", "Restart", "History", "Undo"]
    titles += ["Mirror", "Cold start"]
    assert (0, "", titles) == (told.code, told.err, [step["title"] for step in steps])
    assert ["over its cap of 160"] == [
        text[text.index("over its") : text.index(";")] for kind, text in shown(steps, "Work") if kind == "error"
    ]
    assert any("first of 2 matches" in text for _, text in shown(steps, "Work"))
    assert ("text", "the same 4 records with all their history, byte for byte") == shown(steps, "Cold start")[-1]
    assert shown(steps, "Card") != shown(steps, "Card again")
    assert [] == list(temporary.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_on_paper(columns: str) -> None:
    """Behind a pipe there are no colours, no blanks at line ends, and no line is wider than the terminal."""
    told = run("demo", env={"COLUMNS": columns})

    lines = told.out.splitlines()
    assert (0, False) == (told.code, "\x1b" in told.out)
    assert [] == [line for line in lines if line != line.rstrip()]
    assert [] == [line for line in lines if "   | " in line and len(line) > int(columns)]


def test_what_is_kept(tmp_path: Path) -> None:
    """With --dir everything stays, to be looked at with the other commands."""
    assert 0 == run("demo", "--dir", "demo").code
    assert "Bob is on Free" in run("read", "customer-notes", "-w", "demo/workflow.yaml").out
    assert 0 == run("doctor", "-w", "demo/workflow.yaml").code
    assert "undo" == run("log", "customer-notes", "-w", "demo/workflow.yaml", "--json").data["changes"][0]["op"]


@pytest.mark.slow
def test_the_same_directory_again(tmp_path: Path) -> None:
    """The demo empties and uses a directory that an earlier one made, also one that was killed."""
    run("demo", "--dir", "demo")
    write_workflow(tmp_path / "demo", "broken")
    (tmp_path / "demo" / ".workflow.yaml.tmp").write_text("half")

    assert 0 == run("demo", "--dir", "demo").code


@pytest.mark.parametrize("place", ["", "s3://bucket/x"])
def test_what_is_no_directory(tmp_path: Path, place: str) -> None:
    """A variable that is not set, or a URL: nothing is made, and nothing is thought to be kept."""
    ran = run("demo", "--dir", place)

    assert (2, ["tmp"]) == (ran.code, [*files_under(tmp_path)])
    assert ("is blank" if not place else "s3:// is a URL") in ran.err


@pytest.mark.parametrize("made_by_demo", [True, False])
def test_a_directory_with_something_else(tmp_path: Path, made_by_demo: bool) -> None:
    """A directory that holds anything the demo did not write is refused with code 4, and left as it is."""
    if made_by_demo:
        run("demo", "--dir", "demo")
    (tmp_path / "demo").mkdir(exist_ok=True)
    (tmp_path / "demo" / "mine.txt").write_text("mine")
    before = files_under(tmp_path / "demo")

    assert 4 == run("demo", "--dir", "demo").code
    assert before == files_under(tmp_path / "demo")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_killed_writer_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """What the killed process acknowledged is on disk, and at most one line more; whatever Python prints in."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    workflow = tmp_path / "workflow.yaml"
    (tmp_path / "mirror").mkdir()
    workflow.write_text(workflow_text(tmp_path / "mirror"))

    acknowledged = acknowledged_by_a_killed_writer(workflow)

    with memfiles.open(workflow, watch=False) as memory:
        content = memory.manager.read(LOG)
    lines = content.count("\n")
    assert "".join(map(ticket, range(1, lines + 1))) == content
    assert lines - acknowledged in (0, 1)


def test_a_writer_that_cannot_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A writer that dies before it acknowledges anything ends the demo with an error, not with a claim."""
    with pytest.raises(DemoFailed, match="acknowledged only 0 appends"):
        acknowledged_by_a_killed_writer(tmp_path / "nowhere.yaml")


def test_a_mirror_that_lost_something(tmp_path: Path) -> None:
    """Where the mirror does not give back what it took, the demo ends with an error, not with a claim."""
    with prepared(tmp_path / "demo") as workflow:
        memfiles.open(workflow, watch=False).close()
        (tmp_path / "demo" / "mirror" / f"{LOG}.json").unlink()

        with pytest.raises(DemoFailed, match="ticket-log was seeded, not fetched"):
            list(cold_start(workflow))


def test_the_model_calls_only_what_it_was_offered(tmp_path: Path) -> None:
    """The demo ends with an error, not with a claim, if its script calls a tool that the session does not offer."""
    with prepared(tmp_path / "demo") as workflow, memfiles.open(workflow, watch=False) as memory:
        story = play([("forget_memory", {})], memory.session("support"))

        pytest.raises(DemoFailed, list, story).match("not offered forget_memory")
