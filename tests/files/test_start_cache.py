"""The start cache: it saves time, and is never trusted over the disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from memfiles.files import start_cache
from memfiles.records.declared_metadata import Metadata, metadata_in
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature
from memfiles.storage.home import NoteFiles
from tests.support.records import seeded

RECORD = seeded("x" * 7)
SIGNATURE = Signature(12, 345, 1_700_000_000_123_456_789)
NOTE = start_cache.row(RECORD, SIGNATURE)


@pytest.fixture
def directory(tmp_path: Path) -> int:
    (tmp_path / ".state").mkdir()
    return Descriptor.of_directory(tmp_path)


def test_a_note_comes_back_and_tells_the_size(directory: int) -> None:
    """That is all a start needs to know of a record that did not change."""
    start_cache.save(directory, {"notes": NOTE})
    loaded = start_cache.load(directory)

    assert 7 == start_cache.size_if_same(loaded["notes"], SIGNATURE, metadata_in(RECORD))


@pytest.mark.parametrize("field", ["inode", "size", "mtime_ns"])
def test_a_note_counts_only_while_the_signature_is_the_same(field: str) -> None:
    """Whatever changed a file changed one of the three."""
    other = SIGNATURE._replace(**{field: 1})

    assert start_cache.size_if_same(NOTE, other, metadata_in(RECORD)) is None


@pytest.mark.parametrize("field", ["name", "description", "max_size_bytes", "level"])
def test_a_note_counts_only_for_the_same_declaration(field: str) -> None:
    """Else the record is to be rewritten, and for that it must be read."""
    fields = {**metadata_in(RECORD)._asdict(), field: "another"}

    assert start_cache.size_if_same(NOTE, SIGNATURE, Metadata(**fields)) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"memfiles-unchanged/2": {}}', '{"memfiles-unchanged/1": []}', "\0"]
)
def test_a_damaged_note_is_no_note(tmp_path: Path, directory: int, text: str) -> None:
    """It costs time, nothing else."""
    (tmp_path / start_cache.PATH).write_text(text)

    assert {} == start_cache.load(directory)


@pytest.mark.parametrize("row", [None, 7, "x", [], NOTE[:7], [*NOTE[:7], "7"], [*NOTE[:7], None], {}])
def test_a_damaged_row_tells_nothing(tmp_path: Path, directory: int, row: object) -> None:
    """Each file is then looked at."""
    (tmp_path / start_cache.PATH).write_text(json.dumps({"memfiles-unchanged/1": {"notes": row}}))

    assert start_cache.size_if_same(start_cache.load(directory)["notes"], SIGNATURE, metadata_in(RECORD)) is None


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, directory: int) -> None:
    """Derived state comes from us or not at all."""
    (tmp_path / "elsewhere").write_text(json.dumps({"memfiles-unchanged/1": {"notes": NOTE}}))
    (tmp_path / start_cache.PATH).symlink_to(tmp_path / "elsewhere")

    assert {} == start_cache.load(directory)


def test_a_new_note_replaces_the_old_one(tmp_path: Path, directory: int) -> None:
    """Also over what a killed process left; no temp file stays."""
    (tmp_path / ".state" / ".unchanged.json.tmp").write_text("left behind")
    start_cache.save(directory, {"old": NOTE})
    start_cache.save(directory, {"new": NOTE})

    assert {"new": NOTE} == start_cache.load(directory)
    assert ["unchanged.json"] == os.listdir(tmp_path / ".state")
    assert 0o600 == (tmp_path / start_cache.PATH).stat().st_mode & 0o777


@pytest.mark.parametrize("can_exchange", [True, False], ids=["at once", "in steps"])
def test_a_folder_in_the_place_of_a_derived_file_is_replaced(
    can_exchange: bool, tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is in it, also in the place of its temp file: else nothing could be noted there any more."""
    if not can_exchange:  # as on macOS, and on exFAT
        monkeypatch.setattr(atomic, "_libc", SimpleNamespace)
    notes = NoteFiles(tmp_path)
    for name in ("unchanged.json", "swept"):
        (tmp_path / ".state" / name / "deep").mkdir(parents=True)
    for number in range(2):
        start_cache.save(directory, {str(number): NOTE})
        notes.put(".state/swept", str(number).encode())

    assert ({"1": NOTE}, b"1") == (start_cache.load(directory), notes.get(".state/swept"))
    assert ["swept", "unchanged.json"] == sorted(os.listdir(tmp_path / ".state"))
