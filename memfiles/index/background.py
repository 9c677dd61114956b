"""Work that nobody waits for, done by a thread that lives as long as there is any."""

from __future__ import annotations

import threading
from collections.abc import Callable


class LateWriter:
    """Does ``work`` in a thread of its own, once more if it was asked for meanwhile."""

    def __init__(self, work: Callable[[], None]) -> None:
        """``work`` must not raise."""
        self._work = work
        self.renew()

    def renew(self) -> None:
        """In the child of a fork: the thread is the parent's."""
        self._asking = threading.Lock()
        self._is_wanted = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Have the work done soon."""
        with self._asking:
            self._is_wanted = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memfiles-index", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Wait until it is done."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._asking:
                if not self._is_wanted:
                    self._thread = None
                    return
                self._is_wanted = False
            self._work()
