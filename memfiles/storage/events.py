"""Who is told when a memory file changes, and what they are told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from memfiles.records.record import NOBODY, Actor

Origin = Literal["local", "process", "external", "restored", "mirror"]
_log = logging.getLogger("memfiles")


@dataclass(frozen=True, slots=True)
class RecordChanged:
    """A memory file, or an entry, is at a new revision.

    ``origin``: local (this manager), process (another process of memfiles, or another manager in this one), external
    (a person or another program), restored (the record was deleted or broken, and the last good one was put back;
    ``warning`` says why), mirror (fetched from the mirror, or merged with its copy). Of changes that came quickly one
    after another, only the last may be told. Two threads may tell of two changes at once, the later one first: the
    revision gives the order. ``path`` is where the record lies; an entry's ``name`` is its key, "" once forgotten.
    ``op`` is ``remove`` when the file of an entry was removed by hand: it is gone, and not forgotten.
    """

    uid: str
    name: str
    revision: int
    op: str
    origin: Origin
    warning: str | None = None
    path: str = ""
    level: str = ""
    by: Actor = NOBODY


class Subscribers:
    """Callbacks that are told of every change, in the thread that made or noticed it."""

    def __init__(self) -> None:
        """Nobody is told anything yet."""
        self._callbacks: dict[int, Callable[[RecordChanged], None]] = {}
        self._next = 0
        self._adding = threading.Lock()

    def renew(self) -> None:
        """In the child of a fork: another thread may have been adding when it was made."""
        self._adding = threading.Lock()

    def add(self, callback: Callable[[RecordChanged], None]) -> Callable[[], None]:
        """Tell ``callback`` of every change from now on; the returned function ends that."""
        with self._adding:
            number, self._next = self._next, self._next + 1
            self._callbacks[number] = callback
        return lambda: self._callbacks.pop(number, None) and None

    def tell(self, events: Iterable[RecordChanged]) -> None:
        """Call everyone; a callback that raises is logged and does not disturb the change or the others.

        No lock may be held: a callback may change memory files itself.
        """
        for event in events:
            for callback in list(self._callbacks.values()):
                try:
                    callback(event)
                except Exception:
                    _log.exception("a callback for changes of memory files failed")
