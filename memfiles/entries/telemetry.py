"""What is told of an operation on entries: a span to whoever traces, a denial to the audit log.

The rule this file guards: whose session it was and what was done, and never a key or a word of content.
"""

from __future__ import annotations

from types import TracebackType

from memfiles.entries import spans as telemetry
from memfiles.entries.partitions import Caller, check_caller
from memfiles.storage.events import Refusals

_OPERATIONS: dict[str, telemetry.SpanOperation] = {
    "save": "upsert_memory",
    "import": "upsert_memory",
    "update": "update_memory",
    "relocate": "update_memory",
    "restore": "update_memory",
    "consolidate": "update_memory",
    "delete": "delete_memory",
    "forget": "delete_memory",
    "get": "search_memory",
    "search": "search_memory",
    "list": "search_memory",
    "hydrate": "search_memory",
}


class Account:
    """Where the operations of one open memory are told."""

    def __init__(self, refusals: Refusals, *, store: str) -> None:
        """``store`` names the memory in spans."""
        self._refusals = refusals
        self._store = store

    def of(self, op: str, session: Caller) -> OperationSpan:
        """Around one operation of a session; ``InvalidArgument`` if that is closed."""
        check_caller(session)
        return OperationSpan(self._refusals, op, session, store=self._store)


class OperationSpan:
    """One operation that is being told; a class, because every read comes through here."""

    __slots__ = ("_op", "_refusals", "_session", "_span")

    def __init__(self, refusals: Refusals, op: str, session: Caller, *, store: str) -> None:
        self._refusals = refusals
        self._op = op
        self._session = session
        said = session.provenance
        self._span = telemetry.span(
            _OPERATIONS[op],
            store=store,
            agent=said.agent,
            conversation=said.thread or said.run,
            level=session.level,
        )

    def __enter__(self) -> telemetry.OperationSpan:
        return self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, trace)
        if error is not None:
            said = self._session.provenance
            self._refusals.note(error, self._op, agent=said.agent, level=self._session.level, run=said.run)
