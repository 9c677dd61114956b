"""OpenTelemetry spans of memory operations, where the program that runs us has set a tracer up.

The rules this file guards: a span never holds content, keys or the text of an error, whatever the tracer's settings;
and whoever does not trace pays nothing: OpenTelemetry is not even imported here unless somebody did already.

Source of the names: the OpenTelemetry semantic conventions for generative AI, memory operations (in development).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from memfiles.errors import MemfilesError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

SpanOperation = Literal["search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"]

_API = "opentelemetry.trace"
_ATTRIBUTES = {
    "store": "gen_ai.memory.store.id",
    "record": "gen_ai.memory.record.id",
    "count": "gen_ai.memory.record.count",
    "agent": "gen_ai.agent.name",
    "conversation": "gen_ai.conversation.id",
    "level": "memfiles.level",
    "outcome": "memfiles.outcome",
}


class OperationSpan(Protocol):
    """A span that is open."""

    def set(self, **attributes: str | int | None) -> None:
        """Say what became known meanwhile, by the names that ``span`` takes."""
        ...


def span(operation: SpanOperation, **attributes: str | int | None) -> AbstractContextManager[OperationSpan]:
    """A span around one operation; an error that passes through it is marked by its code alone.

    Attributes: ``store`` (the memory directory's or workflow's name), ``record`` (a record's uid), ``count`` (records
    stored or found), ``agent``, ``conversation`` (the thread or run), ``level`` and ``outcome``. Others are a
    ``KeyError`` when a tracer is set up; what is None is left out.
    """
    api = sys.modules.get(_API)
    if api is None:
        return _NOTHING
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return _NOTHING
    return _Recorded(provider, operation, attributes)


class _Nothing:
    """No span, for everybody."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, **attributes: str | int | None) -> None:
        """Nothing."""


_NOTHING = _Nothing()


class _Recorded:
    """A span of the tracer that the program set up."""

    def __init__(self, provider: TracerProvider, operation: str, attributes: dict[str, str | int | None]) -> None:
        self._provider = provider
        self._operation = operation
        self._attributes = attributes
        self._span: Span
        self._current: AbstractContextManager[Any]

    def __enter__(self) -> _Recorded:
        from opentelemetry import trace

        attributes = {"gen_ai.operation.name": self._operation, **_named(self._attributes)}
        tracer = self._provider.get_tracer("memfiles")
        self._span = tracer.start_span(self._operation, kind=trace.SpanKind.INTERNAL, attributes=attributes)
        self._current = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from opentelemetry.trace import StatusCode

        if error is not None:  # its message may quote what it is about
            code = error.code if isinstance(error, MemfilesError) else type(error).__name__
            self._span.set_attribute("error.type", code)
            self._span.set_status(StatusCode.ERROR)
        self._current.__exit__(kind, error, traceback)
        self._span.end()

    def set(self, **attributes: str | int | None) -> None:
        """Say what became known meanwhile."""
        self._span.set_attributes(_named(attributes))


def _named(attributes: dict[str, str | int | None]) -> dict[str, str | int]:
    return {_ATTRIBUTES[name]: value for name, value in attributes.items() if value is not None}
