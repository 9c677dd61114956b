"""Logs of the audit for tests: events, a clock of months, and what the files hold."""

from __future__ import annotations

import json
from pathlib import Path

from memfiles.records.record import Actor
from memfiles.storage.events import AuditEvent, AuditLog, RecordChanged

BY = Actor("support", "run-1", "toolu_1")
CHANGED = RecordChanged("u", "the key", 3, "save", "local", None, "entries/a/u.json", "INTERNAL", BY)
SAVED = AuditEvent("save", path="entries/support/1f.json", level="INTERNAL", agent="support", run="r1", call="c1")
DENIED = AuditEvent("delete", "refused", agent="a\nb", code="level_denied", count=3)


def logged(directory: Path) -> list[AuditEvent]:
    """The events in the log, month by month, without their times."""
    told = [
        json.loads(line)
        for file in sorted((directory / "audit").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [AuditEvent(**{name: value for name, value in event.items() if name != "at"}) for event in told]


class Months:
    """A clock whose month is set by hand."""

    def __init__(self, month: str = "2026-11") -> None:
        self.month = month

    def __call__(self) -> str:
        return f"{self.month}-21T09:00:00.000Z"


def put(log: AuditLog, event: AuditEvent) -> None:
    """Log an event, and write it at once."""
    log.record(event)
    log.flush()


def lines(directory: Path, name: str = "2026-11.jsonl") -> list[str]:
    """The lines of a month's file."""
    return (directory / "audit" / name).read_text().splitlines()


def ops(directory: Path) -> list[str]:
    """What was done."""
    return [event.op for event in logged(directory)]
