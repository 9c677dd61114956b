"""What a restore decides about one declaration and one record, before anything is touched."""

from __future__ import annotations

import pytest

from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.files.restore_report import FileReport, RestoreReport, check_declarations, metadata_of
from memfiles.records.declared_metadata import Metadata, metadata_in, redeclared, seed
from memfiles.workflow.workflow import MemoryFile
from tests.support.records import LATER, SEEDED_AT, declared, seeded, unchecked

METADATA = Metadata("notes", "What is known.", 4096, "INTERNAL")


def test_a_seed_is_the_first_revision_with_the_declared_content() -> None:
    """Its one change can be shown, and is where the past begins."""
    record = seed("notes", METADATA, content="# Grüße\n", at=SEEDED_AT)

    assert ("# Grüße\n", 1, SEEDED_AT, SEEDED_AT, False) == (
        record.content,
        record.revision,
        record.created_at,
        record.updated_at,
        record.provisional,
    )
    assert [(1, "seed", 10, 0)] == [(one.revision, one.op, one.bytes, one.offset) for one in record.history]
    assert record.is_intact


def test_a_seed_made_while_the_mirror_was_down_says_so() -> None:
    """It is to be reconciled when the mirror answers."""

    assert seed("notes", METADATA, content="", at=SEEDED_AT, provisional=True).provisional


def test_a_file_without_a_level_is_at_the_lowest() -> None:
    """Everyone may read it."""

    assert "LOW" == metadata_of(unchecked(), lowest_level="LOW").level
    assert "HIGH" == metadata_of(unchecked(level="HIGH"), lowest_level="LOW").level


def test_the_same_metadata_leaves_the_very_same_record() -> None:
    """Nothing is to be written."""
    record = seeded("x")

    assert record is redeclared(record, metadata_in(record), at=LATER)


@pytest.mark.parametrize(
    "metadata",
    [
        METADATA._replace(name="renamed"),
        METADATA._replace(description="Something else."),
        METADATA._replace(max_size_bytes=9),
        METADATA._replace(level="PUBLIC"),
    ],
)
def test_declared_metadata_is_authoritative_and_content_survives(metadata: Metadata) -> None:
    """Each of the four, as a revision that changes no text."""
    record = redeclared(seeded("x" * 20), metadata, at=LATER)

    assert (metadata, "x" * 20, 2, LATER) == (metadata_in(record), record.content, record.revision, record.updated_at)
    assert ("declare", 0, "") == tuple(getattr(record.history[-1], name) for name in ("op", "bytes", "old"))


def test_good_declarations_are_good() -> None:
    """Also none at all, and names that are the file's own uid."""
    check_declarations([])
    check_declarations([unchecked(uid="a", name="a"), unchecked(uid="b", name="c")])


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ([declared("a"), unchecked(uid="a", name="other")], "uid 'a' is declared twice"),
        ([declared("a"), unchecked(uid="b", name="a")], "name 'a' is declared twice"),
        ([unchecked(uid="a", name="b"), unchecked(uid="b", name="c")], "name 'b' is the uid of another file"),
        ([declared("Notes"), declared("notes")], "'Notes' and 'notes' differ only by case"),
        ([unchecked(content="ü" * (4 << 20) + "x")], "has 8388609 bytes, more than a file may have .8388608."),
    ],
)
def test_declarations_that_cannot_be_live_together_are_refused(files: list[MemoryFile], complaint: str) -> None:
    """The error says which and why."""
    with pytest.raises(WorkflowError, match=complaint):
        check_declarations(files)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a\n", ".hidden"])
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    """Whoever made the declaration, and however."""
    for bad in (unchecked(uid=name), unchecked(name=name)):
        with pytest.raises(InvalidArgument, match="is not allowed"):
            check_declarations([bad])


def test_a_report_is_looked_up_by_uid_and_shown_as_json() -> None:
    """One row a declared file, and the records nobody declared."""
    report = RestoreReport((FileReport("notes", "notes", "kept", over_cap=True, detail="why"),), orphans=("old",))

    assert "kept" == report["notes"].status
    assert {
        "files": [{"uid": "notes", "name": "notes", "status": "kept", "over_cap": True, "detail": "why"}],
        "orphans": ["old"],
    } == report.to_dict()
    with pytest.raises(KeyError):
        report["old"]
