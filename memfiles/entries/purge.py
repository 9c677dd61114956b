"""Purging: erases hidden and expired entries after their retention, and the entries of runs that are over.

The rules this file guards:

- Content that expired, or was deleted or evicted, is erased after the time that the workflow says, or once there is too
  much of it: from the record and its history, the index, the kept copies, the journals and the mirror.
- An erased entry leaves a mark, so that an old copy cannot bring it back; a copy with a change that was not known here
  does. The mark says when the time of the entry was over, and not when or by whom it was erased, so that no session
  learns from it what others do.
- What is due is found by time, and never by looking at all entries. A save erases a portion at most.
- The entries of a run are gone when its last session ends, files included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries.callers import Caller, Partition, own_level, writable_categories
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.drafts import HOUR_SECONDS, LAST_MOMENT, later
from memfiles.entries.forget import Forgetter
from memfiles.entries.reader import EntryDatabase
from memfiles.errors import MemfilesError
from memfiles.index import database, groups
from memfiles.records import late_logger as _log
from memfiles.records.entry import Entry
from memfiles.records.keys import check_switch, id_path
from memfiles.records.marks import EntryRecord, Mark, erased
from memfiles.records.record import Stamp
from memfiles.storage.audit_reader import drop_months
from memfiles.storage.events import Progress
from memfiles.storage.record_store import RemoteStore
from memfiles.storage.store import kept_with

_AT_ONCE = 1000
_PORTION = 200  # entries that a save, an open or a close erases at most
_PAUSES = 24  # in the shortest retention: how often one process erases, as each time costs some milliseconds
_SPARE_RETIRED = 64  # more than allowed before any is purged, so that not every delete purges one
_Erased = tuple[Entry, list[Mark]]  # an entry as it was, and the marks in its place


class Purged(Struct, frozen=True):
    """The number of entries that a purge erased, or would erase (``dry_run``), and the months of the audit it dropped.

    ``expired``: nobody hid them. ``deleted``: they were deleted or evicted, whether or not they have expired too.
    """

    expired: int = 0
    deleted: int = 0
    audit_months: tuple[str, ...] = ()
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        counts = {"expired": self.expired, "deleted": self.deleted}
        return counts | {"audit_months": list(self.audit_months), "dry_run": self.dry_run}


class Purger(Struct):
    """Erases the entries of one open memory whose time is over, and drops its audit month by month."""

    db: EntryDatabase
    forgetter: Forgetter
    looks_at: str = ""  # when ``sweep`` looks again

    def sweep(self, *, at_once: bool = False) -> None:
        """Erase a portion of what is due, if it is time to look, or ``at_once``.

        A failure is only logged: the caller's own change is done already, and a later one tries again.
        """
        now = self.db.now()
        if now < self.looks_at and not at_once:
            return
        self.looks_at = later(now, HOUR_SECONDS)
        with self._logging():
            self.forgetter.finish()
            due = self._due(now)
            erased_now = self._erase(due, now)
            self._finish(erased_now, due)
            self._drop_audit()
            is_all = len(due) < _PORTION
            self.looks_at = self._next_time(now, has_erased=bool(erased_now)) if is_all else now
        self._tidy_store()

    def purge(self, *, dry_run: bool, progress: Progress | None = None) -> Purged:
        """Erase all that is due; ``dry_run`` counts. Errors as of ``Forgetter.forget``; ``progress`` as of ``open``."""
        check_switch(dry_run, what="dry_run")
        now = self.db.now()
        self.forgetter.finish()
        self.db.refresh()
        moments = self.db.rules.retention.moments(now)
        expired, hidden = self.db.index.ask(lambda connection: database.count_due(connection, **moments))
        if dry_run:
            return Purged(expired, hidden, self._drop_audit(dry_run=True), dry_run=True)
        done, noted = list[_Erased](), dict[str, int]()
        while due := self._due(now):
            noted |= due
            done += (portion := self._erase(due, now))
            if progress is not None:
                progress(len(done), max(len(done), expired + hidden))
            if not portion:  # others were faster, or put them back
                break
        self._finish(done, noted)
        count = sum(entry.retired is None for entry, _ in done)
        purged = Purged(count, len(done) - count, self._drop_audit())
        self._tidy_store()
        return purged

    def erase(self, paths: Iterable[str]) -> None:
        """Erase the entries among these that are past their retention; the next sweep does what fails now."""
        due = {entry.path: entry.revision for entry in self.db.entries(paths)}
        done = self._erase(due, self.db.now())
        with self._logging():
            self._finish(done, due)

    def end_run(self, caller: Caller, *, levels: Iterable[str]) -> int:
        """Remove the entries of the caller's run alone at these levels; returns how many there were.

        Marks come first, so that no journal brings them back; then the files are removed.
        """
        db = self.db
        partitions = [own_level(caller, level)["run"] for level in levels] if caller.provenance.run else []
        if not partitions:
            return 0
        db.index.catch_up()
        paths = [row.path for row in db.rows(partitions)]
        stamp = Stamp(db.now(), caller.actor(None))

        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            found = (record for record in records.values() if isinstance(record, Entry))
            return None, [erased(entry, stamp.at, by=stamp.by) for entry in found]

        for start in range(0, len(paths), _AT_ONCE):
            db.repository.change(portion := paths[start : start + _AT_ONCE], decide)
            db.repository.remove(portion, lambda record: isinstance(record, Mark))
        return len(paths)

    def thin_out(self, caller: Caller, level: str | None = None) -> None:
        """Erase the oldest hidden entries that the caller may change if there are too many; only logs a failure."""
        with self._logging():
            for partition in (own := own_level(caller, level)).values():
                may = writable_categories(own, partition.folder, rules=self.db.rules)
                self._erase_surplus(partition, caller, among=may)

    @contextmanager
    def sweeping(self, caller: Caller) -> Iterator[None]:
        """Call ``thin_out`` and ``sweep`` after a block that may hide entries, if the block succeeds."""
        yield
        self.thin_out(caller)
        self.sweep()

    def _tidy_store(self) -> None:
        """Remove old notes of commits from a store that keeps them; a failure is only logged."""
        try:
            if isinstance(self.db.store, RemoteStore):
                self.db.store.checkpoint()
        except MemfilesError as error:
            _log.warning("old notes of commits are not removed yet; that is tried again later: %s", error)

    @contextmanager
    def _logging(self) -> Iterator[None]:
        try:
            yield
        except MemfilesError as error:
            _log.warning("content whose time is over is not erased yet; it is tried again later: %s", error)

    def _due(self, now: str) -> dict[str, int]:
        """The revisions of a portion of the due entries, by path."""
        self.db.index.catch_up()
        moments = self.db.rules.retention.moments(now)
        return dict(self.db.index.ask(lambda connection: database.due(connection, **moments, limit=_PORTION)))

    def _next_time(self, now: str, *, has_erased: bool) -> str:
        """When to look again: once the next entry is due, known by now or not, but within the hour."""
        retention = self.db.rules.retention
        shortest = min(retention.expired, retention.deleted)
        ends = self.db.index.ask(database.first_expiry)
        kept = zip(ends, (retention.expired, retention.deleted), strict=True)
        first = min((later(end, seconds) for end, seconds in kept if end is not None), default=LAST_MOMENT)
        soonest = later(now, min(HOUR_SECONDS, shortest // _PAUSES) if has_erased else 0)
        return max(soonest, min(first, later(now, min(HOUR_SECONDS, shortest))))

    def _erase(self, due: Mapping[str, int], now: str) -> list[_Erased]:
        """Replace the entries among these that are past their retention by marks; ``_finish`` does the rest."""
        erasure = self.db.rules.retention.erasure

        def over(entry: Entry) -> Stamp | None:
            return Stamp(at) if (at := erasure(entry)) is not None and at <= now else None

        done = self._clear(due, over) if due else []
        self.db.index.doubt(due.keys() - {entry.path for entry, _ in done})
        return done

    def _finish(self, done: Sequence[_Erased], noted: Mapping[str, int]) -> None:
        """Remove the content of erased entries from everything but the records, and the marks of runs."""
        marks = [mark for _, marks in done for mark in marks]
        if noted:
            self.forgetter.complete(marks, noted=noted)
        if private := [mark.path for mark in marks if mark.run]:  # no other machine can have their entries
            self.db.repository.remove(private, lambda record: isinstance(record, Mark))

    def _clear(self, paths: Mapping[str, int], stamp_of: Callable[[Entry], Stamp | None]) -> list[_Erased]:
        """Replace entries, and the locations that lead to them, by marks; returns the entries with their marks.

        Both are noted first, so that the next start removes content that a kill leaves behind.
        """
        known = {mark.path: mark.revision for path in self.db.id_paths(paths) if (mark := self.db.mark(path))}
        self.forgetter.note({**paths, **known})

        def decide(records: RecordsByPath) -> tuple[list[_Erased], list[Mark]]:
            done = list[_Erased]()
            for entry in records.values():
                if isinstance(entry, Entry) and (stamp := stamp_of(entry)) is not None:
                    known = (records.get(path) for path in map(id_path, entry.ids))
                    here = (it for it in known if isinstance(it, Mark) and it.leads and it.target == entry.path)
                    cleared = (replace(it, revision=it.revision + 1, at=stamp.at, by=stamp.by, key="", cleared=True)
                               for it in here)  # fmt: skip
                    done.append((entry, [erased(entry, stamp.at, by=stamp.by), *cleared]))
            return done, [mark for _, marks in done for mark in marks]

        return self.db.repository.change([*paths, *known], decide)

    def _erase_surplus(self, partition: Partition, caller: Caller, *, among: Collection[str] | None) -> None:
        """``among``: count and erase only entries of these categories."""

        def counts(category: str) -> bool:
            return among is None or category in among

        most, hidden = self.db.rules.budget.max_entries, self.db.index.totals(partition).retired
        found = sum(number for category, number in hidden.items() if counts(category))
        if most is None or found <= most + _SPARE_RETIRED:
            return
        self.db.index.catch_up()
        limit = min(found - most, _AT_ONCE)
        rows = self.db.index.ask(lambda connection: groups.retired(connection, partition, limit=limit, among=among))
        stamp = Stamp(self.db.now(), caller.actor(None))
        revisions = {row.path: row.revision for row in rows}
        self._clear(revisions, lambda entry: stamp if entry.retired and counts(entry.category) else None)

    def _drop_audit(self, *, dry_run: bool = False) -> tuple[str, ...]:
        kept, home = self.db.rules.retention.audit, kept_with(self.db.store)
        if home is None:
            return ()
        return drop_months(home, now=self.db.now(), after_seconds=kept, dry_run=dry_run)
