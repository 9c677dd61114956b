"""Callers: whose memory is used, which partitions of entries they see, and the trace of each of their calls.

The rules this file guards:

- Every read and every write of entries asks here, and nowhere else, which partitions to look in, so a hidden entry is
  hidden everywhere. For one key the highest visible level shadows the others; at one level an entry of the run shadows
  the agent's, and that one the entry that all agents share.
- A span and an audit event say whose session it was and which operation; they never hold content, keys or the text of
  an error. A program that does not trace pays nothing: OpenTelemetry is not imported here unless it already is.

Source of the span names: the OpenTelemetry semantic conventions for generative AI, memory operations (in development).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.keys import WORKSPACE, agent_folder, entry_path, entry_place, entry_uid
from memfiles.records.levels import Levels
from memfiles.records.record import Actor

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from memfiles.storage.events import Refusals

SpanOperation = Literal["search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"]

_OPERATIONS: dict[str, SpanOperation] = {
    **dict.fromkeys(("save", "import"), "upsert_memory"),
    **dict.fromkeys(("update", "relocate", "restore", "consolidate"), "update_memory"),
    **dict.fromkeys(("delete", "forget"), "delete_memory"),
    **dict.fromkeys(("get", "search", "list", "hydrate"), "search_memory"),
}
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


class CallerProvenance(Protocol):
    """The origin of a session's changes; ``session.Provenance`` is one."""

    @property
    def agent(self) -> str:
        """The calling agent."""
        ...

    @property
    def run(self) -> str | None:
        """The run, if there is one."""
        ...

    @property
    def channel(self) -> str | None:
        """The channel that the user talks through."""
        ...

    @property
    def thread(self) -> str | None:
        """The conversation thread."""
        ...


class Caller(Protocol):
    """The session whose memory is read or written; ``session.Session`` is one, a layer above."""

    @property
    def level(self) -> str:
        """The level at this moment."""
        ...

    @property
    def provenance(self) -> CallerProvenance:
        """The origin of its changes."""
        ...

    def actor(self, call_id: str | None) -> Actor:
        """The author of the call of that id; ``InvalidArgument`` if the id cannot be recorded."""
        ...

    def check_open(self) -> None:
        """``InvalidArgument`` once the session is closed: its run may be over, and a save would belong to nobody."""
        ...


def check_caller(caller: Caller, *, may_be_closed: bool = False) -> None:
    """Refuse an object that is not a session, and a closed session: ``InvalidArgument``."""
    if not all(hasattr(caller, name) for name in ("level", "provenance", "actor", "check_open")):
        raise InvalidArgument(
            f"the first argument must be a session, such as memory.session('support'), not {type(caller).__name__}"
        )
    if not may_be_closed:
        caller.check_open()


class Partition(NamedTuple):
    """Entries that the same sessions see: in one folder, at one level, of one run ("": of no run alone)."""

    scope: str
    level: str
    run: str

    def path(self, key: str) -> str:
        """The path of the entry of that key in this partition."""
        return entry_path(self.scope, entry_uid(self.scope, self.level, key, self.run))


View = tuple[Partition, ...]


def view_of(caller: Caller, levels: Levels) -> View:
    """The partitions that the caller sees at its present level, the shadowing ones first."""
    return _view(caller.provenance.agent, caller.level, caller.provenance.run or "", levels)


def own_level(caller: Caller, level: str | None = None) -> View:
    """The partitions that the caller may write, at exactly its level or at another one: run, agent, workspace."""
    return _at(caller.provenance.agent, caller.level if level is None else level, caller.provenance.run or "")


def is_in_view(view: View, path: str, *, key: str, level: str) -> bool:
    """Whether the view holds the record of ``key`` at ``path``; without a key, whether it may hold it."""
    if key:
        return any(partition.path(key) == path for partition in view)
    place = entry_place(path)
    return place is not None and any((partition.scope, partition.level) == (place[0], level) for partition in view)


@lru_cache(maxsize=1024)
def _view(agent: str, level: str, run: str, levels: Levels) -> View:
    return tuple(partition for name in levels.readable(session=level) for partition in _at(agent, name, run))


@lru_cache(maxsize=1024)
def _at(agent: str, level: str, run: str) -> View:
    folder = agent_folder(agent)
    of_the_run = (Partition(folder, level, run),) if run else ()
    return (*of_the_run, Partition(folder, level, ""), Partition(WORKSPACE, level, ""))


class OperationSpan:
    """One operation of a session: a span for the tracer, and a denial in the audit log if it is refused.

    A class and not a generator, because every read comes through here.
    """

    __slots__ = ("_caller", "_op", "_refusals", "_span")

    def __init__(self, refusals: Refusals, op: str, caller: Caller, *, store: str) -> None:
        """``store`` names the memory in spans. ``InvalidArgument`` if the session is closed."""
        check_caller(caller)
        self._refusals = refusals
        self._op = op
        self._caller = caller
        origin = caller.provenance
        self._span = span(
            _OPERATIONS[op],
            store=store,
            agent=origin.agent,
            conversation=origin.thread or origin.run,
            level=caller.level,
        )

    def __enter__(self) -> OpenSpan:
        return self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, trace)
        if error is not None:
            origin = self._caller.provenance
            self._refusals.note(error, self._op, agent=origin.agent, level=self._caller.level, run=origin.run)


class OpenSpan(Protocol):
    """A span that is open."""

    def set(self, **attributes: str | int | None) -> None:
        """Add attributes that became known meanwhile, by the names that ``span`` takes."""
        ...


def span(operation: SpanOperation, **attributes: str | int | None) -> AbstractContextManager[OpenSpan]:
    """A span around one operation; an error that passes through it is marked by its code alone.

    Attributes: ``store`` (the memory directory's or workflow's name), ``record`` (a record's uid), ``count`` (records
    stored or found), ``agent``, ``conversation`` (the thread or run), ``level`` and ``outcome``. Others are a
    ``KeyError`` when a tracer is set up; None is left out.
    """
    api = sys.modules.get(_API)
    if api is None:
        return _NULL_SPAN
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return _NULL_SPAN
    return _TracedSpan(provider, operation, attributes)


class _NullSpan:
    """The span of a program that does not trace."""

    def __enter__(self) -> _NullSpan:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, **attributes: str | int | None) -> None:
        """Do nothing."""


_NULL_SPAN = _NullSpan()


class _TracedSpan:
    """A span of the tracer that the program set up."""

    def __init__(self, provider: TracerProvider, operation: str, attributes: dict[str, str | int | None]) -> None:
        self._provider = provider
        self._operation = operation
        self._attributes = attributes
        self._span: Span
        self._current: AbstractContextManager[Any]

    def __enter__(self) -> _TracedSpan:
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

        if error is not None:  # its message may quote content, so only its code is recorded
            code = error.code if isinstance(error, MemfilesError) else type(error).__name__
            self._span.set_attribute("error.type", code)
            self._span.set_status(StatusCode.ERROR)
        self._current.__exit__(kind, error, traceback)
        self._span.end()

    def set(self, **attributes: str | int | None) -> None:
        """Add attributes to the span."""
        self._span.set_attributes(_named(attributes))


def _named(attributes: dict[str, str | int | None]) -> dict[str, str | int]:
    return {_ATTRIBUTES[name]: value for name, value in attributes.items() if value is not None}
