"""The index of one memory directory: told of every change, asked every question.

The rules this file guards: what it says is what the records say, whoever changed them; and whatever befalls its files,
it is built anew and nobody is told but by the time it takes.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from memfiles.errors import LockTimeout, StorageFailed
from memfiles.index import freshness as trust
from memfiles.index.background import LateWriter
from memfiles.index.catch_up import CatchingUp, RecordSource, differing
from memfiles.index.change_log import HEADER_BYTES
from memfiles.index.database import failures, index_database
from memfiles.index.memory_fallback import StandIn
from memfiles.index.pending_writes import PendingWrites
from memfiles.index.row_writer import load_totals
from memfiles.index.rows import Row
from memfiles.index.text_index import TextIndex
from memfiles.index.totals import CountPlace, Totals, totals_of
from memfiles.index.unusable import IndexUnusable
from memfiles.storage.atomic import Signature
from memfiles.storage.derived_database import DatabaseLost
from memfiles.storage.entry_folders import folder_times
from memfiles.storage.fork_safety import renew_in_child

T = TypeVar("T")
_BATCH = 256  # records looked at in one transaction: others wait no longer than for these
_STUCK_SECONDS = 5.0  # for so long a database that could not be used is not asked for again
_COMPACT_ATTEMPTS = 50
_COMPACT_PAUSE_SECONDS = 0.05


class Index:
    """The rows and texts of all entries, for this process and all its threads; opened when it is first used."""

    def __init__(
        self, directory: Path, descriptor: int, *, read: Callable[[str], Row | None], texts: TextIndex
    ) -> None:
        """``descriptor`` is the directory's; ``read`` gives the row of the record at a path, None if there is none."""
        self._texts = texts
        self._descriptor = descriptor
        self._records = RecordSource(descriptor, read)
        self._backlog = PendingWrites(descriptor)
        self._catching_up = CatchingUp(self._records, texts, self._backlog)
        self._database = index_database(directory, descriptor, prepare=texts.prepare)
        self._stand_in = StandIn(descriptor, self._catching_up, prepare=texts.prepare)
        self._writer = LateWriter(self._write)
        self._start()
        renew_in_child(self, Index._leave_to_parent)

    def _start(self) -> None:
        self._turn = threading.RLock()
        self._is_ready = False
        self._is_closed = False
        self._is_verified = False
        self._must_verify = False
        self._stuck_until = 0.0
        self._watched: dict[str, Signature | None] = {}  # what other processes may be changing

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records, under their locks; give the token to ``put`` or ``settle``."""
        if not self._is_ready and not self._is_stuck:
            with suppress(StorageFailed), self._turn:
                self._tried(lambda: self._guarded(lambda: None))
        self._refuse_closed()
        return self._backlog.intend(paths)

    def put(self, rows: Iterable[Row], token: str, *, before: Iterable[Row] = ()) -> None:
        """Take in the records that were committed, still under their locks.

        ``before`` are the rows of those that were there before, for the totals to be right at once.
        """
        if self._backlog.put(rows, token, before=before):
            self._writer.begin()
            if self._backlog.is_heavy:
                self._writer.end()

    def settle(self, token: str) -> None:
        """Look at the records whose change failed or whose outcome is not known, still under their locks."""
        self._backlog.settle(token)

    def doubt(self, paths: Iterable[str]) -> None:
        """Look at these records before the next question of this process."""
        self._backlog.doubt(paths)

    def catch_up(self) -> None:
        """Have every change that was made before this call, by whichever process, in the rows.

        Where the database cannot be used (another process holds it, the disk is full, nothing may be written), the
        records themselves are asked for some seconds.
        """
        self._refuse_closed()
        if not self._is_stuck and not self._is_fresh():
            with suppress(IndexUnusable), self._turn:
                self._tried(lambda: self._guarded(self._sync))

    def verify(self) -> list[str]:
        """Compare every file with its row, and read what differs; the paths of temp files that lie about."""
        self._refuse_closed()
        with suppress(IndexUnusable), self._turn:
            if not self._is_stuck:
                self._tried(lambda: self._guarded(self._apply))
                return self._tried(lambda: self._guarded(self._verify))
        return []

    def verify_once(self) -> list[str]:
        """``verify``, unless this process has done so since it opened the index."""
        if not self._is_verified:
            with self._turn:
                if not self._is_verified:
                    return self.verify()
        return []

    def ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What ``work`` answers from the tables, which nobody changes meanwhile; it may be called a second time."""
        with self._turn:
            return self._or_stand_in(lambda: self._guarded(lambda: self._answer(work)), work)

    def derive(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As ``change``, for what may as well be lost: a database that cannot be used does without it."""
        return self._or_stand_in(lambda: self.change(work), work)

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What ``work`` comes to, which may write what is derived from the texts; it may be called a second time."""

        def run() -> T:
            with self._database.transaction() as connection:
                return work(connection)

        with self._turn:
            return self._guarded(run)

    def totals(self, place: CountPlace) -> Totals:
        """The totals as of the last catch-up, with all that this process has put since."""
        if self._is_stuck:
            return totals_of(self.ask(lambda connection: load_totals(connection, place)).items())
        found = self._backlog.totals(place)
        if found is None:
            with self._turn:
                loaded = self.ask(lambda connection: load_totals(connection, place))
                if self._is_stuck:
                    return totals_of(loaded.items())
                found = self._backlog.totals(place, loaded=loaded)
        return found or Totals()

    def touch(self, path: str, *, at: str) -> None:
        """Note that an entry was read at this time: a hint for evictions, which may be lost."""
        if self._backlog.read(path, at=at) and self._is_ready:
            self._writer.begin()

    def settle_reads(self) -> None:
        """Have the reads of this process in the rows, too, if it can write them; what else is new comes with them."""
        self._refuse_closed()
        with suppress(IndexUnusable), self._turn:
            if self._backlog.has_reads and not self._is_stuck:
                self._tried(lambda: self._guarded(self._apply))

    def forget(self, paths: Iterable[str]) -> None:
        """Look at these records, and keep no word of what they were; ``LockTimeout`` if someone reads all the time."""
        with self._turn:
            self._guarded(lambda: self._forget(list(paths)))

    def _write(self) -> None:
        """Write what many saves have left: the records are what counts, and the next question looks at all."""
        with suppress(IndexUnusable), self._turn:
            if not self._is_stuck:
                self._tried(lambda: self._guarded(self._apply))

    def close(self) -> None:
        """Write what is known, and put the index to rest if nobody else uses it. May be called again."""
        self._writer.end()
        with self._turn:
            if self._is_closed:
                return
            with suppress(StorageFailed):
                if not self._is_stuck:
                    self._put_to_rest()
            self._is_closed = True
            self._stand_in.drop()
            self._database.close()
            self._backlog.close()

    def _leave_to_parent(self) -> None:
        is_closed = self._is_closed
        self._database.leave_to_parent()
        self._backlog.leave_to_parent()
        self._writer.renew()
        self._start()
        self._is_closed = is_closed

    @property
    def _is_stuck(self) -> bool:
        """Whether the database could not be used just now, so that nobody waits for it again."""
        return time.monotonic() < self._stuck_until

    def _tried(self, work: Callable[[], T]) -> T:
        """Do it, and remember for a while if the database cannot be used; the turn is taken."""
        try:
            done = work()
        except IndexUnusable:
            self._stuck_until = time.monotonic() + _STUCK_SECONDS
            raise
        self._stand_in.drop()
        return done

    def _or_stand_in(self, work: Callable[[], T], instead: Callable[[sqlite3.Connection], T]) -> T:
        """Do it, or ask the records where the database cannot be used."""
        with self._turn:
            self._refuse_closed()
            with suppress(IndexUnusable):
                if not self._is_stuck:
                    return self._tried(work)
            with failures():
                return self._stand_in.ask(instead, begin=self._database)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StorageFailed("the index is closed")

    def _is_fresh(self) -> bool:
        """Whether the rows are known to hold everything."""
        return (
            self._is_ready
            and not self._must_verify
            and self._backlog.is_empty()
            and self._database.is_current
            and all(self._records.signature(path) == found for path, found in self._watched.items())
        )

    def _guarded(self, work: Callable[[], T]) -> T:
        """Do it with a sound database; one that turns out to be lost is built anew, and the work done again."""
        self._refuse_closed()
        for _ in range(2):
            try:
                self._make_ready()
                return work()
            except DatabaseLost as error:
                lost = error
                self._database.start_over()
                self._must_verify, self._is_ready = True, False
        raise IndexUnusable(f"the index cannot be built: {lost}") from lost

    def _make_ready(self) -> None:
        """Open what is not open, and find out whether it can be believed."""
        if self._is_ready and self._database.is_current:
            return
        log = self._backlog.open()
        try:
            connection = self._database.connection()
            with failures():
                is_sound = trust.is_complete(connection)
                self._must_verify |= not is_sound or not (
                    self._is_ready or trust.is_unchanged(connection, self._descriptor)
                )
            self._is_ready = True
            if log.is_alone:
                self._apply(is_alone=True)
        finally:
            if log.is_alone:
                log.share()

    def _apply(self, *, also: Iterable[str] = (), is_alone: bool = False) -> None:
        """One transaction with all that is new; if it fails, what was new is found by looking at everything."""
        try:
            with self._database.transaction() as connection:
                self._watched = self._catching_up.apply(connection, also=also, is_alone=is_alone)
                self._must_verify |= not trust.is_complete(connection)
        except BaseException:
            self._must_verify = True
            raise
        finally:
            self._backlog.land()
        self._must_verify |= self._backlog.is_behind
        self._backlog.is_behind = False

    def _sync(self) -> None:
        self._apply()
        if self._must_verify:
            self._verify()

    def _answer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._must_verify:
            self._sync()
        connection = self._database.connection()
        with failures():
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("COMMIT")

    def _verify(self) -> list[str]:
        now_ns, times = time.time_ns(), folder_times(self._descriptor)
        left_over: list[str] = []
        connection = self._database.connection()
        with failures():
            self._look(list(differing(connection, self._descriptor, left_over)))
        with self._database.transaction() as connection:
            trust.note_complete(connection, times, now_ns=now_ns)
        self._must_verify, self._is_verified = False, True
        self._backlog.land()
        return left_over

    def _look(self, paths: Iterable[str]) -> None:
        remaining = iter(paths)
        while some := list(islice(remaining, _BATCH)):
            with self._database.transaction() as connection:
                self._catching_up.look(connection, some)

    def _forget(self, paths: list[str]) -> None:
        self._apply(also=paths)
        with failures():
            self._texts.scrub(self._database.connection())
        for _ in range(_COMPACT_ATTEMPTS):
            if self._database.compact():
                return
            time.sleep(_COMPACT_PAUSE_SECONDS)
        raise LockTimeout("the entry is forgotten, but another process reads the index all the time: forget it again")

    def _put_to_rest(self) -> None:
        if not self._is_ready and self._backlog.log is None:
            return
        if not self._is_fresh() or self._backlog.has_reads:
            self._guarded(self._apply)
        log = self._backlog.open()
        if self._must_verify or not log.take_alone():
            return
        if self._watched or not self._is_fresh():
            self._apply(is_alone=True)
        if self._must_verify or not trust.is_written(self._database.connection()):
            return
        log.empty()
        with self._database.transaction() as connection:
            trust.seal(connection, self._descriptor, log=log.id, end=HEADER_BYTES)
        self._database.settle()
