"""Worker threads for memory calls: how async code uses the synchronous core without blocking its event loop.

The rule this module enforces: once a call has begun, it runs to its end before its caller goes on, even if the caller
is cancelled meanwhile. So no change is left half-made, and none continues behind a caller that believes it is over.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import cache
from typing import TypeVar

THREADS = 32
"""Calls at once. The threads are our own, so a program that fills its event loop's executor does not delay us."""

T = TypeVar("T")


async def run_in_worker(call: Callable[[], T]) -> T:
    """Run ``call`` in a worker thread with a copy of the caller's context; return its result or raise its error.

    A cancellation before the call has begun takes effect at once, and the call is never made. A later one, repeated or
    not, takes effect when the call has ended; the call's result or error is then dropped. Needs a running asyncio loop.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    running = _threads().submit(copy_context().run, call)

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(ended.set)

    running.add_done_callback(wake)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not running.cancel():
            await _wait_through_cancellations(ended)
        raise
    return running.result()


async def _wait_through_cancellations(ended: asyncio.Event) -> None:
    anyio = sys.modules.get("anyio")  # it would repeat a cancellation at every turn; many frameworks do not use it
    with nullcontext() if anyio is None else anyio.CancelScope(shield=True):
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="memfiles-worker")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of its parent's threads
