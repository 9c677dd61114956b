"""What the audit log says of changes and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memfiles.errors import EntryNotFound, SecretRefused
from memfiles.records.record import Actor
from memfiles.storage.events import AuditLog, Event, RecordChanged, Refusals, logging_changes, read

BY = Actor("support", "run-1", "toolu_1")
CHANGED = RecordChanged("u", "the key", 3, "save", "local", None, "entries/a/u.json", "INTERNAL", BY)


def logged(directory: Path) -> list[Event]:
    """The events in the log, without their times."""
    return [replace(event, at="") for event in read(directory) if isinstance(event, Event)]


def test_a_change_is_logged_with_who_made_it(tmp_path: Path) -> None:
    """But not with the key, which may say as much as the content."""
    logging_changes(AuditLog(tmp_path))(CHANGED)
    expected = Event("save", path=CHANGED.path, level="INTERNAL", agent="support", run="run-1", call="toolu_1")

    assert [expected] == logged(tmp_path)
    assert "the key" not in "".join(path.read_text() for path in (tmp_path / "audit").iterdir())


def test_a_change_of_another_process_is_logged_there(tmp_path: Path) -> None:
    """Every change stands in the log once."""
    logging_changes(AuditLog(tmp_path))(RecordChanged("u", "k", 3, "save", "process"))

    assert [] == logged(tmp_path)


def test_a_refusal_is_logged(tmp_path: Path) -> None:
    """With the code of the error, never with its text."""
    Refusals(AuditLog(tmp_path)).note(SecretRefused("hunter2"), "save", agent="a", level="PUBLIC", run=None)

    assert [Event("save", "refused", level="PUBLIC", agent="a", code="secret_refused")] == logged(tmp_path)


def test_what_is_not_there_is_no_refusal(tmp_path: Path) -> None:
    """Otherwise the log would tell hidden keys from unknown ones."""
    Refusals(AuditLog(tmp_path)).note(EntryNotFound("k"), "delete", agent="a", level="PUBLIC", run=None)

    assert [] == logged(tmp_path)
