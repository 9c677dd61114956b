"""News of changes: whoever changes a record, by a tool, another process, the mirror or by hand, the clients hear of it.

The rules this file guards: the memory never waits for a client; no client hears of what its session may not see; and
each hears of a resource under the URI by which it asked, however that is spelled.
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
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from memfiles.errors import InvalidArgument
from memfiles.records.keys import entry_place
from memfiles.server.legacy_clients import OlderClients
from memfiles.server.uris import Address, address_of
from memfiles.server.worker_calls import Crossing

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.subscriptions import ServerEvent
    from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

    from memfiles.server.offer import Offer
    from memfiles.storage.events import RecordChanged

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
        self._files: list[tuple[str, bool]] = []

    async def listen(
        self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of news for as long as the client stays."""
        with self._watching(params.notifications.resource_subscriptions or []):
            return await self._streams(ctx, params)

    def end(self) -> None:
        """Have every stream of news end with its answer, so that its client knows that no more comes."""
        self._streams.close()

    @asynccontextmanager
    async def followed(self, _: object) -> AsyncIterator[dict[str, Any]]:
        """Tell of every change until the end of the block."""
        mailbox = Mailbox()
        self._files = await self._crossing.run(self._shown)
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
        is_entry = entry_place(change.path) is not None
        anew: list[ServerEvent] = [] if is_entry else self._files_anew()
        if not self._offer.session.may_know(change):
            return anew
        if is_entry and change.op != "update":  # it may appear or vanish
            anew.append(ResourcesListChanged())
        return [*map(ResourceUpdated, self._uris_of(change)), *anew]

    def _uris_of(self, change: RecordChanged) -> list[str]:
        """The watched URIs, as they are spelled, of what changed."""
        found = []
        for uri in self._watched.keys() | self.older.uris():
            with suppress(InvalidArgument):
                if self._is_of(address_of(uri), change):
                    found.append(uri)
        return found

    def _is_of(self, address: Address, change: RecordChanged) -> bool:
        if entry_place(change.path) is None:
            return address.kind == "file" and address.name in (change.name, change.uid)
        if change.name or address.kind == "file":
            return address == Address("entry", change.name)
        return self._offer.session.may_know(replace(change, name=address.name))  # forgotten, and with it its key

    def _files_anew(self) -> list[ServerEvent]:
        """That there are other memory files, if so: another deploy may have put one at another level."""
        before, self._files = self._files, self._shown()
        return [] if before == self._files else [ResourcesListChanged(), ToolsListChanged()]

    def _shown(self) -> list[tuple[str, bool]]:
        return [(file.card.name, file.writable) for file in self._offer.session.files()]

    @contextmanager
    def _watching(self, uris: list[str]) -> Iterator[None]:
        self._watched.update(uris)
        try:
            yield
        finally:
            self._watched -= Counter(uris)
