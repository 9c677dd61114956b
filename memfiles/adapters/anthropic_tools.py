"""Session tools for the tool runner of Anthropic's SDK, and messages with recall of the question.

The rule this module enforces: it only translates. The model's arguments go to the session unchanged, and a failure
comes back as the tool error that the runner shows the model. The runner does not tell a tool the id of its call, so the
history has none.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from memfiles.adapters import agent_calls
from memfiles.adapters.agent_calls import needs
from memfiles.errors import MemfilesError
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.worker_calls import checked_source, run_in_worker, without_context

with needs("Anthropic's tool runner needs an extra: pip install 'memfiles[anthropic]'"):
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anthropic.types.beta import BetaToolUnionParam

    from memfiles.tools.session import Session

MessageT = TypeVar("MessageT")


def tools(
    session: Session | Callable[[], Session], *, strict: bool | None = None, examples: bool = False
) -> list[SessionTool]:
    """The tools that a session has now, for an ``Anthropic`` client.

    The runner has no context of its own, and tools cost little: make them for each run. ``session`` may also be a
    function without arguments, such as one that asks a ``ContextVar``; it is called now and for each call.
    A run keeps the tools it started with; every call is checked against the session's level at that time. If the level
    rises during a run, ``runner.add_tools(*tools(session))`` offers the model the new tools (a beta of the API,
    ``inline-tools-2026-09-15``). ``dialects.Dialect`` explains ``strict`` and ``examples``. ``InvalidArgument`` if the
    session is closed.
    """
    shapes = without_context(checked_source(session)).tools("anthropic", strict=strict, examples=examples)
    return [SessionTool(session, shape) for shape in shapes]


def async_tools(
    session: Session | Callable[[], Session], *, strict: bool | None = None, examples: bool = False
) -> list[AsyncSessionTool]:
    """As ``tools``, for an ``AsyncAnthropic`` client: each call runs to its end in a thread, once it has begun."""
    return [AsyncSessionTool(tool) for tool in tools(session, strict=strict, examples=examples)]


def with_recall(session: Session, messages: Sequence[MessageT], *, budget_bytes: int = RECALL_BYTES) -> list[MessageT]:
    """The messages with what memory holds about the last question, in a message of the user before it.

    For ``messages=with_recall(session, messages)`` of ``messages.create`` or the tool runner, with
    ``system=session.system_prompt(budget_bytes=0)``. Keep the messages as they were for the next turn.
    """
    return agent_calls.with_recall(
        messages,
        session,
        budget_bytes=budget_bytes,
        question_in=agent_calls.user_text,
        message_of=lambda block: cast("MessageT", {"role": "user", "content": block}),
    )


async def async_with_recall(
    session: Session, messages: Sequence[MessageT], *, budget_bytes: int = RECALL_BYTES
) -> list[MessageT]:
    """As ``with_recall``, in a worker thread."""
    return await run_in_worker(partial(with_recall, session, messages, budget_bytes=budget_bytes))


class SessionTool(BetaBuiltinFunctionTool):
    """One tool of one session."""

    def __init__(self, session: Session | Callable[[], Session], shape: dict[str, Any]) -> None:
        self._session = checked_source(session)
        self._shape = shape

    def to_dict(self) -> BetaToolUnionParam:
        """The tool in the form of the API."""
        return cast("BetaToolUnionParam", deepcopy(self._shape))

    def call(self, input: object) -> str:
        """Carry out one call; every failure is a ``ToolError``."""
        try:
            result = without_context(self._session).call(self.name, input)
        except MemfilesError as error:
            raise ToolError(str(error)) from error
        if result.is_error:
            raise ToolError(result.text)
        return result.text


class AsyncSessionTool(BetaAsyncBuiltinFunctionTool):
    """One tool of one session, for the asynchronous tool runner."""

    def __init__(self, tool: SessionTool) -> None:
        self._tool = tool

    def to_dict(self) -> BetaToolUnionParam:
        """The tool in the form of the API."""
        return self._tool.to_dict()

    async def call(self, input: object) -> str:
        """As ``SessionTool.call``; if it is cancelled, the change was made whole or not at all."""
        return await run_in_worker(partial(self._tool.call, input))
