"""The MCP server: request handlers that pass each request to the session in a worker thread.

The rule this module enforces: a tool that is not offered cannot be called. With ``read_only``, no tool that changes
memory is offered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

import memfiles
from memfiles.errors import InvalidArgument, MemfilesError, ReadOnly
from memfiles.records import late_logger as _log
from memfiles.server import resources
from memfiles.server.notifications import ChangeNotifier, RequestContext
from memfiles.tools.arguments import shortened
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import render, structured
from memfiles.tools.results import ToolResult, failed
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import run_in_worker, session_of

if TYPE_CHECKING:
    from memfiles.tools.worker_calls import SessionSource

NAME = "memfiles"
PROMPT = "memory"
RECALL_PROMPT = "recall"
CODE = "memfiles/code"
"""Key in the ``_meta`` of an error result that holds the error's code."""

DRAIN_SECONDS = 35
"""How long a server that ends waits for responses to requests that it has: a call may wait 30 seconds for a record."""

MESSAGE_MAX = 64 * 2**20
"""Bytes of a message: the largest memory file with every character escaped, and some."""

_PROMPT_DESCRIPTION = "The agent's memory: an index card of its memory files, and saved entries."
_RECALL_DESCRIPTION = "What the agent's memory holds about a question, for one turn."
_QUESTION = types.PromptArgument(name="query", description="The question, or the user's message.", required=True)
_NOTHING_RECALLED = "Memory holds nothing about this."
_EMPTY_MEMORY = "There is nothing in your memory that you may see."
Paging = types.PaginatedRequestParams | None
T = TypeVar("T")


def build(session: SessionSource[RequestContext], *, read_only: bool = False) -> MemoryServer:
    """Build the server of one session, for one process; any number of clients may use it.

    ``session`` may be a plain function from the context of a request to its session, such as one that asks for the
    request's user: it is called for each request, and nothing is kept of its answer but for those who listen.
    """
    handlers, notifier = RequestHandlers(session, read_only=read_only), ChangeNotifier(session)
    server = MemoryServer(
        NAME,
        version=memfiles.__version__,
        title="Memory",
        instructions=_instructions(session, read_only=read_only),
        lifespan=notifier.running,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_subscribe_resource=notifier.legacy.subscribe,
        on_unsubscribe_resource=notifier.legacy.unsubscribe,
        on_subscriptions_listen=notifier.listen,
    )
    server.notifier = notifier
    server.add_notification_handler("notifications/initialized", types.NotificationParams, notifier.legacy.connected)
    return server


class MemoryServer(Server[dict[str, Any]]):
    """The SDK's server, with the notifier that a transport stops before it closes.

    It inherits because over HTTP the SDK has no other way to announce list changes to clients of older protocols.
    """

    notifier: ChangeNotifier

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """See ``Server``."""
        announced = notification_options or NotificationOptions(resources_changed=True, tools_changed=True)
        return super().create_initialization_options(announced, experimental_capabilities, extensions)


class RequestHandlers:
    """Handlers for the requests of clients, one method for each kind. Threads may share them."""

    def __init__(self, session: SessionSource[RequestContext], *, read_only: bool) -> None:
        self._session = session
        self._read_only = read_only
        # making definitions takes longer than a call
        self._known: WeakKeyDictionary[Session, dict[str, ToolDefinition]] = WeakKeyDictionary()

    async def list_tools(self, ctx: RequestContext, params: Paging) -> types.ListToolsResult:
        """List the tools, on one page."""
        _check_one_page(params)
        shapes = await self._in_session(ctx, lambda session: render(self._definitions(session), "mcp"))
        return types.ListToolsResult(tools=[types.Tool.model_validate(shape) for shape in shapes])

    async def call_tool(self, ctx: RequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Carry out a tool call; a failure is an error result."""
        return await run_request(partial(self._call_tool, ctx, params.name, params.arguments))

    async def list_resources(self, ctx: RequestContext, params: Paging) -> types.ListResourcesResult:
        """List a page of the resources."""
        cursor = params.cursor if params else None
        return await self._in_session(ctx, lambda session: resources.list_page(session, cursor))

    async def list_resource_templates(self, ctx: RequestContext, params: Paging) -> types.ListResourceTemplatesResult:
        """List the URI templates of resources, on one page."""
        _check_one_page(params)
        return await self._in_session(ctx, resources.templates)

    async def read_resource(
        self, ctx: RequestContext, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read the text of a resource."""
        return await self._in_session(ctx, lambda session: resources.read(session, params.uri))

    async def list_prompts(self, ctx: RequestContext, params: Paging) -> types.ListPromptsResult:
        """List the prompt and, if the workflow declares entries, the one that recalls some for a question."""
        _check_one_page(params)
        prompts = [types.Prompt(name=PROMPT, description=_PROMPT_DESCRIPTION)]
        if await self._in_session(ctx, lambda session: session.entries is not None):
            prompts.append(types.Prompt(name=RECALL_PROMPT, description=_RECALL_DESCRIPTION, arguments=[_QUESTION]))
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, ctx: RequestContext, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """Render a prompt from the memory's current state."""
        return await self._in_session(ctx, lambda session: self._rendered(session, params))

    def _rendered(self, session: Session, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name == RECALL_PROMPT and session.entries is not None:
            query = (params.arguments or {}).get("query")
            if query is None:
                raise InvalidArgument(f"the prompt {RECALL_PROMPT!r} needs the argument 'query'")
            return _prompt(_RECALL_DESCRIPTION, session.recall(query).text or _NOTHING_RECALLED)
        if params.name != PROMPT:
            names = PROMPT if session.entries is None else f"{PROMPT} or {RECALL_PROMPT}"
            raise InvalidArgument(f"unknown prompt {shortened(params.name)}: use {names}")
        return _prompt(_PROMPT_DESCRIPTION, session.system_prompt(read_only=self._read_only) or _EMPTY_MEMORY)

    async def _in_session(self, ctx: RequestContext, ask: Callable[[Session], T]) -> T:
        return await run_request(lambda: ask(session_of(self._session, ctx)))

    def _call_tool(self, ctx: RequestContext, name: str, arguments: dict[str, Any] | None) -> types.CallToolResult:
        try:
            session = session_of(self._session, ctx)
        except MemfilesError as error:
            return _mcp_result(failed(error), None)
        known = self._known.get(session, {})
        if name not in known:
            known = {tool.name: tool for tool in self._definitions(session)}
        definition = known.get(name)
        if definition is None and self._read_only:
            use = f"use one of {', '.join(known)}" if known else "there is nothing to read here"
            why = f"{shortened(name)} cannot be called, as this memory is read-only here: {use}"
            return _mcp_result(failed(ReadOnly(why)), None)
        return _mcp_result(session.call(name, arguments), definition)

    def _definitions(self, session: Session) -> list[ToolDefinition]:
        found = [tool for tool in session.definitions() if tool.read_only or not self._read_only]
        self._known[session] = {tool.name: tool for tool in found}
        return found


async def run_request(call: Callable[[], T]) -> T:
    """Run ``call`` in a worker thread; its errors become MCP errors, which contain no stored text."""
    try:
        return await run_in_worker(call)
    except MemfilesError as error:
        code = types.INTERNAL_ERROR if error.transient else types.INVALID_PARAMS
        raise MCPError(code, str(error), {"code": error.code}) from error
    except Exception:
        _log.exception("an MCP request failed")
        raise MCPError(types.INTERNAL_ERROR, "internal error in the memory; the server's log has the details") from None


def _check_one_page(params: Paging) -> None:
    if params is not None and params.cursor:
        why = f"{shortened(params.cursor)} is not a cursor: this list has one page, so leave it out"
        raise MCPError(types.INVALID_PARAMS, why, {"code": InvalidArgument.code})


def _prompt(description: str, text: str) -> types.GetPromptResult:
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=description, messages=[message])


def _mcp_result(result: ToolResult, definition: ToolDefinition | None) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=result.text)],
        structured_content=structured(definition, result) if definition is not None else None,
        is_error=result.is_error,
        _meta={CODE: result.code} if result.code else None,
    )


def _instructions(source: SessionSource[RequestContext], *, read_only: bool) -> str:
    """Instructions that a client may pass to its model before any request; nothing in them can become outdated."""
    of_agent, can_change = "", not read_only
    if isinstance(source, Session):
        of_agent = f" of the agent {source.agent}"
        can_change = can_change and any(not tool.read_only for tool in source.definitions())
    change = "Save there what later runs should know." if can_change else "It is read-only here."
    return (
        f"The long-term memory{of_agent}. Look there before you answer from memory. {change} "
        f"The prompt {PROMPT!r} shows what it contains."
    )
