"""The index of one memory directory: it hears of every change, and answers every question about the entries.

The rules this file guards: its answers are those of the records, whoever changed them; and whatever happens to its
files, it is built again, and nobody notices anything but the time that takes.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from memfiles.errors import MemfilesError, StorageFailed
from memfiles.index.catch_up import IndexReplaced, Maintenance, Trust
from memfiles.index.database import IndexUnusable, create_tables, failures, index_database, large_folders
from memfiles.index.pending_writes import MAX_FACTOR, PendingWrites
from memfiles.index.record_source import RecordSource, Source, StoreSource
from memfiles.index.rows import PartitionKey, Row, Totals, counted_row, load_sums, row_of, totals_of
from memfiles.records.marks import EntryRecord
from memfiles.storage.atomic import Signature
from memfiles.storage.derived_database import DatabaseLost, DerivedDatabase
from memfiles.storage.entry_folders import Pause, UnlistedFolders, no_pause
from memfiles.storage.fork_safety import collector_paused, renew_in_child, start_thread
from memfiles.storage.record_store import Records, RecordStore
from memfiles.storage.store import with_files

if TYPE_CHECKING:
    from memfiles.index.image import ImageKeeper

T = TypeVar("T")
_Transaction = Callable[[], AbstractContextManager[sqlite3.Connection]]
_Work = Callable[[sqlite3.Connection], T]
_SHUT = (Trust.UNOPENED, Trust.LOST)
_ATTEMPTS = 4  # it was damaged, and then replaced by others who found it damaged as well
_AT_ONCE = 64  # folders compared at a time; others may use the index in between
_STUCK_SECONDS = 5.0  # how long a database that could not be used is left alone


class Index:
    """The rows and texts of all entries, for this process and all its threads; opened when it is first used.

    While the database cannot be used (another process holds it, the disk is full, nothing may be written), questions
    are answered from the records, for some seconds at a time.
    """

    def __init__(self, directory: Path, descriptor: int, records: Source) -> None:
        """``descriptor`` is that of the ``directory`` of the index; ``records`` are the records that it indexes."""
        self._records, self.directory, self.unread = records, directory, records.unread
        self._database = index_database(directory, descriptor)
        self._pending = PendingWrites(descriptor)
        self._maintenance = Maintenance(self._database, records, self._pending)
        self.unlisted, self.unfollowed = records.unlisted, self._maintenance.unfollowed
        self._fallback = MemoryFallback(records)
        self._apply = collector_paused()(self._maintenance.apply)  # of what waits here, mostly many rows
        self._writer = BackgroundWriter(partial(self._maintain, self._apply))
        self._turn, self._following, self._stuck_until = threading.RLock(), threading.RLock(), 0.0
        self.is_followed = False  # whether a thread that watches calls ``verify`` for all folders now and then
        self.when_forgotten: list[Callable[[], object]] = []  # each drops what is remembered of the rows
        self._keeper: ImageKeeper | None = None
        if isinstance(records, StoreSource) and records.images is not None:
            from memfiles.index.image import ImageKeeper  # late: a directory has no need of one

            self._keeper = ImageKeeper(records.images, self._database, directory, descriptor=descriptor)
        renew_in_child(self, Index._leave_to_parent)

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records, under their locks; returns the token for ``put`` or ``settle``."""
        self._refuse_closed()
        if self._maintenance.trust in _SHUT and not self._is_stuck:
            with suppress(StorageFailed):
                self._maintain(self._maintenance.open)
        return self._pending.intend(paths)

    def put(
        self, written: Iterable[tuple[EntryRecord, Signature]], token: str, *, before: Iterable[EntryRecord] = ()
    ) -> None:
        """Take records that were committed, with their signatures, still under their locks.

        ``before`` are the earlier versions of these records, so that the totals are right at once.
        """
        rows = [row_of(record, signature) for record, signature in written]
        if self._pending.put(rows, token, before=[counted_row(record) for record in before]):
            self._writer.begin()
            if self._pending.rows.exceed(MAX_FACTOR):
                self._writer.wait()

    def settle(self, token: str) -> None:
        """Read again the records whose change failed or has an unknown outcome, still under their locks."""
        self._pending.settle(token)

    def doubt(self, paths: Iterable[str]) -> None:
        """Read these records again before the next question of this process."""
        self._pending.doubt(paths)

    def catch_up(self, *, reads: bool = False) -> None:
        """Include every change that any process made before this call; with ``reads``, also this process's reads."""
        self._refuse_closed()
        if self._records.has_feed:
            self._follow()
        if not self._is_stuck and not (self._maintenance.is_fresh() and not (reads and self._pending.reads)):
            self._maintain(partial(self._maintenance.catch_up, reads=reads))
        if self._keeper is not None and not self._is_stuck:
            self._keeper.begin(self._at_rest)

    def _at_rest(self, work: Callable[[], T]) -> T:
        """Do ``work`` while the tables have every change up to now, and nobody writes them; an error if they have not.

        An answer may come from the records instead, or be asked while another thread still writes. A copy may not.
        """
        if self._records.has_feed:
            self._follow()
        with self._turn:
            self._retried(self._maintenance.catch_up)
            if self._maintenance.trust is not Trust.CURRENT or not self._database.is_current:
                raise IndexUnusable("the index could not be compared with the records")
            return work()

    def _follow(self) -> None:
        """Have the records read again that the feed names."""
        with self._following:
            if not self._maintenance.is_open and not self._is_stuck:
                self._maintain(self._maintenance.open)  # which knows where it was left
            if (news := self._records.news()) is None:
                self._maintenance.must_compare = True
            else:
                self._pending.doubt(news)
            self._records.take()

    def verify(self, folders: Iterable[str] | None = None, *, once: bool = False, pause: Pause = no_pause) -> list[str]:
        """Compare every file with its row, and read the ones that differ; returns temp files of dead writers.

        Only files in these ``folders``, and with ``once`` only of folders that this process has not compared yet; large
        ones are left to the thread that follows them, if there is one. Others may use the index while the files are
        looked at.
        """
        self._refuse_closed()
        maintenance = self._maintenance
        if once and folders is not None:
            folders = maintenance.compared.missing(folders)
            if folders and self.is_followed:
                large = self.ask(partial(large_folders, folders=folders))
                folders = [folder for folder in folders if folder not in large]
            return self._compared(folders, pause=pause) or [] if folders or maintenance.left_over else []
        if folders is not None:
            return self._compared(list(folders), pause=pause) or []
        if once and maintenance.compared.are_all:
            return []
        known = self.ask(self._records.folders)
        if len(known) <= _AT_ONCE:
            return self._compared(known, is_all=True, pause=pause) or []
        found = [self._compared(known[at : at + _AT_ONCE], pause=pause) for at in range(0, len(known), _AT_ONCE)]
        if None not in found:
            maintenance.compared.add()
        return [path for some in found for path in some or ()]

    def _compared(self, folders: list[str], *, is_all: bool = False, pause: Pause) -> list[str] | None:
        """Temp files of dead writers in these folders, which were compared; None if the database cannot be used."""
        with suppress(IndexUnusable), failures():
            look = self._records.look(self._peek, folders, timed=is_all, pause=pause)
            return self._maintain(partial(self._maintenance.verify, None if is_all else folders, look))
        return None

    def _peek(self, work: _Work[T]) -> T:
        """The answer of the rows in the database, which may be behind the records. Raises ``IndexUnusable``."""
        with self._turn:
            if self._is_stuck:
                raise IndexUnusable("the index could not be used a moment ago")
            with self._breaker():
                return self._retried(lambda: work(self._database.connection()))

    def ask(self, work: _Work[T]) -> T:
        """Answer ``work`` from the tables, which nobody changes meanwhile; it may be called a second time."""
        return self._answer(self._maintenance.snapshot, work)

    def change(self, work: _Work[T], *, durable: bool = True) -> T:
        """Let ``work`` write what is derived from the texts; it may be called a second time.

        With ``durable`` False, the change may be lost: it goes to the fallback while the database cannot be used.
        """
        if not durable:
            return self._answer(self._maintenance.transaction, work)
        with self._turn:
            return self._retried(partial(_within, self._maintenance.transaction, work))

    def totals(self, partition: PartitionKey, *, recount: bool = False) -> Totals:
        """The totals as of the last catch-up, with what this process put since; ``recount`` loads the sums again."""
        if not self._is_stuck and (found := self._pending.totals(partition, recount=recount)) is not None:
            return replace(found, is_behind=self._records.has_feed or self._pending.announcements.has_news())
        with self._turn:
            loaded = self.ask(lambda connection: load_sums(connection, partition))
            found = None if self._is_stuck else self._pending.totals(partition, loaded=loaded)
            return found or totals_of(loaded.items())

    def touch(self, path: str, *, at: str) -> None:
        """Note that an entry was read at this time: a hint for evictions, which may be lost."""
        if self._pending.read(path, at=at) and self._maintenance.is_open:
            self._writer.begin()

    def forget(self, paths: Iterable[str]) -> None:
        """Read these records again, and keep no word of earlier versions. Raises ``LockTimeout``, ``StorageFailed``."""
        with self._turn:
            self._retried(partial(self._maintenance.forget, list(paths)))
            for drop in self.when_forgotten:
                drop()

    def close(self) -> None:
        """Write pending changes, and seal the index unless another process uses it. May be called again.

        Nothing stays in a cache that was forgotten elsewhere meanwhile, unless the store cannot be asked.
        """
        try:
            if self._keeper is not None:
                self._keeper.close()
            self._writer.wait()
            if self._records.is_kept and self._maintenance.is_open:
                with suppress(MemfilesError):
                    self._follow()
            with self._turn:
                if self._maintenance.trust is not Trust.CLOSED:
                    self._seal()
                self._shut()
        except BaseException:  # an interrupt: no process could open the index while this one has its log
            self._shut()
            raise

    def _seal(self) -> None:
        """Write pending changes, and seal the index unless another process uses it. The turn is held."""
        with suppress(StorageFailed):
            if not self._is_stuck and (self._maintenance.is_open or self._pending.announcements.log is not None):
                if not self._maintenance.is_fresh() or self._pending.reads:
                    self._retried(partial(self._apply, reads=True))
                self._maintenance.seal()

    def _shut(self) -> None:
        """Release everything. May be called again."""
        with self._turn:
            self._maintenance.trust = Trust.CLOSED
            self._fallback.drop()
            self._database.close()
            self._pending.close()
            self._records.close()

    def _leave_to_parent(self) -> None:
        self._database.leave_to_parent()
        self._pending.leave_to_parent()
        self._writer.renew()
        if self._keeper is not None:
            self._keeper.renew()
        self._turn, self._following = threading.RLock(), threading.RLock()
        self._stuck_until, self.is_followed = 0.0, False  # the thread that watches is the parent's
        if self._maintenance.trust is not Trust.CLOSED:
            self._maintenance.reset()

    @property
    def _is_stuck(self) -> bool:
        """Whether the database could not be used a moment ago, so that nobody waits for it again."""
        return time.monotonic() < self._stuck_until

    def _refuse_closed(self) -> None:
        if self._maintenance.trust is Trust.CLOSED:
            raise StorageFailed("the index is closed")

    def _maintain(self, work: Callable[[], T]) -> T | None:
        """Work on the database; None while it cannot be used, as later questions then go to the records."""
        with suppress(IndexUnusable), self._turn:
            if not self._is_stuck:
                with self._breaker():
                    return self._retried(work)
        return None

    def _answer(self, transaction: _Transaction, work: _Work[T]) -> T:
        """Do the work in a transaction on the database, or on the fallback where the database cannot be used."""
        with self._turn:
            self._refuse_closed()
            if not self._is_stuck:
                with suppress(IndexUnusable), self._breaker():
                    return self._retried(partial(_within, transaction, work))
            self._maintenance.must_compare |= bool(self.unread or self.unlisted)  # which may only be found here
            with failures():
                return _within(partial(self._fallback.transaction, self._database), work)

    @contextmanager
    def _breaker(self) -> Iterator[None]:
        """Leave the database alone for some seconds once it could not be used; forget the fallback once it could."""
        try:
            yield
        except IndexUnusable:
            self._stuck_until = time.monotonic() + _STUCK_SECONDS
            raise
        self._fallback.drop()

    def _retried(self, work: Callable[[], T]) -> T:
        """Work on the open database; if that is lost, build it again and work once more. The turn is held."""
        self._refuse_closed()
        for _ in range(_ATTEMPTS):
            try:
                if self._keeper is not None and self._maintenance.trust in _SHUT:
                    self._keeper.fetch()
                with failures():
                    self._maintenance.open()
                    return work()
            except DatabaseLost as error:
                lost = error
                if not isinstance(error, IndexReplaced):
                    self._maintenance.start_over()
        raise IndexUnusable(f"the index cannot be built: {lost}") from lost


def index_of(store: RecordStore, read: Callable[[str, Records | None], Row | None]) -> Index:
    """The index of the entries in a store, in its directory, or else in a folder of this process.

    ``read`` returns the row of the record at a path, among the records given or as it is now, if there is one.
    """
    if (files := with_files(store)) is not None:
        records = RecordSource(at := files.descriptor, lambda path: read(path, None), UnlistedFolders(at))
        return Index(files.directory, at, records)
    source = StoreSource(store, read)
    return Index(source.folder, source.descriptor, source)


class MemoryFallback:
    """The same tables in this process's memory, for while the database cannot be used; one thread at a time.

    Every transaction begins by comparing each file with its row, so it includes all changes by any process.
    """

    def __init__(self, records: Source) -> None:
        self._records = records
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self, source: DerivedDatabase) -> Iterator[sqlite3.Connection]:
        """Current tables; they are copied from ``source`` first, if that can be read."""
        if self._connection is not None and self._connection.in_transaction:  # of a call that was interrupted
            self.drop()
        connection = self._connection = self._connection or self._copy(source)
        paths = list(self._records.differing(lambda work: work(connection), []))
        connection.execute("BEGIN")
        try:
            self._records.refresh(connection, paths)
        except BaseException:
            self.drop()
            raise
        try:
            yield connection
        finally:
            connection.execute("COMMIT")

    def drop(self) -> None:
        """Free the memory; the next transaction copies again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _copy(self, source: DerivedDatabase) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        connection.execute("PRAGMA temp_store = MEMORY")  # whose content must not get into a file
        if not source.copy_into(connection):
            create_tables(connection)
        return connection


class BackgroundWriter:
    """Does ``work`` in a thread, which ends when there is nothing to do; once more if it was asked for meanwhile."""

    def __init__(self, work: Callable[[], object]) -> None:
        """``work`` must not raise."""
        self._work = work
        self.renew()

    def renew(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._asking, self._is_wanted = threading.Lock(), False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Do the work soon."""
        with self._asking:
            self._is_wanted = True
            if self._thread is None or not self._thread.is_alive():  # an interrupt may have come before its start
                self._thread = threading.Thread(target=self._run, name="memfiles-index", daemon=True)
                start_thread(self._thread)

    def wait(self) -> None:
        """Wait until the work is done, or do it where no thread can be started."""
        with self._asking:  # a thread can be joined only once it was started
            thread = self._thread
        if thread is not None and not thread.is_alive():  # none could be started
            self._run()
        elif thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._asking:
                if not self._is_wanted:
                    self._thread = None
                    return
                self._is_wanted = False
            self._work()


def _within(transaction: _Transaction, work: _Work[T]) -> T:
    with transaction() as connection:
        return work(connection)
