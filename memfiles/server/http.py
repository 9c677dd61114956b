"""Over HTTP, for clients of this machine.

The rule this file guards: nobody is answered who does not know the token, and no page in a browser can ask in a
person's name: the server listens on loopback only, and takes no other ``Host`` and ``Origin`` than its own.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from memfiles.errors import InvalidArgument
from memfiles.server.line_streams import LINE_MAX
from memfiles.server.server import MemoryServer

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_MIN = 16
_FAREWELL_SECONDS = 2
_FAREWELL = "ASGI callable returned without completing response"
_REFUSAL = "a bearer token is needed: it was printed when the server started, or chosen by who started it\n"


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return ``token`` if it can be one, else raise ``InvalidArgument``: 16 characters or more of visible ASCII."""
    if len(token) < TOKEN_MIN or not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"a token must be {TOKEN_MIN} characters or more of visible ASCII, without spaces")
    return token


def bound(port: int) -> socket.socket:
    """A socket on loopback at that port, or at a free one for 0; ``InvalidArgument`` if it is taken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()  # from now on a client waits, and is not refused
    except OSError as error:
        listening.close()
        raise InvalidArgument(f"port {port} cannot be used ({error.strerror}): choose another with --port") from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Where a client finds the server."""
    return f"http://{HOST}:{listening.getsockname()[1]}{PATH}"


def app(server: Server[Any], *, port: int, token: str) -> ASGIApp:
    """The ASGI application."""
    names = [f"{name}:{port}" for name in (HOST, "localhost")]
    checks = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    bare = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=checks, max_request_body_size=LINE_MAX
    )
    return TokenGuard(bare, token=token)


def end_like_ctrl_c() -> None:
    """Have SIGTERM raise ``KeyboardInterrupt``, so that what is open is closed; uvicorn raises it when it is done."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def serve(server: MemoryServer, *, listening: socket.socket, token: str) -> None:
    """Serve until the process is asked to end, by a ``KeyboardInterrupt``."""
    logging.getLogger("uvicorn.error").addFilter(_is_telling)
    guarded = app(server, port=listening.getsockname()[1], token=token)
    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_FAREWELL_SECONDS,
    )
    _EndingNews(config, server.changes.end).run(sockets=[listening])


class _EndingNews(uvicorn.Server):
    """Ends the streams of news first, as it would wait for them; inheriting is the only way to know when."""

    def __init__(self, config: uvicorn.Config, end_news: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_news = end_news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See ``uvicorn.Server``."""
        self._end_news()
        await super().shutdown(sockets)


def _is_telling(record: logging.LogRecord) -> bool:
    """Not what uvicorn says of each stream of an older client that is open when the server ends."""
    return not str(record.msg).startswith(_FAREWELL)


class TokenGuard:
    """Lets requests through that carry the token."""

    def __init__(self, inner: ASGIApp, *, token: str) -> None:
        self._inner = inner
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or answer it with 401."""
        if scope["type"] == "lifespan" or self._is_known(scope):
            await self._inner(scope, receive, send)
            return
        answer = PlainTextResponse(_REFUSAL, status_code=401, headers={"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return hmac.compare_digest(token.strip(b" "), self._token) and scheme.lower() == b"bearer"  # RFC 9110, 11.1
