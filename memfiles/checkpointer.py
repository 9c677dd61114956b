"""When this process's journal is emptied: after a second without changes, or when another process asks.

The rule this file guards: a request to scrub is answered by every living process, and whoever asks waits
until each of them has.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress

from memfiles import atomic
from memfiles.errors import MemfilesError
from memfiles.frames import SCRUB_TOKEN_BYTES
from memfiles.journal import FOLDER, Journal

REQUEST = f"{FOLDER}/scrub-request"
IDLE_SECONDS = 1.0
_POLL_SECONDS = 0.1
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger("memfiles")


class Checkpointer:
    """A thread that sleeps while the journal is empty and looks ten times a second while it is not."""

    def __init__(self, directory: int, journal: Journal) -> None:
        """The thread starts with the first ``notice``."""
        self._directory = directory
        self._journal = journal
        self._work = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def notice(self) -> None:
        """There is something in the journal."""
        if not self._work.is_set():
            self._work.set()
            self._start()

    def stop(self) -> None:
        """End the thread and wait for it; the journal stays as it is."""
        self._stop.set()
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def ask(self) -> bytes:
        """Ask every process on the directory to scrub; the token of the request."""
        token = os.urandom(SCRUB_TOKEN_BYTES // 2).hex().encode()
        descriptor = os.open(REQUEST, _NEW, 0o600, dir_fd=self._directory)
        try:
            os.write(descriptor, token)
        finally:
            os.close(descriptor)
        return token

    def withdraw(self) -> None:
        """Every process has answered."""
        atomic.remove(self._directory, REQUEST)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memfiles-checkpoint", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._work.wait()
            self._work.clear()
            self._until_empty()

    def _until_empty(self) -> None:
        """Watch a journal that holds something until a checkpoint has emptied it."""
        frames, since, answered = self._journal.frames_written, time.monotonic(), b""
        while self._journal.is_dirty and not self._stop.wait(_POLL_SECONDS):
            if self._journal.frames_written != frames:
                frames, since = self._journal.frames_written, time.monotonic()
            request = self._request()
            if request not in (b"", answered) or time.monotonic() - since >= IDLE_SECONDS:
                answered, since = request, time.monotonic()
                self._checkpoint(request)

    def _checkpoint(self, request: bytes) -> None:
        try:
            self._journal.checkpoint(scrub_token=request or None)
        except (OSError, MemfilesError):
            _log.exception("a checkpoint failed; the journal keeps what is not flushed, and it is tried again")

    def _request(self) -> bytes:
        with suppress(OSError, MemfilesError):
            found = atomic.read(self._directory, REQUEST, limit=SCRUB_TOKEN_BYTES)
            return found[0] if found else b""
        return b""
