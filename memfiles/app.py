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

from memfiles.bookkeeping import Bookkeeping
from memfiles.clock import utc_now
from memfiles.errors import InvalidArgument, StorageFailed, WorkflowError
from memfiles.events import Subscribers
from memfiles.leak_scanner import scanner_called
from memfiles.manager import MemoryManager
from memfiles.session import Provenance, Session
from memfiles.store import Store
from memfiles.sync import NoSync, Sync, settings_of
from memfiles.tool_names import check_tool_names
from memfiles.workflow import AgentSpec, Workflow

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entry_tools import EntryAccess
    from memfiles.mirror import Mirror
    from memfiles.restoring import RestoreReport

NO_ENTRIES = "this workflow declares no entries: add `entries: {}` to its memory"
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
) -> Memory:
    """Parse the workflow at ``path``, restore its memory files, mirror them, and notice what people change in them.

    ``watch=False`` leaves the noticing out, for one-shot use. ``mirror`` takes the place of the one that the declared
    URL names. ``progress`` is told how many of how many records were fetched, where there are many. Raises
    ``WorkflowError`` for a declaration that cannot be used; then nothing on disk has changed. A mirror that does not
    answer is no error: see ``report`` and ``sync.status()``.
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
        watcher = _watcher(manager) if watch else None
        entries = _entries_in(manager.store, workflow, subscribers=manager.subscribers, origin=manager.origin)
        if copies is None or book is None:
            return Memory(workflow, manager=manager, report=report, sync=NoSync(), watcher=watcher, entries=entries)
        replica = manager.replica
        if entries is not None:
            replica.with_entries(entries.shelf, origin=manager.origin, let_go=entries.let_go)
        sync = Sync(replica, mirror=copies, book=book, settings=settings)
        manager.subscribe(sync.notice)
        hydrated, manager.hydrated = manager.hydrated, {}
        sync.start(hydrated=hydrated)
        return Memory(workflow, manager=manager, report=report, sync=sync, watcher=watcher, entries=entries)
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
        entries = _entries_in(store, workflow, subscribers=Subscribers(), origin=None)
        yield ending.enter_context(Memory(workflow, manager=manager, report=report, sync=NoSync(), entries=entries))


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
        sync: Sync | NoSync,
        watcher: Closeable | None = None,
        entries: Entries | None = None,
    ) -> None:
        self.workflow = workflow
        self.manager = manager
        self.report = report
        self.sync = sync
        self._watcher = watcher
        self._entries = entries
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
        provenance = Provenance(agent, run=run, channel=channel, thread=thread)
        access = self._access(tool_names, ends_run=ends_run)
        session = Session(
            provenance, refs=spec.memory, manager=self.manager, levels=levels, level=start, entries=access
        )
        with self._closing:
            self._check_open()
            self._sessions.add(session)
        return session

    @property
    def entries(self) -> Entries:
        """What agents save under keys; ``InvalidArgument`` says what to declare where the workflow has none."""
        if self._entries is None:
            raise InvalidArgument(NO_ENTRIES)
        return self._entries

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
            if self._entries is not None:
                ending.callback(self._entries.close)
            ending.callback(self.sync.close)
            if self._watcher is not None:
                ending.callback(self._watcher.close)

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
        if self._entries is None:
            return None
        from memfiles.entry_tools import EntryAccess  # late: only who declares entries needs it

        return EntryAccess(self._entries, chosen, ends_run)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("this memory is closed; open it again")


def _entries_in(store: Store, workflow: Workflow, *, subscribers: Subscribers, origin: str | None) -> Entries | None:
    declared = workflow.memory.entries
    if declared is None:
        return None
    from memfiles.entries.entries import Entries  # late: only who declares entries needs it and its parts
    from memfiles.entries.rules import rules_of

    rules = rules_of(workflow, declared, scan=scanner_called(workflow.memory.secrets_scanner))
    return Entries(store, rules=rules, subscribers=subscribers, origin=origin)


def _watcher(manager: MemoryManager) -> Closeable:
    from memfiles.watch import watch  # late: watchdog takes 55 ms to import, and one-shot use does not need it

    return watch(manager)


def _origin(book: Bookkeeping) -> str | None:
    """The directory's id; None where none can be made: on a read-only disk nothing is changed here either."""
    try:
        return book.origin()
    except StorageFailed as error:
        _log.warning("the directory has no id by which its changes are told in the mirror: %s", error)
        return None
