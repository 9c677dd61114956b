"""The record repository: records of one type, each read fresh from disk and changed under its lock.

The rules this file guards: nothing is returned but the newest version on disk or, if that is broken, the last good
one; a change made by hand becomes a revision before anything is put on top of it; a broken file goes to quarantine
before it is replaced; subscribers hear of a change when no lock is held, and of several in quick succession perhaps
only of the last; and a change listener, such as the search index, hears of every commit by this repository before and
after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from memfiles.errors import FileNotDeclared, InvalidArgument, LockTimeout, MemfilesError, RecordCorrupt
from memfiles.records.keys import RECORD_SUFFIX, record_path, uid_of
from memfiles.records.marks import Mark
from memfiles.storage.atomic import Signature
from memfiles.storage.events import Origin, RecordChanged, Subscribers
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.record_kinds import Observed, RecordKind, broken, judged, news_of
from memfiles.storage.store import Store
from memfiles.storage.transaction import LeftBehind, NewVersion

KNOWN_MAX = 65536
KNOWN_BYTES_MAX = 16 * 2**20
"""How many undeclared records are remembered as last seen, and of how many bytes on disk (in memory they take some
four times as many), so that reading one again costs a single stat. The ones read first go first."""

_ATTEMPTS = 50
_log = logging.getLogger("memfiles")
R = TypeVar("R")
T = TypeVar("T")
Contra = TypeVar("Contra", contravariant=True)


class ChangeListener(Protocol[Contra]):
    """Hears of every commit while the locks of its records are held."""

    def intend(self, paths: Sequence[str]) -> str:
        """Announce a change of these records; returns the token for ``put`` or ``settle``."""

    def put(self, written: Sequence[tuple[Contra, Signature]], token: str, *, before: Sequence[Contra]) -> None:
        """Take in the committed records with their signatures, and the ones they replaced."""

    def settle(self, token: str) -> None:
        """Check the records of an announced change that failed or has an unknown outcome."""

    def doubt(self, paths: Iterable[str]) -> None:
        """Check these records before the next query."""


class RecordRepository(Generic[R]):
    """The records of one type in an open store, by path. Threads may share it; processes may share the directory."""

    def __init__(
        self,
        store: Store,
        kind: RecordKind[R],
        *,
        now: Callable[[], str],
        subscribers: Subscribers,
        origin: str | None = None,
        listener: ChangeListener[R] | None = None,
    ) -> None:
        """``origin`` is the id of this directory, if it is mirrored. Declared records must be passed to ``declare``."""
        self.store = store
        self._kind = kind
        self._now = now
        self._subscribers = subscribers
        self.origin = origin
        self._listener = listener
        self._seen: dict[str, Observed[R] | None] = {}
        self._seen_bytes = 0  # of the undeclared ones, on disk
        self._remembering = threading.Lock()
        renew_in_child(self, RecordRepository._renew)

    def _renew(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._remembering = threading.Lock()

    def declare(self, records: Mapping[str, Observed[R] | None]) -> None:
        """Let exactly these paths exist, with their observed state (None: keep what is known)."""
        with self._remembering:
            self._seen = {path: seen or self._seen.get(path) for path, seen in records.items()}

    def paths(self) -> list[str]:
        """The paths of the declared records, sorted."""
        return sorted(self._seen)

    def known(self) -> dict[str, Observed[R]]:
        """All observed records by path, without another look at the disk."""
        with self._remembering:
            return {path: seen for path, seen in self._seen.items() if seen is not None}

    def unhandled(self) -> list[str]:
        """The paths of records that are known to have changed and were not dealt with yet."""
        return sorted(path for path, seen in self.known().items() if not seen.is_handled)

    def look(self, path: str) -> Observed[R]:
        """The state of a record now; one stat if nothing changed.

        If only declared records exist: ``FileNotDeclared`` for others, ``RecordCorrupt`` if no good version is known.
        """
        seen = self._seen.get(path)
        if seen is None:
            self._check_declared(path)
        signature = self.store.signature(path)
        if seen is not None and seen.settled and seen.signature == signature:
            return seen
        found = self._read(path, seen, signature)
        if found.signature is not None or found.record is not None or found.stored is not None:
            self._keep(path, found, before=seen)
        return found

    def current(self, path: str) -> R:
        """The newest version of a record; ``FileNotDeclared`` if there is none, else as ``look``."""
        if (record := self.look(path).record) is None:
            raise FileNotDeclared(f"there is no entry at {path} any more")
        return record

    def change(
        self,
        paths: Iterable[str],
        decide: Callable[[Mapping[str, R | None]], tuple[T, Sequence[R]]],
        *,
        origin: Origin = "local",
    ) -> T:
        """Apply one decision to several records under their locks: all of its records are committed, or none.

        ``decide`` gets the newest versions by path, and returns a result and the records to write, among these paths.
        Those of another ``origin`` than here are written byte for byte, without the stamp of this directory. Durable on
        return. Errors as of ``Store.commit``, ``Store.hold`` and ``look``, and those of ``decide``.
        """
        wanted = sorted(set(paths))
        for path in wanted:
            self._check_declared(path)  # before a lock file is made for it

        def run() -> tuple[T, list[RecordChanged]]:
            before = {path: self.look(path) for path in wanted}
            result, records = decide({path: seen.record for path, seen in before.items()})
            return result, self._commit(before, records, is_own=origin == "local", origin=origin)

        result, events = self._attempt(wanted, run)
        self._subscribers.tell(events)
        return result

    def merge(self, path: str, decide: Callable[[R], tuple[R | None, bool]]) -> None:
        """Apply a decision over the newest version and the mirror's copy, under the record's lock.

        ``decide`` returns the record to write (None: leave it) and whether it holds a change made here: a record that
        was only fetched is written byte for byte. Nothing happens if the record is gone.
        """
        self._check_declared(path)

        def run() -> list[RecordChanged]:
            before = self.look(path)
            if before.record is None:
                return []
            current = self._stamped(before, before.record) if before.by_hand else before.record
            record, is_own = decide(current)
            return self._commit({path: before}, [record], is_own=is_own, origin="mirror") if record is not None else []

        self._subscribers.tell(self._attempt([path], run))

    def notice(self, path: str, *, at_once: bool = False) -> bool:
        """Look at a record that may have been changed from outside: commit a hand edit, repair a broken file.

        A broken file goes to quarantine, and the last good version is put back if this process knows one. False: the
        file is so fresh that someone may still be saving it; look again in a moment. ``at_once`` repairs it
        nevertheless. Undeclared files are left alone.
        """
        is_known = path in self._seen
        if self._kind.is_declared and not is_known:
            return True
        seen = self.look(path)
        if seen.is_handled and is_known and not seen.is_first:
            return True

        def run() -> tuple[bool, list[RecordChanged]]:
            seen = self.look(path)
            if seen.problem is not None and not (at_once or seen.is_saved):
                return False, []
            if seen.by_hand or seen.problem is not None:
                return True, self._repair(path, seen)
            is_news = seen.is_first or not (is_known or seen.is_ours)
            events = news_of(self._kind, replace(seen, news="process") if is_news else seen)
            self._keep(path, replace(seen, news=None, is_first=False), before=seen)
            self._doubt(path)
            return True, events

        is_done, events = self._attempt([path], run)
        self._subscribers.tell(events)
        return is_done

    def _doubt(self, path: str) -> None:
        """Have the listener check a record before its next query."""
        if self._listener is not None:
            self._listener.doubt([path])

    def sweep(self) -> None:
        """Remove temp files of dead writers; a failure is only logged."""
        try:
            self.store.recover()
        except MemfilesError as error:
            _log.warning("temp files of dead writers could not be removed from the entries: %s", error)

    def drop_cached(self, paths: Iterable[str]) -> None:
        """Forget what was last seen of these records; marks, which hold no content, stay cached."""
        with self._remembering:
            for path in paths:
                if (seen := self._seen.get(path)) is not None and not isinstance(seen.record, Mark):
                    self._drop(path)

    def _check_declared(self, path: str) -> None:
        if self._kind.is_declared and path not in self._seen:
            raise FileNotDeclared(f"no memory file {path.removesuffix(RECORD_SUFFIX)[:80]!r} is declared")

    def _attempt(self, paths: Sequence[str], run: Callable[[], T]) -> T:
        """Run under the locks; if a dead writer's temp file is in the way, recover and run again."""
        for _ in range(_ATTEMPTS):
            try:
                with self.store.hold(paths):
                    return run()
            except LeftBehind:
                self.store.recover()
        raise LockTimeout(f"{', '.join(paths[:3])}: a dead writer's temp file cannot be removed: run memfiles doctor")

    def _commit(
        self, before: Mapping[str, Observed[R]], records: Sequence[R], *, is_own: bool, origin: Origin
    ) -> list[RecordChanged]:
        """Write records over their observed versions, whose locks are held; returns the events to tell.

        1. copy broken files to quarantine; 2. announce the change to the listener; 3. commit, durably; 4. give the
        listener the new records; 5. remember them.
        """
        if not records:
            return []
        steps = [(path := self._kind.path(record), before[path], record) for record in records]
        for path, seen, _ in steps:
            if seen.problem is not None and seen.signature is not None:
                self.store.keep_aside(path, why=seen.problem)
        final = [self._stamped(seen, record) if is_own else record for _, seen, record in steps]
        versions = [
            self._kind.version(record, replaces=seen.signature)
            for record, (_, seen, _) in zip(final, steps, strict=True)
        ]
        signatures = self._store_and_announce(steps, final, versions)
        with self._remembering:
            for (path, _, _), record in zip(steps, final, strict=True):
                self._note(path, Observed(record, signatures[path], is_ours=True))
        return [event for _, seen, record in steps for event in self._events_of(seen, record, origin)]

    def _store_and_announce(
        self, steps: Sequence[tuple[str, Observed[R], R]], final: Sequence[R], versions: Sequence[NewVersion]
    ) -> dict[str, Signature]:
        listener = self._listener
        if listener is None:
            return self.store.commit(versions)
        paths = [path for path, _, _ in steps]
        self.store.make_folders(paths)
        token = listener.intend(paths)
        try:
            signatures = self.store.commit(versions)
        except BaseException:
            listener.settle(token)
            raise
        written = [(record, signatures[path]) for path, record in zip(paths, final, strict=True)]
        listener.put(written, token, before=[seen.record for _, seen, _ in steps if seen.record is not None])
        return signatures

    def _repair(self, path: str, seen: Observed[R]) -> list[RecordChanged]:
        """Write the revision of a hand edit, or the last good version of a broken file, which goes to quarantine.

        Without a good version there is no record afterwards.
        """
        if seen.record is not None:
            return self._commit({path: seen}, [seen.record], is_own=seen.by_hand, origin="external")
        kept = self.store.set_aside(path, why=seen.problem or "unreadable")
        _log.warning("%s; it is in quarantine now: %s", seen.problem, kept)
        self.drop_cached([path])
        self._doubt(path)
        return []

    def _stamped(self, before: Observed[R], record: R) -> R:
        """The record as a change of this directory; putting a good version back is not a change."""
        is_put_back = record is before.record and before.problem is not None
        return record if self.origin is None or is_put_back else self._kind.stamped(record, self.origin)

    def _read(self, path: str, before: Observed[R] | None, signature: Signature | None) -> Observed[R]:
        """Read a file whose ``signature`` a moment ago was not the known one, and judge it."""
        try:
            found = self.store.find(path) if signature is not None else None
            if found is None:
                return self._kind.absent(before, path=path)
            return judged(self._kind, self._kind.decode(found[0], path=path), found[1], before=before, now=self._now)
        except RecordCorrupt as error:
            if before is None and self._kind.is_declared:
                raise
            seen = broken(signature, before=before, problem=str(error))
            if before is None or before.problem != str(error):
                _log.warning("%s; %s", error, "the last good version is used" if seen.record else "it is left out")
            return seen

    def _keep(self, path: str, found: Observed[R], *, before: Observed[R] | None) -> None:
        """Remember ``found``, unless something else was remembered since ``before``: that is as new."""
        with self._remembering:
            if self._seen.get(path) is before:
                self._note(path, found)

    def _note(self, path: str, seen: Observed[R]) -> None:
        if self._kind.is_declared:
            if path in self._seen:  # else it was declared when the change began, and no longer is
                self._seen[path] = seen
            return
        self._drop(path)
        self._seen[path] = seen
        self._seen_bytes += _bytes_of(seen)
        while len(self._seen) > KNOWN_MAX or self._seen_bytes > KNOWN_BYTES_MAX:
            self._drop(next(iter(self._seen)))

    def _drop(self, path: str) -> None:
        self._seen_bytes -= _bytes_of(self._seen.pop(path, None))

    def _events_of(self, before: Observed[R], record: R, origin: Origin) -> list[RecordChanged]:
        """The events of writing ``record`` over ``before``: first any earlier news of it."""
        own = [self._kind.event(record, origin, before=before.record)] if record is not before.record else []
        return [*news_of(self._kind, before), *own] if before.news is not None else own


class DeclaredFiles:
    """The files of the declared records of a repository, for the watcher; see ``storage.watcher.Watched``."""

    is_deep = False
    what = "record"

    def __init__(self, repository: RecordRepository[Any]) -> None:
        self._repository = repository

    def folder(self) -> Path:
        """See ``Watched``; ``InvalidArgument`` while it is gone."""
        if not (folder := self._repository.store.directory).is_dir():
            raise InvalidArgument(f"there is no memory directory {folder} to watch")
        return folder

    def record_at(self, path: str) -> str | None:
        """See ``Watched``."""
        return uid_of(path)

    def look(self, record: str) -> bool:
        """See ``Watched``."""
        return self._repository.notice(record_path(record))

    def suspects(self) -> Iterable[str]:
        """See ``Watched``: all of them."""
        return [path.removesuffix(RECORD_SUFFIX) for path in self._repository.paths()]


def _bytes_of(seen: Observed[R] | None) -> int:
    """The size of a record's file."""
    return seen.signature.size if seen is not None and seen.signature is not None else 0
