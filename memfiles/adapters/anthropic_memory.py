"""Anthropic's memory tool, ``memory_20250818``, over a session: ``/memories/<name>`` is a memory file or an entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from memfiles.adapters.shapes.memory_tool import MemoryAnswers
from memfiles.adapters.shapes.memory_tool_commands import parse_command
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

    What its methods do is said at ``MemoryAnswers``.
    """

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._answers = MemoryAnswers(session)

    def call(self, input: object) -> BetaFunctionToolResultType:
        """Carry out what the model sent; every failure that is not a defect is a ``ToolError``."""
        with _tool_errors():
            sent = parse_command(input)
        return super().call(sent)

    def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Carry out a command; errors as of ``call``."""
        with _tool_errors():
            return super().execute(command)

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """A folder or a text."""
        return self._answers.view(command.path, command.view_range)

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """A new text."""
        return self._answers.create(command.path, command.file_text)

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """A part of a text is replaced."""
        return self._answers.str_replace(command.path, command.old_str, command.new_str)

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Lines are put into a text."""
        return self._answers.insert(command.path, command.insert_line, command.insert_text)

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """A text or a folder goes."""
        return self._answers.delete(command.path)

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """A text or a folder gets another path."""
        return self._answers.move(command.old_path, command.new_path)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of one session for the asynchronous tool runner; a command runs to its end in a thread."""

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(session)

    async def call(self, input: object) -> BetaFunctionToolResultType:
        """As ``MemoryTool.call``; when it is cancelled, the change was made whole or not at all."""
        return await run_in_worker(partial(self._tool.call, input))

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """As ``MemoryTool.execute``."""
        return await run_in_worker(partial(self._tool.execute, command))

    view = create = str_replace = insert = delete = rename = execute  # which the two above never come to


@contextmanager
def _tool_errors() -> Iterator[None]:
    try:
        yield
    except MemfilesError as error:
        raise ToolError(str(error)) from error
