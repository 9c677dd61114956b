"""Several records changed together or not at all, also across a kill or a power cut.

The rules this file guards, in order: *stage* every new version beside the old one; *journal* them all in
one flushed frame; *publish* them. While a version is journaled and not published its temp file exists, so
whoever next takes the record's lock and finds a temp file knows that its writer died (``LeftBehind``).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from memfiles import atomic
from memfiles.atomic import Signature
from memfiles.errors import OutcomeUnknown, StorageFailed
from memfiles.frames import Version
from memfiles.journal import CAPACITY, Journal

PLAIN_COMMITS = 1
LARGEST_JOURNALED = CAPACITY // 4


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A record's next version: where it goes, which revision it is, and its bytes."""

    path: str
    revision: int
    data: bytes


class LeftBehind(Exception):
    """A dead writer's temp file is in the way: recover, read the record again and decide anew."""


class Transactions:
    """Commits to one memory directory through this process's journal."""

    def __init__(self, directory: int, journal: Journal, *, flush: bool) -> None:
        """``flush`` False leaves out every flush (durability ``os``)."""
        self._directory = directory
        self._journal = journal
        self._flush = flush
        self._plain_commits = 0

    def commit(self, changes: Sequence[NewVersion]) -> dict[str, Signature]:
        """Change these records; the caller holds their locks. See ``Store.commit`` for the errors."""
        plain = self._is_plain(changes)
        try:
            staged = self._stage(changes, flush=plain and self._flush)
            try:
                self._publish_plain(staged[0]) if plain else self._publish_journaled(staged)
            finally:
                self._drop(staged)
        except OSError as error:
            raise StorageFailed(f"the change was not written: {reason(error)}; nothing was changed") from error
        return {version.path: version.staged for version in staged}

    def _is_plain(self, changes: Sequence[NewVersion]) -> bool:
        """Whether to flush the file itself: one record, and a journal not worth it yet or too small for it.

        A process that changes one record (a command line) is done with two flushes and needs no journal.
        """
        if len(changes) != 1:
            return False
        return not self._flush or self._plain_commits < PLAIN_COMMITS or len(changes[0].data) > LARGEST_JOURNALED

    def _stage(self, changes: Sequence[NewVersion], *, flush: bool) -> list[Version]:
        """A full disk shows here, before anything is promised."""
        staged: list[Version] = []
        try:
            for change in changes:
                signature = atomic.stage(self._directory, change.path, change.data, flush=flush)
                staged.append(Version(change.path, change.revision, change.data, signature))
        except FileExistsError as error:
            self._drop(staged)
            raise LeftBehind(str(error)) from error
        except BaseException:
            self._drop(staged)
            raise
        return staged

    def _publish_plain(self, version: Version) -> None:
        """Publish one version whose file is flushed already, and flush its name."""
        self._plain_commits += 1
        atomic.publish(self._directory, version.path)
        if self._flush:
            try:
                atomic.sync_folder(self._directory, version.path.rpartition("/")[0])
            except OSError as error:
                raise OutcomeUnknown(_unflushed(version.path, error)) from error

    def _publish_journaled(self, staged: Sequence[Version]) -> None:
        ticket = self._journal.append(staged)  # 1 durable from here on
        done: list[tuple[str, bool]] = []
        try:
            for version in staged:
                done.append((version.path, atomic.publish(self._directory, version.path)))  # 2 visible
        except BaseException as error:
            self._take_back(done, because=error)
            try:
                self._journal.void(ticket)
            except OSError as failed:
                raise OutcomeUnknown(_unvoided(error, failed)) from error
            raise
        self._journal.published(ticket)  # 3 a checkpoint may now flush the files and overwrite the frame

    def _take_back(self, done: list[tuple[str, bool]], *, because: BaseException) -> None:
        for path, earlier in reversed(done):
            try:
                atomic.take_back(self._directory, path, earlier=earlier)
            except OSError as error:
                because.add_note(f"taking back {path} failed as well: {reason(error)}")

    def _drop(self, staged: Sequence[Version]) -> None:
        for version in staged:
            with suppress(OSError):
                atomic.drop(self._directory, version.path)


def reason(error: OSError) -> str:
    """What the system said, with the symbolic name of the error to search for."""
    name = errno.errorcode.get(error.errno or 0)
    return f"{error.strerror} ({name})" if name else str(error)


def _unflushed(path: str, error: OSError) -> str:
    return (
        f"{path} was replaced, but flushing its folder failed ({reason(error)}): the change is visible and may be "
        f"lost in a power cut"
    )


def _unvoided(error: BaseException, failed: OSError) -> str:
    return f"the change failed ({error}) and so did taking it back ({reason(failed)}): the next start may bring it"
