"""A TCP proxy before a server of PostgreSQL, which cuts connections before, while or after a commit is made."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

Cut = Literal["", "before", "during", "after"]
"""What happens to a commit: nothing, it never arrives, it arrives and nobody waits, or its answer is lost."""

_COMMITS = (b".change(", b".change_one(")
_SIZE = 1 << 16


class CuttingProxy:
    """Passes on what clients and the server say, on a port of loopback; ``cuts`` says what happens to which commit."""

    def __init__(self, socket_path: str) -> None:
        self._to = socket_path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._listener.getsockname()[1])
        self._cuts: Iterator[Cut] = iter(())
        self._lock = threading.Lock()
        self.made: list[Cut] = []
        self.questions = 0
        """How many statements came through, without news."""

        self._pairs: list[_Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def cutting(self, cuts: Sequence[Cut] = ("", "before", "", "during", "after", "")) -> Iterator[None]:
        """Do this to one commit after the other, again and again, as long as the block lasts."""
        self._cuts = itertools.cycle(cuts)
        try:
            yield
        finally:
            self._cuts = iter(())

    def cut_next(self, *cuts: Cut) -> None:
        """Do this to the next commits."""
        self._cuts = iter(cuts)

    def close(self) -> None:
        """Cut all connections, and accept no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._to)
            except OSError:
                client.close()
                continue
            self._pairs.append(pair := _Pair(client, server))
            threading.Thread(target=self._pass_questions, args=(pair,), daemon=True).start()
            threading.Thread(target=pair.pass_answers, daemon=True).start()

    def _pass_questions(self, pair: _Pair) -> None:
        while data := _received(pair.client):
            self.questions += b"SELECT" in data and b"pg_notify" not in data
            cut = self._cut() if any(each in data for each in _COMMITS) else ""
            if cut == "before":
                break
            pair.loses_answer = cut == "after"
            with contextlib.suppress(OSError):
                pair.server.sendall(data)
            if cut == "during":
                break
        pair.close()

    def _cut(self) -> Cut:
        with self._lock:
            cut: Cut = next(self._cuts, "")
            if cut:
                self.made.append(cut)
            return cut


class _Pair:
    """A client and the connection to the server that was made for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.loses_answer = False

    def pass_answers(self) -> None:
        """Tell the client what the server says, until an answer is to be lost."""
        while (data := _received(self.server)) and not self.loses_answer:
            with contextlib.suppress(OSError):
                self.client.sendall(data)
        self.close()

    def close(self) -> None:
        """Cut both connections."""
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_SIZE)
    except OSError:
        return b""
