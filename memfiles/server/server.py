"""The server itself: each request of a client handed to the file that knows it, through one crossing."""

from __future__ import annotations

from functools import partial
from typing import Any

from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

import memfiles
from memfiles.server import prompts, resources
from memfiles.server.notifications import Changes
from memfiles.server.offer import Offer
from memfiles.server.tools import Tools
from memfiles.server.worker_calls import Crossing

NAME = "memfiles"
Context = ServerRequestContext[Any]


def build(offer: Offer) -> MemoryServer:
    """A server of this memory, for one process; any number of clients may use it."""
    crossing = Crossing()
    answers, changes = Answers(offer, crossing), Changes(offer, crossing)
    server = MemoryServer(
        NAME,
        version=memfiles.__version__,
        title="Memory",
        instructions=_instructions(offer),
        lifespan=changes.followed,
        on_list_tools=answers.list_tools,
        on_call_tool=answers.call_tool,
        on_list_resources=answers.list_resources,
        on_list_resource_templates=answers.list_resource_templates,
        on_read_resource=answers.read_resource,
        on_list_prompts=answers.list_prompts,
        on_get_prompt=answers.get_prompt,
        on_subscribe_resource=changes.older.subscribe,
        on_unsubscribe_resource=changes.older.unsubscribe,
        on_subscriptions_listen=changes.listen,
    )
    server.changes = changes
    server.add_notification_handler("notifications/initialized", NotificationParams, changes.older.joined)
    return server


class Answers:
    """What is answered to each request."""

    def __init__(self, offer: Offer, crossing: Crossing) -> None:
        self._offer = offer
        self._tools = Tools(offer.session, read_only=offer.read_only)
        self._run = crossing.run

    async def list_tools(self, _: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools; there are few, so they come on one page."""
        await self._one_page(params)
        return ListToolsResult(tools=await self._run(self._tools.offered))

    async def call_tool(self, _: Context, params: CallToolRequestParams) -> CallToolResult:
        """The result of a tool call."""
        return await self._run(partial(self._tools.called, params.name, params.arguments))

    async def list_resources(self, _: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """A page of the resources."""
        return await self._run(partial(resources.listed, self._offer, params.cursor if params else None))

    async def list_resource_templates(
        self, _: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """What the URIs of resources look like."""
        await self._one_page(params)
        return resources.templates(self._offer)

    async def read_resource(self, _: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """The text of a resource."""
        return await self._run(partial(resources.read, self._offer, params.uri))

    async def list_prompts(self, _: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """The prompts."""
        await self._one_page(params)
        return ListPromptsResult(prompts=prompts.prompts())

    async def get_prompt(self, _: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """A prompt as it is now."""
        return await self._run(partial(prompts.rendered, self._offer, params.name))

    async def _one_page(self, params: PaginatedRequestParams | None) -> None:
        await self._run(partial(resources.no_cursor, params.cursor if params else None))


class MemoryServer(Server[dict[str, Any]]):
    """A server that can end its streams of news.

    It says to clients of older protocols, too, that it tells when the list of resources or of tools changes.

    Inheriting is the only way to say so that the SDK has over HTTP.
    """

    changes: Changes

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """See ``Server``."""
        told = notification_options or NotificationOptions(resources_changed=True, tools_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)


def _instructions(offer: Offer) -> str:
    """What a client may tell its model before it asks for anything; nothing in it goes stale."""
    can_change = not offer.read_only and any(not tool.read_only for tool in offer.session.definitions())
    change = "Save there what later runs should know." if can_change else "It can only be read here."
    return (
        f"The lasting memory of the agent {offer.session.agent}. Look there before you answer from memory. {change} "
        f"The prompt {prompts.NAME!r} says what it holds."
    )
