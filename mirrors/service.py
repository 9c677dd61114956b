"""A client of the older HTTP service: JSON requests and answers, with limits on time and size.

The rules this file guards: the key is sent to this host only (redirects are not followed) and appears in no message.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from memfiles.errors import InvalidArgument, MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import BODY_MAX_BYTES
from mirrors.urls import MirrorUrl, cause_of, parse_url, redirect_of, shown_answer

KEY_VARIABLE = "MEMFILES_AGENT_KEY"
CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
DEADLINE = 60.0  # seconds for a whole answer
_CHUNK = 256 * 1024
_PASSING = {408, 425, 429}
_log = logging.getLogger("memfiles.mirror")


def connect(url: str) -> Service:
    """The service at ``url``, with the key from the environment; no request is made yet."""
    parsed = parse_url(url)
    key = os.environ.get(KEY_VARIABLE, "")
    if not key.isprintable() or not key.isascii():
        raise InvalidArgument(f"{KEY_VARIABLE} holds a character that an HTTP header cannot carry")
    if key and parsed.scheme == "http" and not _is_loopback(parsed.host):
        _log.warning("the key in %s travels unencrypted to http://%s", KEY_VARIABLE, parsed.host)
    return Service(parsed, key=key)


class Service:
    """The service at one URL. Each request has its own connection, so threads may share it."""

    def __init__(self, url: MirrorUrl, *, key: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        if not url.host:
            raise InvalidArgument(f"an {url.scheme}:// mirror needs a host: {url.scheme}://host/path")
        self._parts = url
        self._base = quote(url.path.rstrip("/"))
        self._key = key
        self._monotonic = monotonic

    @property
    def url(self) -> str:
        """The base URL, which every path is appended to."""
        port = f":{self._parts.port}" if self._parts.port else ""
        return f"{self._parts.scheme}://{self._parts.host}{port}{self._base}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The service's JSON answer, None if it is empty. Raises the errors of ``Mirror``."""
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(READ_SECONDS)
            connection.request(method, self._base + path, _encoded(body), self._headers(body))
            answer = connection.getresponse()
            text = self._receive(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            told, cause = shown_answer(str(error), sent=[self._key]), cause_of(error, sent=[self._key])
            raise MirrorUnavailable(f"{method} {self.url}{path}: {type(error).__name__}: {told}") from cause
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise self._refusal(answer, text, method=method, path=path)
        try:
            return json.loads(text) if text.strip() else None
        except (ValueError, RecursionError) as error:
            raise MirrorUnavailable(f"{method} {self.url}{path}: the answer is not JSON") from error

    def _refusal(self, answer: http.client.HTTPResponse, text: bytes, *, method: str, path: str) -> MirrorUnavailable:
        """The error for a status. A redirect is one, as the key must not follow it."""
        what = f"{method} {self.url}{path}: the service answered {answer.status}"
        if 300 <= answer.status < 400:
            target = redirect_of(answer.getheader("Location"))
            place = shown_answer("".join(target).removesuffix(path), sent=[self._key]) if target else ""
            advice = (
                f"a redirect; set memory.mirror.url to {place}" if place else "a redirect that does not say where to"
            )
            return MirrorRefused(f"{what}, {advice}")
        kind = MirrorUnavailable if answer.status in _PASSING or answer.status >= 500 else MirrorRefused
        return kind(f"{what} {shown_answer(_message(text), sent=[self._key])}".rstrip())

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.host, self._parts.port, timeout=CONNECT_SECONDS)

    def _headers(self, body: object) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Agent-Key"] = self._key
        return headers

    def _receive(self, answer: http.client.HTTPResponse) -> bytes:
        deadline = self._monotonic() + DEADLINE
        received = bytearray()
        while chunk := answer.read1(_CHUNK):
            received += chunk
            if len(received) > BODY_MAX_BYTES or self._monotonic() > deadline:
                raise OSError(f"the answer has not ended after {len(received)} bytes and up to {DEADLINE:g} s")
        if answer.length:  # read1 ends quietly when the connection does
            raise http.client.IncompleteRead(bytes(received[:0]), answer.length)
        return bytes(received)


def _encoded(body: object) -> bytes | None:
    return None if body is None else json.dumps(body, ensure_ascii=False).encode()


def _message(text: bytes) -> str:
    """The message of an error answer."""
    try:
        error = json.loads(text)["error"]
        return f"{error.get('type', '')}: {error.get('message', '')}"
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
