"""Memory store for pydantic-ai's harness: ``Memory(store=SessionStore(session))`` keeps its files in entries.

A file ``main/MEMORY.md`` is the entry of that key, with the level, budget, mirror, history and forgetting of every
entry. A refusal of the memory is a ``ToolFailed``, which the harness passes to the model as the result.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from memfiles.adapters.agent_calls import needs
from memfiles.adapters.shapes.notebook import Notebook, NotebookChange, NotebookOperation, Remembered
from memfiles.errors import MemfilesError, RevisionConflict
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import checked_source, run_in_worker, session_of, without_context

with needs(
    "a store for the memory of pydantic-ai's harness needs an extra: pip install 'memfiles[pydantic-ai-harness]'"
):
    from pydantic_ai import RunContext, ToolFailed
    from pydantic_ai_harness import memory

if TYPE_CHECKING:
    from memfiles.tools.worker_calls import SessionSource

_SEGMENT = re.compile(r"(?!.*\.\.)(?!\.$)[A-Za-z0-9_.-]{1,200}", re.ASCII)
_FILE = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)  # the harness's rule for file names
_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
T = TypeVar("T")


def session_stores(session: SessionSource[RunContext[Any]]) -> Callable[[RunContext[Any]], SessionStore]:
    """For ``Memory(store_resolver=session_stores(function))``: each operation is in the session of its run."""
    checked_source(session)
    return lambda ctx: SessionStore(lambda: session_of(session, ctx))


class SessionStore:
    """The harness's ``MemoryStore`` and ``SearchableMemoryStore`` over one session's entries.

    A version is the entry's revision. An operation is recorded in the history of the entry that it changed, so that no
    process carries it out twice. Every method makes one call in a worker thread, which runs to its end once begun.
    """

    def __init__(self, session: Session | Callable[[], Session]) -> None:
        """``InvalidArgument`` if the workflow declares no entries; ``session_stores`` is for many users."""
        self._session = checked_source(session)
        self._remembered: Remembered = {}
        if isinstance(session, Session):
            self._notebook()

    async def read(self, path: str, *, max_chars: int) -> memory.MemoryFile | None:
        """Read a file's first ``max_chars`` characters and its version; None if it is missing."""
        _check(path, max_chars)
        text = await _call(lambda: self._notebook().find(path))
        if text is None:
            return None
        is_cut = len(text.content) > max_chars
        return memory.MemoryFile(text.content[:max_chars], str(text.revision), text.operation, truncated=is_cut)

    async def get_operation(self, operation: memory.MemoryOperation) -> memory.MemoryMutation | None:
        """The outcome of the operation if it was carried out before."""
        done = await _call(lambda: self._notebook().outcome_of(operation.id))
        return _mutation(done, _named(operation)) if done is not None else None

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: memory.MemoryOperation | None = None
    ) -> memory.MemoryMutation:
        """Write a file that is at ``expected_version``, None for a new one."""
        _check(path)
        expected, named = _revision(expected_version), _named(operation)
        done = await _call(lambda: self._notebook().put(path, content, expected=expected, operation=named))
        return _mutation(done, named)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: memory.MemoryOperation | None = None
    ) -> memory.MemoryMutation:
        """Delete a file that is at ``expected_version``; a person can restore the entry."""
        _check(path)
        expected, named = _revision(expected_version), _named(operation)
        done = await _call(lambda: self._notebook().remove(path, expected=expected, operation=named))
        return _mutation(done, named)

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        """The first ``limit`` paths that begin with ``prefix``, sorted."""
        _check(prefix.removesuffix("/") or "all", limit)
        most = min(limit, sys.maxsize)
        return await _call(
            lambda: list(islice((path for path, _ in self._notebook().texts(prefix) if _is_path(path)), most))
        )

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> memory.MemorySearchResult:
        """Find the files directly below ``prefix`` that contain words of ``query``, as the harness's own stores do."""
        _check(prefix.removesuffix("/") or "all")

        def files() -> dict[str, str]:
            texts = self._notebook().texts(prefix)
            found = ((path, text) for path, text in texts if _FILE.fullmatch(path.removeprefix(prefix)))
            return dict(islice(found, min(max(max_files, 0) + 1, sys.maxsize)))  # one more shows that some are left out

        copy = memory.InMemoryStore(await _call(files))
        return await copy.search(
            prefix, query, limit=limit, max_files=max_files, max_chars=max_chars, max_file_chars=max_file_chars
        )

    def _notebook(self) -> Notebook:
        return Notebook(without_context(self._session), remembered=self._remembered)


async def _call(call: Callable[[], T]) -> T:
    """Run ``call`` in a worker thread; its errors become those of the harness."""
    try:
        return await run_in_worker(call)
    except RevisionConflict as error:
        raise memory.MemoryConflictError(str(error)) from error
    except MemfilesError as error:
        raise ToolFailed(str(error)) from error


def _named(operation: memory.MemoryOperation | None) -> NotebookOperation | None:
    return NotebookOperation.of(operation.id, operation.fingerprint) if operation is not None else None


def _mutation(done: NotebookChange, operation: NotebookOperation | None) -> memory.MemoryMutation:
    if operation is not None and done.operation != operation:
        raise memory.MemoryOperationConflictError(f"operation {operation.id!r} was used before, with other arguments")
    version = str(done.revision) if done.revision is not None else None
    return memory.MemoryMutation(version, replayed=done.replayed, existed=done.existed)


def _revision(version: str | None) -> int:
    """The revision of a version: 0 for a missing file, -1 for a version that no file ever had."""
    return 0 if version is None else int(version) if _VERSION.fullmatch(version) else -1


def _is_path(path: str) -> bool:
    return all(_SEGMENT.fullmatch(segment) for segment in path.split("/"))


def _check(path: str, limit: int = 1) -> None:
    if not _is_path(path):
        raise ValueError(f"invalid memory path: {path[:200]!r}")
    if limit <= 0:
        raise ValueError("max_chars and limit must be positive")
