"""Session tools and prompt for pydantic-ai: ``Agent(toolsets=[MemoryToolset(session)], instructions=...)``.

The rule this module enforces: no failure of the memory ends an agent's run. A refused call is a failed tool result,
which the model reads and which uses none of its retries. If the tools or the prompt cannot be made, the step continues
without them and the log says why. What is recalled is in the request to the model and nowhere else: it is not part of
the messages of the run, so no stored conversation keeps what the memory forgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memfiles.adapters.agent_calls import NO_MEMORY, call_id_in_conversation, in_session, needs, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.dialects import null_for_not_given
from memfiles.tools.worker_calls import awaited_call_in, checked_source

with needs("memory for pydantic-ai needs an extra: pip install 'memfiles[pydantic-ai]'"):
    from pydantic_ai import (
        AbstractToolset,
        ModelMessage,
        ModelRequest,
        RunContext,
        ToolDefinition,
        ToolFailed,
        ToolReturn,
    )
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.messages import TextContent, UserPromptPart
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_core import from_json

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext

    from memfiles.tools import definitions as tool_definitions
    from memfiles.tools.worker_calls import SessionSource

UNREADABLE = "unreadable arguments"
"""The argument that carries a call's text if it is not a JSON object, so that the session can say what is wrong."""


class MemoryToolset(AbstractToolset[AgentDepsT]):
    """The memory tools of one session, offered again at every step: they follow its level.

    ``session`` may be a function from the run's context to its session, such as ``lambda ctx: ctx.deps.session``, also
    an ``async`` one; it is called at every step and for every call. A run's calls are carried out in the model's order,
    in a worker thread, each to its end. The history records the framework's id of a call, with a number if the
    conversation has a result of that id already, so a repeated call is not carried out twice. The metadata of a result
    is its data, such as the receipt; that of a tool says whether it is ``read_only``, for programs that ask for
    approval of the others.
    """

    def __init__(self, session: SessionSource[RunContext[AgentDepsT]], *, id: str | None = None) -> None:
        self._session = checked_source(session)
        self._id = id
        self._in_turn = asyncio.Lock()

    @property
    def id(self) -> str | None:
        """The name of the toolset for durable execution."""
        return self._id

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> MemoryToolset[AgentDepsT]:
        """The toolset of one run, with its own order of calls."""
        return MemoryToolset(self._session, id=self._id)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools that can be used at this step."""
        nothing: list[tool_definitions.ToolDefinition] = []
        definitions = await in_session(self._session, ctx, lambda found: found.definitions(), fallback=nothing)
        return {each.name: self._offered(each, ctx) for each in definitions}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> ToolReturn[str]:
        """Carry out one call; a refusal is a ``ToolFailed`` that tells the model what to do."""
        sent = tool_args.get(UNREADABLE, tool_args)
        call_id = call_id_in_conversation(ctx.tool_call_id, answered=_answered(ctx))
        async with self._in_turn:
            result = await awaited_call_in(self._session, ctx, name, sent, call_id=call_id)
        if result.is_error:
            raise ToolFailed(result.text)
        return ToolReturn(result.text, metadata=result.data)

    def _offered(self, tool: tool_definitions.ToolDefinition, ctx: RunContext[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
        shape = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=null_for_not_given(tool.parameters),
            metadata={"read_only": tool.read_only},
        )
        return ToolsetTool(toolset=self, tool_def=shape, max_retries=ctx.max_retries, args_validator=_AcceptAll())


def memory_instructions(
    session: SessionSource[RunContext[AgentDepsT]], *, budget_bytes: int | None = None
) -> Callable[[RunContext[AgentDepsT]], Awaitable[str]]:
    """A function for ``Agent(instructions=...)`` that renders the session's current prompt for every request.

    ``budget_bytes=0`` leaves out the entries, for an agent with ``MemoryRecall``; see ``Session.system_prompt``.
    """
    checked_source(session)

    async def memory(ctx: RunContext[AgentDepsT]) -> str:
        return await in_session(
            session, ctx, lambda found: found.system_prompt(budget_bytes=budget_bytes), fallback=NO_MEMORY
        )

    return memory


class MemoryRecall(AbstractCapability[AgentDepsT]):
    """Gives the model what a session's memory holds about the last question, in a message of the user before it.

    ``session`` may be a function from the run's context, as for ``MemoryToolset``. It goes with any toolset, also with
    the memory of pydantic-ai's harness.
    """

    def __init__(self, session: SessionSource[RunContext[AgentDepsT]], *, budget_bytes: int = RECALL_BYTES) -> None:
        self._session = checked_source(session)
        self._budget_bytes = budget_bytes

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add what was recalled to this request."""
        messages = request_context.messages
        recalled = partial(
            with_recall,
            messages,
            budget_bytes=self._budget_bytes,
            question_in=_question_in,
            message_of=lambda block: ModelRequest([UserPromptPart(block)]),
        )
        return replace(request_context, messages=await in_session(self._session, ctx, recalled, fallback=messages))


class _AcceptAll:
    """Accepts all arguments: the session checks them itself, with messages that a model can act on."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> dict[str, Any]:
        """The object that was sent; anything else is passed on as it is."""
        try:
            return self.validate_python(from_json(input))
        except ValueError:
            return {UNREADABLE: input}

    def validate_python(self, input: Any, **_: Any) -> dict[str, Any]:
        """As ``validate_json``, for decoded arguments."""
        return dict(input) if isinstance(input, Mapping) else {UNREADABLE: input}


def _answered(ctx: RunContext[Any]) -> list[object]:
    """The ids of the calls that have a result in the conversation, if the context has it."""
    try:
        messages = ctx.messages
    except UserError:  # engines for durable execution keep it elsewhere
        return []
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return [getattr(part, "tool_call_id", None) for part in parts]


def _question_in(message: ModelMessage) -> str | None:
    """The text that the user wrote, None if the message is not the user's."""
    parts = message.parts if isinstance(message, ModelRequest) else []
    asked = [part for part in parts if isinstance(part, UserPromptPart)]
    texts = [item for part in asked for item in ([part.content] if isinstance(part.content, str) else part.content)]
    said = (item.content if isinstance(item, TextContent) else item for item in texts)
    return "\n".join(item for item in said if isinstance(item, str)) if asked else None
