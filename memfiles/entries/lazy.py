"""The entries of an open memory, assembled when they are first used.

A workflow that declares ``entries`` gives them to its agents, with tools. With any other workflow only the library can
use them, under the default budgets, and they cost nothing until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from memfiles.errors import ExtraMissing, InvalidArgument, MemfilesError, StorageFailed
from memfiles.records import cached_property
from memfiles.records import late_logger as _log
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.secrets.gate import scanner_called
from memfiles.storage.entry_folders import Pause
from memfiles.storage.events import AuditLog, Subscribers, utc_now
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.home import MemoryHome, home_of
from memfiles.storage.record_store import RecordStore, RemoteStore
from memfiles.storage.store import sweep, with_files
from memfiles.workflow.specs import CategorySpec, EntriesSpec
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.entries.budgets import Budget
    from memfiles.entries.consolidation.consolidator import Consolidator
    from memfiles.entries.consolidation.plan import Summariser
    from memfiles.entries.drafts import Category, EntryRules
    from memfiles.entries.entries import Entries
    from memfiles.entries.forget import Forgetter
    from memfiles.entries.log import LogReader
    from memfiles.entries.purge import Purger
    from memfiles.entries.reader import EntryDatabase, EntryRepository
    from memfiles.entries.transfer.exchange import Exchange
    from memfiles.entries.users import Users
    from memfiles.entries.writer import EntryWriter
    from memfiles.index.index import Index
    from memfiles.index.search.embedder import Embedder
    from memfiles.index.search.vectors import Meaning
    from memfiles.sync.replica import Replica

SWEPT = ".state/swept"
"""The note of when the entries were swept last, in seconds since 1970."""

_PAUSES, _LONGEST_PAUSE_SECONDS = 24, 3600.0  # as of ``purge``


class Sweeps:
    """The time of the last sweep by any process; a sweep takes some milliseconds."""

    def __init__(self, workflow: Workflow, home: MemoryHome) -> None:
        kept = workflow.memory.retention
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, kept.expired / _PAUSES, kept.deleted / _PAUSES)
        self._notes, self._is_shared = home.notes, home.directory is None

    def are_due(self) -> bool | None:
        """Whether that time is too long ago, or a noted forget may be unfinished; None if the store does not answer."""
        try:
            swept = self._notes.get(SWEPT)
            is_late = swept is None or not 0 <= time.time() - float(swept) < self._pause_seconds
            return is_late or (self._is_shared and bool(self._notes.noted_forgets()))
        except StorageFailed as error:
            _log.warning("content whose time is over is not erased yet; it is tried again later: %s", error)
            return None
        except (OSError, ValueError, MemfilesError):
            return True

    def note(self) -> None:
        """Record a sweep now."""
        with suppress(OSError, MemfilesError):
            self._notes.put(SWEPT, str(time.time()).encode())


class LazyEntries:
    """The entries of one open memory. Threads may share it. ``are_declared``: the workflow gives its agents entries.

    ``are_needed``: that, or it declares memory files per user, whose records are kept with the entries.
    """

    def __init__(
        self,
        workflow: Workflow,
        home: MemoryHome,
        assemble: Callable[[], Entries],
        *,
        may_change: bool = True,
        has_embedder: bool = False,
    ) -> None:
        """``assemble`` opens the entries; see ``assembled``. With ``has_embedder`` it gives them an embedder.

        ``may_change``: closing a session may change entries, as the memory is not opened to be read only.
        """
        self.may_change = may_change
        declared = workflow.memory.entries
        self._by_meaning = has_embedder or (declared is not None and declared.meaning)
        self.are_declared = declared is not None
        self.are_needed = self.are_declared or workflow.shared_files != workflow.memory.files
        self.is_brief, self._sweeps = False, Sweeps(workflow, home)
        self._assemble = assemble
        self._on_open: list[Callable[[Entries], object]] = []
        self._entries: Entries | None = None
        self._opening = threading.Lock()
        renew_in_child(self, lambda it: vars(it).update(_opening=threading.Lock()))  # another thread may open them now

    def when_opened(self, callback: Callable[[Entries], object]) -> None:
        """Call ``callback`` once, with the entries, before anybody else has them; never if they are open already."""
        self._on_open.append(callback)

    def opened(self) -> Entries:
        """The entries, assembled at the first call."""
        with self._opening:
            if self._entries is None:
                entries = self._assemble()
                for callback in self._on_open:
                    callback(entries)
                self._entries = entries
            return self._entries

    def sweep(self) -> bool:
        """Erase a portion of the content past its retention, if the entries are open or the last sweep is long ago.

        A command (``is_brief``) sweeps in the second case alone, or to finish a forget. Returns whether old months of
        the audit are due as well.
        """
        if (is_due := self._sweeps.are_due()) is None:  # each further question would wait as long
            return False
        if is_due and self.are_needed:
            self.opened()
        is_time = is_due or not self.is_brief
        if self._entries is not None and (is_time or self._entries.parts.may_have_forgets()):
            self._entries.sweep()
            self._sweeps.note()
        return is_time

    def meaning(self) -> dict[str, str | None] | None:
        """The status of search by meaning; None if nobody wants it, or the index cannot be read at once."""
        found = self.opened().parts.meaning.status() if self._by_meaning else None
        return None if found is None else found.to_dict()

    def problems(self) -> dict[str, str]:
        """The problems of unreadable entries and their folders by path, as far as open entries were examined."""
        return self._entries.parts.log.problems() if self._entries is not None else {}

    def end_runs(self) -> None:
        """See ``Consolidator.end_runs``."""
        if self._entries is not None and self.may_change:
            self._entries.parts.consolidator.end_runs()

    def close(self) -> None:
        """Close the entries if they were used. May be called again."""
        with self._opening:
            if self._entries is not None:
                self._entries.close()


def lazy_entries(
    workflow: Workflow,
    home: MemoryHome,
    assemble: Callable[[], Entries],
    *,
    replica: Replica | None,
    at_once: bool,
    embedder: Embedder | None,
) -> LazyEntries:
    """The entries; a mirrored directory's replica learns of them at their opening.

    If they are declared, they are opened now where they are mirrored or, ``at_once``, watched.
    """
    entries = LazyEntries(workflow, home, assemble, has_embedder=embedder is not None)
    if replica is not None:
        entries.when_opened(lambda it: replica.with_entries(it.repository, release_forgotten=lambda: it.users.follow()))
    if entries.are_needed and (at_once or replica is not None):
        entries.opened()
    return entries


def assembled(
    workflow: Workflow,
    home: MemoryHome,
    store: RecordStore,
    subscribers: Subscribers,
    *,
    origin: str | None = None,
    audit: AuditLog | None = None,
    embedder: Embedder | None = None,
    summariser: Summariser | None = None,
) -> Entries:
    """The entries in an open store, under the rules of the workflow; ``origin`` is the id of a mirrored directory."""
    from memfiles.entries.entries import Entries  # late: only users of entries need it and its parts

    spec = workflow.memory.entries or EntriesSpec()
    return Entries(
        store,
        rules=rules_of(workflow, spec),
        subscribers=subscribers,
        origin=origin,
        audit=audit,
        embedder=embedder or _declared_embedder(spec),
        summariser=summariser,
        is_due=Sweeps(workflow, home).are_due,
    )


def sweep_portion(workflow: Workflow, home: MemoryHome, entries: LazyEntries) -> None:
    """Sweep entries and the audit; a failure is only logged, as the next sweep tries again."""
    if not entries.sweep():
        return
    from memfiles.storage.audit_reader import drop_months  # late: a memory opened for one call seldom sweeps

    try:
        drop_months(home, now=utc_now(), after_seconds=workflow.memory.retention.audit)
    except StorageFailed as error:
        _log.warning("%s", error)


def opened_to_read(workflow: Workflow, home: MemoryHome, cleanup: ExitStack, log: AuditLog) -> Entries:
    """The entries of a home to read; of an empty temporary directory if nothing is kept there yet."""
    if not (is_there := home.exists()):
        from tempfile import TemporaryDirectory  # late: most homes have something

        home = home_of(cleanup.enter_context(TemporaryDirectory(prefix="memfiles-")))
    store = home.open(now=utc_now, durability=workflow.memory.durability)
    cleanup.callback(store.close)
    return assembled(workflow, home, store, Subscribers(), audit=log if is_there else None)


def rules_of(workflow: Workflow, spec: EntriesSpec) -> EntryRules:
    """The rules that a workflow declares for entries."""
    from memfiles.entries.drafts import EntryRules, Retention  # late, as above

    return EntryRules(
        levels=workflow.levels,
        secrets=workflow.memory.secrets,
        allow=spec.secrets_allow,
        scan=scanner_called(workflow.memory.secrets_scanner),
        budget=budget_of(spec),
        hydrate_bytes=spec.hydrate_bytes,
        categories={name: _category(name, each) for name, each in spec.categories.items()},
        retention=Retention(**asdict(workflow.memory.retention)),
        readers=frozenset(name for name, agent in workflow.agents.items() if agent.entries == "r"),
    )


def _category(name: str, spec: CategorySpec) -> Category:
    """A declared category; what it leaves out is as in the built-in one of that name."""
    from memfiles.entries.drafts import BUILT_IN, Category  # late, as above

    known = BUILT_IN.get(name) or Category(name)
    return Category(name, known.ttl if spec.ttl is None else spec.ttl, spec.scope or known.scope, spec.from_users)


def budget_of(spec: EntriesSpec) -> Budget:
    """The budget that a workflow declares."""
    from memfiles.entries.budgets import Budget, Limit  # late, as above

    kinds: dict[str, Limit] = {name: Limit(each.max_entries, each.max_bytes) for name, each in spec.kinds.items()}
    categories = {name: Limit(each.max_entries, each.max_bytes) for name, each in spec.categories.items()}
    return Budget(spec.max_entries, spec.max_bytes, kinds, categories)


def _declared_embedder(spec: EntriesSpec) -> Embedder | None:
    """The embedder that the workflow asks for; without the extra, searches use words alone and a warning says so."""
    if not spec.meaning:
        return None
    from memfiles.index.search.embedder import LackingEmbedder, WordVectors  # late: it looks for its model

    try:
        return WordVectors()
    except ExtraMissing as error:
        _log.warning("searches of entries use words alone: %s", error)
        return LackingEmbedder(str(error))


class LateParts:
    """The parts of open entries that a command seldom needs, each loaded and made at its first use."""

    def __init__(
        self,
        db: EntryDatabase,
        summariser: Summariser | None,
        audit: AuditLog | None,
        meaning: Meaning,
        is_due: Callable[[], bool | None] | None,
    ) -> None:
        """``meaning`` is that of searches; ``is_due`` says if nobody has swept for a while, for a command."""
        self.meaning = meaning
        self._is_due = is_due
        self._db, self._summariser, self._audit = db, summariser, audit

    def begin(self) -> bool:
        """See ``Users.begin``, which is loaded only where it may have something to do."""
        return self.users.begin() if self._db.index.unfollowed or self.may_have_forgets() else True

    def may_have_forgets(self) -> bool:
        """Whether a forget may have to be finished, or followed; a store has notes of its own."""
        from memfiles.index.database import may_have_forgets

        try:
            return isinstance(self._db.store, RemoteStore) or self._db.index.ask(may_have_forgets)
        except MemfilesError:
            return True  # the reader logs what is wrong

    @cached_property
    def forgetter(self) -> Forgetter:
        """Removes the content of entries."""
        from memfiles.entries.forget import Forgetter

        return Forgetter(self._db)

    @cached_property
    def purger(self) -> Purger:
        """Erases what was kept long enough."""
        from memfiles.entries.purge import Purger

        return Purger(self._db, self.forgetter)

    def sweep(self, *, is_brief: bool) -> None:
        """Sweep if it is time; a command does not even load the purger soon after another sweep."""
        if is_brief and self._is_due is not None and not self._is_due():
            return
        if self._db.now() >= self.purger.looks_at:
            self.purger.sweep()

    @cached_property
    def log(self) -> LogReader:
        """Reads the lives of entries."""
        from memfiles.entries.log import LogReader

        return LogReader(self._db, audit=self._audit)

    @cached_property
    def writer(self) -> EntryWriter:
        """Saves, updates, deletes and restores."""
        from memfiles.entries.writer import EntryWriter

        return EntryWriter(self._db)

    @cached_property
    def consolidator(self) -> Consolidator:
        """Plans, applies and undoes consolidations."""
        from memfiles.entries.consolidation.consolidator import Consolidator

        return Consolidator(self._db, self.purger, summariser=self._summariser, audit=self._audit)

    @cached_property
    def exchange(self) -> Exchange:
        """Exports and imports."""
        from memfiles.entries.transfer.exchange import Exchange

        return Exchange(self._db, self.writer, audit=self._audit)

    @property
    def moves(self) -> ModuleType:
        """Gives entries other keys and other lifetimes."""
        from memfiles.entries import moves

        return moves

    @property
    def recalls(self) -> ModuleType:
        """Makes blocks for prompts."""
        from memfiles.entries.hydration import recall

        return recall

    @cached_property
    def users(self) -> Users:
        """The people whom the agents work for."""
        from memfiles.entries.users import Users

        return Users(self._db, self.forgetter, audit=self._audit)


class EntryFiles:
    """The files of all entries of one open memory; see ``storage.watcher.Watched``.

    A file changed by hand becomes a revision; for a broken one the last good version is put back. An entry whose file
    is removed is gone, not forgotten: a mirror brings it back.
    """

    is_deep = True
    what = "entry"

    def __init__(self, store: RecordStore, repository: EntryRepository, index: Index) -> None:
        self._store = with_files(store)
        self._repository = repository
        self._index = index

    def folder(self) -> Path:
        """The folder of all entries, created if needed; ``InvalidArgument`` if the entries are not in files."""
        if self._store is None:
            raise InvalidArgument("the entries are not in files: nobody can change them by hand")
        self._index.is_followed = True
        self._store.make_folders([f"{ENTRIES}/"])
        return self._store.directory / ENTRIES

    def record_at(self, path: str) -> str | None:
        """The path of the record in the file at ``path``, relative to the folder; None if it is not an entry's."""
        return found if entry_place(found := f"{ENTRIES}/{path}") is not None else None

    def look(self, record: str) -> bool:
        """Take in a change of a record's file; False: it may still be being saved."""
        return self._repository.notice(record)

    def suspects(self, pause: Pause) -> Iterable[str]:
        """Compare every file with the index, remove temp files of dead writers, and name the records to look at."""
        if self._index.verify(pause=pause):
            sweep(self._store)
        return self._repository.unhandled()
