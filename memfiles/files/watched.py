"""Memory files as records that the watcher looks at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from memfiles.errors import InvalidArgument
from memfiles.records.keys import uid_of
from memfiles.storage.watcher import Watching

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.files.manager import MemoryManager


class MemoryFiles:
    """The declared memory files of a restored manager as what is watched."""

    is_deep = False
    what = "record"

    def __init__(self, manager: MemoryManager) -> None:
        self._manager = manager

    def folder(self) -> Path:
        """See ``Watched``; ``InvalidArgument`` before the first restore."""
        if not self._manager.directory.is_dir():
            raise InvalidArgument(
                f"there is no memory directory {self._manager.directory} to watch: call restore first"
            )
        return self._manager.directory

    def record_at(self, path: str) -> str | None:
        """See ``Watched``."""
        return uid_of(path)

    def look(self, record: str) -> bool:
        """See ``Watched``."""
        return self._manager.notice(record)

    def suspects(self) -> Iterable[str]:
        """See ``Watched``: all of them."""
        return self._manager.uids()


def watch(manager: MemoryManager, entries: Entries | None = None) -> Watching:
    """Have a restored manager, and entries, notice what others change in their records, until this is closed."""
    return Watching([MemoryFiles(manager), *([entries.files] if entries is not None else [])])
