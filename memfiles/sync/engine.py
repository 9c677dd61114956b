"""The sync engine: keeps a directory and its mirror equal, in background threads that never delay other work.

The rules this file guards: there is no queue that could be lost, as pending work is found by comparing the disk with
what the mirror acknowledged; several processes on a directory take turns record by record; and whatever the mirror
does, closing takes seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf

from memfiles.errors import (
    CopyRefused,
    FileNotDeclared,
    InvalidArgument,
    LockTimeout,
    MemfilesError,
    MirrorUnavailable,
    RecordCorrupt,
)
from memfiles.records.keys import entry_place, is_id_path
from memfiles.storage.events import Progress, utc_now
from memfiles.storage.fork_safety import renew_in_child
from memfiles.sync.conflicts import Conflicts
from memfiles.sync.dirty_scan import Care, DirtyScan, note_hydrated
from memfiles.sync.dispatcher import Dispatcher, Task
from memfiles.sync.downloads import EntryDownloads
from memfiles.sync.ledger import Ledger
from memfiles.sync.mirror import Mirror, Stored, shortcomings_of
from memfiles.sync.pack import is_pack_stale, refresh_pack
from memfiles.sync.reconciler import Reconciler
from memfiles.sync.replica import OUTCOMES, Outcome, Replica
from memfiles.sync.status import SyncReport, SyncSettings, SyncStatus, refused_in, status_of
from memfiles.sync.workers import Job, Timer

_SWEEP_SECONDS = 30.0
_THOROUGH_SECONDS = 600.0  # between sweeps that also compare files that can only have been written to in place
_FETCH_SECONDS = 15.0  # between requests for entries that the mirror has not given yet
_START_SECONDS = 30.0  # how long a start waits for entries if there are none at all
_LOSS_SECONDS = 3600.0  # between checks whether the mirror has lost anything
_ELSEWHERE_SECONDS = 0.2  # until a job that another process does is tried again
_IDLE_SECONDS = 5.0  # between checks whether there is time to write a pack
_PACK_SECONDS = 600.0  # between one pack and the next
_CLOSE_SECONDS = 5.0
_FIRST_ENTRIES, _BACKGROUND = "the entries are not here yet", "background work with the mirror failed"
_JOBS = frozenset((_FIRST_ENTRIES, _BACKGROUND))
_UNSCANNED, _UNWIPED = "the records to push cannot be found", "an earlier version of a record may still be in a journal"
_log = logging.getLogger("memfiles.sync")


class Sync:
    """Keeps the live records of one directory and one mirror equal; ``start`` it, ``close`` it."""

    def __init__(
        self,
        replica: Replica,
        *,
        mirror: Mirror,
        ledger: Ledger,
        settings: SyncSettings,
        now: Callable[[], str] = utc_now,
        dispatcher: type[Dispatcher] = Dispatcher,
        kept: Conflicts | None = None,
    ) -> None:
        """``now`` gives the time for changes and for copies that are ``kept``; ``dispatcher`` carries out the tasks."""
        self.settings = settings
        kept = kept or Conflicts(replica.home)
        self.conflicts, self.resolve = kept.conflicts, kept.resolve
        self._replica = replica
        self._ledger = ledger
        downloads = EntryDownloads(replica, mirror, ledger, settings.on_conflict, now)
        self._scan = DirtyScan(replica, ledger, downloads)
        self._dispatcher = dispatcher(self._reconcile, timers=self._timers)
        soon, note = self._dispatcher.at_once, self._note
        self._reconciler = Reconciler(
            replica, mirror, ledger, downloads, settings.on_conflict, now=now, soon=soon, note=note
        )
        self.notice = self._dispatcher.notice  # the subscriber of changes, without a detour: it runs after every write
        self._errors = _ErrorLog(ledger, self._dispatcher)
        self._jobs = _Jobs(
            replica, mirror, ledger, self._scan, downloads, self._reconciler, self._dispatcher, self._errors
        )
        self._loss_after = 0.0
        self._left_nothing = False  # by ``close``
        self._renew()
        renew_in_child(self, Sync._renew)

    def _renew(self) -> None:
        """Reset to a state in which nothing was done, as at first and in the child of a fork."""
        self._dispatcher.renew()
        self._noting = threading.Lock()
        self._job_under_way: Job[None] | None = None
        self._outcomes: dict[str, Outcome] = {}

    def start(self, *, hydrated: Mapping[str, Stored] | None = None) -> None:
        """Push what the mirror lacks, and go on doing so; ``hydrated`` are the copies that a restore fetched.

        If there are no entries at all, waits for those of the mirror; if it does not answer, they come later.
        """
        self._jobs.hydrated = hydrated or {}
        lacks_entries = self._lacks_all_entries()
        self._loss_after = _LOSS_SECONDS if lacks_entries else 0.0
        self._dispatcher.start()
        if lacks_entries:
            self._bring_entries()

    def entries_opened(self) -> None:
        """The first use opened the entries after the start: wait for those of the mirror, as a start does."""
        if not self._dispatcher.is_closed and self._lacks_all_entries():
            self._bring_entries()

    def status(self) -> SyncStatus:
        """How far the mirror is behind, found on the disk alone."""
        dirty, told = self._scan.dirty(), (self._errors.last, self._ledger.meta.state().shortcomings)
        return status_of(self.settings.url, dirty, *told, where=self._replica.home)

    def flush(self, timeout: float = 30.0, *, insist: bool = True, progress: Progress | None = None) -> bool:
        """Push what the mirror lacks now, and wait for it; returns whether that was done within ``timeout`` seconds.

        An unreadable record does not count, but is pending in ``status``, whose ``last_error`` also tells what could
        not be removed here. With ``insist`` False, gives up as soon as the mirror does not answer. ``progress`` is
        called with (done, total).
        """
        self._jobs.find_dirty_records()
        is_done = self._dispatcher.wait(timeout, insist=insist, progress=progress)
        self._jobs.wipe()
        return is_done

    def push(self, timeout: float = 300.0, *, progress: Progress | None = None) -> SyncReport:
        """Push what the mirror lacks or has lost, and rewrite the pack if there are many records.

        The report covers everything since the last report, or since the start.
        """
        begun = time.monotonic()
        with suppress(MirrorUnavailable):  # the report says what is pending
            self._run_job(self._jobs.find_lost_copies, timeout)
        left = max(0.0, timeout - (time.monotonic() - begun))
        if self.flush(left, progress=progress) and is_pack_stale(self._replica, self._ledger):
            refresh_pack(self._replica, self._jobs.mirror, self._ledger)
        return self._report()

    def pull(self, timeout: float = 300.0, *, progress: Progress | None = None) -> SyncReport:
        """Fetch what changed elsewhere, and push what the mirror lacks; the report as of ``push``.

        ``MirrorUnavailable`` if the mirror cannot be listed, and its entries fetched, within ``timeout`` seconds; what
        arrived by then is kept, and the rest follows in the background.
        """
        begun = time.monotonic()
        self._run_job(self._jobs.find_changed_copies, timeout)
        self.flush(max(0.0, timeout - (time.monotonic() - begun)), progress=progress)
        self._reconciler.remove_stale_pack()
        return self._report()

    def close(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Push what is left if the mirror answers within ``timeout`` seconds, and stop; whether nothing is left.

        What is left is pushed after the next start. May be called again.
        """
        try:
            if not self._dispatcher.is_closed:
                with suppress(MemfilesError):
                    self._left_nothing = self.flush(timeout, insist=False)
        finally:
            self._dispatcher.close()
            self._ledger.close()
        return self._left_nothing

    def _bring_entries(self) -> None:
        try:
            self._run_job(self._jobs.find_lost_copies, _START_SECONDS)
        except MemfilesError as error:
            self._errors.note(_FIRST_ENTRIES, error)

    def _lacks_all_entries(self) -> bool:
        """Whether there are no entries here and the mirror may have some; not if it just did not answer."""
        if not self._replica.listing.has_entries or self._replica.listing.entry_paths():
            return False
        if self._ledger.meta.state().has_fetched_entries and not any(map(entry_place, self._ledger.versions())):
            return False
        files = (self._replica.read(path) for path in self._replica.listing.file_paths())
        return not any(copy is not None and copy.is_provisional for copy in files)

    def _timers(self, now: float) -> list[Timer]:
        """The periodic jobs, once the engine runs."""
        at_start, every = self.settings.pull_at_start, self.settings.pull_seconds
        jobs = [(self._jobs.tidy_up, now + _IDLE_SECONDS, _IDLE_SECONDS)]
        if at_start or every is not None:
            jobs.append((self._jobs.find_changed_copies, now if at_start else now + (every or 0.0), every or inf))
        if not at_start:
            jobs.append((self._jobs.find_lost_copies, now + self._loss_after, _LOSS_SECONDS))
        jobs.append((self._jobs.find_first_entries, now + _FETCH_SECONDS, _FETCH_SECONDS))
        later = [Timer(partial(self._start_job, job), at, period) for job, at, period in jobs]
        return [Timer(self._jobs.sweep, now, _SWEEP_SECONDS), *later]

    def _start_job(self, job: Callable[[], None]) -> bool:
        """Start a job in a worker; False while another one is under way."""
        if self._job_under_way is not None and not self._job_under_way.done():
            return False

        def attempt() -> None:
            try:
                job()
            except LockTimeout as error:
                _log.debug("left to another process: %s", error)
            except Exception as error:
                self._errors.note(_BACKGROUND, error)

        self._job_under_way = self._dispatcher.in_background(attempt)
        return True

    def _run_job(self, job: Callable[[], None], timeout: float) -> None:
        """Do a job in a worker; gives up after ``timeout`` seconds if the mirror hangs or another process does it."""
        deadline = time.monotonic() + timeout
        while True:
            if self._dispatcher.is_closed:
                raise InvalidArgument("this memory is closed; open it again")
            running = self._dispatcher.in_background(job)
            try:
                return running.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                if running.done():
                    raise
                raise MirrorUnavailable(f"the mirror did not answer within {timeout:g} s") from error
            except LockTimeout as error:
                if time.monotonic() >= deadline:
                    raise MirrorUnavailable(f"{error}; that took longer than {timeout:g} s") from error
            time.sleep(_ELSEWHERE_SECONDS)

    def _reconcile(self, task: Task) -> bool:
        """Reconcile one record with its copy; returns whether the mirror had to be asked."""
        try:
            with self._replica.turn(task.path):
                outcome = self._reconciler.reconcile(task.path, look=task.look)
        except FileNotDeclared:
            self._errors.solved(task.path, answered=False)
            raise
        except LockTimeout:
            raise
        except Exception as error:
            self._errors.note(task.path, error)
            self._scan.recheck(task.path)
            raise
        self._note(task.path, outcome)
        answered = task.look or outcome != "equal"
        self._errors.solved(task.path, answered=answered)
        if outcome == "pushed":
            self._jobs.note_shortcomings(task.path)
        return answered

    def _note(self, path: str, outcome: Outcome) -> None:
        """Note an outcome for the next report."""
        with self._noting:
            self._outcomes[path] = max(self._outcomes.get(path, "equal"), outcome, key=OUTCOMES.index)

    def _report(self) -> SyncReport:
        with self._noting:
            outcomes, self._outcomes = self._outcomes, {}
        pending = tuple(record.path for record in self._scan.dirty())
        unused = {key: why for key, why in self._errors.open.items() if key.endswith(".json") and key not in pending}
        return SyncReport(dict(sorted(outcomes.items())), pending, unused | refused_in(self._replica.home))


class _ErrorLog:
    """The open errors, each logged once; the ledger keeps the last for other processes."""

    def __init__(self, ledger: Ledger, dispatcher: Dispatcher) -> None:
        self._ledger = ledger
        self._dispatcher = dispatcher
        self.open: dict[str, str] = {}  # by record or job, the latest last; replaced, never changed
        self._renew()
        renew_in_child(self, _ErrorLog._renew)

    def _renew(self) -> None:
        self._noting = threading.Lock()

    @property
    def last(self) -> str | None:
        """The last error of what still fails."""
        return next(reversed(self.open.values()), None)

    def note(self, what: str, error: Exception) -> None:
        """Log an error of a record or a job; one that is not ours with its traceback."""
        message = f"{what}: {error}".replace(f"{what}: {what}: ", f"{what}: ", 1)
        with self._noting:
            is_news = not self._dispatcher.is_closed and self.open.get(what) != message
            self.open = {**self._without({what}), what: message}
            if is_news:
                with suppress(MemfilesError):
                    self._ledger.meta.note("last_error", message)
        if is_news:
            _log.warning("%s", message, exc_info=error if not isinstance(error, MemfilesError) else None)

    def solved(self, what: str, *, answered: bool) -> None:
        """A record is in order now; if the mirror ``answered``, it answers the jobs as well."""
        if what in self.open or (answered and not self.open.keys().isdisjoint(_JOBS)):
            self._remove({what, *(_JOBS if answered else ())})

    def answered(self) -> None:
        """The mirror answered a job."""
        self._remove(_JOBS)

    def _remove(self, solved: Set[str]) -> None:
        with self._noting:
            self.open = self._without(solved)
            with suppress(MemfilesError):
                self._ledger.meta.note("last_error", self.last)

    def _without(self, solved: Set[str]) -> dict[str, str]:
        return {what: message for what, message in self.open.items() if what not in solved}


@dataclass(slots=True)
class _Jobs:
    """The periodic jobs of the sync. Each may be repeated, and stopped at any point."""

    replica: Replica
    mirror: Mirror
    ledger: Ledger
    scan: DirtyScan
    downloads: EntryDownloads
    reconciler: Reconciler
    dispatcher: Dispatcher
    errors: _ErrorLog
    hydrated: Mapping[str, Stored] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)  # records that could not be read at the last scan
    pack_after: float = 0.0
    thorough_at: float = 0.0
    promises_after: float = 0.0

    def sweep(self) -> None:
        """Find changes that no event reported: left from an earlier run, or made by other programs."""
        try:
            hydrated, self.hydrated = self.hydrated, {}
            note_hydrated(self.ledger, hydrated)
            is_thorough = time.monotonic() >= self.thorough_at
            if is_thorough:
                self.thorough_at = time.monotonic() + _THOROUGH_SECONDS
            self.find_dirty_records("thorough" if is_thorough else "patient")
            self.errors.solved(_UNSCANNED, answered=False)
        except Exception as error:
            self.errors.note(_UNSCANNED, error)

    def find_dirty_records(self, care: Care = "usual") -> None:
        """Schedule the records that the mirror lacks; an unreadable one is an error until it can be read."""
        found, before = self.scan.dirty(care=care), self.unread
        self.unread = {record.path for record in found if record.unread is not None}
        for path in before - self.unread:
            self.errors.solved(path, answered=False)
        for path, _, error in found:
            self.dispatcher.at_once(path) if error is None else self.errors.note(path, error)

    def find_changed_copies(self) -> None:
        """Schedule the records whose copies changed in the mirror, and fetch new entries."""
        with self.replica.home.mirrored.leading():
            listed = dict(self.mirror.list())
            changed = self.scan.changed(listed)
            for path in filter(is_id_path, changed):  # tombstones and locations come first; errors are reported below
                with suppress(LockTimeout, CopyRefused, RecordCorrupt), self.replica.turn(path):
                    self.reconciler.note(path, self.reconciler.reconcile(path, look=True))
            for path in changed:
                self.dispatcher.at_once(path, look=True)
            self._fetch_entries(listed)
        self.errors.answered()

    def find_lost_copies(self) -> None:
        """Schedule the records whose copies the mirror lost, and fetch the entries if that was never completed."""
        with self.replica.home.mirrored.leading():
            listed = dict(self.mirror.list())
            for path in self.scan.lost(listed):
                self.dispatcher.at_once(path, look=True)
            if not self.ledger.meta.state().has_fetched_entries or not self.replica.listing.entry_paths():
                self._fetch_entries(listed)
        self.errors.answered()

    def find_first_entries(self) -> None:
        """Repeat the fetch of entries that failed at the start, or was killed, until all are here."""
        if self.replica.listing.has_entries and not self.ledger.meta.state().has_fetched_entries:
            self.find_lost_copies()

    def tidy_up(self) -> None:
        """Wipe what was forgotten, and rewrite the pack if there is time for it."""
        self.wipe()
        self.reconciler.remove_stale_pack()
        now = time.monotonic()
        if now >= self.pack_after and self.dispatcher.is_idle and is_pack_stale(self.replica, self.ledger):
            with self.replica.home.mirrored.leading():
                self.pack_after = now + _PACK_SECONDS
                refresh_pack(self.replica, self.mirror, self.ledger)

    def note_shortcomings(self, path: str) -> None:
        """Note, once in a while, which promises the mirror breaks: a put just told it, so it is seldom asked."""
        if time.monotonic() >= self.promises_after:
            self.promises_after = time.monotonic() + _LOSS_SECONDS
            with suppress(MemfilesError):
                self.ledger.meta.note_shortcomings(shortcomings_of(self.mirror, path))

    def wipe(self) -> None:
        """Remove content forgotten or redacted elsewhere from journals, index and ledger; retried after a failure."""
        try:
            if self.ledger.meta.state().must_wipe:
                self.ledger.meta.wipe(self.replica.release_forgotten)
            self.errors.solved(_UNWIPED, answered=False)
        except MemfilesError as error:
            self.errors.note(_UNWIPED, error)

    def _fetch_entries(self, listed: Mapping[str, str]) -> None:
        """Download the entries that only the mirror has, if entries are used here."""
        if not self.replica.listing.has_entries:
            return
        for path in self.downloads.bring(self.downloads.missing(listed), listed=listed):
            self.reconciler.note(path, "pulled")
        self.ledger.meta.note("entries_fetched", "yes")
