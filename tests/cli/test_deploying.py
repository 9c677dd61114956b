"""``memfiles check``, ``plan``, ``restore`` and ``status``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import memfiles
from memfiles.errors import WorkflowError
from tests.cli.command_line import WORKFLOW, run
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.usefixtures("project")


def states(command: str) -> dict[str, str]:
    """What plan or restore says of each file."""
    return {row["name"]: row["status"] for row in run("--json", command).data["files"]}


def test_a_workflow_that_is_right() -> None:
    """Check says how much is declared."""
    assert "workflow.yaml: ok, 3 memory files, 2 agents\n" == run("check").out
    shown = {"workflow": "workflow.yaml", "name": "desk", "files": 3, "agents": 2, "warnings": []}
    assert shown == run("check", "--json").data


def test_keys_that_were_meant_for_the_memory(project: Path) -> None:
    """Beside it they mean nothing, which is a warning with line and column; other keys are the engine's."""
    write_workflow(project, "memory:\n  files: []\nentries: {}\n\nsecrets: block\nnodes: [1]\n")
    checked = run("check")
    lines = checked.err.splitlines()

    assert (0, "workflow.yaml: ok, 0 memory files, 0 agents\n", 2) == (checked.code, checked.out, len(lines))
    assert lines[0].startswith("warning: workflow.yaml:3:1: entries: this key is outside memory")
    assert lines[1].startswith("warning: workflow.yaml:5:1: secrets: this key is outside memory")
    assert 2 == len(run("check", "--json").data["warnings"])


def test_a_workflow_that_is_wrong(project: Path) -> None:
    """Check names file, line, column and path of what is wrong, and ends with code 1."""
    write_workflow(project, WORKFLOW.replace("mode: rw", "mode: x"))

    checked = run("check")

    assert (1, "") == (checked.code, checked.out)
    assert "workflow.yaml:10:" in checked.err
    assert "agents.desk.memory" in checked.err


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://host:99999/db", "the store's URL cannot be read"),
        ("postgresql://host/db?schema=My-Schema", "schema in the store's URL"),
    ],
)
def test_a_store_that_cannot_be_is_told_with_its_place(project: Path, url: str, why: str) -> None:
    """Check, and whoever opens the memory, names file, line and column of the URL."""
    path = write_workflow(project, f'name: desk\nmemory:\n  store: "{url}"\n')
    with pytest.raises(WorkflowError) as error:
        memfiles.open(path)

    for told in (run("check").err, str(error.value)):
        assert f"workflow.yaml:3:10: memory.store: {why}" in told


def test_a_scanner_that_is_not_installed(project: Path) -> None:
    """The memory does not open without it, so check and doctor find it before a deploy."""
    write_workflow(project, "memory: {secrets_scanner: acme, files: []}\n")

    checked, examined, restored = run("check"), run("doctor", "--json"), run("restore")
    found = [(each["check"], each["detail"]) for each in examined.data["checks"] if each["state"] == "fail"]

    assert (checked.code, checked.out, checked.err) == (restored.code, restored.out, restored.err)
    assert (2, True) == (checked.code, "unknown secrets_scanner 'acme'" in checked.err)
    assert (1, [("workflow", checked.err.removeprefix("error: ").strip())]) == (examined.code, found)


def test_a_store_is_no_mirror(project: Path) -> None:
    """Its URL as that of a mirror is told with its place as well."""
    path = write_workflow(
        project, "name: desk\nmemory:\n  mirror:\n    url: postgresql://ann@localhost/db?workspace=w\n"
    )
    with pytest.raises(WorkflowError) as error:
        memfiles.open(path)

    for told in (run("check").err, str(error.value)):
        assert "workflow.yaml:4:10: memory.mirror.url: no installed package offers" in told


def test_a_workflow_that_is_given_as_an_argument() -> None:
    """The error shows the option that names it; any other argument is answered as ever."""
    told = run("check", "other.yaml")

    assert (2, True) == (told.code, "give it with -w: memfiles check -w other.yaml" in told.err)
    assert "Try 'memfiles check --help'." in run("check", "other").err


def test_a_workflow_that_is_a_directory(project: Path) -> None:
    """A directory in the place of the workflow is a usage error."""
    assert 2 == run("check", "-w", ".").code


def test_plan_and_restore_say_the_same() -> None:
    """Plan reports what restore then does, first and at every later time."""
    first = states("plan")

    assert {"notes": "seeded", "small": "seeded", "rules": "seeded"} == first == states("restore")
    assert {"notes": "kept", "small": "kept", "rules": "kept"} == states("plan") == states("restore")


def test_a_changed_declaration(project: Path) -> None:
    """A declaration that changed is planned as updated, and the content survives the restore."""
    run("append", "notes", "- one\n")
    write_workflow(project, WORKFLOW.replace("What is known.", "All that is known."))

    assert "updated" == states("plan")["notes"] == states("restore")["notes"]
    assert "# Notes\n- one\n" == run("read", "notes").out


def test_a_broken_record_is_set_aside(project: Path) -> None:
    """Restore sets a broken record aside, says why, and goes on with the declared content."""
    run("restore")
    (project / ".memory" / "notes-1.json").write_text("[]")

    restored = run("restore")

    assert 0 == restored.code
    assert "quarantined" in restored.out
    assert "# Notes\n" == run("read", "notes").out
    assert 1 == run("status", "--json").data["quarantined"]


def test_a_credential_that_was_written_by_hand_is_told(project: Path) -> None:
    """The library logs it; a command shows it as a warning, but for one that asked for JSON."""
    run("restore")
    record, kept = project / ".memory" / "notes-1.json", (project / ".memory" / "notes-1.json").read_text()
    for args, told in (((), True), (("--json",), False)):
        record.write_text(kept.replace("# Notes", "password: Tr0ub4dor&3x!"))
        warning = "warning: notes: a change by hand appears to contain a credential: password at byte 10\n"
        assert (warning if told else "") == run("restore", *args).err
        shutil.rmtree(project / ".memory")
        run("restore")


def test_orphans_are_reported(project: Path) -> None:
    """A record that is not declared any more is named by restore and by status."""
    run("restore")
    text = "\n".join(line for line in WORKFLOW.splitlines() if "small" not in line)
    write_workflow(project, text)

    assert "small-1: on disk but not declared" in run("restore").out
    assert ["small-1"] == run("status", "--json").data["orphans"]


def test_status_before_the_first_restore(project: Path) -> None:
    """Status tells that nothing is there yet, and where it will be."""
    status = run("status", "--json").data

    assert (str(project / ".memory"), False, "fsync") == (status["directory"], status["exists"], status["durability"])
    assert "not created yet" in run("status").out


def test_status_of_a_memory_in_use() -> None:
    """Status gives for each file its size, cap and share."""
    run("append", "small", "0123456789")

    small = next(file for file in run("status", "--json").data["files"] if file["name"] == "small")

    assert (10, 20, 0.5) == (small["size_bytes"], small["max_size_bytes"], small["share"])
