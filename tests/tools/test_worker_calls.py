"""Memory calls in worker threads, each carried out to its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any

import anyio
import pytest

from memfiles.tools.worker_calls import THREADS, run_in_worker
from tests.conftest import unavailable
from tests.support.records import no_thread_starts

CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


class Held:
    """A call that says when it has begun, ends when it is let, and remembers that it did."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(30)
        self.ended = True
        return "done"

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 30)


async def turns(count: int = 20) -> None:
    """Let the loop do what it has to do."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_call_runs_beside_the_loop() -> None:
    """In a thread of the module's own, with the caller's context."""

    def call() -> tuple[str, str]:
        return CALLER.get(), threading.current_thread().name.partition("_")[0]

    async def program() -> tuple[str, str]:
        CALLER.set("ada")
        return await run_in_worker(call)

    assert ("ada", "memfiles-worker") == asyncio.run(program())


@pytest.mark.parametrize(("raised", "expected"), [(KeyError("k"), KeyError), (StopIteration(), RuntimeError)])
def test_what_a_call_raises_comes_back(raised: Exception, expected: type[Exception]) -> None:
    """Also what a coroutine cannot raise; nobody is left waiting."""

    def call() -> None:
        raise raised

    with pytest.raises(expected):
        asyncio.run(asyncio.wait_for(run_in_worker(call), 30))


def test_a_cancelled_call_that_has_begun_is_carried_out_first() -> None:
    """However often it is cancelled, and the cancellation comes through behind it."""
    held = Held()

    async def program() -> list[bool]:
        task = asyncio.create_task(run_in_worker(held))
        await held.has_begun()
        seen = []
        for _ in range(3):
            task.cancel()
            await turns()
            seen.append(task.done())
        held.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [*seen, held.ended, task.cancelled()]

    assert [False, False, False, True, True] == asyncio.run(program())


def test_a_call_that_fails_after_a_cancellation_is_cancelled() -> None:
    """Its error is nobody's, and no warning is left behind."""
    held = Held()

    def call() -> None:
        held()
        raise KeyError("k")

    async def program() -> bool:
        task = asyncio.create_task(run_in_worker(call))
        await held.has_begun()
        task.cancel()
        await turns()
        held.may_end.set()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(program())


def test_a_call_that_has_not_begun_is_never_made() -> None:
    """Cancelled in the queue, it takes effect at once."""
    held = [Held() for _ in range(THREADS)]
    waiting = Held()

    async def program() -> list[bool]:
        busy = [asyncio.create_task(run_in_worker(call)) for call in held]
        for call in held:
            await call.has_begun()
        task = asyncio.create_task(run_in_worker(waiting))
        await turns()
        task.cancel()
        await asyncio.wait([task])
        for call in held:
            call.may_end.set()
        await asyncio.gather(*busy)
        return [task.cancelled(), waiting.begun.is_set()]

    assert [True, False] == asyncio.run(program())


def test_a_cancel_scope_ends_the_wait_for_a_thread() -> None:
    """A call that is cancelled in the queue by anyio is never made, either."""
    held = [Held() for _ in range(THREADS)]
    waiting = Held()

    async def program() -> bool:
        busy = [asyncio.create_task(run_in_worker(call)) for call in held]
        for call in held:
            await call.has_begun()
        with anyio.move_on_after(0) as scope:
            await run_in_worker(waiting)
        for call in held:
            call.may_end.set()
        await asyncio.gather(*busy)
        return scope.cancelled_caught

    assert [True, False] == [anyio.run(program), waiting.begun.is_set()]


def test_a_timeout_waits_for_the_call_and_is_still_a_timeout() -> None:
    """Two of them around each other, too."""
    held = Held()

    async def program() -> bool:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as outer, asyncio.timeout(None) as inner:
                loop.create_task(cancel(outer, inner))
                await run_in_worker(held)
        return held.ended

    async def cancel(*timeouts: asyncio.Timeout) -> None:
        await held.has_begun()
        for timeout in timeouts:
            timeout.reschedule(0)
            await turns()
        held.may_end.set()

    assert asyncio.run(program())


def test_a_cancel_scope_waits_for_the_call_without_spinning() -> None:
    """Anyio repeats a cancellation at every turn of the loop; after the first one, the call is shielded from it."""
    held, woken = Held(), [0]

    class Counted(asyncio.Event):
        async def wait(self) -> bool:  # type: ignore[override]
            woken[0] += 1
            return await super().wait()

    async def program() -> list[object]:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(cancel, scope)
                await run_in_worker(held)
                await anyio.sleep(0)
        return [scope.cancelled_caught, held.ended]

    async def cancel(scope: anyio.CancelScope) -> None:
        await held.has_begun()
        scope.cancel()
        await turns(200)
        held.may_end.set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "Event", Counted)
        assert [True, True] == anyio.run(program)
    assert 2 == woken[0]


def test_a_call_in_trio_is_carried_out_as_well() -> None:
    """Anthropic's client runs there too. A call that has begun is carried out before a cancellation takes effect."""
    try:
        trio: Any = import_module("trio")
    except ImportError:
        unavailable("trio is not installed")
    held = Held()

    async def program() -> list[object]:
        CALLER.set("ada")
        seen: list[object] = [await run_in_worker(CALLER.get)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel, nursery.cancel_scope)
            await run_in_worker(held)
            seen += [held.ended, nursery.cancel_scope.cancelled_caught]
            await trio.sleep(30)
        return [*seen, nursery.cancel_scope.cancelled_caught]

    async def cancel(scope: Any) -> None:
        await trio.to_thread.run_sync(held.begun.wait)
        scope.cancel()
        held.may_end.set()

    assert ["ada", True, False, True] == trio.run(program)


def test_a_call_is_made_once_where_no_thread_can_be_started() -> None:
    """The thread of the loop makes it, and not one that is busy and free later: that would make a refused change."""
    held, made = Held(), list[str]()

    async def calls() -> None:
        other = asyncio.create_task(run_in_worker(held))
        await held.has_begun()
        with no_thread_starts():
            await run_in_worker(partial(made.append, "at once"))
            held.may_end.set()
            await other
            await run_in_worker(partial(made.append, "later"))

    asyncio.run(calls())

    assert ["at once", "later"] == made


def test_a_child_of_a_fork_has_threads_of_its_own() -> None:
    """A server forks its workers after the first call; theirs are answered, too."""
    program = (
        "import asyncio, os\nfrom memfiles.tools.worker_calls import run_in_worker\n"
        "assert asyncio.run(run_in_worker(lambda: 1)) == 1\n"
        "child = os.fork()\n"
        "if not child:\n    os._exit(asyncio.run(asyncio.wait_for(run_in_worker(lambda: 7), 20)))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    assert "7\n" == output_of(program)


def test_a_program_that_ends_lets_the_call_end() -> None:
    """Also one whose task is dropped with its loop."""
    program = (
        "import asyncio, threading\nfrom memfiles.tools.worker_calls import run_in_worker\n"
        "begun, may_end = threading.Event(), threading.Event()\n"
        "def call():\n    begun.set(); may_end.wait(20); print('written', flush=True)\n"
        "loop = asyncio.new_event_loop()\n"
        "task = loop.create_task(run_in_worker(call))\n"
        "loop.run_until_complete(asyncio.to_thread(begun.wait, 20))\n"
        "loop.run_until_complete(loop.shutdown_default_executor())\nloop.close()\nmay_end.set()"
    )

    assert "written\n" == output_of(program)


def test_a_call_loads_no_anyio() -> None:
    """A framework that has none of it does not get it from here."""

    assert "False\n" == output_of(
        "import asyncio, sys\nfrom memfiles.tools.worker_calls import run_in_worker\n"
        "asyncio.run(run_in_worker(lambda: 1)); print('anyio' in sys.modules)"
    )


def output_of(program: str) -> str:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    done = run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=dict(os.environ))
    return done.stdout
