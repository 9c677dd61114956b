"""The entries of an open memory, assembled when they are first used.

A workflow that declares ``entries`` gives them to its agents, with tools. With any other workflow only the library can
use them, under the default budgets, and they cost nothing until then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from memfiles.errors import ExtraMissing, InvalidArgument
from memfiles.records.keys import ENTRIES, entry_place
from memfiles.secrets.gate import scanner_called
from memfiles.storage.events import AuditLog, Subscribers, utc_now
from memfiles.storage.home import MemoryHome, home_of
from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import sweep, with_files
from memfiles.workflow.specs import CategorySpec, EntriesSpec
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.entries.budgets import Budget
    from memfiles.entries.consolidation.plan import Summariser
    from memfiles.entries.drafts import Category, EntryRules, Retention
    from memfiles.entries.entries import Entries
    from memfiles.entries.reader import EntryRepository
    from memfiles.index.index import Index
    from memfiles.index.search.embedder import Embedder
    from memfiles.sync.replica import Replica

_log = logging.getLogger("memfiles")


class LazyEntries:
    """The entries of one open memory. Threads may share it. ``are_declared``: the workflow gives its agents entries.

    ``are_needed``: that, or it declares memory files per user, whose records are kept with the entries.
    """

    def __init__(self, workflow: Workflow, assemble: Callable[[], Entries], *, may_change: bool = True) -> None:
        """``assemble`` is called when the entries are opened; see ``assembled``.

        ``may_change``: closing a session may change entries, as the memory is not only looked at.
        """
        self.may_change = may_change
        self.are_declared = workflow.memory.entries is not None
        self.are_needed = self.are_declared or workflow.shared_files != workflow.memory.files
        self._assemble = assemble
        self._on_open: list[Callable[[Entries], object]] = []
        self._entries: Entries | None = None
        self._opening = threading.Lock()

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

    def sweep(self) -> None:
        """Erase some of what was kept long enough, if the entries were used."""
        if self._entries is not None:
            self._entries.sweep()

    def end_runs(self) -> None:
        """Let the ends of all runs that come now take no longer together than that of one."""
        if self._entries is not None:
            self._entries.consolidator.end_runs()

    def close(self) -> None:
        """Close the entries if they were used. May be called again."""
        with self._opening:
            if self._entries is not None:
                self._entries.close()


def lazy_entries(
    workflow: Workflow, assemble: Callable[[], Entries], *, replica: Replica | None, at_once: bool
) -> LazyEntries:
    """The entries; a mirrored directory's replica learns of them at their opening.

    If they are declared, they are opened now where they are mirrored or, ``at_once``, watched.
    """
    entries = LazyEntries(workflow, assemble)
    if replica is not None:
        entries.when_opened(lambda it: replica.with_entries(it.repository, release_forgotten=it.release_forgotten))
    if entries.are_needed and (at_once or replica is not None):
        entries.opened()
    return entries


def assembled(
    workflow: Workflow,
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
    )


def opened_to_read(workflow: Workflow, home: MemoryHome, cleanup: ExitStack, log: AuditLog) -> Entries:
    """The entries of a home; where there is nothing yet, of an empty temporary directory, as nothing may be made."""
    from tempfile import TemporaryDirectory  # late: only a home without anything needs it

    if not (is_there := home.exists()):
        home = home_of(cleanup.enter_context(TemporaryDirectory(prefix="memfiles-")))
    store = home.open(now=utc_now, durability=workflow.memory.durability)
    cleanup.callback(store.close)
    return assembled(workflow, store, Subscribers(), audit=log if is_there else None)


def rules_of(workflow: Workflow, spec: EntriesSpec) -> EntryRules:
    """The rules that a workflow declares for entries."""
    from memfiles.entries.drafts import EntryRules  # late, as above

    return EntryRules(
        levels=workflow.levels,
        secrets=workflow.memory.secrets,
        allow=spec.secrets_allow,
        scan=scanner_called(workflow.memory.secrets_scanner),
        budget=budget_of(spec),
        hydrate_bytes=spec.hydrate_bytes,
        categories={name: _category(name, each) for name, each in spec.categories.items()},
        retention=retention_of(workflow),
        readers=frozenset(name for name, agent in workflow.agents.items() if agent.entries == "r"),
    )


def _category(name: str, spec: CategorySpec) -> Category:
    """A declared category; what it leaves out is as in the built-in one of that name."""
    from memfiles.entries.drafts import BUILT_IN, Category  # late, as above

    known = BUILT_IN.get(name) or Category(name)
    return Category(name, known.ttl if spec.ttl is None else spec.ttl, spec.scope or known.scope, spec.from_users)


def retention_of(workflow: Workflow) -> Retention:
    """How long the workflow keeps what nobody sees."""
    from memfiles.entries.drafts import Retention  # late, as above

    return Retention(**asdict(workflow.memory.retention))


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
    from memfiles.index.search.embedder import SentenceEncoder  # late: it looks whether its model is installed

    try:
        return SentenceEncoder()
    except ExtraMissing as error:
        _log.warning("searches of entries use words alone: %s", error)
        return None


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
        """The folder of all entries, made if it is not there; whoever asks for it will look at all files soon.

        ``InvalidArgument`` if the entries are not in files.
        """
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

    def suspects(self) -> Iterable[str]:
        """Compare every file with the index, remove temp files of dead writers, and name the records to look at."""
        if self._index.verify():
            sweep(self._store)
        return self._repository.unhandled()
