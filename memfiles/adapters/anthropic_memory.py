"""Anthropic's memory tool (``memory_20250818``) over a session: ``/memories/<name>`` is a memory file or an entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from memfiles.adapters.agent_calls import needs
from memfiles.adapters.shapes.memory_tool import MemoryCommands
from memfiles.errors import MemfilesError
from memfiles.tools.worker_calls import checked_source, run_in_worker, without_context

with needs("Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaFunctionToolResultType
    from anthropic.types import beta

    from memfiles.tools.session import Session


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool of one session, for ``tools=[MemoryTool(session)]`` of Anthropic's tool runner.

    The runner has no context of its own, and a tool costs nothing: make one for each run. ``session`` may also be a
    function without arguments, such as one that asks a ``ContextVar``; it is called for each command.
    ``MemoryCommands`` documents the methods.
    """

    def __init__(
        self,
        session: Session | Callable[[], Session],
        *,
        cache_control: beta.BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._session = checked_source(session)

    def call(self, input: object) -> BetaFunctionToolResultType:
        """Carry out a model's command; a refusal of the memory is a ``ToolError``."""
        try:
            return MemoryCommands(without_context(self._session)).run(input)
        except MemfilesError as error:
            raise ToolError(str(error)) from error

    def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """As ``call``, with a command of the vendor's client."""
        return self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = execute


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of one session for the asynchronous tool runner; each command runs to its end in a thread."""

    def __init__(
        self,
        session: Session | Callable[[], Session],
        *,
        cache_control: beta.BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(session)

    async def call(self, input: object) -> BetaFunctionToolResultType:
        """As ``MemoryTool.call``; if it is cancelled, the change was made whole or not at all."""
        return await run_in_worker(partial(self._tool.call, input))

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """As ``MemoryTool.execute``."""
        return await run_in_worker(partial(self._tool.execute, command))

    view = create = str_replace = insert = delete = rename = execute  # never called, but abstract
