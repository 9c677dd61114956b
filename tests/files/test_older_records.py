"""Records that the older manager wrote are taken over with their content, wherever they are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.errors import SizeExceeded
from memfiles.files.manager import MemoryManager
from memfiles.workflow.workflow import MemoryFile, Workflow
from tests.support.records import records_in
from tests.support.stores import place_of, put_by_hand

UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
TAKEN_OVER = "its content was taken over from the older manager's record"


def older(content: object = "# Customers\n- Ada ☕\n", **fields: Any) -> str:
    """A record as the older manager wrote it."""
    known = {"id": UID, "label": "Customer notes", "type": "MemoryFile", "description": "Said long ago."}
    return json.dumps({**known, "content": content, **fields})


def lay(directory: Path, text: str) -> Path:
    """Put a record where the older manager left it."""
    put_by_hand(directory, f"{UID}.json", text.encode())
    return directory


NOTES = MemoryFile(uid=UID, name="notes", description="Declared now.", level="INTERNAL", content="# Seed\n")


@pytest.mark.parametrize("content", ["# Customers\n- Ada ☕\n", "", "x" * 20_000])
def test_a_record_is_taken_over(tmp_path: Path, content: str) -> None:
    """Its content lives on as declared now, nothing goes to quarantine, and the next start finds it as it is."""
    directory = lay(tmp_path / "m", older(content))
    manager = MemoryManager(place_of(directory))
    planned = manager.plan([NOTES])

    assert manager.restore([NOTES]) == planned
    assert ("updated", TAKEN_OVER, len(content) > 16384) == (
        planned[UID].status, planned[UID].detail, planned[UID].over_cap
    )  # fmt: skip
    card = manager.card(UID)
    assert (content, "notes", "Declared now.", "INTERNAL") == (
        manager.read(UID), card.name, card.description, card.level
    )  # fmt: skip
    assert [] == manager.status()["quarantine"]
    manager.close()
    again = MemoryManager(place_of(directory))
    assert ("kept", None) == again.restore([NOTES])[UID][2::2]
    again.append(UID, "") if not content else again.edit(UID, content[:1], content[:1] * 0)
    assert b"1970" not in records_in(directory)[f"{UID}.json"]
    again.close()


@pytest.mark.parametrize(
    "text",
    [
        older(id="another"),
        older(type="VectorStore"),
        older(content=5),
        older("\ud800"),
        older(format="memfiles/1"),
        older()[:-1],
        older()[:-1] + ', "content": "twice"}',
        "[" * 100_000,
        "{}",
    ],
)
def test_what_is_not_such_a_record_is_set_aside(tmp_path: Path, text: str) -> None:
    """Byte for byte, with the reason, and the declared content takes its place."""
    directory = lay(tmp_path / "m", text)
    manager = MemoryManager(place_of(directory))

    assert "quarantined" == manager.restore([NOTES])[UID].status
    assert "# Seed\n" == manager.read(UID)
    manager.close()


def test_a_copy_in_the_mirror_is_taken_over(tmp_path: Path) -> None:
    """A new machine starts with it, and what both sides then write is in the mirror."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / f"{UID}.json").write_text(older())
    text = json.dumps({
        "memory": [{"type": "MemoryFile", "id": UID, "label": "notes", "content": "# Seed\n"}],
        "memfiles": {"directory": "m", "mirror": {"url": f"file://{tmp_path}/mirror"}},
    })  # fmt: skip
    (tmp_path / "w.json").write_text(text)
    with memfiles.open(tmp_path / "w.json") as memory:
        assert "# Customers\n- Ada ☕\n" == memory.manager.read(UID)
        memory.manager.append(UID, "- Bob\n")
        memory.sync.flush(60)
    kept = json.loads((tmp_path / "mirror" / f"{UID}.json").read_text())

    assert ("memfiles/1", "# Customers\n- Ada ☕\n- Bob\n") == (kept["format"], kept["content"])


@pytest.mark.directory("its workflow names one")
def test_a_copy_in_the_mirror_of_what_was_taken_over_here(tmp_path: Path) -> None:
    """The older directory had been copied to the bucket: nothing is doubled, nothing is a conflict."""
    directory = lay(tmp_path / "m", older())
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / f"{UID}.json").write_text(older())
    manager = MemoryManager(place_of(directory))
    manager.restore([NOTES])
    manager.append(UID, "- Bob\n")
    manager.close()
    workflow = {"memory": {"directory": "m", "mirror": {"url": f"file://{tmp_path}/mirror"}, "files": [
        {"uid": UID, "name": "notes", "description": "Declared now.", "level": "INTERNAL"}]}}  # fmt: skip
    (tmp_path / "w.json").write_text(json.dumps(workflow))
    with memfiles.open(tmp_path / "w.json") as memory:
        memory.sync.flush(60)
        assert "# Customers\n- Ada ☕\n- Bob\n" == memory.manager.read(UID)
    kept = json.loads((tmp_path / "mirror" / f"{UID}.json").read_text())

    assert "# Customers\n- Ada ☕\n- Bob\n" == kept["content"]
    assert not list((directory / "conflicts").glob("*"))


def test_a_file_without_room(tmp_path: Path) -> None:
    """A cap of 0 holds nothing; declared content over it stays, and may only shrink."""
    files = [{"type": "MemoryFile", "id": "full", "content": "abc", "maxSizeBytes": 0},
             {"type": "MemoryFile", "id": "empty", "maxSizeBytes": 0}]  # fmt: skip
    manager = MemoryManager(place_of(tmp_path / "m"))
    report = manager.restore(Workflow.parse(json.dumps({"memory": files})))

    assert (True, False) == (report["full"].over_cap, report["empty"].over_cap)
    for uid in ("full", "empty"):
        with pytest.raises(SizeExceeded, match="over its cap of 0"):
            manager.append(uid, "x")
    receipt = manager.edit("full", "c", "")
    assert (2, 0, 0, 1.0) == (receipt.size_bytes, receipt.max_size_bytes, receipt.bytes_left, receipt.share)
    assert receipt.warning is not None and "100 % of the cap" in receipt.warning
    manager.close()
    assert ["kept", "kept"] == [
        row.status
        for row in MemoryManager(place_of(tmp_path / "m")).plan(Workflow.parse(json.dumps({"memory": files}))).files
    ]
