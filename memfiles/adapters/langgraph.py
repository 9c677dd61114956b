"""Session tools for LangChain and LangGraph agents, and middleware that keeps tools and prompt up to date.

A tool passes the model's arguments to the session unchanged. A failure is a tool message with ``status="error"``; if
tools or prompt cannot be made, the turn continues without them and the log says why. What is recalled is in the request
to the model and nowhere else: it is not part of the agent's state, so no checkpoint keeps what the memory forgets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from memfiles.adapters.agent_calls import NO_MEMORY, call_id_in_conversation, needs, or_fallback, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.dialects import null_for_not_given
from memfiles.tools.profiles import every_tool
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import call_in, checked_source, run_in_worker, session_of

with needs("agents of LangGraph need an extra: pip install 'memfiles[langgraph]'"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import BaseTool, InjectedToolArg
    from pydantic import PrivateAttr

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from langchain.agents.middleware import ModelRequest, ModelResponse, ToolCallRequest

    from memfiles.tools.definitions import ToolDefinition
    from memfiles.tools.worker_calls import SessionSource

InjectedRuntime = Annotated[ToolRuntime | None, InjectedToolArg]  # injected arguments are hidden from tracing


class LangChainSessionTool(BaseTool):
    """One tool of a session, or of the session that a function gives for each call; threads may share it."""

    _session: Any = PrivateAttr()

    def __init__(self, definition: ToolDefinition, session: SessionSource[Any]) -> None:
        shown = {"description": definition.description, "args_schema": null_for_not_given(definition.parameters)}
        super().__init__(name=definition.name, **shown)
        self._session = checked_source(session)

    @property
    def func(self) -> Callable[..., Any]:
        """The function in whose signature a ``ToolNode`` finds that the tool takes its ``runtime``."""
        return self._run

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the arguments in one object, so that no name that a model invents can clash with one of ours."""
        runtime = tool_input.get("runtime") if isinstance(tool_input, dict) else None
        if not isinstance(runtime, ToolRuntime):
            return (tool_input, tool_call_id), {}
        return ({name: sent for name, sent in tool_input.items() if name != "runtime"}, tool_call_id, runtime), {}

    def _run(self, arguments: Any, call_id: str | None, runtime: InjectedRuntime = None) -> ToolMessage | str:
        recorded_id = call_id_in_conversation(call_id, answered=_answered(runtime) if runtime else ())
        result = call_in(self._session, runtime, self.name, arguments, call_id=recorded_id)
        if call_id is None:  # called by hand
            return result.text
        return ToolMessage(
            result.text,
            name=self.name,
            tool_call_id=call_id,
            artifact={"code": result.code, "data": result.data},
            status="error" if result.is_error else "success",
        )

    async def _arun(self, *call: Any) -> ToolMessage | str:
        return await run_in_worker(lambda: self._run(*call))


def tools(session: SessionSource[Any]) -> list[BaseTool]:
    """The tools that a session has now, for ``ToolNode`` and ``model.bind_tools``.

    For a ``ToolNode`` of many users, ``session`` is a function from a call's ``ToolRuntime`` to its session, and the
    list has every tool that any session may have. Bind the model to the tools of the session of the run.
    """
    definitions = session.definitions() if isinstance(session, Session) else every_tool()
    return [LangChainSessionTool(definition, session) for definition in definitions]


class _ChangedRequests(AgentMiddleware[Any, Any, Any]):
    """Changes every request to the model with ``_change``; LangChain takes middleware only as a subclass."""

    @abstractmethod
    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]: ...

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the changed request."""
        return handler(self._change(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """As ``wrap_model_call``, with the change made in a worker thread."""
        return await handler(await run_in_worker(lambda: self._change(request)))


class MemfilesMiddleware(_ChangedRequests):
    """Gives an agent of ``create_agent`` a session: its current prompt and tools at every model call.

    ``create_agent(model, tools, middleware=[MemfilesMiddleware(session)])``; its tools need not be passed. ``session``
    may be a function from the ``Runtime`` of a model call, or the ``ToolRuntime`` of a tool call, to the session of its
    run, such as ``lambda runtime: memory.session("support", user=runtime.context.user)``. With ``recall_bytes`` the
    entries come as ``RecallMiddleware`` gives them, and not in the prompt.
    """

    def __init__(self, session: SessionSource[Any], *, recall_bytes: int | None = None) -> None:
        super().__init__()
        self._session = checked_source(session)
        self._recall_bytes = recall_bytes
        self.tools = tools(session)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Find a tool that the session did not have when the agent was made."""
        return handler(self._with_tool(request))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Awaitable[Any]]) -> Any:
        """As ``wrap_tool_call``."""
        return await handler(request if request.tool else await run_in_worker(lambda: self._with_tool(request)))

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        request = request.override(tools=[it for it in request.tools if not isinstance(it, LangChainSessionTool)])
        without = request.override(system_message=_with_prompt(request.system_message, NO_MEMORY))
        return or_fallback(lambda: self._in_session(request), fallback=without)

    def _in_session(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = session_of(self._session, request.runtime)
        prompt = session.system_prompt(budget_bytes=None if self._recall_bytes is None else 0)
        system, current = _with_prompt(request.system_message, prompt), [*request.tools, *tools(session)]
        messages = _with_recalled(request.messages, session, budget_bytes=self._recall_bytes)
        return request.override(tools=current, system_message=system, messages=messages)

    def _with_tool(self, request: ToolCallRequest) -> ToolCallRequest:
        found = None if request.tool else or_fallback(lambda: self._find(request), fallback=None)
        return request.override(tool=found) if found else request

    def _find(self, request: ToolCallRequest) -> BaseTool | None:
        current = tools(session_of(self._session, request.runtime))
        return next((tool for tool in current if tool.name == request.tool_call["name"]), None)


class RecallMiddleware(_ChangedRequests):
    """Gives the model what a session's memory holds about the last question, in a message of the user before it.

    ``create_agent(model, middleware=[RecallMiddleware(session)])``, and the same for ``create_deep_agent``.
    ``session`` may be a function from the ``Runtime`` of the model call to its session.
    """

    def __init__(self, session: SessionSource[Any], *, budget_bytes: int = RECALL_BYTES) -> None:
        super().__init__()
        self._session = checked_source(session)
        self._budget_bytes = budget_bytes

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = or_fallback(lambda: session_of(self._session, request.runtime), fallback=None)
        if session is None:
            return request
        return request.override(messages=_with_recalled(request.messages, session, budget_bytes=self._budget_bytes))


def _with_recalled(messages: Sequence[AnyMessage], session: Session, *, budget_bytes: int | None) -> list[AnyMessage]:
    """The messages with what was recalled; unchanged without a budget."""
    if budget_bytes is None:
        return [*messages]
    return with_recall(
        messages,
        session,
        budget_bytes=budget_bytes,
        question_in=lambda message: message.text if isinstance(message, HumanMessage) else None,
        message_of=HumanMessage,
    )


def _with_prompt(message: SystemMessage | None, prompt: str) -> SystemMessage | None:
    """The system message with the prompt of a session at its end."""
    if not prompt or message is None:
        return SystemMessage(prompt) if prompt else message
    text = message.content
    content = f"{text}\n\n{prompt}" if isinstance(text, str) else [*text, {"type": "text", "text": prompt}]
    return message.model_copy(update={"content": content})


def _answered(runtime: ToolRuntime) -> list[object]:
    state: Any = runtime.state
    messages = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", state)
    return [getattr(each, "tool_call_id", None) for each in messages] if isinstance(messages, list) else []
