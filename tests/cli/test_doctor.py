"""``memfiles doctor``: each kind of trouble is found and named, and looking changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles.cli.doctor.checks import check_file_system, file_system_of
from memfiles.storage.events import utc_now
from tests.cli.command_line import WORKFLOW, run
from tests.cli.doctor_findings import amiss, declare, details, states
from tests.support.workflows import write_workflow


@pytest.fixture(autouse=True)
def memory(restored: Path) -> Path:
    """A restored memory directory; commands run where its workflow is."""
    return restored


def test_all_is_well() -> None:
    """A memory in order has no finding but ok, and the exit code is 0."""
    looked = run("doctor", "--json")

    assert (0, True) == (looked.code, looked.data["ok"])
    assert [] == amiss(looked.data["checks"])


def test_before_the_first_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is not there yet is a warning, no failure."""
    (tmp_path / "new").mkdir()
    write_workflow(tmp_path / "new", WORKFLOW)
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
    write_workflow(memory.parent, WORKFLOW)

    assert ["warn"] == states("editor schema")


def test_entries_in_order(memory: Path) -> None:
    """Entries that can be read and keep their budgets are counted."""
    declare(memory, "entries: {}")
    run("entries", "save", "plan", "Ada is on Pro", "--agent", "desk")

    assert [("ok", "1 entry, 13 bytes")] == details("entries")
    run("entries", "delete", "plan", "--agent", "desk")
    assert [("ok", "0 entries, 0 bytes, 1 deleted or evicted")] == details("entries")


def test_entries_that_nobody_declared(memory: Path) -> None:
    """Entries on the disk of a workflow without them are a warning that says what to add."""
    declare(memory, "entries: {}")
    run("entries", "save", "plan", "x", "--agent", "desk")
    workflow = memory.parent / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("  entries: {}\n", ""))

    assert ["warn"] == states("entries")
    assert "entries: {}" in details("entries")[0][1]


def test_an_entry_that_cannot_be_read(memory: Path) -> None:
    """It is named with the reason, and the rest is counted."""
    declare(memory, "entries: {}")
    for key in ("plan", "refund"):
        run("entries", "save", key, "x", "--agent", "desk")
    broken = next((memory / "entries").rglob("*.json"))
    broken.write_text("{")
    path = broken.relative_to(memory)

    [(state, why)] = details(f"record {path}")
    assert ("warn", "Invalid JSON") == (state, why[:12])
    assert [("ok", "1 entry, 1 bytes")] == details("entries")


def test_entries_over_their_budget(memory: Path) -> None:
    """A budget that was lowered meanwhile is a warning with the numbers."""
    declare(memory, "entries: {max_entries: 2}")
    for key in ("plan", "refund"):
        run("entries", "save", key, "x", "--agent", "desk")
    workflow = memory.parent / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("max_entries: 2", "max_entries: 1"))

    assert "desk at INTERNAL: 2 entries of 1" in details("entries over budget")[0][1]


def test_entries_of_an_agent_that_is_not_declared_any_more(memory: Path) -> None:
    """They are a warning: nobody sees them."""
    declare(memory, "entries: {}")
    run("entries", "save", "plan", "x", "--agent", "idle")
    workflow = memory.parent / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("  idle: {}\n", ""))

    assert "idle at PUBLIC: 1 entry of an undeclared agent" in details("entries of nobody")[0][1]


def test_a_directory_open_to_others(memory: Path) -> None:
    """A directory that others may enter is a warning with the command that closes it."""
    memory.chmod(0o755)

    assert ["warn"] == states("directory")
    assert f"chmod 700 {memory}, or mount its file system with umask=077" in run("doctor").out


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
    assert "record notes-1: " not in run("doctor").out, "the finding says it once"
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


def test_copies_that_other_programs_left(memory: Path) -> None:
    """Backups of an editor and conflict copies are a warning, as no forget reaches them; other files are none."""
    clerk = memory / "entries" / "clerk"
    clerk.mkdir(parents=True)
    left = f"entries/clerk/{'0' * 40}.sync-conflict-20261127-101010-ABCDEFG.json", f"entries/clerk/{'0' * 40}.json~"
    made = "notes-1 (conflicted copy).json", "Copy of notes-1.json", ".notes-1.json.swp", "#notes-1.json#"
    copies = (*made, "notes-1.json.bak", *left)
    others = "my-notes-1.json.gz", "notes-1 of Ada.txt", f"backup-{'0' * 40}.tar", "notes-1.jsonl"
    for path in (".gitignore", "notes.txt", "entries/clerk/.DS_Store", *others):
        (memory / path).write_text("")

    assert [] == states("copies of records")
    for path in copies:
        (memory / path).write_text("{}")
        assert ["warn"] == states("copies of records")
        (memory / path).unlink()


def test_temp_files_of_entries(memory: Path) -> None:
    """They are warnings as well."""
    left = memory / "entries" / "clerk" / f".{'0' * 40}.json.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("half a rec")

    assert ["warn"] == states("temp files")


@pytest.mark.parametrize("name", ["audit", ".state/locks"])
def test_a_folder_that_cannot_be_written(memory: Path, name: str) -> None:
    """Without its audit a memory goes on, so nothing else would tell."""
    shutil.rmtree(memory / name, ignore_errors=True)
    (memory / name).write_text("")

    assert (1, ["fail"]) == (run("doctor").code, states(name.removeprefix(".state/")))


@pytest.mark.parametrize("is_folder", [True, False])
def test_an_audit_that_is_not_written_is_found(memory: Path, tmp_path: Path, *, is_folder: bool) -> None:
    """No link is followed there, neither a folder nor a month, and a month may be another user's, or no file."""
    audit = memory / "audit"
    shutil.rmtree(audit, ignore_errors=True)
    if is_folder:
        (tmp_path / "elsewhere").mkdir()
        audit.symlink_to(tmp_path / "elsewhere")
    else:
        (audit / f"{utc_now()[:7]}.jsonl").mkdir(parents=True)
    written = run("append", "notes", "--line", "Pro")
    [(state, why)] = details("audit")

    assert "warning: the audit log in audit cannot be written" in written.err
    assert ("fail", True) == (state, "writable by you" in why)


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


def test_a_directory_that_is_a_link_to_nowhere(memory: Path) -> None:
    """It is a failure that says what to do, since no restore can make it."""
    memory.rename(memory.with_name("away"))
    memory.symlink_to("nowhere")

    assert (1, ["fail"]) == (run("doctor").code, states("directory"))
    assert ".memory links to nowhere, which does not exist" in run("doctor").out


def test_what_cannot_be_looked_at_is_one_finding_of_many(memory: Path) -> None:
    """Here a folder that leads in a circle: everything else is told all the same."""
    (memory / ".journal").rmdir()
    (memory / ".journal").symlink_to(".journal")
    looked = run("doctor")

    assert (1, ["fail"], ["ok"]) == (looked.code, states("journals"), states("records"))
    assert "journals: cannot be checked: " in looked.out and "Too many levels of symbolic links" in looked.out


@pytest.fixture
def mounted(
    memory: Path, require_root: Callable[[], None], require_tool: Callable[[str], str]
) -> Iterator[Callable[[str], None]]:
    """``mounted(options)`` makes the memory a small file system of its own, or changes how that is mounted."""
    require_root()

    def mount(options: str) -> None:
        subprocess.run([require_tool("mount"), "-t", "tmpfs", "-o", options, "none", str(memory)], check=True)

    yield mount
    subprocess.run([require_tool("umount"), "-l", str(memory)], check=True)


def test_a_file_system_without_room_for_files(mounted: Callable[[str], None]) -> None:
    """There may be none left while there is space."""
    mounted("size=200m,nr_inodes=100")

    assert ["ok", "warn"] == states("free space")


def test_a_file_system_that_is_mounted_read_only(mounted: Callable[[str], None]) -> None:
    """No change of owner or mode helps then."""
    mounted("size=200m,ro")

    assert "mounted read-only" in run("doctor").out


def test_locks_on_a_file_system_that_is_mounted_read_only(mounted: Callable[[str], None], memory: Path) -> None:
    """As for the directory, nobody is sent to chown."""
    mounted("size=200m")
    run("append", "notes", "--line", "x")
    mounted("size=200m,remount,ro")

    for check in ("locks", "audit"):
        assert [("fail", True)] == [(state, why.endswith("mounted read-only")) for state, why in details(check)]
