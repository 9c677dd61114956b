"""Live updates: open pages hear that something changed, here, in another process, by hand or from a mirror.

The rule this file guards: the news say that something changed and nothing more, and nothing above the ceiling is news.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from starlette.responses import StreamingResponse

from memfiles.errors import MemfilesError
from memfiles.inspector.view import ServerState
from memfiles.memory import Memory
from memfiles.storage.events import RecordChanged

QUIET_SECONDS = 0.15  # changes in quick succession are one piece of news
BEAT_SECONDS = 15.0  # a line now and then, by which a lost connection is noticed
MIRROR_SECONDS = 2.0  # how often the state of a mirror is looked at while somebody listens


class Live:
    """The pages that listen, to changes at ``levels``. Erased text is removed from ``state``."""

    def __init__(self, memory: Memory, levels: Collection[str], state: ServerState) -> None:
        self._memory = memory
        self._state = state
        self._levels = levels
        self._waiting: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_over = False

    def start(self) -> None:
        """Listen to the memory, from the loop that serves the pages."""
        self._loop = asyncio.get_running_loop()
        self._stop = self._memory.manager.subscribe(self._heard)

    def end(self) -> None:
        """End all streams; a server that stops would wait for them."""
        self._is_over = True
        if self._loop is not None:
            self._stop()
        if self._watch is not None:
            self._watch.cancel()
        self._wake()

    def response(self, since: str) -> StreamingResponse:
        """A stream of server-sent events, one for each piece of news; ``since`` is how many the page was made after."""
        return StreamingResponse(self._news(since), media_type="text/event-stream")

    async def _news(self, since: str) -> AsyncIterator[bytes]:
        changed = asyncio.Event()
        self._waiting.add(changed)
        if since != str(self._state.news_count):
            changed.set()
        if self._watch is None and self._memory.sync.settings.url and self._memory.workflow.memory.mirror is not None:
            self._watch = asyncio.create_task(self._watch_mirror())
        try:
            yield b"retry: 1000\n\n"
            while not self._is_over:
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                await asyncio.sleep(QUIET_SECONDS)
                changed.clear()
                if not self._is_over:
                    yield b"data: changed\n\n"
        finally:
            self._waiting.discard(changed)

    def _heard(self, event: RecordChanged) -> None:
        """Pass a change on, in the thread that made or noticed it."""
        if event.erased:
            self._state.prompts = {}  # a page that is being made puts what it read before into the old one
        level = event.level or self._memory.manager.levels.get(event.uid)  # the record of a user's file has none
        if self._loop is not None and (not level or level in self._levels):
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._state.news_count += 1
        for changed in self._waiting:
            changed.set()

    async def _watch_mirror(self) -> None:
        """Announce that the mirror caught up or failed, as no record changes then."""
        shown: object = None
        while not self._is_over:
            await asyncio.sleep(MIRROR_SECONDS)
            if self._waiting:
                with suppress(MemfilesError):
                    news = self._state.news_count  # a page made since the last look may show what is over by now
                    found = await asyncio.to_thread(self._memory.sync.status)
                    now = found.pending, found.last_error, found.conflicts, found.refused
                    if (news, now) != shown:
                        self._wake()
                        news += 1
                    shown = news, now
