"""Notifications: every change of a record, by a tool, another process, the mirror or by hand, reported to MCP clients.

The rules this module enforces: the memory never waits for a client; no client hears of a record that its session may
not see; each hears of a resource under the URI that it subscribed to, however that is spelled; and what is kept for
clients that disappeared without closing is bounded.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mcp_types as types
from anyio import Event, create_task_group, move_on_after
from mcp.server import ServerRequestContext, subscriptions
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.records.keys import is_file_path
from memfiles.server.resources import Address, parse_uri
from memfiles.tools.arguments import shortened
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import run_in_worker, session_of

if TYPE_CHECKING:
    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import ServerEvent

    from memfiles.files.manager import MemoryManager
    from memfiles.storage.events import RecordChanged
    from memfiles.tools.worker_calls import SessionSource

MAX_LEGACY_CLIENTS = 256
MAX_SUBSCRIPTIONS = 1024
_SEND_SECONDS = 5.0
RequestContext = ServerRequestContext[Any]


@dataclass(eq=False)
class Audience:
    """The listening streams of one session, and the URIs that they subscribed to."""

    session: Session
    uris: Counter[str] = field(default_factory=Counter)
    bus: subscriptions.InMemorySubscriptionBus = field(default_factory=subscriptions.InMemorySubscriptionBus)
    streams: int = 0


class _AudienceBus(subscriptions.InMemorySubscriptionBus):
    """Adds a stream to the audience whose request opens it: the SDK limits and ends the streams of all together."""

    opening: ContextVar[Audience] = ContextVar("opening")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        return self.opening.get().bus.subscribe(listener)


class ChangeNotifier:
    """Notifies the clients of one server of changes in the memory that their sessions see."""

    def __init__(self, source: SessionSource[RequestContext]) -> None:
        self.legacy = LegacyClients(self._joined)
        self._source = source
        self._bus = _AudienceBus()
        self._streams = subscriptions.ListenHandler(self._bus)
        self._audiences: dict[Session, Audience] = {}
        self._files: WeakKeyDictionary[Session, list[tuple[str, bool]]] = WeakKeyDictionary()
        self._queue: ChangeQueue | None = None
        self._unsubscribe: dict[MemoryManager, Callable[[], None]] = {}
        self._lock = threading.Lock()

    async def listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of notifications for as long as the client stays."""
        session = await self._joined(ctx)
        audience = self._audiences.setdefault(session, Audience(session))
        uris = params.notifications.resource_subscriptions or []
        audience.uris.update(uris)
        audience.streams += 1
        self._bus.opening.set(audience)
        try:
            return await self._streams(ctx, params)
        finally:
            audience.uris -= Counter(uris)
            audience.streams -= 1
            if not audience.streams:
                del self._audiences[session]

    def end(self) -> None:
        """End every stream with its response, so that clients know that nothing follows."""
        self._streams.close()

    @asynccontextmanager
    async def running(self, _: object) -> AsyncIterator[dict[str, Any]]:
        """Notify clients of every change until the block ends."""
        self._queue = ChangeQueue()
        if isinstance(self._source, Session):
            await run_in_worker(partial(self._follow, self._source))
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._notify, self._queue)
                yield {}
                tasks.cancel_scope.cancel()
        finally:
            while self._unsubscribe:
                self._unsubscribe.popitem()[1]()

    async def _joined(self, ctx: RequestContext) -> Session:
        """The session of a request, whose memory is followed from now on."""
        try:
            return await run_in_worker(lambda: self._follow(session_of(self._source, ctx)))
        except MemfilesError as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"code": error.code}) from error

    def _follow(self, session: Session) -> Session:
        with self._lock:
            if self._queue is not None and session.manager not in self._unsubscribe:
                self._unsubscribe[session.manager] = session.manager.subscribe(self._queue.put)
        self._files.setdefault(session, _visible_files(session))
        return session

    async def _notify(self, queue: ChangeQueue) -> None:
        while True:
            for change in await queue.take():
                for session in {*self._audiences, *self.legacy.sessions()}:
                    try:
                        await self._tell(session, change)
                    except Exception:
                        _log.exception("MCP clients were not notified of a change")

    async def _tell(self, session: Session, change: RecordChanged) -> None:
        """Tell the clients of a session, and no others, of a change."""
        audience = self._audiences.get(session) or Audience(session)
        uris = audience.uris.keys() | self.legacy.uris(session)  # as clients spelled them
        for event in await run_in_worker(partial(self._events, session, change, uris)):
            await audience.bus.publish(event)
            await self.legacy.publish(event, session)

    def _events(self, session: Session, change: RecordChanged, uris: Iterable[str]) -> list[ServerEvent]:
        """The events of a change, for clients with the view of the session."""
        is_entry = not is_file_path(change.path)
        lists: list[ServerEvent] = []
        if not is_entry:  # a deploy may have moved a file to another level
            before, self._files[session] = self._files.get(session), _visible_files(session)
            if before != self._files[session]:
                lists = [subscriptions.ResourcesListChanged(), subscriptions.ToolsListChanged()]
        if not session.may_know(change):
            return lists
        if is_entry and change.op != "update":  # it may appear or vanish
            lists.append(subscriptions.ResourcesListChanged())
        concerned = [uri for uri in uris if _concerns(session, change, _address(uri))]
        return [*map(subscriptions.ResourceUpdated, concerned), *lists]


def _concerns(session: Session, change: RecordChanged, address: Address | None) -> bool:
    if address is None:
        return False
    if is_file_path(change.path):  # which the session sees
        names = {name for it in session.files() if it.card.uid == change.uid for name in (it.card.name, it.card.uid)}
        return address.kind == "file" and address.name in names | {change.name}
    if change.name or address.kind == "file":
        return address == Address("entry", change.name)
    return session.may_know(replace(change, name=address.name))  # a forgotten entry, whose key is gone too


def _visible_files(session: Session) -> list[tuple[str, bool]]:
    return [(file.card.name, file.writable) for file in session.files()]


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
    connection: ServerSession
    session: Session
    uris: set[str] = field(default_factory=set)


class LegacyClients:
    """Clients of a protocol before 2026-07-28, with lasting connections and ``resources/subscribe``.

    Each is known by the id of its HTTP session; over stdio there is only one. It hears what the session of its last
    request of this kind sees.
    """

    def __init__(self, joined: Callable[[RequestContext], Awaitable[Session]]) -> None:
        """``joined`` gives the session of a request."""
        self._clients: dict[str, _LegacyClient] = {}
        self._joined = joined

    async def connected(self, ctx: RequestContext, _: types.NotificationParams) -> None:
        """Add a client that has finished its handshake."""
        await self._client(ctx)

    async def subscribe(self, ctx: RequestContext, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Notify this client of changes of a resource from now on."""
        uris = (await self._client(ctx)).uris
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
        uris, address = (await self._client(ctx)).uris, _address(params.uri)
        alike = {uri for uri in uris if _address(uri) == address}
        uris -= {params.uri} if params.uri in uris else alike
        return types.EmptyResult()

    def sessions(self) -> set[Session]:
        """The sessions of all clients."""
        return {client.session for client in self._clients.values()}

    def uris(self, session: Session) -> set[str]:
        """The URIs that clients of this session subscribed to."""
        return set[str]().union(*[client.uris for client in self._of(session)])

    async def publish(self, event: ServerEvent, session: Session) -> None:
        """Send an event to the clients of this session that it concerns; a slow one delays others by 5 s at most."""
        for client in self._of(session):
            with move_on_after(_SEND_SECONDS):
                try:
                    await _send(event, client)
                except Exception:
                    _log.exception("an MCP client was not notified of a change")

    def _of(self, session: Session) -> list[_LegacyClient]:
        return [client for client in self._clients.values() if client.session is session]

    async def _client(self, ctx: RequestContext) -> _LegacyClient:
        id = (ctx.request.headers.get("mcp-session-id") or "") if ctx.request is not None else ""
        session = await self._joined(ctx)
        if id not in self._clients:
            while len(self._clients) >= MAX_LEGACY_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[id] = _LegacyClient(ctx.session, session)
        self._clients[id].session = session
        return self._clients[id]


async def _send(event: ServerEvent, client: _LegacyClient) -> None:
    if isinstance(event, subscriptions.ResourcesListChanged):
        await client.connection.send_resource_list_changed()
    elif isinstance(event, subscriptions.ToolsListChanged):
        await client.connection.send_tool_list_changed()
    elif isinstance(event, subscriptions.ResourceUpdated) and event.uri in client.uris:
        await client.connection.send_resource_updated(event.uri)


def _address(uri: str) -> Address | None:
    try:
        return parse_uri(uri)
    except InvalidArgument:
        return None
