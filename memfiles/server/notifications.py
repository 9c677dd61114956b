"""Notifications: every change of a record, by a tool, another process, the mirror or by hand, reported to MCP clients.

The rules this module enforces: the memory never waits for a client; no client hears of a record that its session may
not see; each hears of a resource under the URI that it subscribed to, however that is spelled; and what is kept for
clients that disappeared without closing is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio import Event, create_task_group, move_on_after
from mcp.server import ServerRequestContext, subscriptions
from mcp.shared.exceptions import MCPError

from memfiles.errors import InvalidArgument
from memfiles.records.keys import entry_place
from memfiles.server.resources import Address, parse_uri
from memfiles.tools.arguments import shortened
from memfiles.tools.worker_calls import run_in_worker

if TYPE_CHECKING:
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent

    from memfiles.storage.events import RecordChanged
    from memfiles.tools.session import Session

MAX_LEGACY_CLIENTS = 256
MAX_SUBSCRIPTIONS = 1024
_SEND_SECONDS = 5.0
RequestContext = ServerRequestContext[Any]
_log = logging.getLogger("memfiles")


class ChangeNotifier:
    """Notifies the clients of one server of changes in the memory that its session sees."""

    def __init__(self, session: Session) -> None:
        self.legacy = LegacyClients()
        self._session = session
        self._bus = subscriptions.InMemorySubscriptionBus()
        self._streams = subscriptions.ListenHandler(self._bus)
        self._subscribed: Counter[str] = Counter()
        self._files: list[tuple[str, bool]] = []

    async def listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of notifications for as long as the client stays."""
        uris = params.notifications.resource_subscriptions or []
        self._subscribed.update(uris)
        try:
            return await self._streams(ctx, params)
        finally:
            self._subscribed -= Counter(uris)

    def end(self) -> None:
        """End every stream with its response, so that clients know that nothing follows."""
        self._streams.close()

    @asynccontextmanager
    async def running(self, _: object) -> AsyncIterator[dict[str, Any]]:
        """Notify clients of every change until the block ends."""
        queue = ChangeQueue()
        self._files = await run_in_worker(self._visible_files)
        unsubscribe = self._session.manager.subscribe(queue.put)
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._notify, queue)
                yield {}
                tasks.cancel_scope.cancel()
        finally:
            unsubscribe()

    async def _notify(self, queue: ChangeQueue) -> None:
        while True:
            for change in await queue.take():
                try:
                    for event in await run_in_worker(partial(self._events, change)):
                        await self._bus.publish(event)
                        await self.legacy.publish(event)
                except Exception:
                    _log.exception("MCP clients were not notified of a change")

    def _events(self, change: RecordChanged) -> list[ServerEvent]:
        """The events of a change, for clients with the view of the session."""
        is_entry = entry_place(change.path) is not None
        lists: list[ServerEvent] = []
        if not is_entry:  # a deploy may have moved a file to another level
            before, self._files = self._files, self._visible_files()
            if before != self._files:
                lists = [subscriptions.ResourcesListChanged(), subscriptions.ToolsListChanged()]
        if not self._session.may_know(change):
            return lists
        if is_entry and change.op != "update":  # it may appear or vanish
            lists.append(subscriptions.ResourcesListChanged())
        uris = self._subscribed.keys() | self.legacy.uris()  # as clients spelled them
        concerned = [uri for uri in uris if self._concerns(change, _address(uri))]
        return [*map(subscriptions.ResourceUpdated, concerned), *lists]

    def _concerns(self, change: RecordChanged, address: Address | None) -> bool:
        if address is None:
            return False
        if entry_place(change.path) is None:
            return address.kind == "file" and address.name in (change.name, change.uid)
        if change.name or address.kind == "file":
            return address == Address("entry", change.name)
        return self._session.may_know(replace(change, name=address.name))  # a forgotten entry, whose key is gone too

    def _visible_files(self) -> list[tuple[str, bool]]:
        return [(file.card.name, file.writable) for file in self._session.files()]


class ChangeQueue:
    """Changes on their way from the threads that made them to the event loop; equal ones are delivered once."""

    def __init__(self) -> None:
        """Create it in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_filled = Event()
        self._changes: dict[tuple[str, str], RecordChanged] = {}
        self._lock = threading.Lock()

    def put(self, change: RecordChanged) -> None:
        """Add a change without waiting. Any thread may call it."""
        with self._lock:
            self._changes[change.path, change.op] = change
        with suppress(RuntimeError):  # the loop has ended meanwhile, and with it the server
            self._loop.call_soon_threadsafe(lambda: self._is_filled.set())  # the event of that moment

    async def take(self) -> list[RecordChanged]:
        """Wait for a change, then take all changes since the last time."""
        await self._is_filled.wait()
        self._is_filled = Event()
        with self._lock:
            changes, self._changes = list(self._changes.values()), {}
        return changes


@dataclass
class _LegacyClient:
    session: ServerSession
    uris: set[str] = field(default_factory=set)


class LegacyClients:
    """Clients of a protocol before 2026-07-28, with lasting connections and ``resources/subscribe``.

    Each is known by the id of its HTTP session; over stdio there is only one.
    """

    def __init__(self) -> None:
        self._clients: dict[str, _LegacyClient] = {}

    async def connected(self, ctx: RequestContext, _: types.NotificationParams) -> None:
        """Add a client that has finished its handshake."""
        self._client(ctx)

    async def subscribe(self, ctx: RequestContext, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Notify this client of changes of a resource from now on."""
        uris = self._client(ctx).uris
        if _address(params.uri) is None:
            raise MCPError(types.INVALID_PARAMS, f"{shortened(params.uri)} is not a resource of this server")
        if len(uris) >= MAX_SUBSCRIPTIONS:
            raise MCPError(
                types.INVALID_PARAMS, f"this client has {MAX_SUBSCRIPTIONS} subscriptions already: cancel some of them"
            )
        uris.add(params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: RequestContext, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Cancel a subscription, even if the URI is spelled differently now."""
        uris, address = self._client(ctx).uris, _address(params.uri)
        alike = {uri for uri in uris if _address(uri) == address}
        uris -= {params.uri} if params.uri in uris else alike
        return types.EmptyResult()

    def uris(self) -> set[str]:
        """The URIs that any client subscribed to. Any thread may call it."""
        return set[str]().union(*[client.uris for client in list(self._clients.values())])

    async def publish(self, event: ServerEvent) -> None:
        """Send an event to the clients it concerns; one that does not read delays the others by 5 s at most."""
        for client in list(self._clients.values()):
            with move_on_after(_SEND_SECONDS):
                try:
                    await _send(event, client)
                except Exception:
                    _log.exception("an MCP client was not notified of a change")

    def _client(self, ctx: RequestContext) -> _LegacyClient:
        id = (ctx.request.headers.get("mcp-session-id") or "") if ctx.request is not None else ""
        if id not in self._clients:
            while len(self._clients) >= MAX_LEGACY_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[id] = _LegacyClient(ctx.session)
        return self._clients[id]


async def _send(event: ServerEvent, client: _LegacyClient) -> None:
    if isinstance(event, subscriptions.ResourcesListChanged):
        await client.session.send_resource_list_changed()
    elif isinstance(event, subscriptions.ToolsListChanged):
        await client.session.send_tool_list_changed()
    elif isinstance(event, subscriptions.ResourceUpdated) and event.uri in client.uris:
        await client.session.send_resource_updated(event.uri)


def _address(uri: str) -> Address | None:
    try:
        return parse_uri(uri)
    except InvalidArgument:
        return None
