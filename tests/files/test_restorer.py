"""Restore: what a deploy makes of declarations, a directory and a mirror, all or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.files.manager import MemoryManager
from memfiles.files.restore_report import RestoreReport
from memfiles.storage.home import home_of
from memfiles.workflow.fields import MAX_SIZE_BYTES
from memfiles.workflow.workflow import MemoryFile
from tests.support.records import TickingClock, declared, files_under, records_in, rewrite, unchecked
from tests.support.stores import place_of


def managed(directory: Path) -> MemoryManager:
    return MemoryManager(place_of(directory), durability="os", now=TickingClock())


def restored(directory: Path, *files: MemoryFile) -> RestoreReport:
    """The report of a restore by a process that then goes away; its plan said the same and touched nothing."""
    before = files_under(directory)
    with managed(directory) as manager:
        plan = manager.plan(files)
        assert before == files_under(directory)
        report = manager.restore(files)
    assert plan == report
    return report


def read(directory: Path, uid: str) -> str:
    with managed(directory) as manager:
        manager.restore([declared(uid)])
        return manager.read(uid)


def test_a_first_restore_seeds_every_file(tmp_path: Path) -> None:
    """With its declared content, at revision 1."""
    report = restored(tmp_path / "new", declared("notes", content="# Notes\n"), declared("plan"))

    assert ["seeded", "seeded"] == [row.status for row in report.files]
    assert ["# Notes\n", ""] == [read(tmp_path / "new", uid) for uid in ("notes", "plan")]


def test_a_plan_does_not_even_make_the_directory(tmp_path: Path) -> None:
    """It only says what would be."""
    manager = managed(tmp_path / "new")
    plan = manager.plan([declared("notes")])

    assert ("seeded", ()) == (plan["notes"].status, plan.orphans)
    assert ([], []) == (list(tmp_path.iterdir()), manager.uids())


def test_a_relative_directory_stays_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that goes to another folder looks at the same memory as before, and makes none there."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with managed(Path("memory")) as manager:
        monkeypatch.chdir(tmp_path / "elsewhere")
        manager.restore([declared("notes")])
        plan = manager.plan([declared("notes")])

    assert ("kept", []) == (plan["notes"].status, list((tmp_path / "elsewhere").iterdir()))


def _versions(directory: Path) -> dict[str, object]:
    """The versions of all records, which a change of the same bytes would raise."""
    with home_of(place_of(directory)).reading() as records:
        assert records is not None
        return {path: records.signature(path) for path in records.paths()}


def test_content_survives_and_nothing_is_rewritten(tmp_path: Path) -> None:
    """A deploy without changes leaves every record the very same file."""
    files = [declared("notes", content="# Notes\n"), declared("plan")]
    with managed(tmp_path) as manager:
        manager.restore(files)
        manager.append("notes", "- Bob\n")
    before = _versions(tmp_path)
    report = restored(tmp_path, *files)

    assert ["kept", "kept"] == [row.status for row in report.files]
    assert before == _versions(tmp_path)
    assert "# Notes\n- Bob\n" == read(tmp_path, "notes")


def test_a_new_declared_content_does_not_replace_what_is_there(tmp_path: Path) -> None:
    """It is a seed."""
    restored(tmp_path, declared("notes", content="old"))

    assert "kept" == restored(tmp_path, declared("notes", content="new"))["notes"].status
    assert "old" == read(tmp_path, "notes")


def test_new_metadata_is_put_into_the_record(tmp_path: Path) -> None:
    """As a revision; a cap below the content is reported, and the content kept."""
    restored(tmp_path, declared("notes", content="0123456789"))
    report = restored(tmp_path, declared("notes", cap=5, description="Shorter."))
    with managed(tmp_path) as manager:
        manager.restore([declared("notes", cap=5, description="Shorter.")])
        card, content = manager.card("notes"), manager.read("notes")

    assert ("updated", True) == (report["notes"].status, report["notes"].over_cap)
    assert ("Shorter.", 5, 2, "0123456789") == (card.description, card.max_size_bytes, card.revision, content)


def test_a_kept_file_over_its_cap_is_reported_each_time(tmp_path: Path) -> None:
    """Until it has been edited down."""
    restored(tmp_path, declared("notes", content="0123456789"))
    restored(tmp_path, declared("notes", cap=5))

    assert ("kept", True) == tuple(
        getattr(restored(tmp_path, declared("notes", cap=5))["notes"], name) for name in ("status", "over_cap")
    )


def test_undeclared_records_stay_and_are_reported(tmp_path: Path) -> None:
    """They are no longer live, and are there again when they are declared again."""
    restored(tmp_path, declared("notes", content="kept"), declared("plan"))
    (tmp_path / "README.txt").write_text("not a record")
    before = records_in(tmp_path)["notes.json"]

    assert ("notes",) == restored(tmp_path, declared("plan")).orphans
    assert before == records_in(tmp_path)["notes.json"]
    assert "kept" == restored(tmp_path, declared("notes"), declared("plan"))["notes"].status


def test_a_restore_in_a_running_process_changes_the_live_set(tmp_path: Path) -> None:
    """Exactly the declared files are live afterwards."""
    with managed(tmp_path) as manager:
        manager.restore([declared("notes"), declared("plan")])
        manager.append("notes", "x")
        manager.restore([declared("notes"), declared("rules")])

        assert (["notes", "rules"], "x") == (manager.uids(), manager.read("notes"))


@pytest.mark.parametrize(
    "bad",
    [
        [unchecked(uid="../x")],
        [unchecked(name="a/b")],
        [declared("plan"), declared("plan")],
        [declared("plan"), declared("PLAN")],
        [declared("plan"), unchecked(content="x" * (MAX_SIZE_BYTES + 1))],
    ],
)
def test_a_bad_declaration_changes_neither_disk_nor_live_set(tmp_path: Path, bad: Iterable[Any]) -> None:
    """All or nothing, for a restore and for a plan."""
    with managed(tmp_path / "new") as fresh, pytest.raises((WorkflowError, InvalidArgument)):
        fresh.restore([declared("rules"), *bad])
    with managed(tmp_path / "old") as manager:
        manager.restore([declared("notes", content="x")])
        before = files_under(tmp_path)
        for refused in (manager.restore, manager.plan):
            with pytest.raises((WorkflowError, InvalidArgument)):
                refused([declared("rules"), *bad])

        assert (before, ["notes"], "x") == (files_under(tmp_path), manager.uids(), manager.read("notes"))
    assert not (tmp_path / "new").exists()


def put_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "outside")


def put_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def put_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)


IN_PLACE_OF_A_RECORD: dict[str, Callable[[Path], object]] = {
    "nothing in it": lambda path: path.write_bytes(b""),
    "an array": lambda path: path.write_bytes(b"[]"),
    "nested deeply": lambda path: path.write_bytes(b"[" * 100_000),
    "8 GiB of zeros": put_sparse,
    "a link to the outside": put_link,
    "a FIFO": os.mkfifo,
    "a folder": put_folder,
}


@pytest.mark.directory("only files can be something else")
@pytest.mark.parametrize("what", IN_PLACE_OF_A_RECORD)
def test_whatever_lies_at_a_record_s_path_the_start_succeeds(tmp_path: Path, what: str) -> None:
    """The bad one is set aside, the others work, and nothing outside the directory is touched."""
    directory, outside = tmp_path / "memory", tmp_path / "outside"
    outside.write_text("theirs")
    restored(directory, declared("notes"), declared("plan", content="plan"))
    (directory / "notes.json").unlink()
    IN_PLACE_OF_A_RECORD[what](directory / "notes.json")
    report = restored(directory, declared("notes", content="seed"), declared("plan"))

    assert ["quarantined", "kept"] == [row.status for row in report.files]
    assert ["seed", "plan", "theirs"] == [read(directory, "notes"), read(directory, "plan"), outside.read_text()]
    assert 2 == len(list((directory / "quarantine").iterdir()))


@pytest.mark.directory("only files can be changed by hand")
def test_a_change_made_by_hand_between_runs_becomes_a_revision(tmp_path: Path) -> None:
    """Nobody saw the text before it, so it cannot be undone; the digest and the revision in the file are put right."""
    restored(tmp_path, declared("notes", content="x"))
    rewrite(tmp_path / "notes.json", content="by hand")
    report = restored(tmp_path, declared("notes"))
    with managed(tmp_path) as manager:
        manager.restore([declared("notes")])
        record = manager.snapshot("notes")

    assert ("updated", "its content was changed by hand") == (report["notes"].status, report["notes"].detail)
    assert ("by hand", 2, "external", True) == (
        record.content,
        record.revision,
        record.history[-1].op,
        record.is_intact,
    )


MANY = [declared(f"file-{number}", content=f"{number}\n") for number in range(20)]


@pytest.mark.directory("only files can be changed by hand")
def test_a_note_of_unchanged_records_never_hides_a_change(tmp_path: Path) -> None:
    """With many files a start trusts it; a change by hand between runs is noticed all the same."""
    restored(tmp_path, *MANY)
    restored(tmp_path, *MANY)
    assert (tmp_path / ".state" / "unchanged.json").exists()
    rewrite(tmp_path / "file-7.json", content="by hand")
    (tmp_path / "file-8.json").write_text("{")
    (tmp_path / "file-9.json").unlink()
    report = restored(tmp_path, *MANY)

    assert {"file-7": "updated", "file-8": "quarantined", "file-9": "seeded"} == {
        row.uid: row.status for row in report.files if row.status != "kept"
    }


@pytest.mark.directory("only it has derived state in it")
def test_derived_state_can_be_deleted_while_nothing_runs(tmp_path: Path) -> None:
    """It loses nothing; a start then reads every record."""
    with managed(tmp_path) as manager:
        manager.restore(MANY)
        manager.append("file-3", "more\n")
    before = records_in(tmp_path)
    shutil.rmtree(tmp_path / ".state")
    report = restored(tmp_path, *MANY)

    assert {"kept"} == {row.status for row in report.files}
    assert before == records_in(tmp_path)


@pytest.mark.directory("only files have a mode")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_look(tmp_path: Path, umask: int) -> None:
    """Folders are 0700 and files 0600, whatever the umask, also after changes."""
    earlier = os.umask(umask)
    try:
        with managed(tmp_path / "new") as manager:
            manager.restore(MANY)
            manager.append("file-1", "x")
            manager.append_many([("file-1", "x"), ("file-2", "x")])
            modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*") if path.is_file()}
            folders = [path for path in (tmp_path / "new").rglob("*") if path.is_dir()]
    finally:
        os.umask(earlier)

    assert {0o600} == modes
    assert {0o700} == {path.stat().st_mode & 0o777 for path in [tmp_path / "new", *folders]}
