"""When this process's journal is emptied: after a second without changes, or when another process asks.

The rule this file guards: as long as the journal holds anything, someone looks whether it is to be emptied.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from memfiles.errors import MemfilesError
from memfiles.storage import scrub as scrub_request
from memfiles.storage.journal import Journal

IDLE_SECONDS = 1.0
_POLL_SECONDS = 0.1
_log = logging.getLogger("memfiles")


class Checkpointer:
    """A thread that sleeps while the journal is empty and looks ten times a second while it is not."""

    def __init__(self, directory: int, journal: Journal, *, recover: Callable[[], None]) -> None:
        """The thread starts with the first ``notice``; ``recover`` replays a journal that had to be given up."""
        self._recover = recover
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
            request = scrub_request.token(self._directory)
            if request not in (b"", answered) or time.monotonic() - since >= IDLE_SECONDS:
                answered, since = request, time.monotonic()
                self._checkpoint(request)

    def _checkpoint(self, request: bytes) -> None:
        try:
            if not self._journal.checkpoint(scrub_token=request or None):
                self._recover()
        except (OSError, MemfilesError):
            _log.exception("a checkpoint failed; the journal keeps what is not flushed, and it is tried again")
