"""MCP over HTTP, for clients on this machine.

The rule this module enforces: only requests with the token are answered, and no web page in a browser can send one on
a person's behalf: the server listens on loopback only, and accepts only its own ``Host`` and ``Origin``. And whoever
has no token cannot keep others out: a request that does not arrive in time ends, and so many may be on their way. Calls
that were begun are answered before the server ends.

With a user header, whoever has the token is trusted to name the user of each request; a request that names none, or
more than one, is refused. A lasting connection of an older client belongs to the user who opened it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

import h11
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from memfiles.errors import InvalidArgument
from memfiles.records.keys import check_user
from memfiles.server.server import DRAIN_SECONDS, MESSAGE_MAX, NAME, MemoryServer

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_MIN = 16
REQUEST_SECONDS = 10.0  # for the headers and the body of a request, which come over loopback
WAITING_MAX = 512  # connections whose request is not whole yet; one more ends the oldest
_CLOSING = {"Connection": "close"}  # the rest of the request is not waited for
_NO_TOKEN = {"WWW-Authenticate": "Bearer", **_CLOSING}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)  # a token of RFC 9110, 5.6.2
_TAKEN_HEADERS = {"authorization", "host", "origin", "content-type", "content-length", "accept", "mcp-session-id"}
_ENCODED = re.compile(rb"(?:[!-$&-+\--~]|%[0-9A-Fa-f]{2})+")  # neither a comma nor a space: proxies join headers so
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


def check_header(name: str) -> str:
    """Return the name of a header in lower case; ``InvalidArgument`` if it cannot be one."""
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _TAKEN_HEADERS:
        raise InvalidArgument(f"{ascii(name)[:80]} cannot be the header that names the user, as X-Memfiles-User can")
    return name.lower()


def request_user(ctx: ServerRequestContext[Any]) -> str:
    """The user of a request that came through ``UserGuard``."""
    caller = ctx.request.scope.get("user") if ctx.request is not None else None
    if not isinstance(caller, AuthenticatedUser) or not caller.access_token.subject:
        raise InvalidArgument("this request names no user")
    return caller.access_token.subject


def app(server: Server[Any], *, port: int, token: str, user_header: str | None = None) -> ASGIApp:
    """Build the ASGI application; ``user_header`` is the header, in lower case, that names the user."""
    names = [f"{name}:{port}" for name in (HOST, "localhost")]
    checks = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    bare = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,  # a response as a stream is cut off as soon as the server is asked to end
        transport_security=checks,
        max_request_body_size=MESSAGE_MAX,
    )
    return TokenGuard(UserGuard(bare, header=user_header) if user_header else bare, token=token)


def serve(server: MemoryServer, *, listening: socket.socket, token: str, user_header: str | None = None) -> None:
    """Serve until a ``KeyboardInterrupt``."""
    # uvicorn's error about each stream of a legacy client that is open when the server ends
    logging.getLogger("uvicorn.error").addFilter(lambda record: not str(record.msg).startswith(_ABANDONED_STREAM))
    guarded = app(server, port=listening.getsockname()[1], token=token, user_header=user_header)
    config = uvicorn.Config(
        guarded,
        http=_PunctualProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=DRAIN_SECONDS,
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
        """Time the rest of a request, from when a part of it was first missing."""
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
    """Ends the notification streams before a shutdown waits for them; only a subclass learns of it in time."""

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


class UserGuard:
    """ASGI middleware that takes the user of each request from a header, which a trusted gateway sets."""

    def __init__(self, inner: ASGIApp, *, header: str) -> None:
        self._inner = inner
        self._header = header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its user, or answer it with 400 and the reason."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        try:
            user = header_user(scope["headers"], header=self._header)
        except InvalidArgument as error:
            await PlainTextResponse(f"{error}\n", status_code=400, headers=_CLOSING)(scope, receive, send)
            return
        caller = AuthenticatedUser(AccessToken(token="", client_id=NAME, scopes=[], subject=user))
        await self._inner({**scope, "user": caller}, receive, send)  # the SDK binds lasting connections to it


def header_user(headers: Iterable[tuple[bytes, bytes]], *, header: str) -> str:
    """The user that the headers of a request name; ``InvalidArgument`` unless there is exactly one, well encoded."""
    sent = [value.strip(b" \t") for name, value in headers if name.lower() == header.encode()]
    if len(sent) != 1:
        raise InvalidArgument(f"the header {header} must name the user once; it was sent {len(sent)} times")
    if not _ENCODED.fullmatch(sent[0]):
        raise InvalidArgument(f"the header {header} must name the user in percent-encoded UTF-8, without spaces")
    try:
        user = unquote_to_bytes(sent[0]).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"the header {header} is not percent-encoded UTF-8") from None
    check_user(user)
    return user
