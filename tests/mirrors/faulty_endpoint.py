"""An HTTP endpoint in front of an S3 server that misbehaves as it is told: where the network is tested, not a model.

| fault | is the request passed on? | what the client gets |
|---|---|---|
| hang | no | nothing, until it gives up |
| slow_down, denied, gone, conflict, refused, unknown | no | 503, 403, 404, 409, 412, 501 |
| expired, bad_header | no | 400, of a token or of a header |
| moved, moved_for_now | no | 301 or 307 to the same path of ``elsewhere`` |
| echo, echo_status | no | 403 with the headers of the request as its message; 200 with them in the status line |
| reset | no | a closed connection |
| lost | yes | a closed connection |
| precondition | yes | 412 |
| truncated | yes | half of the body, then a closed connection (a lost answer if there is no body) |
| trickle | yes | the body a byte at a time, for seconds |
| damaged, no_etag, other_etag | yes | one bit of the body changed, no ETag (also in a list), an ETag of another kind |
| swallowed | no | 200, as if it had been done |
| page | no | 200 and a page of a proxy |
| huge, endless | no | 200 and the beginning of a body of 70 GB; endless: a byte at a time, for 100 s |
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

Fault = Literal[
    "hang",
    "slow_down",
    "denied",
    "gone",
    "conflict",
    "refused",
    "unknown",
    "expired",
    "bad_header",
    "moved",
    "moved_for_now",
    "echo",
    "echo_status",
    "reset",
    "lost",
    "precondition",
    "truncated",
    "trickle",
    "damaged",
    "no_etag",
    "other_etag",
    "swallowed",
    "page",
    "huge",
    "endless",
]
PASSING: tuple[Fault, ...] = ("hang", "slow_down", "conflict", "refused", "reset", "lost", "precondition", "truncated")
_STATUS = {
    **{"slow_down": (503, "SlowDown"), "denied": (403, "AccessDenied"), "unknown": (501, "NotImplemented")},
    **{"conflict": (409, "ConditionalRequestConflict"), "refused": (412, "PreconditionFailed")},
    **{"precondition": (412, "PreconditionFailed"), "gone": (404, "NoSuchKey")},
    **{"expired": (400, "ExpiredToken"), "bad_header": (400, "InvalidArgument"), "echo": (403, "InvalidAccessKeyId")},
}
_PAGE = b"<html><head><title>Sign in</title></head><body><p>Welcome to this network</p></body></html>"
_HUGE = {"ETag": '"1-1"', "Content-Length": "70000000000", "Last-Modified": "Sun, 22 Nov 2026 09:00:00 GMT"}
_ETAGS = re.compile(rb"<ETag>[^<]*</ETag>")
_OF_ETAGS = {"etag", "content-length"}  # the length is counted anew
_CONDITIONS = {"if-match", "if-none-match"}


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Answer:
    """An answer as it is sent: ``sent`` bytes of the body (None: all), with a ``pause`` in seconds after each byte.

    ``line`` stands in place of the whole status line.
    """

    status: int
    headers: dict[str, str]
    body: bytes = b""
    sent: int | None = None
    pause: float = 0.0
    line: str | None = None


@dataclass
class FaultyEndpoint:
    """A server on loopback in front of ``upstream``; a context manager. ``deaf``: conditions are not passed on.

    The next requests meet the faults of the ``script``, in order; others meet one of ``faults`` in a share ``rate``.
    Requests for a path that ends with ``hanging`` hang; all meet the fault ``always``.
    """

    upstream: str
    rate: float = 0.0
    seed: int = 0
    faults: Sequence[Fault] = PASSING
    deaf: bool = False
    hang_seconds: float = 1.0
    hanging: str | None = None
    always: Fault | None = None
    elsewhere: str = "https://elsewhere.example:9443"
    script: deque[Fault | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._drawing = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def methods(self) -> list[str]:
        """The methods of the requests so far."""
        return [request.method for request in self.requests]

    def behave(self) -> None:
        """Forget the faults and the requests of an earlier test."""
        self.rate, self.deaf, self.faults, self.hang_seconds, self.hanging = 0.0, False, PASSING, 1.0, None
        self.always = None
        self.script.clear()
        self.requests.clear()

    def __enter__(self) -> FaultyEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request, body: bytes) -> Answer | None:
        """What the client gets; None for a closed connection."""
        fault = self._draw(request)
        if fault == "hang":
            self._closing.wait(self.hang_seconds)
        if fault in {"hang", "reset"}:
            return None
        if fault in {"slow_down", "denied", "gone", "conflict", "refused", "unknown", "expired", "bad_header"}:
            return _error(fault)
        if fault in {"moved", "moved_for_now"}:
            status = 301 if fault == "moved" else 307
            return Answer(status, {"Location": self.elsewhere + request.path, "Content-Type": "text/html"}, _PAGE)
        told = " ".join(reversed(request.headers.values()))
        if fault == "echo":
            return _error(fault, told)
        if fault == "echo_status":
            return Answer(200, {}, line=told)
        if fault == "swallowed":
            return Answer(200, {"ETag": '"0123456789abcdef0123456789abcdef"'})
        if fault == "page":
            return Answer(200, {"Content-Type": "text/html"}, _PAGE)
        if fault == "huge":
            return Answer(200, _HUGE, b"begin", sent=5)
        if fault == "endless":
            return Answer(200, _HUGE, b"1" * 500, sent=500, pause=0.2)
        return _spoilt(self._forward(request, body), fault)

    def _draw(self, request: Request) -> Fault | None:
        with self._drawing:
            self.requests.append(request)
            if self.hanging is not None and request.path.endswith(self.hanging):
                return "hang"
            if self.script:
                return self.script.popleft()
            if self.always:
                return self.always
            return self._random.choice(self.faults) if self._random.random() < self.rate else None

    def _forward(self, request: Request, body: bytes) -> Answer:
        connection = HTTPConnection(urlsplit(self.upstream).netloc, timeout=30)
        dropped = _CONDITIONS if self.deaf else set()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        try:
            connection.request(request.method, request.path, body or None, headers)
            response: HTTPResponse = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in {"connection"}}
            return Answer(response.status, kept, response.read())
        finally:
            connection.close()


def _error(fault: Fault, message: str = "injected") -> Answer:
    status, code = _STATUS[fault]
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return Answer(status, {"Content-Type": "application/xml"}, body)


def _spoilt(answer: Answer, fault: Fault | None) -> Answer | None:
    """An answer of the server, after ``fault``."""
    if fault == "lost" or (fault == "truncated" and not answer.body):
        return None
    if fault == "precondition":
        return _error(fault)
    if fault == "truncated":
        answer.sent = len(answer.body) // 2
    if fault == "trickle":
        answer.pause = 0.1
    if fault == "damaged" and answer.body:
        answer.body = bytes([answer.body[0] ^ 1]) + answer.body[1:]
    if fault in {"no_etag", "other_etag"}:
        answer.headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ETAGS}
        answer.body = _ETAGS.sub(b"", answer.body)  # those of a list
    if fault == "other_etag":
        answer.headers["ETag"] = '"00000000000000000000000000000001"'
    return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    endpoint: FaultyEndpoint
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.endpoint.answer(Request(self.command, self.path, dict(self.headers.items())), body)
        if answer is None:
            self.close_connection = True
            return
        if answer.line is not None:
            self.wfile.write(answer.line.encode() + b"\r\n\r\n")
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send(answer)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = do_any

    def _send(self, answer: Answer) -> None:
        body = answer.body[: answer.sent]
        self.close_connection = answer.sent is not None
        if not answer.pause:
            self.wfile.write(body)
            return
        try:
            for number in range(len(body)):
                self.wfile.write(body[number : number + 1])
                time.sleep(answer.pause)
        except OSError:  # the client has had enough
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
