"""``memfiles init``."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest

from memfiles.workflow.specs import MirrorSpec
from memfiles.workflow.workflow import Workflow
from tests.cli.command_line import files_under, run
from tests.support.workflows import write_workflow


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory; commands run there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_written_works_as_it_is() -> None:
    """After init every file can be read and written, and doctor finds nothing to fail."""
    assert 0 == run("init").code
    assert "# Notes\n" == run("read", "notes").out
    assert 0 == run("append", "notes", "- a fact", "--line").code
    assert 0 == run("doctor").code


def test_the_mirror_that_is_commented_out(project: Path) -> None:
    """Without the comment signs in front of it, it is a mirror."""
    run("init")
    text = (project / "workflow.yaml").read_text()

    lines = [re.sub(r"^  # (?=mirror:|  url:|  pull:|  on_conflict:)", "  ", line) for line in text.splitlines()]

    mirror = Workflow.parse("\n".join(lines)).memory.mirror
    assert mirror == MirrorSpec(url="s3://my-bucket/my-workflow?region=eu-central-1")


@pytest.mark.parametrize("given", [["s3://bucket/x"], ["s3:/x"], ["-w", "file:///x/workflow.yaml"]])
def test_a_url_is_no_place_for_a_workflow(project: Path, given: list[str]) -> None:
    """It would be a folder "s3:" here."""
    ran = run("init", *given)

    assert (2, True) == (ran.code, "is a URL, not a path" in ran.err)
    assert {} == files_under(project)


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_directory_is_refused(project: Path, blank: str) -> None:
    """As of a variable that is not set: it would be the current directory, or one of that name."""
    ran = run("init", blank)

    assert (2, True) == (ran.code, "it is blank" in ran.err)
    assert {} == files_under(project)


def test_the_schema_is_where_the_first_line_says(project: Path) -> None:
    """The first line of the workflow leads an editor to the schema that init wrote."""
    run("init")

    first = (project / "workflow.yaml").read_text().splitlines()[0]
    schema = json.loads((project / first.partition("$schema=")[2]).read_text())
    assert schema == run("schema", "workflow").data


def test_another_directory(project: Path) -> None:
    """Init DIR makes the directory and says how to go on there."""
    assert "cd agents/desk && memfiles read notes" in run("init", "agents/desk").err
    assert (project / "agents" / "desk" / "workflow.yaml").is_file()


def test_the_way_on_can_be_pasted() -> None:
    """Whatever the directory is called."""
    assert "Next: cd 'my agents' && memfiles read notes" in run("init", "my agents").err


def test_a_workflow_of_another_name(project: Path) -> None:
    """Init writes the file that -w names, where its schema can be found, and no other."""
    said = run("-w", "agents/desk.yaml", "init").err

    assert "Next: cd agents && memfiles -w desk.yaml read notes; then edit desk.yaml" in said
    assert ["desk.yaml", "schemas"] == sorted(path.name for path in (project / "agents").iterdir())
    assert (False, "# Notes\n") == (Path("workflow.yaml").exists(), run("-w", "agents/desk.yaml", "read", "notes").out)
    assert 4 == run("-w", "agents/desk.yaml", "init").code
    assert 2 == run("-w", "agents/desk.yaml", "init", "elsewhere").code


def test_nothing_is_overwritten(project: Path) -> None:
    """A workflow that is there ends init with code 4, and nothing is written beside it."""
    write_workflow(project, "mine")

    assert 4 == run("init").code
    assert {"workflow.yaml": b"mine"} == files_under(project)


def test_a_schema_of_ones_own_is_not_overwritten(project: Path) -> None:
    """Another schema in its place ends init with code 4; the very same schema does not."""
    run("init")
    (project / "workflow.yaml").unlink()
    assert 0 == run("init").code

    (project / "workflow.yaml").unlink()
    (project / "schemas" / "workflow.schema.json").write_text("{}")
    assert 4 == run("init").code


@pytest.mark.parametrize("room", [0, 500, 5000])
def test_a_full_disk_leaves_nothing_half_written(project: Path, room: int) -> None:
    """Where there is no room for all of a file it is not there, and the next try is not refused for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        failed = run("init")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (1, "error: File too large\n") == (failed.code, failed.err)
    assert {"schemas"} == set(files_under(project))
    assert 0 == run("init").code


def test_a_killed_init_is_made_again(project: Path) -> None:
    """What it left under a temporary name is nobody's workflow."""
    (project / ".workflow.yaml.tmp").write_text("half")

    assert 0 == run("init").code
    assert {"workflow.yaml", "schemas", "schemas/workflow.schema.json"} == set(files_under(project))


def test_a_link_to_nowhere_is_not_written_through(project: Path) -> None:
    """It counts as something that is there."""
    (project / "workflow.yaml").symlink_to(project / "elsewhere")

    assert 4 == run("init").code
    assert not (project / "elsewhere").exists()


def test_init_as_json(project: Path) -> None:
    """With --json init lists what it wrote, and says nothing else."""
    done = run("init", "--json")

    assert ["workflow.yaml", "schemas/workflow.schema.json"] == done.data["written"]
    assert "" == done.err


@pytest.mark.parametrize("ignored", [True, False])
def test_the_hint_about_version_control(project: Path, ignored: bool) -> None:
    """Init proposes a line for .gitignore, unless it is there."""
    (project / ".gitignore").write_text(".memory/\n" if ignored else "build/\n")

    assert ignored == (".gitignore" not in run("init").err)
