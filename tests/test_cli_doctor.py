"""``memfiles doctor``: each kind of trouble is found and named, and looking changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import WORKFLOW, run

from memfiles.cli.checks import check_file_system, file_system_of


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A restored memory directory, its workflow beside it; commands run there."""
    run("init", str(tmp_path))
    (tmp_path / "workflow.yaml").write_text("# yaml-language-server: $schema=schemas/workflow.schema.json\n" + WORKFLOW)
    monkeypatch.chdir(tmp_path)
    run("restore")
    return tmp_path / ".memory"


def states(check: str) -> list[str]:
    """The states that doctor gives to one check."""
    return [found["state"] for found in run("doctor", "--json").data["checks"] if found["check"] == check]


def test_all_is_well() -> None:
    """A memory in order has no finding but ok, and the exit code is 0."""
    looked = run("doctor", "--json")

    assert (0, True) == (looked.code, looked.data["ok"])
    assert {"ok"} == {found["state"] for found in looked.data["checks"]}


def test_before_the_first_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is not there yet is a warning, no failure."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "workflow.yaml").write_text(WORKFLOW)
    monkeypatch.chdir(tmp_path / "new")

    assert (0, ["warn"]) == (run("doctor").code, states("directory"))


@pytest.mark.parametrize("text", [None, "name: [", "name: desk\nmemory: {fils: []}\n"])
def test_a_workflow_that_cannot_be_used(memory: Path, text: str | None) -> None:
    """A missing or wrong workflow is a failure with its reason, and ends with code 1."""
    workflow = memory.parent / "workflow.yaml"
    workflow.unlink() if text is None else workflow.write_text(text)

    assert (1, ["fail"]) == (run("doctor").code, states("workflow"))


@pytest.mark.parametrize("schema", [None, "{}"])
def test_the_schema_for_editors(memory: Path, schema: str | None) -> None:
    """A schema that is missing or of another version is a warning."""
    path = memory.parent / "schemas" / "workflow.schema.json"
    path.unlink() if schema is None else path.write_text(schema)

    assert ["warn"] == states("editor schema")


def test_no_schema_comment(memory: Path) -> None:
    """A first line without the comment is a warning."""
    (memory.parent / "workflow.yaml").write_text(WORKFLOW)

    assert ["warn"] == states("editor schema")


def test_what_this_version_does_not_do(memory: Path) -> None:
    """A mirror and entries are declared in vain, which is a warning each."""
    workflow = memory.parent / "workflow.yaml"
    declared = 'memory:\n  mirror: {url: "file:///nowhere"}\n  entries: {}\n'
    workflow.write_text(workflow.read_text().replace("memory:\n", declared, 1))

    assert (["warn"], ["warn"]) == (states("mirror"), states("entries"))


def test_a_directory_open_to_others(memory: Path) -> None:
    """A directory that others may enter is a warning with the command that closes it."""
    memory.chmod(0o755)

    assert ["warn"] == states("directory")
    assert f"chmod 700 {memory}" in run("doctor").out


def test_a_file_in_place_of_the_directory(memory: Path) -> None:
    """A file where the directory should be is a failure."""
    memory.rename(memory.parent / "away")
    memory.write_text("")

    assert (1, ["fail"]) == (run("doctor").code, states("directory"))


@pytest.mark.parametrize("record", [b"", b"[]", b'{"format": "memfiles/1"', b"\xff\xfe"])
def test_a_record_that_cannot_be_read(memory: Path, record: bytes) -> None:
    """A broken record is a failure, and doctor leaves it where it is."""
    (memory / "notes-1.json").write_bytes(record)

    assert (1, ["fail"]) == (run("doctor").code, states("record notes"))
    assert record == (memory / "notes-1.json").read_bytes()


def test_a_record_that_is_a_fifo(memory: Path) -> None:
    """A FIFO in the place of a record is a failure, and does not hang."""
    (memory / "notes-1.json").unlink()
    os.mkfifo(memory / "notes-1.json")

    assert ["fail"] == states("record notes")


def test_a_change_by_hand(memory: Path) -> None:
    """A content that was changed by hand is a warning: it will be taken in."""
    path = memory / "notes-1.json"
    path.write_text(path.read_text().replace("# Notes", "# Nodes"))

    assert ["warn"] == states("record notes")


def test_a_file_over_its_cap(memory: Path) -> None:
    """A file over a cap that was lowered is a warning with the numbers."""
    run("append", "small", "0123456789")
    workflow = memory.parent / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("max_size_bytes: 20", "max_size_bytes: 5"))

    assert ["warn"] == states("record small")
    assert "10 bytes, over its cap of 5" in run("doctor").out


def test_leftovers(memory: Path) -> None:
    """Temporary files and records that nobody declares are warnings."""
    (memory / ".notes-1.json.tmp").write_text("")
    (memory / "other.json").write_text("{}")

    assert (["warn"], ["warn"]) == (states("temp files"), states("orphans"))


def test_what_a_living_process_keeps_is_not_left_over(memory: Path) -> None:
    """Earlier versions' files, which it writes over for later ones."""
    (memory / ".notes-1.json.tmp").write_text("")
    os.utime(memory / ".notes-1.json.tmp", ns=(0, 0))

    assert ["ok"] == states("temp files")


def test_quarantine(memory: Path) -> None:
    """What was set aside is a warning with its reason."""
    (memory / "notes-1.json").write_text("[]")
    run("restore")

    assert ["warn"] == states("quarantine")
    assert "quarantine/notes-1.json" in run("doctor").out


def test_the_file_system_of_a_path(tmp_path: Path) -> None:
    """The innermost mount counts, and its name may hold a blank."""
    mounts = tmp_path / "mounts"
    blank = str(tmp_path / "a disk").replace(" ", "\\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {blank} nfs4 rw 0 0\n")

    assert "nfs4" == file_system_of(tmp_path / "a disk" / "deep", mounts=mounts)
    assert "ext4" == file_system_of(tmp_path, mounts=mounts)
    assert None is file_system_of(tmp_path, mounts=tmp_path / "nowhere")


@pytest.mark.parametrize(("kind", "state"), [("nfs4", "fail"), ("tmpfs", "warn"), ("ext4", "ok"), ("xfs", "ok")])
def test_the_kind_of_file_system(tmp_path: Path, kind: str, state: str) -> None:
    """Network file systems fail, those in memory are a warning, all others are well."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"x / {kind} rw 0 0\n")

    assert state == next(check_file_system(tmp_path, mounts=mounts)).state
