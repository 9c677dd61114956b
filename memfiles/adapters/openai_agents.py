"""The OpenAI Agents SDK over a session: its tools, and instructions that are rendered anew at every turn.

The rules this file guards: the tools that a model is offered, and the files they name, follow the session's level at
every turn. What was offered can be called; whatever goes wrong in a call is a text for the model and never ends a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from memfiles.adapters.crossing import in_worker
from memfiles.dialects import render
from memfiles.errors import ExtraMissing
from memfiles.tool_definitions import ToolDefinition, file_tools
from memfiles.toolset import definitions_of

try:
    from agents import Agent, FunctionTool, RunContextWrapper
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ExtraMissing("the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'") from error

if TYPE_CHECKING:
    from memfiles.session import Session

Instructions: TypeAlias = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]
_ANY_FILE = ["any"]  # stands in the schema of a tool that is not offered


def tools(session: Session) -> list[FunctionTool]:
    """The tools of a session, for ``Agent(tools=...)``: made once, they follow its level by themselves.

    A tool that no memory file can be used with at the moment is in the list and is not offered. The result of a call
    is text; so is a failure, since OpenAI's API has no mark for one. ``InvalidArgument`` if the session is closed.
    """
    of_files = {tool.name: tool for tool in file_tools(readable=_ANY_FILE, writable=_ANY_FILE)}
    of_entries = [tool for tool in session.definitions() if tool.name not in of_files]
    following = [_FileTool(session, tool).tool for tool in of_files.values()]
    return following + [_tool(session, tool) for tool in of_entries]


def instructions(session: Session, first: str = "") -> Instructions:
    """What to give as ``Agent(instructions=...)``: ``first``, then what the session has in memory at that turn."""

    async def rendered(_: RunContextWrapper[Any], __: Agent[Any]) -> str:
        memory = await in_worker(session.system_prompt)
        return "\n\n".join(part for part in (first, memory) if part)

    return rendered


class _FileTool:
    """A tool for memory files. Whether it is offered is decided once a turn, when the model is asked.

    The SDK asks again before it makes the calls of that turn, and ends the run where a tool is not enabled any more:
    if the level rose meanwhile, the call is made and refused in words instead.
    """

    def __init__(self, session: Session, definition: ToolDefinition) -> None:
        self._session = session
        self._decided: WeakKeyDictionary[RunContextWrapper[Any], tuple[object, bool]] = WeakKeyDictionary()
        self.tool = _tool(session, definition, is_enabled=self._is_offered)

    async def _is_offered(self, context: RunContextWrapper[Any], _: object) -> bool:
        turn, is_offered = self._decided.get(context, (None, False))
        if turn is not context.turn_input:  # a new list for every turn of a run
            turn, is_offered = context.turn_input, await in_worker(self._renew)
            self._decided[context] = (turn, is_offered)
        return is_offered

    def _renew(self) -> bool:
        """Whether the tool can be used now; its schema then names the files that it can be used with."""
        found = [tool for tool in definitions_of(self._session.files()) if tool.name == self.tool.name]
        for definition in found:
            shape = render([definition], "openai")[0]
            self.tool.params_json_schema, self.tool.strict_json_schema = shape["parameters"], shape["strict"]
        return bool(found)


def _tool(
    session: Session,
    definition: ToolDefinition,
    *,
    is_enabled: bool | Callable[[RunContextWrapper[Any], Any], Awaitable[bool]] = True,
) -> FunctionTool:
    shape = render([definition], "openai")[0]
    return FunctionTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=shape["parameters"],
        on_invoke_tool=partial(_called, session, definition.name),
        strict_json_schema=shape["strict"],
        is_enabled=is_enabled,
    )


async def _called(session: Session, name: str, context: ToolContext[Any], sent: str) -> str:
    result = await in_worker(partial(session.call, name, sent, call_id=context.tool_call_id))
    return result.text
