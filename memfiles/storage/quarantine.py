"""Quarantine and conflicts: copies of records, each with its reason in a file next to it.

``quarantine`` holds files that could not be read, moved byte for byte and never followed; ``conflicts`` holds the
losing sides of merges that were not clean. They are read or deleted only to redact or forget a record, or to settle a
conflict. ``set_aside`` and ``keep_copy`` raise ``OSError``, ``Quarantine`` raises ``StorageFailed``.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from memfiles.errors import RecordCorrupt, StorageFailed
from memfiles.records import NamedTuple, late_pattern, sha256
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import read_entry
from memfiles.records.history import texts_in
from memfiles.records.keys import ENTRIES, entry_place, id_path, user_in
from memfiles.records.marks import Mark, buries, is_tombstone
from memfiles.records.record import MAX_RECORD_BYTES, read_record
from memfiles.records.redactions import Piece, reveal
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, storage_failure

FOLDER = "quarantine"
CONFLICTS = "conflicts"
REASON_SUFFIX = ".reason.json"
_AT_ONCE = 8 << 20
_ESCAPES = late_pattern(rb'(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+')
_ABSENT = suppress(FileNotFoundError, NotADirectoryError)
MergeSide = Literal["local", "remote"]
_ESCAPED_BYTES = 6  # that JSON may take for one byte
_LONGEST_NAME = 214  # of 255 bytes that a file name may have: the time, the number and the suffix take the rest


class KeptCopy(NamedTuple):
    """A copy at ``kept`` of the record at ``path``, and what its note says of it."""

    kept: str
    path: str
    reason: str = "unknown"
    at: str = ""
    lost: MergeSide | None = None


class Quarantine(Struct, frozen=True):
    """The kept copies of a memory directory, given by path or descriptor; see ``home.KeptConflicts``."""

    where: int | Path

    def listing(self, folder: str = FOLDER) -> list[tuple[str, str]]:
        try:
            return [(note.kept, note.reason) for note in self.notes(folder)]
        except StorageFailed as error:
            return [(folder, str(error))]

    def remove(self, path: str, *, holding: Sequence[Piece] | None = None) -> int:
        with storage_failure(f"the copies of {path} cannot be removed"):
            directory = self._opened()
            copies = [kept for kept in _everything(directory) if _name_in(kept) == _name_of(path)]
            removed = [kept for kept in copies if holding is None or _holds(directory, kept, holding)]
            for kept in removed:
                _remove(directory, kept)
            return len(removed)

    def remove_if(self, is_unwanted: Callable[[str, bytes], bool]) -> None:
        with storage_failure("the kept copies cannot be removed"):
            directory = self._opened()
            for kept in _everything(directory):
                try:
                    found = atomic.read(directory, kept, limit=MAX_RECORD_BYTES)
                except RecordCorrupt:
                    found = None  # it is a folder, or whatever else stood in the way of a record
                if is_unwanted(_note_of(directory, kept).path, found[0] if found else b""):
                    _remove(directory, kept)

    def notes(self, folder: str) -> list[KeptCopy]:
        with storage_failure(f"the folder {folder} cannot be listed"), _ABSENT:
            directory = self._opened()
            return [_note_of(directory, f"{folder}/{name}") for name in _names(directory, folder)]
        return []

    def read(self, kept: str) -> bytes | None:
        with storage_failure(f"{kept} cannot be read"), suppress(RecordCorrupt):
            return (atomic.read(self._opened(), kept, limit=MAX_RECORD_BYTES) or (None,))[0]
        return None

    def keep(self, path: str, data: bytes, *, reason: str, at: str, folder: str, lost: MergeSide | None = None) -> None:
        with storage_failure(f"a copy of {path} cannot be kept in {folder}"):
            keep_copy(self._opened(), path, data, reason=reason, at=at, folder=folder, lost=lost)

    def remove_copy(self, kept: str) -> None:
        with storage_failure(f"{kept} cannot be removed"):
            _remove(self._opened(), kept)

    def _opened(self) -> int:
        return self.where if isinstance(self.where, int) else Descriptor.of_directory(self.where)


def set_aside(directory: int, path: str, *, reason: str, at: str, of: str | None = None) -> str:
    """Move whatever is at ``path`` into quarantine, with the reason; returns its new path.

    ``of`` is the path of its record, if it is another. The reason is written first, so that no kill leaves a file
    without a reason.
    """
    kept = _noted_place(directory, of or path, reason=reason, at=at)
    atomic.move(directory, path, to=kept)
    atomic.sync_folder(directory, FOLDER)
    atomic.sync_folder(directory, path.rpartition("/")[0])
    return kept


def keep_copy(
    directory: int, path: str, data: bytes, *, reason: str, at: str, folder: str = FOLDER, lost: MergeSide | None = None
) -> str:
    """Keep a copy of bytes about to be replaced at ``path`` in ``folder``, with the reason; returns its path.

    ``lost`` is the side of a merge that the copy is of.
    """
    kept = _noted_place(directory, path, reason=reason, at=at, folder=folder, lost=lost)
    atomic.create(directory, kept, data)
    atomic.sync_folder(directory, folder)
    atomic.sync_folder(directory)
    return kept


def holds_text(data: bytes, pieces: Sequence[Piece]) -> bool:
    """Whether the bytes of a copy hold one of these texts, as they are or in a history."""
    return bool(pieces) and bool(reveal(pieces, _texts_of(data)))


def holds_forgotten_entry(path: str, data: bytes, *, mark: Callable[[str], Mark | None]) -> bool:
    """Whether a kept copy of the record at ``path`` is of a forgotten or erased entry, or of a note made of one."""
    if entry_place(path) is None:
        return False
    known = mark(path)
    if known is not None and known.cleared:
        return True
    try:
        copy = read_entry(data, of=path)
    except RecordCorrupt:
        ids = (user_in(path) or "", *(known.left if known is not None else ()))
        return is_tombstone(known) or any(is_tombstone(mark(id_path(id))) for id in ids)
    if not isinstance(copy, Entry):
        return False
    is_buried = known is not None and buries(known, copy)
    is_erased = any((it := mark(id_path(id))) is not None and it.cleared for id in copy.ids)
    return is_buried or is_erased or any(is_tombstone(mark(id_path(id))) for id in (*copy.mortal_ids, *copy.sources))


def _remove(directory: int, kept: str) -> None:
    atomic.remove_all(directory, kept)
    with _too_long_for_a_note():
        atomic.remove(directory, kept + REASON_SUFFIX)


@contextmanager
def _too_long_for_a_note() -> Iterator[None]:
    """A file that somebody put there may have a name that leaves no room for the suffix: then it has no note."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def _everything(directory: int) -> list[str]:
    return [f"{folder}/{name}" for folder in (FOLDER, CONFLICTS) for name in _names(directory, folder)]


def _noted_place(
    directory: int, path: str, *, reason: str, at: str, folder: str = FOLDER, lost: MergeSide | None = None
) -> str:
    """A free path in ``folder`` for a copy of ``path``, with its reason already written."""
    import uuid  # late: few records are damaged

    atomic.make_folder(directory, folder)
    moment = at.replace(":", "").replace(".", "")
    kept = f"{folder}/{_name_of(path)}.{moment}.{uuid.uuid4().hex[:6]}"
    note = {"path": path, "reason": reason, "at": at} | ({"lost": lost} if lost is not None else {})
    atomic.create(directory, kept + REASON_SUFFIX, (json.dumps(note) + "\n").encode())
    return kept


def _name_of(path: str) -> str:
    """The path of a record as a part of file names; of a long one, the folder of its agent is only a digest."""
    name = path.replace("/", "~")
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    _, users, rest = name.partition("~users~")
    return f"{ENTRIES}~{sha256(os.fsencode(name)).hexdigest()[:40]}{users}{rest}"


def _name_in(kept: str) -> str:
    """The ``_name_of`` a copy's record, which may have dots; the time and number after it have none."""
    return kept.rpartition("/")[2].rsplit(".", 2)[0]


def _names(directory: int, folder: str) -> list[str]:
    """The names in a folder, without the reasons; none if there is no such folder."""
    with _ABSENT:
        return sorted(name for name in atomic.names(directory, folder) if not name.endswith(REASON_SUFFIX))
    return []


def _note_of(directory: int, kept: str) -> KeptCopy:
    path, note = _name_in(kept).replace("~", "/"), None
    try:
        with _too_long_for_a_note():
            note = atomic.read(directory, kept + REASON_SUFFIX, limit=64 * 1024)
        said = json.loads(note[0]) if note else {}
        lost: MergeSide | None = said["lost"] if said.get("lost") in ("local", "remote") else None
        if _name_of(said.get("path", path)) == _name_in(kept):  # else somebody changed the note
            path = said.get("path", path)
        return KeptCopy(kept, path, str(said["reason"]), str(said.get("at", "")), lost)
    except (RecordCorrupt, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return KeptCopy(kept, path)


def _holds(directory: int, kept: str, pieces: Sequence[Piece]) -> bool:
    """Whether a copy, or a file in a copied folder, holds one of these texts; it may have any size."""
    try:
        mode = os.stat(kept, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            return any(_holds(directory, f"{kept}/{name}", pieces) for name in atomic.names(directory, kept))
        if not stat.S_ISREG(mode):
            return False
        descriptor = os.open(kept, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    overlap = max((piece.size for piece in pieces), default=0) * _ESCAPED_BYTES
    with os.fdopen(descriptor, "rb") as file:
        tail = b""
        while chunk := file.read(_AT_ONCE):
            if reveal(pieces, _texts_of(tail + chunk)):
                return True
            tail = (tail + chunk)[-overlap:]
    return False


def _texts_of(data: bytes) -> Iterator[bytes]:
    """The bytes as they are, without the escapes of JSON and, if they are a record, the texts of its history."""
    yield data
    yield _ESCAPES.sub(lambda found: json.loads(b'"%b"' % found[0]).encode("utf-8", "surrogatepass"), data)
    with suppress(RecordCorrupt):
        record = read_record(data)
        yield from texts_in(record, reach=len(record.content))
