"""The record repository: records of one type in a record store, each read fresh and changed by decisions.

The rules this file guards: nothing is returned but the newest version on disk or, if that is broken, the last good
one; a change made by hand becomes a revision before anything is put on top of it; a broken file goes to quarantine
before it is replaced; subscribers hear of a change when no lock is held, and of several in quick succession perhaps
only of the last; and a change listener, such as the search index, hears of every commit by this repository before and
after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from memfiles.errors import FileNotDeclared, RecordCorrupt
from memfiles.records import late_logger as _log
from memfiles.records.entry import Entry
from memfiles.records.keys import RECORD_SUFFIX
from memfiles.records.marks import Mark
from memfiles.records.record import Record
from memfiles.storage.atomic import Signature
from memfiles.storage.events import Origin, RecordChanged, Subscribers
from memfiles.storage.fork_safety import MANY, collector_paused, renew_in_child
from memfiles.storage.record_kinds import Observed, RecordKind, assessed, news_of, unusable
from memfiles.storage.record_store import NOTHING, ChangeSet, Decide, Records, RecordStore
from memfiles.storage.store import with_files

KNOWN_BYTES_MAX = 32 * 2**20
"""How much memory the undeclared records take that are remembered as last seen, in bytes, so that reading one again
costs a single stat. The ones read first go first."""

_WRITTEN_MAX = 8192  # records: more than the events of changes that a watcher is behind by
_BYTES_OF_RECORD = 1_200  # apart from its texts; measured, as the next one
_BYTES_OF_CHANGE = 500
_NO_RECORD: Observed[Any] = Observed(None, None)  # and none was seen before
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
        store: RecordStore,
        kind: RecordKind[R],
        *,
        now: Callable[[], str],
        subscribers: Subscribers,
        origin: str | None = None,
        listener: ChangeListener[R] | None = None,
    ) -> None:
        """Declared records must be passed to ``declare``. ``origin`` is the id of this directory, if it is mirrored."""
        self.store = store
        self._kind = kind
        self._now = now
        self._subscribers = subscribers
        self.origin = origin
        self._listener = listener
        self.note_loss: Callable[[Mapping[str, int]], None] | None = None
        """Called before records that lost text are committed here, with their revisions before, by path."""
        self.unread: dict[str, str] = {}
        """Why records cannot be read at the moment, by path, as of the last try to show them; each is logged once."""
        self.unfollowed: set[str] = set()
        """Records that may hold what was forgotten, as they could not be read: nobody is shown them until forgets were
        followed."""
        self._seen: dict[str, Observed[R] | None] = {}
        self._seen_bytes = 0  # of the undeclared ones
        self._written: dict[str, Signature | None] = {}  # by this process, and too many to be remembered as seen
        self._remembering = threading.Lock()
        self._asked = threading.local()
        renew_in_child(self, RecordRepository._renew)

    def _renew(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._remembering = threading.Lock()

    def declare(self, records: Mapping[str, Observed[R] | None]) -> None:
        """Set the declared records: exactly these paths, with their observed state (None: keep the known one)."""
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

    def look(self, path: str, among: Records | None = None) -> Observed[R]:
        """The state of a record now, or ``among`` records that were read; one stat if nothing changed.

        If only declared records exist: ``FileNotDeclared`` for others, ``RecordCorrupt`` if no good version is known.
        """
        records: Records = getattr(self._asked, "records", self.store) if among is None else among
        return self._look(records, path)

    @contextmanager
    def together(self, paths: Iterable[str]) -> Iterator[None]:
        """Read these records with one request to a store over a network, for all looks of this thread within."""
        before = getattr(self._asked, "records", self.store)
        self._asked.records = self.store.view(paths)
        try:
            yield
        finally:
            self._asked.records = before

    def _look(self, records: Records, path: str) -> Observed[R]:
        seen = self._seen.get(path)
        if seen is None and self._kind.is_declared:
            self._check_declared(path)
        signature = records.signature(path)
        if seen is not None and seen.settled and seen.signature == signature:
            return seen
        if seen is None and signature is None and not self._kind.is_declared:
            return _NO_RECORD
        found = self._read(records, path, seen, signature)
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
        """Apply one decision to several records: all of its records are committed, or none. Durable on return.

        ``decide`` gets the newest versions by path, and returns a result and the records to write, among these paths;
        it may be called again, as in ``RecordStore.change``. Records of another ``origin`` than here are written byte
        for byte, without the stamp of this directory. Errors as of the store and ``look``, and those of ``decide``.
        """
        wanted = sorted(set(paths))
        for path in wanted if self._kind.is_declared else ():
            self._check_declared(path)

        def run(records: Records) -> tuple[T, ChangeSet]:
            before = {path: self._look(records, path) for path in wanted}
            result, new = decide({path: seen.record for path, seen in before.items()})
            return result, commit.change_set(before, new, is_own=origin == "local", origin=origin)

        commit = _Commit(self)
        return self._change(wanted, run, commit)

    def merge(self, path: str, decide: Callable[[R], tuple[R | None, bool]]) -> None:
        """Apply a decision over the newest version and the mirror's copy.

        ``decide`` returns the record to write (None: leave it) and whether it holds a change made here: a record that
        was only fetched is written byte for byte. It may be called again. Nothing happens if the record is gone.
        """
        self._check_declared(path)

        def run(records: Records) -> tuple[None, ChangeSet]:
            before = self._look(records, path)
            if before.record is None:
                return None, NOTHING
            current = self._stamped(before, before.record) if before.by_hand else before.record
            record, is_own = decide(current)
            new = [record] if record is not None else []
            return None, commit.change_set({path: before}, new, is_own=is_own, origin="mirror")

        commit = _Commit(self)
        self._change([path], run, commit)

    def remove(self, paths: Sequence[str], is_due: Callable[[R], bool]) -> None:
        """Remove the records at these paths that are due, with no mark left behind; a kill may leave some of them."""

        def run(records: Records) -> tuple[None, ChangeSet]:
            found = {path: self._look(records, path) for path in paths}
            due = {path: seen for path, seen in found.items() if seen.record is not None and is_due(seen.record)}
            return None, ChangeSet(removed={path: seen.signature for path, seen in due.items() if seen.signature})

        self._change(paths, run, _Commit(self))

    def notice(self, path: str, *, at_once: bool = False) -> bool:
        """Look at a record that may have been changed from outside: commit a hand edit, repair a broken file.

        A broken file goes to quarantine, and the last good version is put back if this process knows one. False: the
        file is so fresh that someone may still be saving it; look again in a moment. ``at_once`` repairs it
        nevertheless. Undeclared files are left alone.
        """
        is_known = path in self._seen
        if not is_known and (self._kind.is_declared or self._is_last_written(path)):
            return True
        seen = self.look(path)
        if seen.is_handled and is_known and not seen.is_first_read:
            return True

        def run(records: Records) -> tuple[bool, ChangeSet]:
            seen = self._look(records, path)
            if seen.problem is not None and not (at_once or seen.is_saved):
                return False, NOTHING
            if seen.by_hand or seen.problem is not None:
                return True, commit.repair(path, seen)
            is_news = seen.is_first_read or not (is_known or seen.is_ours)
            news = news_of(self._kind, replace(seen, news="process") if is_news else seen)
            commit.events = news or commit.events  # of an earlier call, which noted that subscribers hear of them
            self._keep(path, replace(seen, news=None, is_first_read=False, erased=False), before=seen)
            if self._listener is not None:
                self._listener.doubt([path])
            return True, NOTHING

        commit = _Commit(self)
        return self._change([path], run, commit)

    def _remember(self, records: Mapping[str, R], signatures: Mapping[str, Signature]) -> None:
        """Cache the records that this process wrote, while nobody else changes them."""
        with self._remembering:
            for path, record in records.items():
                self._note(path, Observed(record, signatures[path], is_ours=True))

    def drop_cached(self, paths: Iterable[str]) -> None:
        """Forget what was last seen of these records; marks, which hold no content, stay cached."""
        with self._remembering:
            for path in paths:
                if (seen := self._seen.get(path)) is not None and not isinstance(seen.record, Mark):
                    self._drop(path)

    def _check_declared(self, path: str) -> None:
        if self._kind.is_declared and path not in self._seen:
            raise FileNotDeclared(f"no memory file {path.removesuffix(RECORD_SUFFIX)[:80]!r} is declared")

    def _change(self, paths: Sequence[str], run: Decide[T], commit: _Commit[R]) -> T:
        """Change records in the store, and tell subscribers."""
        change = self.store.change if len(paths) < MANY else collector_paused()(self.store.change)
        result, _ = change(paths, run, hook=commit)
        if commit.events:
            self._subscribers.tell(commit.events)
        return result

    def _stamped(self, before: Observed[R], record: R) -> R:
        """The record as a change of this directory; putting a good version back is not a change."""
        is_put_back = record is before.record and before.problem is not None
        return record if self.origin is None or is_put_back else self._kind.stamped(record, self.origin)

    def _read(
        self, records: Records, path: str, before: Observed[R] | None, signature: Signature | None
    ) -> Observed[R]:
        """Read a file whose ``signature`` a moment ago was not the known one, and judge it."""
        try:
            found = records.find(path) if signature is not None else None
            if found is None:
                return self._kind.absent(before, path=path)
            signature = found[1]  # that of a moment ago may be of a version that someone is overwriting
            record, known = self._kind.decode(found[0], path=path), before.last_stored if before is not None else None
            if with_files(self.store) is None and not self._kind.is_written(record, known=known):
                before = _NO_RECORD  # nobody can edit it by hand: a backup of the store was put back
            return assessed(self._kind, record, signature, before=before, now=self._now)
        except RecordCorrupt as error:
            if before is None and self._kind.is_declared:
                raise
            seen = unusable(signature, before=before, problem=str(error))
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
        while self._seen_bytes > KNOWN_BYTES_MAX:  # some at once, as each look for the first one passes all that went
            for first in list(islice(self._seen, len(self._seen) // 16 + 1)):
                if (gone := self._drop(first)) is not None and gone.is_ours:
                    self._written[first] = gone.signature
            for first in list(islice(self._written, max(0, len(self._written) - _WRITTEN_MAX))):
                del self._written[first]

    def _is_last_written(self, path: str) -> bool:
        """Whether the file at a path is the last one that this process wrote, in a save too large for the cache."""
        return (written := self._written.get(path)) is not None and written == self.store.signature(path)

    def _drop(self, path: str) -> Observed[R] | None:
        self._seen_bytes -= _bytes_of(gone := self._seen.pop(path, None))
        return gone


class _Commit(Generic[R]):
    """One change of a repository: what is written for which observed record, and what follows from it.

    1. note what is to lose text, and announce the change to the listener; 2. give it the new records; 3. remember them,
    and note what subscribers are to be told. The store calls these steps before and after it commits, while nobody else
    changes the records; see ``CommitHook``.
    """

    __slots__ = "_kind _listener _losing _origin _paths _replaced _repository _token _written events".split()

    def __init__(self, repository: RecordRepository[R]) -> None:
        self._repository = repository
        self._kind, self._listener = repository._kind, repository._listener
        self._losing: dict[str, int] = {}
        self.events: list[RecordChanged] = []

    def change_set(
        self, before: Mapping[str, Observed[R]], records: Sequence[R], *, is_own: bool, origin: Origin
    ) -> ChangeSet:
        """The change that writes these records over their observed versions; broken ones go to quarantine first."""
        if not records:
            return NOTHING
        kind, stamped, self._origin = self._kind, self._repository._stamped, origin
        self._written: dict[str, R] = {}
        self._replaced: list[tuple[Observed[R], R]] = []
        self._losing = {}
        versions, aside = [], {}
        for record in records:
            path = kind.path(record)
            self._replaced.append((seen := before[path], record))
            self._written[path] = final = stamped(seen, record) if is_own else record
            versions.append(kind.version(final, replaces=seen.signature))
            if seen.problem is not None and seen.signature is not None:
                aside[path] = seen.problem
            old = seen.record.text if isinstance(seen.record, Entry) else seen.record
            new = record.text if isinstance(record, Entry) else record
            if isinstance(old, Record) and isinstance(new, Record) and new.redactions != old.redactions:
                self._losing[path] = old.revision
        return ChangeSet(versions, aside=aside, erases=any(map(kind.is_erasure, records)))

    def repair(self, path: str, seen: Observed[R]) -> ChangeSet:
        """The revision of a hand edit, or the last good version, if any, of a broken file, which is quarantined."""
        if seen.record is None:
            return ChangeSet(aside={path: seen.problem or "unreadable"})
        return self.change_set({path: seen}, [seen.record], is_own=seen.by_hand, origin="external")

    def before(self, paths: Sequence[str]) -> None:
        self._paths = paths
        if self._losing and self._origin == "local" and (note_loss := self._repository.note_loss) is not None:
            note_loss(self._losing)
        if self._listener is not None:
            self._token = self._listener.intend(paths)

    def failed(self) -> None:
        if self._listener is not None:
            self._listener.settle(self._token)

    def after(self, signatures: Mapping[str, Signature]) -> None:
        if not signatures:  # records were removed, or put into quarantine
            self.failed()
            self._repository.drop_cached(self._paths)
            return
        if self._listener is not None:
            put = [(record, signatures[path]) for path, record in self._written.items()]
            self._listener.put(
                put, self._token, before=[seen.record for seen, _ in self._replaced if seen.record is not None]
            )
        self._repository._remember(self._written, signatures)
        self.events = [event for seen, record in self._replaced for event in self._events_of(seen, record)]

    def _events_of(self, before: Observed[R], record: R) -> list[RecordChanged]:
        """The events of writing ``record`` over ``before``: first any earlier news of it."""
        is_new = record is not before.record
        own = [self._kind.event(record, self._origin, before=before.record)] if is_new else []
        return [*news_of(self._kind, before), *own] if before.news is not None else own


def _bytes_of(seen: Observed[R] | None) -> int:
    """The approximate memory of a record that was read.

    For an entry: three times its history on the disk, and twice its content, as a prompt keeps the block made of it.
    """
    if seen is None or seen.signature is None:
        return 0
    text = seen.record.text if isinstance(seen.record, Entry) else None
    more = 2 * seen.signature.size - len(text.content) + _BYTES_OF_CHANGE * len(text.history) if text else 0
    return _BYTES_OF_RECORD + seen.signature.size + more
