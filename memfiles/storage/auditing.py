"""What goes into the audit log: every change of a record that this process made, and every call that was refused.

The rule this file guards: who, what, which record and when, and never a word of what was in it. A change is logged by
the process that made it, once.
"""

from __future__ import annotations

from collections.abc import Callable

from memfiles.errors import MemfilesError
from memfiles.records.record import Actor
from memfiles.storage.audit import AuditLog, Event
from memfiles.storage.events import RecordChanged

REFUSED = ("read_only", "level_denied", "secret_refused", "budget_exceeded", "size_exceeded")


def logging_changes(log: AuditLog) -> Callable[[RecordChanged], None]:
    """A subscriber that logs each change; those that another process made are logged there."""

    def note(event: RecordChanged) -> None:
        if event.origin != "process":
            by = event.by if event.origin == "local" else Actor()
            log.record(
                Event(
                    op=event.op,
                    path=event.path,
                    level=event.level,
                    agent=by.agent,
                    run=by.session,
                    call=by.call,
                )
            )

    return note


class Refusals:
    """Logs the calls that were refused; what failed for another reason changed nothing and is no denial."""

    def __init__(self, log: AuditLog | None = None) -> None:
        """Without a log nothing is noted."""
        self._log = log

    def note(self, error: BaseException, op: str, *, agent: str, level: str, run: str | None) -> None:
        """Log the error if it is a refusal; an error that only says that there is nothing is none."""
        if self._log is not None and isinstance(error, MemfilesError) and error.code in REFUSED:
            self._log.record(Event(op, "refused", level=level, agent=agent, run=run, code=error.code))
