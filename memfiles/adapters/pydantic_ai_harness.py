"""A store for the memory of pydantic-ai's harness: ``Memory(store=SessionStore(session))`` keeps its files in entries.

A file ``main/MEMORY.md`` is the entry of that key, so its level, budget, mirror, history and forgetting are those of
every entry. What the memory refuses is a ``ToolFailed``, which the harness hands to the model as the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from memfiles.adapters.shapes.notebook import Done, Notebook, NotebookOperation
from memfiles.adapters.shapes.scan import Bounds, search
from memfiles.errors import ExtraMissing, MemfilesError, RevisionConflict
from memfiles.tools.worker_calls import run_in_worker

try:
    from pydantic_ai import ToolFailed
    from pydantic_ai_harness.memory import (
        MemoryConflictError,
        MemoryFile,
        MemoryMutation,
        MemoryOperation,
        MemoryOperationConflictError,
        MemorySearchMatch,
        MemorySearchResult,
    )
except ImportError as error:
    raise ExtraMissing(
        "a store for the memory of pydantic-ai's harness needs an extra: pip install 'memfiles[pydantic-ai-harness]'"
    ) from error

if TYPE_CHECKING:
    from memfiles.tools.session import Session

_SEGMENT = re.compile(r"(?!.*\.\.)(?!\.$)[A-Za-z0-9_.-]{1,200}", re.ASCII)
_FILE = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)  # what the harness takes for a file's name
_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
T = TypeVar("T")


class SessionStore:
    """The harness's ``MemoryStore`` and ``SearchableMemoryStore`` over one session's entries.

    A version is the entry's revision. An operation is kept in the history of the entry that it changed, so that it is
    not carried out twice, by whichever process. Every method crosses once to a worker thread, and what has begun there
    is carried out to its end.
    """

    def __init__(self, session: Session) -> None:
        """``InvalidArgument`` where the workflow declares no entries."""
        self._notebook = Notebook(session)

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        """The file's first ``max_chars`` characters and the version of the whole; None if there is none."""
        _check(path, max_chars)
        text = await _told(partial(self._notebook.find, path))
        if text is None:
            return None
        is_cut = len(text.content) > max_chars
        return MemoryFile(text.content[:max_chars], str(text.revision), text.operation, truncated=is_cut)

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        """What the operation came to if it was made before."""
        done = await _told(partial(self._notebook.done, operation.id))
        return _mutation(done, _named(operation)) if done is not None else None

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Create or replace a file that is at ``expected_version``, None for one that is not there."""
        _check(path)
        expected, named = _revision(expected_version), _named(operation)
        put = partial(self._notebook.put, path, content, expected=expected, operation=named)
        return _mutation(await _told(put), named)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Delete a file that is at ``expected_version``; a person can restore the entry."""
        _check(path)
        expected, named = _revision(expected_version), _named(operation)
        return _mutation(await _told(partial(self._notebook.remove, path, expected=expected, operation=named)), named)

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        """The first ``limit`` paths that begin with ``prefix``, sorted."""
        _check(prefix.removesuffix("/") or "all", limit)
        paths = (path for path, _ in self._notebook.texts(prefix) if _is_path(path))
        return await _told(lambda: list(islice(paths, limit)))

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> MemorySearchResult:
        """The files directly below ``prefix`` in which words of ``query`` occur, most often first."""
        _check(prefix.removesuffix("/") or "all")
        bounds = Bounds(limit, max_files, max_chars, max_file_chars)
        texts = self._notebook.texts(prefix)
        files = ((path, text) for path, text in texts if _FILE.fullmatch(path.removeprefix(prefix)))
        found = await _told(lambda: search(files, query, prefix=prefix, bounds=bounds))
        matches = [MemorySearchMatch(match.key, match.snippet, match.score) for match in found.matches]
        return MemorySearchResult(matches, found.scanned, found.truncated)


async def _told(call: Callable[[], T]) -> T:
    """What ``call`` returns after one crossing; its errors as the harness knows them."""
    try:
        return await run_in_worker(call)
    except RevisionConflict as error:
        raise MemoryConflictError(str(error)) from error
    except MemfilesError as error:
        raise ToolFailed(str(error)) from error


def _named(operation: MemoryOperation | None) -> NotebookOperation | None:
    return NotebookOperation.of(operation.id, operation.fingerprint) if operation is not None else None


def _mutation(done: Done, operation: NotebookOperation | None) -> MemoryMutation:
    if operation is not None and done.operation != operation:
        raise MemoryOperationConflictError(f"operation {operation.id!r} was made before, with other arguments")
    version = str(done.revision) if done.revision is not None else None
    return MemoryMutation(version, replayed=done.replayed, existed=done.existed)


def _revision(version: str | None) -> int:
    """0 for what is not there, -1 for what no text was ever at."""
    return 0 if version is None else int(version) if _VERSION.fullmatch(version) else -1


def _is_path(path: str) -> bool:
    return all(_SEGMENT.fullmatch(segment) for segment in path.split("/"))


def _check(path: str, limit: int = 1) -> None:
    if not _is_path(path):
        raise ValueError(f"invalid memory path: {path[:200]!r}")
    if limit <= 0:
        raise ValueError("max_chars and limit must be positive")
