"""The entries of an open memory, put together when they are first used: with rules, log and embedder.

A workflow that declares ``entries`` has them from the start, with tools for its agents. Any other has them in the
library alone, under the usual budgets, and pays nothing for them until they are used.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memfiles.errors import ExtraMissing
from memfiles.secrets.gate import scanner_called
from memfiles.storage.events import Refusals, Subscribers
from memfiles.storage.store import Store
from memfiles.workflow.workflow import EntriesSpec, Workflow

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.index.search.embedder import Embedder

_log = logging.getLogger("memfiles")


@dataclass(frozen=True, slots=True)
class EntriesContext:
    """What entries are put together with: the open store, who hears of changes, the directory's id, the log."""

    store: Store
    subscribers: Subscribers
    origin: str | None = None
    refusals: Refusals | None = None
    embedder: Embedder | None = None


class LazyEntries:
    """The entries of one open memory. Threads may share it."""

    def __init__(self, workflow: Workflow, make_context: Callable[[], EntriesContext]) -> None:
        """``make_context`` is called when the entries are opened."""
        self._workflow = workflow
        self._make_context = make_context
        self._on_open: list[Callable[[Entries], None]] = []
        self._entries: Entries | None = None
        self._opening = threading.Lock()

    @property
    def are_declared(self) -> bool:
        """Whether the workflow gives its agents entries."""
        return self._workflow.memory.entries is not None

    def when_opened(self, callback: Callable[[Entries], None]) -> None:
        """Call ``callback`` once, with the entries, before anybody else has them; never if they are open already."""
        self._on_open.append(callback)

    def opened(self) -> Entries:
        """The entries, put together at the first call."""
        with self._opening:
            if self._entries is None:
                entries = self._made()
                for callback in self._on_open:
                    callback(entries)
                self._entries = entries
            return self._entries

    def close(self) -> None:
        """Let go of them, if they were used. May be called again."""
        with self._opening:
            if self._entries is not None:
                self._entries.close()

    def _made(self) -> Entries:
        from memfiles.entries.entries import Entries  # late: only who uses entries needs it and its parts
        from memfiles.entries.policy import rules_of

        memory, context = self._workflow.memory, self._make_context()
        declared = memory.entries or EntriesSpec()
        return Entries(
            context.store,
            rules=rules_of(self._workflow, declared, scan=scanner_called(memory.secrets_scanner)),
            subscribers=context.subscribers,
            origin=context.origin,
            refusals=context.refusals,
            embedder=context.embedder or _declared_embedder(declared),
        )


def _declared_embedder(declared: EntriesSpec) -> Embedder | None:
    """The embedder that the workflow asks for; without the extra a search says that it goes by words alone."""
    if not declared.meaning:
        return None
    from memfiles.index.search.embedder import SentenceEncoder  # late: it looks whether its model is installed

    try:
        return SentenceEncoder()
    except ExtraMissing as error:
        _log.warning("searches of entries go by words alone: %s", error)
        return None
