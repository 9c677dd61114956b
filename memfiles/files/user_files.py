"""Memory files ``per: user``: declared once, with a record of their own for each user.

The rules this file guards: a user's record holds content and history alone, and name, description, cap and level are
those declared at the time of each use; a user who never changes the file has no record, and sees the declared content;
and nothing is read or written in an epoch of the user that was forgotten. A record is an entry of ``@files``, which no
agent is: so it is watched, mirrored, merged and forgotten like all that is kept for a user, and no session sees it as
an entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.files.restore_report import FileReport, FileView, metadata_of
from memfiles.records import cached_property
from memfiles.records.declared_metadata import seed
from memfiles.records.entry import MAX_ENTRY_BYTES, TEXT_NAME, Entry
from memfiles.records.keys import FILES, check_user, id_path, uid_at, user_file_path
from memfiles.records.marks import EntryRecord, Mark, is_tombstone, tombstones_in, vacated
from memfiles.records.record import FORMAT, FORMAT_2, Record, successor

if TYPE_CHECKING:
    from memfiles.storage.repository import RecordRepository
    from memfiles.workflow.workflow import MemoryFile

T = TypeVar("T")


class UserEpoch(Struct, frozen=True):
    """A user by name, in one epoch: a session keeps to that in which it was made."""

    name: str
    epoch: str


class UserRecords(Protocol):
    """What is kept for the users of an open memory; see ``memfiles.entries.users``."""

    @property
    def repository(self) -> RecordRepository[EntryRecord]:
        """All records of users."""

    def epoch_of(self, user: str) -> str:
        """The epoch of a user now."""

    def release(self, paths: Sequence[str]) -> None:
        """Remove the earlier content of these records from all that is derived from them."""

    def strike(self, revisions: Mapping[str, int]) -> None:
        """Delete the notes of records, by path, of earlier revisions than these: what was lost by then is gone."""


class UserFiles(Struct, frozen=True):
    """The files of all users of one open memory.

    ``opened`` opens their records at the first use. ``at`` is the time of content that is declared and not yet written.
    """

    opened: Callable[[], UserRecords]
    lowest_level: str
    now: Callable[[], str]
    at: str

    def of(self, user: str | UserEpoch, declared: Mapping[str, MemoryFile]) -> FilesOfUser:
        """The ``declared`` files of a user, by name in the epoch of now; ``InvalidArgument`` for an invalid user."""
        known = user if isinstance(user, UserEpoch) else UserEpoch(check_user(user), self.opened().epoch_of(user))
        return FilesOfUser(self, known, declared)


class FilesOfUser(Struct, frozen=True, dict=True):
    """The files of one user, by the paths of their records, as a repository has those of all users."""

    files: UserFiles
    user: UserEpoch
    declared: Mapping[str, MemoryFile]

    def path(self, uid: str) -> str:
        """The path of the user's record of a file."""
        return user_file_path(self.user.name, uid)

    def view(self, uid: str) -> FileView:
        """A file as the user has it; ``stored`` is None as long as only its declared content is known."""
        record = self.current(path := self.path(uid))
        report = FileReport(uid, record.name, "kept", record.size_bytes > record.max_size_bytes)
        return FileView(report, record, record if self._live(self._repository.look(path).record) else None)

    def current(self, path: str) -> Record:
        """The file as it is now; raises what a repository raises."""
        return self._shown(path, self._repository.look(path).record, at=self.files.at)

    def change(
        self, paths: Iterable[str], decide: Callable[[Mapping[str, Record | None]], tuple[T, Sequence[Record]]]
    ) -> T:
        """Apply one decision to several files; raises what a repository raises.

        ``InvalidArgument`` if the user was forgotten since the epoch began.
        """
        wanted, grave, at = list(paths), id_path(self.user.epoch), self.files.now()

        def run(records: Mapping[str, EntryRecord | None]) -> tuple[T, list[EntryRecord]]:
            if is_tombstone(records[grave]):
                raise InvalidArgument("the user of this session was forgotten: ask the memory for a new session")
            result, changed = decide({path: self._shown(path, records[path], at=at) for path in wanted})
            return result, [self._kept(record, records[self.path(record.uid)], at=at) for record in changed]

        return self._repository.change([*wanted, grave], run)

    def notice(self, path: str, *, at_once: bool = False) -> bool:
        """Look at a file that may have been changed from outside; see ``RecordRepository.notice``."""
        return self._repository.notice(path, at_once=at_once)

    @cached_property
    def _repository(self) -> RecordRepository[EntryRecord]:
        return self.files.opened().repository

    @cached_property
    def _uids(self) -> dict[str, str]:
        return {self.path(uid): uid for uid in self.declared}

    def _live(self, record: EntryRecord | None) -> Entry | None:
        """The record, unless it is from a forgotten epoch of the user and waits to be erased."""
        if not isinstance(record, Entry):
            return None
        is_dead = record.epoch != self.user.epoch and is_tombstone(self._repository.look(id_path(record.epoch)).record)
        return None if is_dead or is_tombstone(self._repository.look(id_path(self.user.epoch)).record) else record

    def _shown(self, path: str, record: EntryRecord | None, *, at: str) -> Record:
        """The file as it is declared, with the content and history of the record, or else the declared content."""
        file = self.declared[self._uids[path]]
        metadata = metadata_of(file, lowest_level=self.files.lowest_level)
        if (entry := self._live(record)) is not None:
            return _with_names(entry.text, uid=file.uid, **metadata._asdict())
        first = seed(file.uid, metadata, content=file.content, at=at)
        if record is None:
            return first
        revision = record.revision + 1  # of the record of an epoch before
        history = tuple(replace(change, revision=revision) for change in first.history)
        return replace(first, revision=revision, history=history, origins=record.origins)

    def _kept(self, record: Record, before: EntryRecord | None, *, at: str) -> Entry:
        """The record of a changed file, to be written over ``before``."""
        text = _with_names(
            record, uid=uid_at(self.path(record.uid)), name=TEXT_NAME, description="", max_size_bytes=MAX_ENTRY_BYTES,
            level="", format=FORMAT_2 if record.redactions else FORMAT,
        )  # fmt: skip
        if (entry := self._live(before)) is not None:
            return entry.amended(text=text)
        mark = vacated(before, at) if isinstance(before, Entry) else before
        return Entry(
            text,
            FILES,
            record.uid,
            user=self.user.name,
            epoch=self.user.epoch,
            forgotten=tombstones_in(mark) if isinstance(mark, Mark) else (),
            given_id=_id_of(record.uid, self.user.epoch),
        )


def _id_of(uid: str, epoch: str) -> str:
    """The id of a user's record of a file: the same on every machine, so that two first changes meet in one record."""
    return hashlib.sha256(b"memfiles file\0%b\0%b" % (epoch.encode(), uid.encode())).hexdigest()[:32]


def _with_names(record: Record, **said: Any) -> Record:
    copy = successor(record, **said)
    vars(copy).pop("declared_json", None)  # of the names before
    return copy
