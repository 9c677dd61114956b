"""Calls from frameworks: the session that a program names for a call, and the worker threads that keep loops free.

The rules this module enforces:

- Once a call has begun in a worker thread, it runs to its end before its caller goes on, even if the caller is
  cancelled meanwhile. So no change is left half-made, and none continues behind a caller that believes it is over.
- Where one agent or server works for many users, the program's function names the session of each call. It is asked
  at each call, and no answer is kept for the next one. A call whose session it cannot name is refused; it is never made
  in another session. A session that it gives never ends its run, as nobody knows which call is the last.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import cache, partial
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.tools.results import ToolResult, failed
from memfiles.tools.session import Session

THREADS = 32
"""Calls at once. The threads are our own, so a program that fills its event loop's executor does not delay us."""

T = TypeVar("T")
ContextT = TypeVar("ContextT")
SourceT = TypeVar("SourceT")

if TYPE_CHECKING:
    SessionSource: TypeAlias = Session | Callable[[ContextT], Session | Awaitable[Session]]
    """A session, or a function from a framework's context to the session of that context."""


def checked_source(source: SourceT) -> SourceT:
    """The session, or function that gives one, of an adapter; anything else is an ``InvalidArgument``."""
    if not isinstance(source, Session) and not callable(source):
        raise InvalidArgument(f"pass a session, or a function that gives one, not {type(source).__name__}")
    return source


async def run_in_worker(call: Callable[[], T]) -> T:
    """Run ``call`` in a worker thread with a copy of the caller's context; return its result or raise its error.

    A cancellation before the call has begun takes effect at once, and the call is never made. A later one, repeated or
    not, takes effect when the call has ended; the call's result or error is then dropped. Where no thread can be
    started, the call runs in that of the loop. In Trio, the call runs in a thread of Trio's, and a cancellation takes
    effect at the next checkpoint of the caller.
    """
    try:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
    except RuntimeError:
        if (trio := sys.modules.get("trio")) is None:
            raise
        result: T = await trio.to_thread.run_sync(call)
        return result
    running = Future[T]()
    waiting: list[Callable[[], T]] = [partial(copy_context().run, call)]
    try:
        _threads().submit(_carry_out, waiting, running)
    except RuntimeError:  # no thread can be started; the call stays in the queue of those that run
        _carry_out(waiting, running)

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so there is no waiter
            loop.call_soon_threadsafe(ended.set)

    running.add_done_callback(wake)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not running.cancel():
            await _wait_through_cancellations(ended)
        raise
    return running.result()


def _carry_out(waiting: list[Callable[[], T]], running: Future[T]) -> None:
    """Make the call that waits, unless another thread has begun it or it was cancelled."""
    try:
        call = waiting.pop()
    except IndexError:
        return
    if running.set_running_or_notify_cancel():
        try:
            result = call()
        except BaseException as error:
            running.set_exception(error)
            del running  # its error would keep it alive, and it its error
        else:
            running.set_result(result)


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


def session_of(source: SessionSource[ContextT], context: ContextT) -> Session:
    """The session of this context; ``InvalidArgument`` if the function fails or gives something else.

    The function's own ``MemfilesError`` is passed on, such as that of an agent that needs a user.
    """
    found = _answer_of(source, context)
    if isawaitable(found):
        if iscoroutine(found):
            found.close()  # else Python warns that it was never awaited
        raise _refusal("is asynchronous, and this framework needs a plain one")
    return found


async def awaited_session_of(source: SessionSource[ContextT], context: ContextT) -> Session:
    """As ``session_of``, for a function that may be asynchronous; a plain one runs in a worker thread."""
    if isinstance(source, Session):
        return source
    found = await run_in_worker(partial(_answer_of, source, context))
    if not isawaitable(found):
        return found
    with _failing_as_refused():
        return _checked(await found)


def without_context(source: Session | Callable[[], Session]) -> Session:
    """The session of a framework that has no context to give to the function; see ``session_of``."""
    return source if isinstance(source, Session) else session_of(lambda _: source(), None)


def call_in(
    source: SessionSource[ContextT], context: ContextT, name: str, sent: object, *, call_id: str | None = None
) -> ToolResult:
    """Carry out a tool call in the session of this context; as ``Session.call``, it never raises."""
    try:
        session = session_of(source, context)
    except MemfilesError as error:
        return failed(error)
    return session.call(name, sent, call_id=call_id)


async def awaited_call_in(
    source: SessionSource[ContextT], context: ContextT, name: str, sent: object, *, call_id: str | None = None
) -> ToolResult:
    """As ``call_in``, in a worker thread; the function may be asynchronous."""
    try:
        session = await awaited_session_of(source, context)
    except MemfilesError as error:
        return failed(error)
    return await run_in_worker(partial(session.call, name, sent, call_id=call_id))


def _answer_of(source: SessionSource[ContextT], context: ContextT) -> Session | Awaitable[Session]:
    if isinstance(source, Session):
        return source
    with _failing_as_refused():
        found = checked_source(source)(context)
    return found if isawaitable(found) else _checked(found)


def _checked(found: object) -> Session:
    if not isinstance(found, Session):
        raise _refusal(f"gave {type(found).__name__}, not a session")
    found.ends_run = False
    return found


@contextmanager
def _failing_as_refused() -> Iterator[None]:
    """Refuse the call if the program's function has a defect; it is logged here, as most frameworks drop the cause."""
    try:
        yield
    except MemfilesError:
        raise
    except Exception as error:
        _log.error("the program's function that names the session of a call failed", exc_info=error)
        raise _refusal(f"failed with {type(error).__name__}") from error


def _refusal(why: str) -> InvalidArgument:
    """Without the words of the program's own error, which a model should not see."""
    return InvalidArgument(
        f"no memory is available in this call: the program's function that names its session {why}. Nothing was read "
        f"or changed: go on without memory"
    )
