"""Records and a workflow that an earlier build wrote are read, and written again byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import memfiles
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.record import decode, encode
from memfiles.workflow.workflow import Workflow

EARLIER = Path(__file__).parent / "earlier"
RECORDS = sorted(path.relative_to(EARLIER).as_posix() for path in EARLIER.rglob("*.json"))


@pytest.mark.parametrize("path", RECORDS)
def test_an_earlier_record_is_written_as_it_was(path: str) -> None:
    """Memory files, entries, tombstones, a redaction and a consolidation keep their bytes."""
    data = (EARLIER / path).read_bytes()
    is_file = "/" not in path
    again = encode(decode(data, uid=Path(path).stem)) if is_file else encode_entry(decode_entry(data, path=path))

    assert data == again


def test_an_earlier_workflow_and_its_directory_are_opened(tmp_path: Path) -> None:
    """Every file is kept, entries are found, and no record changes."""
    text = (EARLIER / "workflow.yaml").read_text("utf-8").replace("file:///var/backups/desk", tmp_path.as_uri() + "/m")
    shutil.copytree(EARLIER, tmp_path / ".memory", ignore=shutil.ignore_patterns("workflow.yaml"))
    (tmp_path / "workflow.yaml").write_text(text, "utf-8")
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        kept = {row.status for row in memory.report.files}
        found = memory.session("support").call("memory_get", {"key": "customers/ada/plan"})

    assert 14 == len(RECORDS)
    assert ({"kept"}, "Ada is on Free now.") == (kept, (found.data or {})["content"])
    assert "before" == Workflow.load(EARLIER / "workflow.yaml").name
    assert [] == [
        path for path in RECORDS if (tmp_path / ".memory" / path).read_bytes() != (EARLIER / path).read_bytes()
    ]
