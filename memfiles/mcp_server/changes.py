"""News of changes: whoever changes a record, by a tool, another process, the mirror or by hand, the clients hear of it.

The rules this file guards: the memory never waits for a client; and no client hears of what its session may not see.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import Event, create_task_group
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated

from memfiles.errors import InvalidArgument
from memfiles.keys import entry_place
from memfiles.mcp_server.addresses import address_of, entry_uri, file_uri
from memfiles.mcp_server.crossing import Crossing
from memfiles.mcp_server.older_clients import OlderClients

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.subscriptions import ServerEvent
    from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

    from memfiles.events import RecordChanged
    from memfiles.mcp_server.offer import Offer

_log = logging.getLogger("memfiles")


class Mailbox:
    """Changes on their way from the thread that made them to the event loop; of equal ones the last is kept."""

    def __init__(self) -> None:
        """Must be made in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._bell = Event()
        self._changes: dict[tuple[str, str], RecordChanged] = {}
        self._lock = threading.Lock()

    def put(self, change: RecordChanged) -> None:
        """Leave a change here. Any thread may; nothing is waited for."""
        with self._lock:
            self._changes[change.path, change.op] = change
        with suppress(RuntimeError):  # the loop has ended meanwhile, and with it the server
            self._loop.call_soon_threadsafe(self._ring)

    async def take(self) -> list[RecordChanged]:
        """The changes since the last time, after waiting for one."""
        await self._bell.wait()
        self._bell = Event()
        with self._lock:
            changes, self._changes = list(self._changes.values()), {}
        return changes

    def _ring(self) -> None:
        self._bell.set()


class Changes:
    """Tells the clients of one server what changes in the memory that it offers."""

    def __init__(self, offer: Offer, crossing: Crossing) -> None:
        self.older = OlderClients()
        self._offer = offer
        self._crossing = crossing
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._watched: Counter[str] = Counter()

    async def listen(
        self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of news for as long as the client stays."""
        with self._watching(params.notifications.resource_subscriptions or []):
            return await self._streams(ctx, params)

    @asynccontextmanager
    async def followed(self, _: object) -> AsyncIterator[dict[str, Any]]:
        """Tell of every change until the end of the block."""
        mailbox = Mailbox()
        unsubscribe = self._offer.memory.manager.subscribe(mailbox.put)
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._tell, mailbox)
                yield {}
                tasks.cancel_scope.cancel()
        finally:
            unsubscribe()

    async def _tell(self, mailbox: Mailbox) -> None:
        while True:
            for change in await mailbox.take():
                try:
                    for news in await self._crossing.run(partial(self._news, change)):
                        await self._bus.publish(news)
                        await self.older.publish(news)
                except Exception:
                    _log.exception("MCP clients were not told of a change")

    def _news(self, change: RecordChanged) -> list[ServerEvent]:
        """What a change means for those who see what the session sees."""
        if not self._offer.session.may_know(change):
            return []
        if entry_place(change.path) is None:
            return [ResourceUpdated(file_uri(change.name))]
        uris = [entry_uri(change.name)] if change.name else self._forgotten(change)
        is_in_place = change.op == "update"  # anything else may make it appear or vanish
        return [*map(ResourceUpdated, uris), *([] if is_in_place else [ResourcesListChanged()])]

    def _forgotten(self, change: RecordChanged) -> list[str]:
        """Which of the watched URIs is that of an entry whose key is not known any more."""
        found = []
        for uri in self._watched.keys() | self.older.uris():
            with suppress(InvalidArgument):
                address = address_of(uri)
                if address.kind == "entry" and self._offer.session.may_know(replace(change, name=address.name)):
                    found.append(uri)
        return found

    @contextmanager
    def _watching(self, uris: list[str]) -> Iterator[None]:
        self._watched.update(uris)
        try:
            yield
        finally:
            self._watched -= Counter(uris)
