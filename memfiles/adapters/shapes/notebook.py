"""A session's entries as a notebook of versioned texts, for stores that write by comparing versions.

The rules this file guards: a text, its version and the operation that wrote it are one record, which changes whole or
not at all; so an operation that is made again is told by the history and not carried out twice, whatever process or
kill came in between. What is hidden from the session is not there, and a session changes only what is at its own level.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memfiles.adapters.shapes.folder import PAGE, check_level
from memfiles.entries.partitions import own_level
from memfiles.entries.repository import entry_at
from memfiles.errors import EntryNotFound, InvalidArgument, RevisionConflict

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.records.entry import Entry
    from memfiles.records.record import Change
    from memfiles.tools.session import Session

MAIN = "MEMORY.md"
REMEMBERED = 1024
"""How many operations that left no trace in a history are remembered, until the process ends."""

_MARK_CHARACTERS = 32
_CALL = re.compile(r"(?P<mark>[0-9a-f]{32}):(?P<id>.+)", re.ASCII)
_RETIRING = frozenset({"delete", "evict", "consolidate"})


@dataclass(frozen=True, slots=True)
class NotebookOperation:
    """A change by its caller's name for it; ``mark`` tells two changes under one name apart."""

    id: str
    mark: str

    @classmethod
    def of(cls, id: str, fingerprint: str) -> NotebookOperation:
        """The operation of this id whose arguments have this fingerprint."""
        return cls(id, hashlib.sha256(fingerprint.encode()).hexdigest()[:_MARK_CHARACTERS])

    @property
    def call(self) -> str:
        """The id of the call under which the history has it."""
        return f"{self.mark}:{self.id}"


@dataclass(frozen=True, slots=True)
class NotebookText:
    """A text as it was found, at which revision, and the id of the operation that made it so, if that is known."""

    key: str
    content: str
    revision: int
    operation: str | None


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation came to: the revision of the text (None: it is gone), and whether it was there before."""

    revision: int | None
    existed: bool
    operation: NotebookOperation | None = None
    replayed: bool = False


class Notebook:
    """The notebook of one session. Threads may share it; other sessions and processes may use the same entries."""

    def __init__(self, session: Session) -> None:
        """``InvalidArgument`` where the workflow declares no entries."""
        if session.entries is None:
            raise InvalidArgument(
                "a notebook is kept in entries, and this workflow declares none: add `entries: {}` to its memory"
            )
        self._session = session
        self._entries: Entries = session.entries
        self._traceless: dict[str, Done] = {}

    def find(self, key: str) -> NotebookText | None:
        """What the session sees under ``key``; None if that is nothing, hidden or not."""
        found = self._entries.get(self._session, key)
        if found is None:
            return None
        history = (change for entry in self._records(key, found.level) for change in entry.text.history[-1:])
        made = (change for change in history if change.revision == found.revision)
        operation = _operation_of(next(made, None))
        return NotebookText(key, found.content, found.revision, operation.id if operation else None)

    def texts(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Keys that begin with ``prefix``, in their order, with what they hold."""
        cursor: str | None = ""
        while cursor is not None:
            page = self._entries.list(self._session, prefix=prefix, limit=PAGE, cursor=cursor or None)
            yield from ((found.key, found.content) for found in page.memories)
            cursor = page.next

    def put(self, key: str, content: str, *, expected: int, operation: NotebookOperation | None = None) -> Done:
        """Make ``content`` the text of ``key`` if that is at revision ``expected``, 0 for a new one.

        An operation whose id was used on it before is answered with what that came to; ``Done.operation`` tells whether
        it is the same. A new main text is pinned, so that it is the last to go over a budget. ``RevisionConflict``,
        ``LevelDenied``, and what is refused as by ``Entries.save``: nothing changed.
        """
        if operation is not None and (made := self.done(operation.id, key=key)) is not None:
            return made
        self._check_level(key)
        saved = self._entries.save(
            self._session,
            key,
            content,
            pinned=True if not expected and key.rpartition("/")[2] == MAIN else None,
            expected_revision=expected,
            call_id=operation.call if operation else None,
        )
        return self._remembered(Done(saved.revision, existed=expected != 0, operation=operation), saved.replayed)

    def remove(self, key: str, *, expected: int, operation: NotebookOperation | None = None) -> Done:
        """Delete the text of ``key`` if it is at revision ``expected``; 0 if there is to be none. Else as ``put``."""
        if operation is not None and (made := self.done(operation.id, key=key)) is not None:
            return made
        self._check_level(key)
        if expected:
            call_id = operation.call if operation else None
            try:
                self._entries.delete(self._session, key, expected_revision=expected, call_id=call_id)
            except EntryNotFound as error:
                raise RevisionConflict(f"{ascii(key[:80])} is not there any more: read it again") from error
        elif self._entries.get(self._session, key) is not None:
            raise RevisionConflict(f"{ascii(key[:80])} is there: read it and decide anew")
        return self._remembered(Done(None, existed=expected != 0, operation=operation))

    def done(self, id: str, *, key: str | None = None) -> Done | None:
        """What the operation of that id came to, None if it was not made.

        Known are those whose change the history of a text still has, and the last of this process. Without a key all
        texts are looked through, some 50 us each.
        """
        if (remembered := self._traceless.get(id)) is not None:
            return replace(remembered, replayed=True)
        keys = [key] if key is not None else (key for key, _ in self.texts(""))
        for each in keys:
            for entry in self._records(each, self._session.level):
                if (done := _done_in(entry.text.history, id)) is not None:
                    return done
        return None

    def _records(self, key: str, level: str) -> Iterator[Entry]:
        """What is stored under a key at a level, deleted or not."""
        for partition in own_level(self._session, level):
            if (entry := entry_at(self._entries.shelf, partition.path(key))) is not None:
                yield entry

    def _check_level(self, key: str) -> None:
        if (found := self._entries.get(self._session, key)) is not None:
            check_level(self._session, found)

    def _remembered(self, done: Done, replayed: bool = False) -> Done:
        if done.operation is not None:
            self._traceless[done.operation.id] = done
            for oldest in list(self._traceless)[:-REMEMBERED]:
                self._traceless.pop(oldest, None)
        return replace(done, replayed=replayed)


def _operation_of(change: Change | None) -> NotebookOperation | None:
    found = _CALL.fullmatch(change.by.call or "") if change is not None else None
    return NotebookOperation(found["id"], found["mark"]) if found else None


def _done_in(history: tuple[Change, ...], id: str) -> Done | None:
    """What the newest change by that operation came to, as far as the history reaches."""
    ops = {change.revision: change.op for change in history}
    for change in reversed(history):
        operation = _operation_of(change)
        if operation is not None and operation.id == id:
            is_gone = change.op in _RETIRING
            existed = change.revision > 1 and ops.get(change.revision - 1) not in _RETIRING
            return Done(None if is_gone else change.revision, existed, operation, replayed=True)
    return None
