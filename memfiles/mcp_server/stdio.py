"""Over stdin and stdout, for a client that starts the server itself.

The rules this file guards: nothing but the protocol reaches stdout; and a line that is no message is answered with an
error and ends nothing.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

Incoming = SessionMessage | Exception


def serve(server: Server[Any]) -> None:
    """Serve one client until it closes stdin. What anything else prints goes to stderr meanwhile.

    Ctrl-C ends the process at once, as nothing can wake a thread that waits for stdin; what was answered is kept.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve, server)


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing), answering(incoming, outgoing) as messages:
        await server.run(messages, outgoing, server.create_initialization_options())


@asynccontextmanager
async def answering(
    incoming: Any, outgoing: MemoryObjectSendStream[SessionMessage]
) -> AsyncIterator[MemoryObjectReceiveStream[Incoming]]:
    """The messages that come in; what is none of them is answered here, as the SDK drops it in silence."""
    passing_on, messages = anyio.create_memory_object_stream[Incoming](0)

    async def pass_on() -> None:
        async with incoming, passing_on:
            async for item in incoming:
                if isinstance(item, Exception):
                    await outgoing.send(SessionMessage(refusal(item)))
                else:
                    await passing_on.send(item)

    async def until_closed() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the server ended first
            await pass_on()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until_closed)
        yield messages
        tasks.cancel_scope.cancel()


def refusal(error: Exception) -> JSONRPCError:
    """The answer to a line that is no message. Whose request it was cannot be known: the id is null."""
    is_json = isinstance(error, ValidationError) and all(one["type"] != "json_invalid" for one in error.errors())
    code, message = (INVALID_REQUEST, "not a JSON-RPC message") if is_json else (PARSE_ERROR, "not JSON")
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))
