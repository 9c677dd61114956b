"""Anthropic's memory tool (``memory_20250818``) over a session: ``/memories/<name>`` is a memory file or an entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from memfiles.adapters.shapes.memory_tool import MemoryCommands, parse_command
from memfiles.errors import ExtraMissing, MemfilesError
from memfiles.tools.worker_calls import run_in_worker

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
except ImportError as error:
    raise ExtraMissing("Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'") from error

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaFunctionToolResultType
    from anthropic.types import beta

    from memfiles.tools.session import Session


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool of one session, for ``tools=[MemoryTool(session)]`` of Anthropic's tool runner.

    ``MemoryCommands`` documents its methods.
    """

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._commands = MemoryCommands(session)

    def call(self, input: object) -> BetaFunctionToolResultType:
        """Carry out a model's command; a refusal of the memory is a ``ToolError``."""
        with _tool_errors():
            sent = parse_command(input)
        return super().call(sent)

    def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Carry out a parsed command; errors as for ``call``."""
        with _tool_errors():
            return super().execute(command)

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """View a folder or a text."""
        return self._commands.view(command.path, command.view_range)

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Create a text."""
        return self._commands.create(command.path, command.file_text)

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a part of a text."""
        return self._commands.str_replace(command.path, command.old_str, command.new_str)

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines into a text."""
        return self._commands.insert(command.path, command.insert_line, command.insert_text)

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a text or a folder."""
        return self._commands.delete(command.path)

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Give a text or a folder another path."""
        return self._commands.move(command.old_path, command.new_path)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of one session for the asynchronous tool runner; each command runs to its end in a thread."""

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(session)

    async def call(self, input: object) -> BetaFunctionToolResultType:
        """As ``MemoryTool.call``; if it is cancelled, the change was made whole or not at all."""
        return await run_in_worker(partial(self._tool.call, input))

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """As ``MemoryTool.execute``."""
        return await run_in_worker(partial(self._tool.execute, command))

    view = create = str_replace = insert = delete = rename = execute  # never called, but abstract


@contextmanager
def _tool_errors() -> Iterator[None]:
    try:
        yield
    except MemfilesError as error:
        raise ToolError(str(error)) from error
