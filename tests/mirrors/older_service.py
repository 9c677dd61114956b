"""The older service, as far as its API goes: memory files by uid, behind a key."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

KEY = "a-key-of-the-tests"


@dataclass
class OlderService:
    """Its state: ``files`` by uid. ``creates``: a put of an unknown uid makes a file.

    ``lines``, each in place of a status line, are given first, and then ``answers``.
    """

    creates: bool = False
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: deque[tuple[int, dict[str, str], bytes]] = field(default_factory=deque)
    lines: deque[str] = field(default_factory=deque)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def declare(self, uid: str, content: str = "", **more: object) -> None:
        """Have a memory file."""
        self.files[uid] = {"type": "MemoryFile", "id": uid, "label": uid, "content": content, **more}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        self.requests.append((method, path, headers))
        if self.answers:
            return self.answers.popleft()
        if headers.get("agent-key") != KEY:
            return error(401, "the key is not valid", "unauthorized")
        if (method, path) == ("GET", "/agents/memory"):
            return 200, {}, json.dumps(list(self.files.values())).encode()
        folder, _, uid = path.rpartition("/")
        if (method, folder) == ("PUT", "/agents/memory"):
            return self._put(unquote(uid), json.loads(body))
        return error(404, f"no route {path}", "not_found")

    def _put(self, uid: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if uid not in self.files and not self.creates:
            return error(404, f"no memory file {uid}", "not_found")
        if uid not in self.files:
            self.declare(uid)
        self.files[uid]["content"] = body["content"]
        return 200, {}, json.dumps(self.files[uid]).encode()


def error(status: int, message: str, kind: str) -> tuple[int, dict[str, str], bytes]:
    """An answer in the service's form of an error."""
    return status, {}, json.dumps({"error": {"message": message, "type": kind}}).encode()


@contextmanager
def serving(service: OlderService) -> Iterator[OlderService]:
    """The service on a free port of loopback; its ``url`` is set."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": service}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    service: OlderService
    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.service.lines:
            self.wfile.write(self.service.lines.popleft().encode() + b"\r\n\r\n")
            self.close_connection = True
            return
        status, answered, text = self.service.answer(self.command, self.path, headers, body)
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(text))} | answered).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = True

    do_GET = do_PUT = do_any

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
