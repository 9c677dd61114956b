"""The OpenAI Agents SDK over a session: its tools, and instructions that are rendered anew at every turn.

The rules this file guards: the tools that a model is offered, and the files they name, follow the session's level at
every turn. What was offered can be called, and nothing that goes wrong in the memory ends a run: a call that fails is a
text for the model, and where tools or prompt cannot be made, the turn goes without them and the log says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from memfiles.adapters.call_ids import in_conversation
from memfiles.adapters.degraded import GONE, made
from memfiles.errors import ExtraMissing
from memfiles.tools.definitions import ToolDefinition, file_tools
from memfiles.tools.dialects import render
from memfiles.tools.session import definitions_of
from memfiles.tools.worker_calls import run_in_worker

try:
    from agents import Agent, FunctionTool, RunContextWrapper
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ExtraMissing("the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'") from error

if TYPE_CHECKING:
    from memfiles.tools.session import Session

Instructions: TypeAlias = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]

_ANY_FILE = ["any"]  # stands in the schema of a tool that is not offered


def tools(session: Session) -> list[FunctionTool]:
    """The tools of a session, for ``Agent(tools=...)``: made once for an agent, they follow its level by themselves.

    A tool that no memory file can be used with at the moment is in the list and is not offered. The result of a call
    is text; so is a failure, since OpenAI's API has no mark for one. Calls are carried out in the order in which the
    model made them, each to its end. A call of a tool that is not offered is the SDK's to answer: it ends the run, or
    not with ``RunConfig(tool_not_found_behavior="return_error_to_model")``. ``InvalidArgument`` if the session is
    closed.
    """
    calls = _Calls(session)
    of_files = {tool.name: tool for tool in file_tools(readable=_ANY_FILE, writable=_ANY_FILE)}
    of_entries = [tool for tool in session.definitions() if tool.name not in of_files]
    following = [_FileTool(session, tool, calls).tool for tool in of_files.values()]
    return following + [_tool(tool, calls) for tool in of_entries]


def instructions(session: Session, first: str = "") -> Instructions:
    """What to give as ``Agent(instructions=...)``: ``first``, then what the session has in memory at that turn."""

    async def rendered(_: RunContextWrapper[Any], __: Agent[Any]) -> str:
        memory = await run_in_worker(lambda: made(session.system_prompt, instead=GONE))
        return "\n\n".join(part for part in (first, memory) if part)

    return rendered


class _Calls:
    """Carries out the calls of one session, one after the other: the SDK begins those of a turn at once, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._in_turn: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def make(self, name: str, context: ToolContext[Any], sent: str) -> str:
        """What the model is told of a call."""
        async with self._in_turn.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            call_id = in_conversation(context.tool_call_id, answered=_answered(context))
            call = partial(self._session.call, name, sent, call_id=call_id)
            return (await run_in_worker(call)).text


def _answered(context: ToolContext[Any]) -> Iterator[object]:
    """The ids of the calls that have a result in what the run began with."""
    items = (item for item in context.turn_input if isinstance(item, dict))  # a program may put in other things
    return (item.get("call_id") for item in items if item.get("type") == "function_call_output")


class _FileTool:
    """A tool for memory files. Whether it is offered is decided once a turn, when the model is asked.

    The SDK asks again before it makes the calls of that turn, and ends the run where a tool is not enabled any more:
    if the level rose meanwhile, the call is made and refused in words instead.
    """

    def __init__(self, session: Session, definition: ToolDefinition, calls: _Calls) -> None:
        self._session = session
        self._decided: WeakKeyDictionary[RunContextWrapper[Any], tuple[object, bool]] = WeakKeyDictionary()
        self.tool = _tool(definition, calls, is_enabled=self._is_offered)

    async def _is_offered(self, context: RunContextWrapper[Any], _: object) -> bool:
        turn, is_offered = self._decided.get(context, (None, False))
        if turn is not context.turn_input or not turn:  # a new list for every turn of a run; none in a realtime session
            turn, is_offered = context.turn_input, await run_in_worker(lambda: made(self._renew, instead=False))
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
    definition: ToolDefinition,
    calls: _Calls,
    *,
    is_enabled: bool | Callable[[RunContextWrapper[Any], Any], Awaitable[bool]] = True,
) -> FunctionTool:
    shape = render([definition], "openai")[0]
    return FunctionTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=shape["parameters"],
        on_invoke_tool=partial(calls.make, definition.name),
        strict_json_schema=shape["strict"],
        is_enabled=is_enabled,
    )
