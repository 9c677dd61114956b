"""Where a file without a usable local record gets its content from: the mirror's copy, or else the declaration.

The rules this file guards: the mirror is asked for a file at most once in a restore; and a copy that cannot be used,
for whatever reason, is named and replaced by the declared content.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from memfiles.errors import MirrorRefused, MirrorUnavailable, RecordCorrupt
from memfiles.files.restore_report import DeclaredFile, Status, seed
from memfiles.records.declared_metadata import Metadata, redeclared
from memfiles.records.keys import record_path
from memfiles.records.record import Record, decode
from memfiles.sync.fetching import fetch
from memfiles.sync.mirror import Answer, Mirror, Stored

_log = logging.getLogger("memfiles")


@dataclass(frozen=True, slots=True)
class ContentSource:
    """A record for a file that has none, and where it is from.

    ``stored`` is the mirror's object that it is made of; ``data`` are its bytes if it is that very copy.
    """

    status: Status
    record: Record
    detail: str | None = None
    stored: Stored | None = None
    data: bytes | None = None


class Remote:
    """What the mirror said during one restore, if there is a mirror."""

    def __init__(self, mirror: Mirror | None, *, deadline_seconds: float) -> None:
        self._mirror = mirror
        self._deadline_seconds = deadline_seconds
        self._answers: dict[str, Answer] = {}

    def ask(self, uids: Iterable[str]) -> None:
        """Get the copies of these files, in one call, but for those that were asked for before."""
        paths = [path for path in map(record_path, uids) if path not in self._answers]
        if paths and self._mirror is not None:
            found = fetch(self._mirror, paths, deadline_seconds=self._deadline_seconds)
            self._answers |= found
            _warn(found)

    def answer(self, uid: str) -> Answer:
        """What the mirror said of a file that it was asked for; None as well without a mirror."""
        return self._answers.get(record_path(uid))


def source_of(file: DeclaredFile, metadata: Metadata, answer: Answer, *, at: str) -> ContentSource:
    """The content of ``file``, given what the mirror said of it."""
    if isinstance(answer, Stored):
        try:
            return _copied(file.uid, metadata, answer, at=at)
        except RecordCorrupt as error:
            return ContentSource("seeded", _seed(file, metadata, at=at), f"the mirror's copy cannot be used: {error}")
    declared = _seed(file, metadata, at=at)
    if answer is None:
        return ContentSource("seeded", declared)
    did = "refused" if isinstance(answer, MirrorRefused) else "did not answer"
    return ContentSource("provisional", replace(declared, provisional=True), f"the mirror {did}: {answer}")


def _copied(uid: str, metadata: Metadata, stored: Stored, *, at: str) -> ContentSource:
    remote = decode(stored.body, uid=uid)
    if not remote.is_intact:
        raise RecordCorrupt("its digest is wrong")
    record = redeclared(remote, metadata, at=at)
    return ContentSource("hydrated", record, stored=stored, data=stored.body if record is remote else None)


def _seed(file: DeclaredFile, metadata: Metadata, *, at: str) -> Record:
    return seed(file.uid, metadata, content=file.content, at=at)


def _warn(found: dict[str, Answer]) -> None:
    """One line, however many files it is about."""
    errors = [answer for answer in found.values() if isinstance(answer, MirrorUnavailable)]
    if errors:
        _log.warning(
            "the mirror gave no answer for %d of %d files, which start with their declared content until it does: %s",
            len(errors),
            len(found),
            errors[0],
        )
