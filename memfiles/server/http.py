"""MCP over HTTP, for clients on this machine.

The rule this module enforces: only requests with the token are answered, and no web page in a browser can send one on
a person's behalf: the server listens on loopback only, and accepts only its own ``Host`` and ``Origin``. And whoever
has no token cannot keep others out: a request that does not arrive in time ends, and so many may be on their way.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from memfiles.errors import InvalidArgument
from memfiles.server.server import MESSAGE_MAX, MemoryServer

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_MIN = 16
REQUEST_SECONDS = 10.0  # for the headers and the body of a request, which come over loopback
WAITING_MAX = 512  # connections whose request is not whole yet; one more ends the oldest
_SHUTDOWN_SECONDS = 2
_NO_TOKEN = {"WWW-Authenticate": "Bearer", "Connection": "close"}  # the rest of the request is not waited for
_ABANDONED_STREAM = "ASGI callable returned without completing response"
_REFUSAL = (
    "a bearer token is required: it was printed when the server started, or chosen by the person who started it\n"
)


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return a token of at least 16 visible ASCII characters; ``InvalidArgument`` for any other."""
    if len(token) < TOKEN_MIN or not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"a token needs at least {TOKEN_MIN} characters of visible ASCII, and no spaces")
    return token


def bind(port: int) -> socket.socket:
    """Bind a socket on loopback to a port, 0 for any free one; ``InvalidArgument`` if it is taken."""
    try:
        return socket.create_server((HOST, port))  # it listens, so clients wait from now on instead of being refused
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InvalidArgument(f"port {port} cannot be used ({why}): choose another with --port") from error


def app(server: Server[Any], *, port: int, token: str) -> ASGIApp:
    """Build the ASGI application."""
    names = [f"{name}:{port}" for name in (HOST, "localhost")]
    checks = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    bare = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=checks, max_request_body_size=MESSAGE_MAX
    )
    return TokenGuard(bare, token=token)


def serve(server: MemoryServer, *, listening: socket.socket, token: str) -> None:
    """Serve until a ``KeyboardInterrupt``."""
    # uvicorn's error about each stream of a legacy client that is open when the server ends
    logging.getLogger("uvicorn.error").addFilter(lambda record: not str(record.msg).startswith(_ABANDONED_STREAM))
    guarded = app(server, port=listening.getsockname()[1], token=token)
    config = uvicorn.Config(
        guarded,
        http=_PunctualProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    _NotificationsFirst(config, server.notifier.end).run(sockets=[listening])


class _PunctualProtocol(H11Protocol):
    """Ends connections whose request is not whole in time; only a subclass of uvicorn's protocol sees it arrive."""

    _waiting: ClassVar[dict[_PunctualProtocol, asyncio.TimerHandle]] = {}  # the oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect(self) -> None:
        """Wait for the rest of a request, from the first time on that something of it is missing."""
        if self not in self._waiting and not self.transport.is_closing():
            self._waiting[self] = self.loop.call_later(REQUEST_SECONDS, self._give_up)
            if len(self._waiting) > WAITING_MAX:
                next(iter(self._waiting))._give_up()

    def _give_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()

    def _stop_waiting(self) -> None:
        if (timer := self._waiting.pop(self, None)) is not None:
            timer.cancel()


class _NotificationsFirst(uvicorn.Server):
    """Ends the notification streams at shutdown, which would wait for them; only a subclass learns of it in time."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)


class TokenGuard:
    """ASGI middleware that lets only requests with the token through."""

    def __init__(self, inner: ASGIApp, *, token: str) -> None:
        self._inner = inner
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401."""
        if scope["type"] == "lifespan" or self._has_token(scope):
            await self._inner(scope, receive, send)
            return
        response = PlainTextResponse(_REFUSAL, status_code=401, headers=_NO_TOKEN)
        await response(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
        return hmac.compare_digest(token.strip(b" "), self._token) and scheme.lower() == b"bearer"  # RFC 9110, 11.1
