"""The engine that keeps a directory and its mirror equal, beside the work and never in its way.

The rules this file guards: there is no queue that could be lost, since what is to be done is found by comparing the
disk with what the mirror acknowledged; several processes on a directory take turns record by record; and whatever the
mirror does, closing is over in seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf

from memfiles.errors import FileNotDeclared, InvalidArgument, LockTimeout, MemfilesError, MirrorUnavailable
from memfiles.records.keys import entry_place, record_path
from memfiles.storage.events import RecordChanged, utc_now
from memfiles.storage.fork_safety import renew_in_child
from memfiles.sync.dirty_scan import Care, Survey, note_hydrated
from memfiles.sync.dispatcher import Dispatcher, Progress
from memfiles.sync.ledger import Bookkeeping
from memfiles.sync.mirror import Mirror, Stored
from memfiles.sync.packer import Packer
from memfiles.sync.reconciler import Reconciler
from memfiles.sync.replica import Replica
from memfiles.sync.reports import OUTCOMES, Outcome, SyncReport, SyncSettings, SyncStatus
from memfiles.sync.schedule import Task
from memfiles.sync.timer import Timer

_SWEEP_SECONDS = 30.0
_THOROUGH_SECONDS = 600.0  # how often also files are compared that can only have been written to in place
_FETCH_SECONDS = 15.0  # how often entries are asked for that the mirror has not given yet
_START_SECONDS = 30.0  # how long a start waits for entries where there are none at all
_LOSS_SECONDS = 3600.0  # how often it is asked whether the mirror has lost anything
_IDLE_SECONDS = 5.0  # how often it is asked whether there is time to write a pack
_PACK_SECONDS = 600.0  # between one pack and the next
_CLOSE_SECONDS = 5.0
_log = logging.getLogger("memfiles.sync")


class Sync:
    """Keeps the live records of one directory and one mirror equal; ``start`` it, ``close`` it."""

    def __init__(
        self,
        replica: Replica,
        *,
        mirror: Mirror,
        book: Bookkeeping,
        settings: SyncSettings,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """``now`` gives the time for changes and notes."""
        self.settings = settings
        self._replica = replica
        self._mirror = mirror
        self._book = book
        self._packer = Packer(replica, mirror=mirror, book=book)
        self._reconciler = Reconciler(replica, mirror=mirror, book=book, on_conflict=settings.on_conflict, now=now)
        self._survey = Survey(replica, book, self._reconciler.newcomers)
        self._dispatcher = Dispatcher(self._carry_out, timers=self._timers)
        self._hydrated: Mapping[str, Stored] = {}
        self._loss_after = 0.0
        self._last_error: str | None = None
        self._pack_after = 0.0
        self._thorough_at = 0.0
        self._renew()
        renew_in_child(self, Sync._renew)

    def _renew(self) -> None:
        """Nothing was done yet: at the beginning, and in the child of a fork."""
        self._dispatcher.renew()
        self._reporting = threading.Lock()
        self._looking: threading.Event | None = None
        self._outcomes: dict[str, Outcome] = {}

    def start(self, *, hydrated: Mapping[str, Stored] | None = None) -> None:
        """Push whatever the mirror lacks and go on doing so; ``hydrated`` are the copies that a restore fetched.

        Where there are no entries at all, those of the mirror are waited for; if it does not answer, they come later.
        """
        self._hydrated = hydrated or {}
        is_looking = self._lacks_all_entries()
        self._loss_after = _LOSS_SECONDS if is_looking else 0.0
        self._dispatcher.start()
        if is_looking:
            self._bring_entries()

    def entries_are_kept(self) -> None:
        """Entries are used for the first time, after the start; they are waited for as a start does."""
        if not self._dispatcher.is_closed and self._lacks_all_entries():
            self._bring_entries()

    def _bring_entries(self) -> None:
        try:
            self._look(self._find_lost_copies, _START_SECONDS)
        except MemfilesError as error:
            self._complain("the entries are not here yet", error)

    def _lacks_all_entries(self) -> bool:
        """Whether there are no entries here and the mirror may have some; not if it just did not answer."""
        if not self._replica.entries.is_kept or self._replica.entries.paths():
            return False
        if self._book.has_fetched_entries() and not any(map(entry_place, self._book.versions())):
            return False
        files = (self._replica.read(path) for path in self._replica.file_paths())
        return not any(copy is not None and copy.is_provisional for copy in files)

    def notice(self, event: RecordChanged) -> None:
        """A record changed; called after every change, and costs it next to nothing."""
        if event.origin != "mirror":
            self._dispatcher.changed(event.path or record_path(event.uid))

    def status(self) -> SyncStatus:
        """How far the mirror is behind, found on the disk alone."""
        dirty = sorted(self._survey.dirty(), key=lambda record: record.since_ns)
        lag = max(0.0, (time.time_ns() - dirty[0].since_ns) / 1e9) if dirty else 0.0
        return SyncStatus(
            mirror=self.settings.url,
            pending=len(dirty),
            oldest_pending=dirty[0].path if dirty else None,
            lag_seconds=round(lag, 3),
            last_error=self._last_error,
            conflicts=tuple(path for path, _ in self._replica.conflicts()),
        )

    def flush(self, timeout: float = 30.0, *, insist: bool = True, progress: Progress | None = None) -> bool:
        """Push what the mirror lacks now, and wait for it; whether that was done within ``timeout`` seconds.

        ``insist`` False gives up as soon as the mirror does not answer. ``progress`` is told how many records are done
        and how many there are.
        """
        self._find_dirty_records()
        return self._dispatcher.wait(timeout, insist=insist, progress=progress)

    def push(self, timeout: float = 300.0, *, progress: Progress | None = None) -> SyncReport:
        """Push what the mirror lacks or has lost, and write the pack anew if there are many records.

        The report tells what was done since the last one, or since the start.
        """
        begun = time.monotonic()
        with suppress(MirrorUnavailable):  # the report says what is pending
            self._look(self._find_lost_copies, timeout)
        left = max(0.0, timeout - (time.monotonic() - begun))
        if self.flush(left, progress=progress) and self._packer.is_worth_it():
            self._packer.refresh()
        return self._report()

    def pull(self, timeout: float = 300.0, *, progress: Progress | None = None) -> SyncReport:
        """Fetch what changed elsewhere, push what the mirror lacks; the report as of ``push``.

        ``MirrorUnavailable`` if the mirror cannot be listed within ``timeout`` seconds; nothing was changed then.
        """
        begun = time.monotonic()
        self._look(self._find_changed_copies, timeout)
        self.flush(max(0.0, timeout - (time.monotonic() - begun)), progress=progress)
        self._wipe()
        return self._report()

    def close(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Push what is left if the mirror answers within ``timeout`` seconds, and stop; whether nothing is left.

        What is left is pushed after the next start. May be called again.
        """
        if self._dispatcher.is_closed:
            return True
        done = False
        try:
            with suppress(MemfilesError):
                done = self.flush(timeout, insist=False)
        finally:
            self._dispatcher.close()
            self._book.close()
        return done

    def _timers(self, now: float) -> list[Timer]:
        """What is looked at again and again, once the engine runs."""
        at_start, every = self.settings.pull_at_start, self.settings.pull_seconds
        looks = [(self._tidy_up, now + _IDLE_SECONDS, _IDLE_SECONDS)]
        if at_start or every is not None:
            looks.append((self._find_changed_copies, now if at_start else now + (every or 0.0), every or inf))
        if not at_start:
            looks.append((self._find_lost_copies, now + self._loss_after, _LOSS_SECONDS))
        looks.append((self._find_first_entries, now + _FETCH_SECONDS, _FETCH_SECONDS))
        later = [Timer(partial(self._look_later, look), at, period) for look, at, period in looks]
        return [Timer(self._sweep, now, _SWEEP_SECONDS), *later]

    def _sweep(self) -> None:
        """Find what no event told of: what is left of an earlier run, and what others changed."""
        try:
            hydrated, self._hydrated = self._hydrated, {}
            note_hydrated(self._book, hydrated)
            is_thorough = time.monotonic() >= self._thorough_at
            if is_thorough:
                self._thorough_at = time.monotonic() + _THOROUGH_SECONDS
            self._find_dirty_records("thorough" if is_thorough else "patient")
        except Exception as error:
            self._complain("what is to be pushed cannot be found out", error)

    def _look_later(self, look: Callable[[], None]) -> None:
        """Have a worker look at the mirror, unless one still does."""

        def attempt() -> None:
            try:
                look()
            except Exception as error:
                self._complain("the mirror cannot be looked at", error)

        if self._looking is None or self._looking.is_set():
            self._looking = self._dispatcher.in_background(attempt)

    def _look(self, look: Callable[[], None], timeout: float) -> None:
        """Look at the mirror in a worker, so that one that hangs is given up after ``timeout`` seconds."""
        if self._dispatcher.is_closed:
            raise InvalidArgument("this memory is closed; open it again")
        failure: list[Exception] = []

        def attempt() -> None:
            try:
                look()
            except Exception as error:
                failure.append(error)

        if not self._dispatcher.in_background(attempt).wait(timeout):
            raise MirrorUnavailable(f"the mirror did not list its records within {timeout:g} s")
        if failure:
            raise failure[0]

    def _find_dirty_records(self, care: Care = "usual") -> None:
        for record in self._survey.dirty(care=care):
            self._dispatcher.at_once(record.path)

    def _find_changed_copies(self) -> None:
        listed = dict(self._mirror.list())
        for path in self._survey.changed(listed):
            self._dispatcher.at_once(path, look=True)
        self._fetch_entries(listed)
        self._forget_error()

    def _find_lost_copies(self) -> None:
        listed = dict(self._mirror.list())
        for path in self._survey.lost(listed):
            self._dispatcher.at_once(path, look=True)
        if not self._book.has_fetched_entries() or not self._replica.entries.paths():
            self._fetch_entries(listed)
        self._forget_error()

    def _find_first_entries(self) -> None:
        """What a start asked for in vain, or was killed over, is asked for until it is all here."""
        if self._replica.entries.is_kept and not self._book.has_fetched_entries():
            self._find_lost_copies()

    def _fetch_entries(self, listed: Mapping[str, str]) -> None:
        """Bring the entries here that only the mirror has, where entries are used; else they were not fetched."""
        if not self._replica.entries.is_kept:
            return
        newcomers = self._reconciler.newcomers
        for path in newcomers.bring(newcomers.missing(listed), listed=listed):
            with self._reporting:
                self._outcomes[path] = "pulled"
        self._book.entries_are_fetched()

    def _tidy_up(self) -> None:
        """Let nothing hold what was forgotten, and write the pack anew if there is time for it."""
        self._wipe()
        self._reconciler.remove_stale_pack()
        now = time.monotonic()
        if now >= self._pack_after and self._dispatcher.is_idle and self._packer.is_worth_it():
            self._pack_after = now + _PACK_SECONDS
            self._packer.refresh()

    def _wipe(self) -> None:
        """Leave nothing in journals, index and notes of what was forgotten elsewhere."""
        if self._book.must_wipe():
            self._replica.let_go()
            self._book.wipe()

    def _carry_out(self, task: Task) -> bool:
        """Bring one record and its copy together; whether the mirror had to be asked."""
        try:
            with self._replica.turn(task.path):
                outcome = self._reconciler.bring_together(task.path, look=task.look)
        except (LockTimeout, FileNotDeclared):
            raise
        except Exception as error:
            self._complain(task.path, error)
            raise
        with self._reporting:
            self._outcomes[task.path] = max(self._outcomes.get(task.path, "equal"), outcome, key=OUTCOMES.index)
        answered = task.look or outcome != "equal"
        if answered or not self._dispatcher.is_failing:
            self._last_error = None
        return answered

    def _complain(self, what: str, error: Exception) -> None:
        """Say what went wrong, once however often it happens again; what is no error of ours with its traceback."""
        said, self._last_error = self._last_error, f"{what}: {error}"
        if not self._dispatcher.is_closed and said != self._last_error:
            _log.warning("%s", self._last_error, exc_info=error if not isinstance(error, MemfilesError) else None)
            with suppress(MemfilesError):
                self._book.note_error(self._last_error)

    def _forget_error(self) -> None:
        self._last_error = None
        self._book.note_error(None)

    def _report(self) -> SyncReport:
        with self._reporting:
            outcomes, self._outcomes = self._outcomes, {}
        pending = tuple(record.path for record in self._survey.dirty())
        return SyncReport(dict(sorted(outcomes.items())), pending)
