"""Session tools and instructions for the OpenAI Agents SDK, rendered again at every turn.

The rules this module enforces: the offered tools, and the files they name, follow the session's level at every turn. An
offered tool can be called, and no failure of the memory ends a run: a failed call is a text for the model, and if tools
or prompt cannot be made, the turn continues without them and the log says why. What is recalled is in the request to
the model and nowhere else: it is not part of the run's items, so no stored conversation keeps what the memory forgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from memfiles.adapters.agent_calls import NO_MEMORY, call_id_in_conversation, in_session, needs, user_text, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import render
from memfiles.tools.profiles import every_tool, with_any_file
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import awaited_call_in, checked_source

with needs("the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'"):
    from agents import Agent, FunctionTool, RunContextWrapper
    from agents.run_config import CallModelData, ModelInputData
    from agents.tool_context import ToolContext

if TYPE_CHECKING:
    from memfiles.tools.worker_calls import SessionSource

Instructions: TypeAlias = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]
_ANY_FILE = ["any"]  # in the schema of a tool that is not offered


def tools(session: SessionSource[RunContextWrapper[Any]]) -> list[FunctionTool]:
    """The tools of a session, for ``Agent(tools=...)``: made once for an agent, they follow the session's level.

    A tool that currently has no memory file to use is in the list, but not offered. The result of a call is text, and
    so is a failure, since OpenAI's API has no flag for one. Calls are carried out in the model's order, each to its
    end. If the model calls a tool that is not offered, the SDK ends the run, unless it has
    ``RunConfig(tool_not_found_behavior="return_error_to_model")``. ``InvalidArgument`` if the session is closed.

    ``session`` may be a function, also an ``async`` one, from the run's context to its session, such as
    ``lambda run: memory.session("support", user=run.context.user)``, so that one agent serves many users. Then the list
    has every tool that any session may have, and each run is offered those of its own session. The runs share the
    schemas, so these do not name memory files: the instructions do.
    """
    calls = _CallQueue(session)
    if not isinstance(session, Session):
        return [_FollowingTool(session, tool, calls).tool for tool in every_tool()]
    session.check_open()
    return [
        _FollowingTool(session, tool, calls).tool if "file" in tool.parameters["properties"] else _tool(tool, calls)
        for tool in session.definitions_for(readable=_ANY_FILE, writable=_ANY_FILE)
    ]


def instructions(
    session: SessionSource[RunContextWrapper[Any]], first: str = "", *, budget_bytes: int | None = None
) -> Instructions:
    """A function for ``Agent(instructions=...)``: ``first``, then the session's current prompt, at every turn.

    ``budget_bytes=0`` leaves out the entries, for a run with ``recall_filter``; see ``Session.system_prompt``.
    """
    checked_source(session)

    async def rendered(context: RunContextWrapper[Any], _: Agent[Any]) -> str:
        memory = await in_session(
            session, context, lambda found: found.system_prompt(budget_bytes=budget_bytes), fallback=NO_MEMORY
        )
        return "\n\n".join(part for part in (first, memory) if part)

    return rendered


def recall_filter(
    session: SessionSource[RunContextWrapper[Any]], *, budget_bytes: int = RECALL_BYTES
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """A function for ``RunConfig(call_model_input_filter=...)`` that adds what a session's memory holds.

    It is about the last question, in a message of the user before it, at every call of the model. Where OpenAI keeps
    the conversation (``conversation_id``, ``previous_response_id``), it keeps that message, too. ``session`` may be a
    function from the run's context to its session.
    """
    checked_source(session)

    async def filtered(call: CallModelData[Any]) -> ModelInputData:
        items, context = call.model_data.input, RunContextWrapper(call.context)
        recalled = partial(
            with_recall,
            items,
            budget_bytes=budget_bytes,
            question_in=user_text,
            message_of=lambda block: {"role": "user", "content": block},
        )
        shown = await in_session(session, context, recalled, fallback=items)
        return ModelInputData(input=shown, instructions=call.model_data.instructions)

    return filtered


class _CallQueue:
    """Carries out the calls of one run one by one: the SDK starts those of a turn at once, in order."""

    def __init__(self, session: SessionSource[RunContextWrapper[Any]]) -> None:
        self._session = checked_source(session)
        self._in_turn: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def make(self, name: str, context: ToolContext[Any], sent: str) -> str:
        """Carry out a call; return its text for the model."""
        # each call has a context of its own, but a run has one record of its usage
        async with self._in_turn.setdefault(id(context.usage), asyncio.Lock()):
            call_id = call_id_in_conversation(context.tool_call_id, answered=_answered(context))
            return (await awaited_call_in(self._session, context, name, sent, call_id=call_id)).text


def _answered(context: ToolContext[Any]) -> Iterator[object]:
    """The ids of the calls that have a result in the run's input."""
    items = (item for item in context.turn_input if isinstance(item, dict))  # a program may pass other objects
    return (item.get("call_id") for item in items if item.get("type") == "function_call_output")


class _FollowingTool:
    """A tool that some turns offer and others do not; that is decided once a turn, before the model is called.

    The SDK asks again before the calls of that turn, and ends the run if a tool is not enabled any more. So if the
    level rose meanwhile, the call is still made, and refused with a text.
    """

    def __init__(
        self, session: SessionSource[RunContextWrapper[Any]], definition: ToolDefinition, calls: _CallQueue
    ) -> None:
        self._session = checked_source(session)
        self._decided: WeakKeyDictionary[RunContextWrapper[Any], tuple[object, bool]] = WeakKeyDictionary()
        self.tool = _tool(definition, calls, is_enabled=self._is_offered)

    async def _is_offered(self, context: RunContextWrapper[Any], _: object) -> bool:
        turn, is_offered = self._decided.get(context, (None, False))
        if turn is not context.turn_input or not turn:  # a new list every turn; empty in a realtime session
            turn = context.turn_input
            is_offered = await in_session(self._session, context, self._renew, fallback=False)
            self._decided[context] = (turn, is_offered)
        return is_offered

    def _renew(self, session: Session) -> bool:
        """Whether the tool can be used now; if so, update its schema to the files that it can be used with."""
        found = [tool for tool in session.definitions() if tool.name == self.tool.name]
        for definition in found:
            shown = definition if session is self._session else with_any_file(definition)
            shape = render([shown], "openai")[0]
            self.tool.params_json_schema, self.tool.strict_json_schema = shape["parameters"], shape["strict"]
        return bool(found)


def _tool(
    definition: ToolDefinition,
    calls: _CallQueue,
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
