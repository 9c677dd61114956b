"""From an event loop to the memory and back: one worker thread a call, for the adapters whose frameworks are async.

The rule this file guards: a call that has begun is carried out to its end before its caller goes on, also when the
caller is cancelled meanwhile. So no change goes on behind a caller that believes it is over, and none is half-made.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

THREADS = 32
"""Calls at once. They are the adapters' own threads: a program that fills its loop's executor does not hold us up."""

T = TypeVar("T")


async def in_worker(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, after it ran in a worker thread with a copy of the caller's context.

    A cancellation before the call has begun takes effect at once, and the call is never made. One that comes later
    takes effect when the call has ended, however often it is repeated; what the call returned or raised is then
    dropped. Needs a running loop of asyncio. A cancel scope of anyio takes effect behind the call in either case.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    running = _threads().submit(copy_context().run, call)
    running.add_done_callback(lambda _: _tell(loop, ended))
    with _shielded():
        await _end_of(running, ended)
    return running.result()


async def _end_of(running: Future[Any], ended: asyncio.Event) -> None:
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not running.cancel():
            await _undisturbed(ended)
        raise


async def _undisturbed(ended: asyncio.Event) -> None:
    while not ended.is_set():
        with suppress(asyncio.CancelledError):
            await ended.wait()


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
        loop.call_soon_threadsafe(ended.set)


def _shielded() -> AbstractContextManager[Any]:
    """A scope that anyio's cancellations wait behind: it repeats them at every turn of the loop until one comes out."""
    anyio = sys.modules.get("anyio")
    return anyio.CancelScope(shield=True) if anyio is not None else nullcontext()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="memfiles-adapter")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads
