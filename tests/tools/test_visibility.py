"""One place decides what a caller sees and may change, and says no in the same words whatever the reason to hide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import FileNotDeclared, InvalidArgument, LevelDenied, ReadOnly
from memfiles.files.manager import MemoryManager
from memfiles.records.levels import Levels
from memfiles.tools.visibility import (
    RefLike,
    as_refs,
    check_writable,
    find_file,
    validate_refs,
    visible_files,
)
from memfiles.workflow.workflow import MemoryFile, MemoryRef
from tests.support.stores import place_of, put_by_hand

FILES = [
    MemoryFile(uid="u-handbook", name="handbook", level="PUBLIC"),
    MemoryFile(uid="u-notes", name="notes", level="INTERNAL"),
    MemoryFile(uid="u-audit", name="audit", level="RESTRICTED"),
]
REFS = [{"id": file.uid, "mode": "rw"} for file in FILES]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(place_of(tmp_path / "memory"), durability="os") as manager:
        manager.restore(FILES)
        yield manager


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("PUBLIC", {"handbook": True}),
        ("INTERNAL", {"handbook": False, "notes": True}),
        ("CONFIDENTIAL", {"handbook": False, "notes": False}),
        ("RESTRICTED", {"audit": True, "handbook": False, "notes": False}),
    ],
)
def test_a_level_reads_down_and_writes_only_at_itself(
    manager: MemoryManager, level: str, expected: dict[str, bool]
) -> None:
    """What is at or below the level is seen; what is exactly at it may be changed."""
    files = visible_files(REFS, manager, level=level)

    assert expected == {file.card.name: file.writable for file in files}


def test_files_come_by_name(manager: MemoryManager) -> None:
    """The order is that of the names, not of the references."""

    assert ["audit", "handbook", "notes"] == [file.card.name for file in visible_files(REFS, manager)]


def test_without_a_level_only_the_modes_count(manager: MemoryManager) -> None:
    """A host that does not use levels sees every file it refers to."""
    refs: list[RefLike] = [MemoryRef(id="u-audit", mode="r"), {"id": "u-notes", "mode": "rw"}]

    assert [("audit", False), ("notes", True)] == [
        (file.card.name, file.writable) for file in visible_files(refs, manager)
    ]


def test_a_reference_to_nothing_shows_nothing(manager: MemoryManager) -> None:
    """A file that is no longer declared disappears from the card and the tools, and the rest stays."""
    refs = [*REFS, {"id": "u-gone", "mode": "rw"}]

    assert visible_files(REFS, manager) == visible_files(refs, manager)


def test_a_file_that_cannot_be_read_does_not_hide_the_rest(manager: MemoryManager, tmp_path: Path) -> None:
    """Whatever a person puts in the place of one record, the other files can be used."""
    put_by_hand(tmp_path / "memory", "u-audit.json", b"{")

    assert {"handbook", "notes"} <= {file.card.name for file in visible_files(REFS, manager)}


def test_of_two_references_to_one_file_the_wider_counts(manager: MemoryManager) -> None:
    """A file is listed once, and ``rw`` wins."""
    refs = [{"id": "u-notes", "mode": mode} for mode in ("r", "rw", "r")]

    assert [True] == [file.writable for file in visible_files(refs, manager)]


@pytest.mark.parametrize("wanted", ["notes", "u-notes"])
def test_a_file_is_found_by_name_and_by_uid(manager: MemoryManager, wanted: str) -> None:
    """Models are shown names; a uid that they picked up elsewhere works too."""

    assert find_file(visible_files(REFS, manager), wanted).card.uid == "u-notes"


def test_a_name_may_be_spelled_in_other_letters_where_that_is_plain(tmp_path: Path) -> None:
    """Vendors hold models to the words of an enum, and not all of them to its capitals."""
    with MemoryManager(place_of(tmp_path / "memory"), durability="os") as manager:
        manager.restore([MemoryFile(uid="u-1", name="Notes"), MemoryFile(uid="u-2", name="plan")])
        one = visible_files([{"id": "u-1", "mode": "r"}, {"id": "u-2", "mode": "r"}], manager)
        manager.restore([MemoryFile(uid="u-1", name="Notes"), MemoryFile(uid="u-2", name="NOTES")])
        two = visible_files([{"id": "u-1", "mode": "r"}, {"id": "u-2", "mode": "r"}], manager)

    assert ["u-1", "u-2"] == [find_file(one, "notes").card.uid, find_file(two, "NOTES").card.uid]
    with pytest.raises(FileNotDeclared, match="unknown memory file 'notes': use one of NOTES, Notes"):
        find_file(two, "notes")


def test_a_file_is_found_by_its_name_or_its_uid(tmp_path: Path) -> None:
    """What the model is shown, and what a workflow says; no name is the uid of another file."""
    with MemoryManager(place_of(tmp_path / "memory"), durability="os") as manager:
        manager.restore([MemoryFile(uid="a", name="b"), MemoryFile(uid="c", name="d")])
        files = visible_files([{"id": "a", "mode": "r"}, {"id": "c", "mode": "r"}], manager)

    assert ["a", "a", "c"] == [find_file(files, name).card.uid for name in ("b", "a", "d")]


def test_a_hidden_file_looks_like_one_that_does_not_exist(manager: MemoryManager) -> None:
    """The refusal depends on what was asked and what is visible, on nothing else."""

    def refusal(refs: list[dict[str, str]], wanted: str) -> str:
        with pytest.raises(FileNotDeclared) as refused:
            find_file(visible_files(refs, manager, level="INTERNAL"), wanted)
        return str(refused.value)

    assert "unknown memory file 'audit': use one of handbook, notes" == refusal(REFS, "audit")
    assert refusal(REFS[:2], "audit") == refusal(REFS, "audit")
    assert refusal(REFS, "u-nowhere") == refusal(REFS, "u-audit").replace("u-audit", "u-nowhere")


def test_a_caller_without_files_is_told_so() -> None:
    """There is no list to choose from."""
    with pytest.raises(FileNotDeclared, match="unknown memory file 'notes': no memory files are available here"):
        find_file([], "notes")


def test_a_read_only_reference_refuses_writing(manager: MemoryManager) -> None:
    """The mode is the first reason, whatever the level."""
    (file,) = visible_files([{"id": "u-notes", "mode": "r"}], manager, level="CONFIDENTIAL")
    with pytest.raises(ReadOnly, match="notes is read-only here; write to a file marked RW"):
        check_writable(file)


def test_a_higher_session_does_not_write_down(manager: MemoryManager) -> None:
    """The refusal names both levels."""
    (file,) = visible_files([{"id": "u-notes", "mode": "rw"}], manager, level="CONFIDENTIAL")
    with pytest.raises(LevelDenied, match="notes is at level INTERNAL and this session is at CONFIDENTIAL"):
        check_writable(file)


def test_good_references_are_valid(manager: MemoryManager) -> None:
    """Every reference to a declared file, once: nothing is raised."""
    validate_refs(REFS, manager)
    validate_refs([MemoryRef(id="u-notes", mode="r")], manager)
    validate_refs([], manager)


def test_references_to_undeclared_files_are_named(manager: MemoryManager) -> None:
    """All of them at once, with what is declared."""
    refs = [{"id": uid, "mode": "r"} for uid in ("u-x", "u-notes", "u-y")]
    with pytest.raises(
        FileNotDeclared, match="undeclared memory files: u-x, u-y \\(declared: u-audit, u-handbook, u-notes\\)"
    ):
        validate_refs(refs, manager)


def test_a_repeated_reference_is_named(manager: MemoryManager) -> None:
    """Two references to one file leave open which mode is meant."""
    refs = [{"id": "u-notes", "mode": "r"}, {"id": "u-notes", "mode": "rw"}]
    with pytest.raises(InvalidArgument, match="referenced more than once: u-notes"):
        validate_refs(refs, manager)


@pytest.mark.parametrize(
    ("ref", "what"),
    [
        ({"id": "u-notes", "mode": "w"}, "mode"),
        ({"mode": "r"}, "id"),
        ({"id": "u-notes", "mode": "r", "more": 1}, "more"),
        ("u-notes", "MemoryRef"),
        (None, "MemoryRef"),
    ],
)
def test_a_malformed_reference_is_located(manager: MemoryManager, ref: Any, what: str) -> None:
    """The error says which reference and what of it."""
    with pytest.raises(InvalidArgument, match=rf"refs\[1\]: .*{what}.*a reference is {{id, mode}}, mode r or rw"):
        visible_files([REFS[0], ref], manager)


@pytest.mark.parametrize("refs", [None, 5])
def test_what_is_no_list_of_references_is_refused_in_words(refs: Any) -> None:
    """It is not a foreign error from somewhere inside."""
    with pytest.raises(InvalidArgument, match="references must be a list of {id, mode} objects, not "):
        as_refs(refs)


def test_a_file_at_another_deploys_level_is_hidden(manager: MemoryManager) -> None:
    """A level that this workflow does not declare is above everyone, and does not hide the rest."""
    levels = Levels(("PUBLIC", "INTERNAL"))
    refs: list[RefLike] = [{"id": uid, "mode": "rw"} for uid in manager.uids()]

    visible = visible_files(refs, manager, levels=levels, level="INTERNAL")

    assert ["handbook", "notes"] == [file.card.name for file in visible]
