"""A session's tools and prompt for pydantic-ai: ``Agent(toolsets=[MemoryToolset(session)], instructions=...)``.

The rule this file guards: nothing that goes wrong in the memory ends an agent's run. A call that is refused is a failed
tool result, which the model reads and which costs none of its retries. Where the tools or the prompt cannot be made,
the step goes without them and the log says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from memfiles.adapters.call_ids import in_conversation
from memfiles.adapters.degraded import GONE, made
from memfiles.errors import ExtraMissing
from memfiles.tools.dialects.schemas import null_for_not_given
from memfiles.tools.worker_calls import run_in_worker

try:
    from pydantic_ai import AbstractToolset, ModelRequest, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_core import from_json
except ImportError as error:
    raise ExtraMissing("memory for pydantic-ai needs an extra: pip install 'memfiles[pydantic-ai]'") from error

if TYPE_CHECKING:
    from memfiles.tools import definitions as tool_definitions
    from memfiles.tools.session import Session

UNREADABLE = "unreadable arguments"
"""Where the text of a call stands that is no JSON object, so that the session can say what is wrong with it."""

Whose: TypeAlias = "Session | Callable[[RunContext[AgentDepsT]], Session | Awaitable[Session]]"


class MemoryToolset(AbstractToolset[AgentDepsT]):
    """The memory tools of one session, offered afresh at every step: they follow its level.

    ``session`` may be a function from the run's context to its session, as in ``lambda ctx: ctx.deps.session``, or one
    that is ``async``. A run's calls are carried out in the order in which the model made them, in a worker thread, each
    to its end; the framework's id of a call is the memory's, with a number behind it where the conversation has a
    result of that id, so a call that is made again is not carried out twice. A result's metadata is its data: the
    receipt. A tool's says whether it is ``read_only``, for whoever asks for approval of the others.
    """

    def __init__(self, session: Whose[AgentDepsT], *, id: str | None = None) -> None:
        self._session = session
        self._id = id
        self._in_turn = asyncio.Lock()

    @property
    def id(self) -> str | None:
        """What the toolset is called where it is run durably."""
        return self._id

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> MemoryToolset[AgentDepsT]:
        """The toolset of one run, with that run's session and its order of calls."""
        return MemoryToolset(await _session_of(self._session, ctx), id=self._id)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """What can be used at this step."""
        session = await _session_of(self._session, ctx)
        nothing: list[tool_definitions.ToolDefinition] = []
        definitions = await run_in_worker(lambda: made(session.definitions, instead=nothing))
        return {each.name: self._offered(each, ctx) for each in definitions}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> ToolReturn[str]:
        """Carry out one call; a refusal is a ``ToolFailed`` with what the model can do about it."""
        session = await _session_of(self._session, ctx)
        sent = tool_args.get(UNREADABLE, tool_args)
        call_id = in_conversation(ctx.tool_call_id, answered=_answered(ctx))
        async with self._in_turn:
            result = await run_in_worker(partial(session.call, name, sent, call_id=call_id))
        if result.is_error:
            raise ToolFailed(result.text)
        return ToolReturn(result.text, metadata=result.data)

    def _offered(self, tool: tool_definitions.ToolDefinition, ctx: RunContext[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=null_for_not_given(tool.parameters),
            metadata={"read_only": tool.read_only},
        )
        retries = ctx.max_retries
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=retries, args_validator=_AsSent())


def memory_instructions(session: Whose[AgentDepsT]) -> Callable[[RunContext[AgentDepsT]], Awaitable[str]]:
    """What the model shall be told of its memory, for ``Agent(instructions=...)``: rendered for every request."""

    async def memory(ctx: RunContext[AgentDepsT]) -> str:
        current = await _session_of(session, ctx)
        return await run_in_worker(lambda: made(current.system_prompt, instead=GONE))

    return memory


class _AsSent:
    """Lets every call pass: the session knows what its tools take, and says it so that a model can act on it."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> dict[str, Any]:
        """The object that was sent; what is none is carried along as it is."""
        try:
            return self.validate_python(from_json(input))
        except ValueError:
            return {UNREADABLE: input}

    def validate_python(self, input: Any, **_: Any) -> dict[str, Any]:
        """As ``validate_json``, for what is decoded already."""
        return dict(input) if isinstance(input, Mapping) else {UNREADABLE: input}


def _answered(ctx: RunContext[Any]) -> list[object]:
    """The ids of the calls that have a result in the conversation, where the context has it."""
    try:
        messages = ctx.messages
    except UserError:  # an engine that runs agents durably keeps it elsewhere
        return []
    told = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return [getattr(part, "tool_call_id", None) for part in told]


async def _session_of(session: Whose[AgentDepsT], ctx: RunContext[AgentDepsT]) -> Session:
    found = await run_in_worker(lambda: session(ctx)) if callable(session) else session
    return await found if isawaitable(found) else found
