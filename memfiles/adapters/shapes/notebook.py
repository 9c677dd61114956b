"""Notebook of versioned texts over a session's entries, for stores that write by comparing versions.

The rules this module enforces: a text, its version and the operation that wrote it are one record, which changes as a
whole; so a repeated operation is recognised by the history and not carried out twice, in any process and after a crash.
A hidden text looks missing, and a session changes only texts at its own level.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from memfiles.adapters.shapes.folder import check_level, list_entries
from memfiles.entries.callers import own_level
from memfiles.entries.reader import entry_at
from memfiles.errors import EntryNotFound, InvalidArgument, RevisionConflict

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.records.entry import Entry
    from memfiles.records.record import Change
    from memfiles.tools.session import Session

MAIN = "MEMORY.md"
REMEMBERED = 1024
"""How many operations without a trace in a history are remembered, until the process ends."""

_CALL = re.compile(r"(?P<digest>[0-9a-f]{32}):(?P<id>.+)", re.ASCII)
_RETIRING = frozenset({"delete", "evict", "consolidate"})


class NotebookOperation(Struct, frozen=True):
    """A change with its caller's id; ``digest`` distinguishes two changes with the same id."""

    id: str
    digest: str

    @classmethod
    def of(cls, id: str, fingerprint: str) -> NotebookOperation:
        """The operation of an id whose arguments have this fingerprint."""
        return cls(id, hashlib.sha256(fingerprint.encode()).hexdigest()[:32])

    @property
    def call(self) -> str:
        """The call id that the history records."""
        return f"{self.digest}:{self.id}"


class NotebookText(Struct, frozen=True):
    """A text and its revision, with the id of the operation that wrote it, if known."""

    content: str
    revision: int
    operation: str | None


class NotebookChange(Struct, frozen=True):
    """The outcome of an operation: the text's revision (None: deleted), and whether the text existed before."""

    revision: int | None
    existed: bool
    operation: NotebookOperation | None = None
    replayed: bool = False


Remembered: TypeAlias = "dict[tuple[str | None, str | None, str], NotebookChange]"
"""Outcomes of operations by agent, user and id."""


class Notebook:
    """The notebook of one session. Threads may share it; other sessions and processes may use the same entries."""

    def __init__(self, session: Session, *, remembered: Remembered | None = None) -> None:
        """``remembered`` may be shared by any notebooks. ``InvalidArgument`` without entries in the workflow."""
        if session.entries is None:
            raise InvalidArgument(
                "a notebook is stored in entries, and this workflow declares none: add `entries: {}` to its memory"
            )
        self._session = session
        self._entries: Entries = session.entries
        self._remembered = {} if remembered is None else remembered

    def find(self, key: str) -> NotebookText | None:
        """The text that the session sees under ``key``; None if it is missing or hidden."""
        found = self._entries.get(self._session, key)
        if found is None:
            return None
        newest = (change for entry in self._records(key, found.level) for change in entry.text.history[-1:])
        writer = next((change for change in newest if change.revision == found.revision), None)
        operation = _operation_of(writer) if writer is not None else None
        return NotebookText(found.content, found.revision, operation.id if operation else None)

    def texts(self, prefix: str) -> Iterator[tuple[str, str]]:
        """The keys that begin with ``prefix``, in order, with their texts."""
        return ((found.key, found.content) for found in list_entries(self._session, self._entries, prefix))

    def put(
        self, key: str, content: str, *, expected: int, operation: NotebookOperation | None = None
    ) -> NotebookChange:
        """Write the text of ``key`` if it is at revision ``expected``, 0 for a new one.

        If an operation's id was used on the key before, the outcome of that time is returned; its ``operation`` tells
        whether it was the same. A new main text is pinned, so that it is the last to be evicted. ``RevisionConflict``,
        ``LevelDenied``, and the errors of ``Entries.save``: nothing changed.
        """
        if operation is not None and (earlier := self.outcome_of(operation.id, key=key)) is not None:
            return earlier
        self._check_level(key)
        saved = self._entries.save(
            self._session,
            key,
            content,
            pinned=True if not expected and key.rpartition("/")[2] == MAIN else None,
            expected_revision=expected,
            call_id=operation.call if operation else None,
        )
        done = self._remember(NotebookChange(saved.revision, existed=expected != 0, operation=operation))
        return replace(done, replayed=saved.replayed)

    def remove(self, key: str, *, expected: int, operation: NotebookOperation | None = None) -> NotebookChange:
        """Delete the text of ``key`` if it is at revision ``expected``; 0: it must not exist. Otherwise as ``put``."""
        if operation is not None and (earlier := self.outcome_of(operation.id, key=key)) is not None:
            return earlier
        self._check_level(key)
        if expected:
            call_id = operation.call if operation else None
            try:
                self._entries.delete(self._session, key, expected_revision=expected, call_id=call_id)
            except EntryNotFound as error:
                raise RevisionConflict(f"{ascii(key[:80])} does not exist any more: read it again") from error
        elif self._entries.get(self._session, key) is not None:
            raise RevisionConflict(f"{ascii(key[:80])} exists: read it and decide again")
        return self._remember(NotebookChange(None, existed=expected != 0, operation=operation))

    def outcome_of(self, id: str, *, key: str | None = None) -> NotebookChange | None:
        """The outcome of the operation with that id, None if it was not carried out.

        It is known if a text's history still has the change, or if it is among the last of this process. Without a key
        all texts are searched, at some 50 us each.
        """
        if (remembered := self._remembered.get(self._owned(id))) is not None:
            return replace(remembered, replayed=True)
        for each in [key] if key is not None else (key for key, _ in self.texts("")):
            for entry in self._records(each, self._session.level):
                if not entry.user and entry.provenance.user != self._session.provenance.user:
                    continue  # another user's change of an entry that all see
                if (outcome := _outcome_in(entry.text.history, id)) is not None:
                    return outcome
        return None

    def _records(self, key: str, level: str) -> Iterator[Entry]:
        """The entries stored under a key at a level, deleted or not."""
        for partition in own_level(self._session, level).values():
            if (entry := entry_at(self._entries.repository, partition.path(key))) is not None:
                yield entry

    def _owned(self, id: str) -> tuple[str | None, str | None, str]:
        """The id with its agent and user: operations of two users are different, whatever their ids."""
        origin = self._session.provenance
        return origin.agent, origin.user, id

    def _check_level(self, key: str) -> None:
        if (found := self._entries.get(self._session, key)) is not None:
            check_level(self._session, found)

    def _remember(self, done: NotebookChange) -> NotebookChange:
        if done.operation is not None:
            self._remembered[self._owned(done.operation.id)] = done
            for oldest in list(self._remembered)[:-REMEMBERED]:
                self._remembered.pop(oldest, None)
        return done


def _operation_of(change: Change) -> NotebookOperation | None:
    found = _CALL.fullmatch(change.by.call or "")
    return NotebookOperation(found["id"], found["digest"]) if found else None


def _outcome_in(history: tuple[Change, ...], id: str) -> NotebookChange | None:
    """The outcome of the newest change by an operation, as far back as the history reaches."""
    ops = {change.revision: change.op for change in history}
    for change in reversed(history):
        operation = _operation_of(change)
        if operation is not None and operation.id == id:
            is_gone = change.op in _RETIRING
            existed = change.revision > 1 and ops.get(change.revision - 1) not in _RETIRING
            return NotebookChange(None if is_gone else change.revision, existed, operation, replayed=True)
    return None
