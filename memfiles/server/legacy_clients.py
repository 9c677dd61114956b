"""Clients that speak a protocol before 2026-07-28: connections that last, and ``resources/subscribe``.

The rule this file guards: what clients that went away without a word leave behind here is bounded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anyio import move_on_after
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, EmptyResult

from memfiles.errors import InvalidArgument
from memfiles.server.uris import Address, address_of
from memfiles.tools.arguments import shortened

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent
    from mcp_types import NotificationParams, SubscribeRequestParams, UnsubscribeRequestParams

MAX_CLIENTS = 256
MAX_URIS = 1024
_PATIENCE_SECONDS = 5.0
_log = logging.getLogger("memfiles")


@dataclass
class _Client:
    session: ServerSession
    uris: set[str] = field(default_factory=set)


class OlderClients:
    """The connected clients, each under the id of its HTTP session; on stdio there is only one."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}

    async def joined(self, ctx: ServerRequestContext[Any], _: NotificationParams) -> None:
        """A client has finished its handshake."""
        self._known(ctx)

    async def subscribe(self, ctx: ServerRequestContext[Any], params: SubscribeRequestParams) -> EmptyResult:
        """Tell this client of a resource from now on."""
        uris = self._known(ctx).uris
        if _address(params.uri) is None:
            raise MCPError(INVALID_PARAMS, f"{shortened(params.uri)} can be no resource of this server")
        if len(uris) >= MAX_URIS:
            raise MCPError(INVALID_PARAMS, f"{MAX_URIS} resources are subscribed to already: unsubscribe from some")
        uris.add(params.uri)
        return EmptyResult()

    async def unsubscribe(self, ctx: ServerRequestContext[Any], params: UnsubscribeRequestParams) -> EmptyResult:
        """Tell it no more, also where it spells the URI otherwise now."""
        uris, address = self._known(ctx).uris, _address(params.uri)
        meant = {uri for uri in uris if _address(uri) == address}
        uris -= {params.uri} if params.uri in uris else meant
        return EmptyResult()

    def uris(self) -> set[str]:
        """What any of them subscribed to. Any thread may ask."""
        return set[str]().union(*[client.uris for client in list(self._clients.values())])

    async def publish(self, news: ServerEvent) -> None:
        """Tell those whom it concerns; one that does not listen is left behind, and disturbs no other."""
        for client in list(self._clients.values()):
            with move_on_after(_PATIENCE_SECONDS):
                try:
                    await _tell(client, news)
                except Exception:
                    _log.exception("an MCP client was not told of a change")

    def _known(self, ctx: ServerRequestContext[Any]) -> _Client:
        name = (ctx.request.headers.get("mcp-session-id") or "") if ctx.request is not None else ""
        if name not in self._clients:
            while len(self._clients) >= MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[name] = _Client(ctx.session)
        return self._clients[name]


async def _tell(client: _Client, news: ServerEvent) -> None:
    if isinstance(news, ResourcesListChanged):
        await client.session.send_resource_list_changed()
    elif isinstance(news, ToolsListChanged):
        await client.session.send_tool_list_changed()
    elif isinstance(news, ResourceUpdated) and news.uri in client.uris:
        await client.session.send_resource_updated(news.uri)


def _address(uri: str) -> Address | None:
    try:
        return address_of(uri)
    except InvalidArgument:
        return None
