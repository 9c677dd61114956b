"""The guard in front of every page: who may ask, from where, and what the browser may do with the answer.

The rules this file guards:

- Only the person who started the program is let in: a token that works once is exchanged for a cookie. The cookie
  belongs to a secret path as well, as browsers send the cookies of 127.0.0.1 to the programs at its other ports.
- No web page elsewhere can ask on this person's behalf: ``Host`` and ``Origin`` must be ours, the browser must say that
  the request comes from our own page, and every form carries a second secret.
- The browser loads nothing from elsewhere, runs no script but the two files here, and shows the pages in no frame.
- With ``read_only`` no request changes anything.
"""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, parse_qsl

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
ENTER = "/enter"
FORM_MAX = 32 * 1024 * 1024  # bytes: a file of 8 MiB whose every byte takes three in a form, and more
FIELDS_MAX = 1000
_FORM_TYPE = "application/x-www-form-urlencoded"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_UNKNOWN = "This page is for the person who started it: open the link that `memfiles ui` printed. It works once.\n"

# A redirect would be part of the request that another site makes if the link is opened from a terminal in a browser:
# the cookie would not be sent with it. What a page of ours opens is our own request.
_ENTERED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>memfiles</title>
<link rel="icon" href="{root}/static/icon.svg">
<meta http-equiv="refresh" content="0; url={root}/"></head>
<body><p><a href="{root}/">Open the inspector</a></p></body></html>
"""


class Guard:
    """ASGI middleware; what is behind it gets whole forms as ``scope["state"]["form"]``, already checked."""

    def __init__(self, inner: ASGIApp, *, port: int, read_only: bool = False) -> None:
        """``inner`` is asked for paths under ``root`` alone, which are secret."""
        self._inner = inner
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self._cookie = f"memfiles-{port}"
        self._read_only = read_only
        self._token: str | None = secrets.token_urlsafe(32)
        self._key = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)
        self.root = f"/{secrets.token_urlsafe(9)}"
        self.link = f"http://{HOST}:{port}{ENTER}?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why not."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                cached = [] if b"cache-control" in known else [(b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *added, *cached]
            await send(message)

        answer = await self._refusal(scope, receive) if scope["type"] == "http" else _refused(404, "not here")
        await (answer or self._inner)(scope, receive, protected)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        """The answer to a request that does not reach the pages; None for one that does."""
        headers = Headers(scope=scope)
        if len(hosts := headers.getlist("host")) != 1 or hosts[0] not in self._hosts:
            return _refused(403, "this address is not the inspector's")
        if scope["path"] == ENTER:
            return self._entered(scope, headers)
        if (headers.getlist("sec-fetch-site") or ["same-origin"])[-1] not in ("same-origin", "none"):
            return _refused(403, "another site asked for this page")
        if not self._is_known(headers):
            return _refused(401, _UNKNOWN.rstrip("\n"))
        if scope["path"] != self.root and not scope["path"].startswith(f"{self.root}/"):
            return RedirectResponse(f"{self.root}/", 303) if scope["path"] == "/" else _refused(404, "no such page")
        if scope["method"] in ("GET", "HEAD"):
            return None
        return await self._form_refusal(scope, receive, headers)

    def _entered(self, scope: Scope, headers: Headers) -> Response:
        """Exchange the token for the cookie; somebody who has it already is simply let in."""
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if not self._is_known(headers):
            sent = asked.get("token", "").encode()
            if self._token is None or scope["method"] != "GET" or not hmac.compare_digest(sent, self._token.encode()):
                return _refused(401, _UNKNOWN.rstrip("\n"))
            self._token = None
        answer = HTMLResponse(_ENTERED.format(root=self.root))
        answer.set_cookie(self._cookie, self._key, path=self.root, httponly=True, samesite="strict")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        try:
            sent = SimpleCookie("; ".join(headers.getlist("cookie")))
        except CookieError:
            return False
        found = sent.get(self._cookie)
        return found is not None and hmac.compare_digest(found.value.encode(), self._key.encode())

    async def _form_refusal(self, scope: Scope, receive: Receive, headers: Headers) -> Response | None:
        origins = set(headers.getlist("origin"))
        is_ours = headers.getlist("sec-fetch-site") == ["same-origin"]
        if not (origins <= {f"http://{headers['host']}"} if origins else is_ours):
            return _refused(403, "another site sent this form")
        if scope["method"] != "POST" or headers.get("content-type", "").partition(";")[0].strip() != _FORM_TYPE:
            return _refused(405, "only forms of this page can be sent")
        if self._read_only:
            return _refused(403, "nothing was changed: the inspector was started with --read-only")
        body = await _body_of(receive)
        if body is None:
            return _refused(413, "the form is too large")
        try:
            fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
        except ValueError:
            return _refused(400, "the form cannot be read")
        form = {name: values[-1].replace("\r\n", "\n") for name, values in fields.items()}  # as browsers send lines
        if not hmac.compare_digest(form.pop("csrf", "").encode(), self.csrf.encode()):
            return _refused(403, "the form is from another page or an earlier start: reload the page")
        scope.setdefault("state", {})["form"] = form
        return None


async def _body_of(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large, or does not arrive whole."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > FORM_MAX:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status, headers={"Connection": "close"} if status == 413 else None)
