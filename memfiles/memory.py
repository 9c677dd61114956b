"""The composition root: a workflow in, a memory that is restored, watched and ready for sessions out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from memfiles.entries.lazy import EntriesContext, LazyEntries
from memfiles.errors import InvalidArgument, StorageFailed, WorkflowError
from memfiles.files.manager import MemoryManager
from memfiles.secrets.gate import scanner_called
from memfiles.storage.events import AuditLog, Refusals, Subscribers, logging_changes, utc_now
from memfiles.storage.store import Store
from memfiles.sync import NullSync, Sync, settings_of
from memfiles.sync.ledger import Bookkeeping
from memfiles.tools.session import Session, SessionProvenance
from memfiles.workflow.tool_names import check_tool_names
from memfiles.workflow.workflow import AgentSpec, Workflow

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.files.restore_report import RestoreReport
    from memfiles.index.search.embedder import Embedder
    from memfiles.sync.mirror import Mirror
    from memfiles.sync.replica import Replica
    from memfiles.tools.entry_tools import EntryAccess

_log = logging.getLogger("memfiles")


class Closeable(Protocol):
    """Something that runs beside the memory and is stopped with it."""

    def close(self) -> None:
        """Stop. May be called again."""
        ...


def open(
    path: str | PathLike[str] = "workflow.yaml",
    *,
    watch: bool = True,
    mirror: Mirror | None = None,
    progress: Callable[[int, int], None] | None = None,
    embedder: Embedder | None = None,
) -> Memory:
    """Parse the workflow at ``path``, restore its memory files, mirror them, and notice what people change in them.

    ``watch=False`` leaves the noticing out, for one-shot use. ``mirror`` takes the place of the one that the declared
    URL names. ``progress`` is told how many of how many records were fetched, where there are many. ``embedder`` lets
    searches of entries go by meaning as well. Raises ``WorkflowError`` for a declaration that cannot be used; then
    nothing on disk has changed. A mirror that does not answer is no error: see ``report`` and ``sync.status()``.
    """
    workflow = load(path) if mirror is None else Workflow.load(path)
    declared = workflow.memory
    copies = mirror if mirror is not None else open_mirror_of(workflow)
    settings = settings_of(declared.mirror)
    book = Bookkeeping(workflow.directory, mirror=settings.url) if copies is not None else None
    manager = MemoryManager(
        workflow.directory,
        _counted(copies, progress),
        durability=declared.durability,
        secrets=declared.secrets,
        scan=scanner_called(declared.secrets_scanner),
        lowest_level=workflow.levels.lowest,
        origin=partial(_origin, book) if book is not None else None,
    )
    try:
        report = manager.restore(workflow)
        log = _audited(manager)
        around = EntriesContext(manager.store, manager.subscribers, manager.origin, Refusals(log), embedder)
        replica = manager.replica if copies is not None else None
        syncs: list[Sync] = []
        entries = LazyEntries(workflow, around, on_open=partial(_mirrored, replica, syncs))
        memory = Memory(
            workflow, manager=manager, report=report, sync=NullSync(), entries=entries, refusals=around.refusals
        )
        if entries.are_declared:
            entries.opened()
        if copies is not None and book is not None and replica is not None:
            memory.sync = sync = Sync(replica, mirror=copies, book=book, settings=settings)
            manager.subscribe(sync.notice)
            hydrated, manager.hydrated = manager.hydrated, {}
            sync.start(hydrated=hydrated)
            syncs.append(sync)
        if watch:
            memory.watcher = _watcher(manager, entries.opened() if entries.are_declared else None)
        return memory
    except BaseException:
        manager.close()
        raise


@contextmanager
def looking(workflow: Workflow) -> Iterator[Memory]:
    """The memory as it lies on the disk, to look at its entries: nothing is restored, and no record is touched.

    Where there is no memory directory none is made, and there are no entries. What a process that died had promised
    is put in place first, and the derived index is brought up to date. The memory files cannot be used.
    """
    declared = workflow.memory
    with ExitStack() as ending:
        directory = workflow.directory
        if not directory.is_dir():
            directory = Path(ending.enter_context(TemporaryDirectory(prefix="memfiles-")))
        manager = MemoryManager(workflow.directory, durability=declared.durability)
        report = manager.plan(workflow)
        store = Store(directory, now=utc_now, durability=declared.durability)
        ending.callback(store.close)
        entries = LazyEntries(workflow, EntriesContext(store, Subscribers()))
        yield ending.enter_context(Memory(workflow, manager=manager, report=report, sync=NullSync(), entries=entries))


def load(path: str | PathLike[str] = "workflow.yaml") -> Workflow:
    """The workflow at ``path``, if its mirror can be, too; nothing is touched, and nobody is connected to.

    Raises ``WorkflowError`` for everything that is wrong, a mirror's URL included.
    """
    return Workflow.load(path, check_mirror=_mirror_at)


def _counted(mirror: Mirror | None, progress: Callable[[int, int], None] | None) -> Mirror | None:
    if mirror is None or progress is None:
        return mirror
    from mirrors.counting import CountingMirror  # late: only who has a mirror needs it

    return CountingMirror(mirror, progress)


def open_mirror_of(workflow: Workflow) -> Mirror | None:
    """The declared mirror, not yet connected to, None if there is none; ``WorkflowError`` for a URL that cannot be."""
    declared = workflow.memory.mirror
    if declared is None:
        return None
    try:
        return _mirror_at(declared.url)
    except InvalidArgument as error:
        raise WorkflowError(f"memory.mirror.url: {error}") from error


def _mirror_at(url: str) -> Mirror:
    from mirrors.urls import open_mirror  # late: only who has a mirror needs it

    return open_mirror(url)


class Memory:
    """An open memory: what ``open`` returns. A context manager; ``close`` ends its sessions too.

    ``report`` says what the restore did with each file; ``sync`` is what keeps the mirror equal.
    """

    def __init__(
        self,
        workflow: Workflow,
        *,
        manager: MemoryManager,
        report: RestoreReport,
        sync: Sync | NullSync,
        entries: LazyEntries,
        refusals: Refusals | None = None,
    ) -> None:
        self.workflow = workflow
        self.manager = manager
        self.report = report
        self.sync = sync
        self.watcher: Closeable | None = None
        self._entries = entries
        self._refusals = refusals or Refusals()
        self._sessions: WeakSet[Session] = WeakSet()
        self._closing = threading.Lock()
        self._closed = False

    def session(
        self,
        agent: str,
        *,
        level: str | None = None,
        run: str | None = None,
        channel: str | None = None,
        thread: str | None = None,
        tool_names: str | None = None,
        ends_run: bool = True,
    ) -> Session:
        """A session of a declared agent, at ``level``, else at the agent's own, else at the lowest.

        ``run``, ``channel`` and ``thread`` say where its changes come from. ``tool_names`` says what the tools for
        entries are called: ``default``, ``store-recall`` or ``crud``, else as the workflow declares. When the session
        closes, what belongs to its run alone is removed, unless ``ends_run`` is False: then it joins a run of others.
        ``InvalidArgument`` lists the declared agents or levels when there is no such one.
        """
        spec = self._agent(agent)
        levels = self.workflow.levels
        start = level if level is not None else spec.level or levels.lowest
        provenance = SessionProvenance(agent, run=run, channel=channel, thread=thread)
        access = self._access(tool_names, ends_run=ends_run)
        session = Session(
            provenance,
            refs=spec.memory,
            manager=self.manager,
            levels=levels,
            level=start,
            entries=access,
            refusals=self._refusals,
        )
        with self._closing:
            self._check_open()
            self._sessions.add(session)
        return session

    @property
    def entries(self) -> Entries:
        """What agents save under keys; under the usual budgets where the workflow declares none."""
        self._check_open()
        return self._entries.opened()

    def status(self) -> dict[str, Any]:
        """The manager's status, and how far the mirror is behind (None without one)."""
        return {**self.manager.status(), "mirror": self.sync.status().to_dict()}

    def close(self) -> None:
        """End the sessions, stop watching, push what the mirror lacks if it answers, bring the disk to rest.

        Takes some seconds if the mirror hangs; what is left is pushed after the next start. May be called again.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        with ExitStack() as ending:
            ending.callback(self.manager.close)
            ending.callback(self._entries.close)
            ending.callback(self.sync.close)
            if self.watcher is not None:
                ending.callback(self.watcher.close)

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _agent(self, agent: str) -> AgentSpec:
        declared = self.workflow.agents
        if not isinstance(agent, str) or agent not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise InvalidArgument(f"agent {agent!r} is not declared in the workflow; declared are: {known}")
        return declared[agent]

    def _access(self, tool_names: str | None, *, ends_run: bool) -> EntryAccess | None:
        """The entries for a session, and what their tools are called; None where none are declared."""
        declared = self.workflow.memory.entries
        chosen = check_tool_names(tool_names or (declared.tool_names if declared else "default"))
        if not self._entries.are_declared:
            return None
        from memfiles.tools.entry_tools import EntryAccess  # late: only who declares entries needs it

        return EntryAccess(self._entries.opened(), chosen, ends_run)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("this memory is closed; open it again")


def _audited(manager: MemoryManager) -> AuditLog:
    """The log in which every change of this manager's records stands from now on."""
    log = AuditLog(manager.directory)
    manager.subscribe(logging_changes(log))
    return log


def _mirrored(replica: Replica | None, syncs: list[Sync], entries: Entries) -> None:
    """Have entries kept equal with the mirror, if there is one; what runs already brings what is not here."""
    if replica is not None:
        replica.with_entries(entries.shelf, let_go=entries.let_go)
    for sync in syncs:
        sync.entries_are_kept()


def _watcher(manager: MemoryManager, entries: Entries | None) -> Closeable:
    from memfiles.files.watched import watch  # late: watchdog takes 55 ms to import, and one-shot use does not need it

    return watch(manager, entries)


def _origin(book: Bookkeeping) -> str | None:
    """The directory's id; None where none can be made: on a read-only disk nothing is changed here either."""
    try:
        return book.origin()
    except StorageFailed as error:
        _log.warning("the directory has no id by which its changes are told in the mirror: %s", error)
        return None
