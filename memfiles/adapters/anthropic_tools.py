"""Tools of a session for the tool runner of Anthropic's SDK, ``client.beta.messages.tool_runner(tools=...)``.

The rule this file guards: it only translates. What the model sent goes to the session as it is, and what went wrong
comes back as the tool error that the runner tells the model. The runner does not say which call a tool is carrying
out, so the history has no id of it.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from memfiles.errors import ExtraMissing
from memfiles.tools.worker_calls import run_in_worker

try:
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool, ToolError
except ImportError as error:
    raise ExtraMissing("Anthropic's tool runner needs an extra: pip install 'memfiles[anthropic]'") from error

if TYPE_CHECKING:
    from anthropic.types.beta import BetaToolUnionParam

    from memfiles.tools.session import Session


def tools(session: Session, *, strict: bool | None = None, examples: bool = False) -> list[SessionTool]:
    """The tools of a session at this moment, for an ``Anthropic`` client.

    A run keeps the tools it began with; every call is judged by the session's level at that moment. Where the level
    rose in the middle of a run, ``runner.add_tools(*tools(session))`` tells the model what it may use from now on (a
    beta of the API, ``inline-tools-2026-09-15``).
    ``strict`` and ``examples`` are explained at ``dialects.Dialect``; ``InvalidArgument`` if the session is closed.
    """
    return [SessionTool(session, shape) for shape in session.tools("anthropic", strict=strict, examples=examples)]


def async_tools(session: Session, *, strict: bool | None = None, examples: bool = False) -> list[AsyncSessionTool]:
    """As ``tools``, for an ``AsyncAnthropic`` client: a call runs in a thread, and to its end once it has begun."""
    return [AsyncSessionTool(tool) for tool in tools(session, strict=strict, examples=examples)]


class SessionTool(BetaBuiltinFunctionTool):
    """One tool of one session."""

    def __init__(self, session: Session, shape: dict[str, Any]) -> None:
        self._session = session
        self._shape = shape

    def to_dict(self) -> BetaToolUnionParam:
        """The tool as it is sent to the API."""
        return cast("BetaToolUnionParam", deepcopy(self._shape))

    def call(self, input: object) -> str:
        """Carry out one call; every failure is a ``ToolError``."""
        result = self._session.call(self.name, input)
        if result.is_error:
            raise ToolError(result.text)
        return result.text


class AsyncSessionTool(BetaAsyncBuiltinFunctionTool):
    """One tool of one session, for the asynchronous tool runner."""

    def __init__(self, tool: SessionTool) -> None:
        self._tool = tool

    def to_dict(self) -> BetaToolUnionParam:
        """The tool as it is sent to the API."""
        return self._tool.to_dict()

    async def call(self, input: object) -> str:
        """As ``SessionTool.call``; when it is cancelled, the change was made whole or not at all."""
        return await run_in_worker(partial(self._tool.call, input))
