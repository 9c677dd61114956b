"""Composition root: ``open`` restores a memory, mirrors it and watches it; ``look`` opens one for reading only."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakSet, WeakValueDictionary

from memfiles.entries.lazy import LazyEntries, assembled, lazy_entries, opened_to_read, sweep_portion
from memfiles.errors import EntryNotFound, InvalidArgument, StorageFailed, WorkflowError
from memfiles.files.manager import MemoryManager
from memfiles.records import late_logger as _log
from memfiles.records.entry import Entry
from memfiles.records.keys import FILES
from memfiles.records.record import Actor, Record
from memfiles.secrets.gate import scanner_called
from memfiles.storage.events import AuditLog, Progress
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.home import MemoryHome, has_record, home_of, real_home
from memfiles.sync.status import NullSync, conflicts_in, settings_of, status_on_disk
from memfiles.workflow.fields import check_tool_names
from memfiles.workflow.workflow import AgentSpec, Workflow

if TYPE_CHECKING:
    from memfiles.entries.consolidation.plan import Summariser
    from memfiles.entries.entries import Entries
    from memfiles.entries.purge import Purged
    from memfiles.entries.users import Users
    from memfiles.files.restore_report import RestoreReport
    from memfiles.index.search.embedder import Embedder
    from memfiles.storage.audit_reader import AuditTrail
    from memfiles.sync.engine import Sync
    from memfiles.sync.ledger import Ledger
    from memfiles.sync.mirror import Mirror
    from memfiles.tools.entry_tools import EntryAccess
    from memfiles.tools.oversight import Stats
    from memfiles.tools.session import OpenRun, Session
    from mirrors.sealed.keeper import Keeper


def open(
    path: str | PathLike[str] = "workflow.yaml",
    *,
    watch: bool = True,
    mirror: Mirror | None = None,
    progress: Progress | None = None,
    embedder: Embedder | None = None,
    summariser: Summariser | None = None,
) -> Memory:
    """Parse the workflow at ``path``, restore its memory files, and keep them mirrored and watched.

    ``watch=False``, for one-shot use, notices an edit by a person only when its record is used. ``mirror`` replaces the
    mirror at the declared URL, not its key. ``progress(done, total)`` is called by any thread while many records are
    fetched. ``embedder`` adds search by meaning. ``summariser`` writes the notes of ``entries.plan`` and of sessions
    that close (``consolidate: close``), but not those of a save over a budget. ``WorkflowError`` for an unusable
    declaration: nothing on disk has changed. A mirror that does not answer is not an error: see ``sync.status()``.
    """
    if summariser is not None and not callable(getattr(summariser, "summarise", None)):
        raise InvalidArgument("summariser must have a method summarise(texts, *, most_bytes) that returns a text")
    workflow = load(path) if mirror is None else Workflow.load(path, check_store=home_of)
    counted = _counted(open_mirror_of(workflow, given=mirror), workflow, progress)
    settings, declared = settings_of(workflow.memory.mirror), workflow.memory.mirror
    home = real_home(workflow.place, cache=workflow.cache)
    ledger: Ledger | None = None
    if counted is not None:
        from memfiles.sync.ledger import Ledger  # late: only workflows with a mirror need it

        ledger = Ledger(home, mirror=declared.identity if declared else settings.url, keys=keeper_of(workflow).ids)
    cleanup = ExitStack()
    try:
        cleanup.enter_context(home.held())
        log = AuditLog(home, reads=workflow.memory.audit.reads)
        cleanup.callback(log.close)
        manager = _make_manager(workflow, home, mirror=counted, ledger=ledger)
        cleanup.callback(manager.close)
        manager.subscribe(log.record_change)
        report = manager.restore(workflow)
        replica = manager.replica if counted is not None else None
        chosen: Any = {"embedder": embedder, "summariser": summariser, "audit": log, "origin": manager.origin}
        assemble = partial(assembled, workflow, home, manager.records, manager.subscribers, **chosen)
        entries = lazy_entries(workflow, home, assemble, replica=replica, at_once=watch, embedder=embedder)
        cleanup.callback(entries.close)
        manager.with_users(workflow.memory.files, lambda: entries.opened().users)
        kept = partial(conflicts_in, home, rewrite=partial(_rewrite, manager, entries), audit=log)
        sync: Sync | NullSync = NullSync(kept=kept)
        if counted is not None and ledger is not None and replica is not None:
            from memfiles.sync.engine import Sync  # late: only workflows with a mirror need it

            sync = Sync(replica, mirror=counted, ledger=ledger, settings=settings, kept=kept())
            cleanup.callback(sync.close)
            manager.subscribe(sync.notice)
            sync.start(hydrated=manager.take_hydrated())
            entries.when_opened(lambda _: sync.entries_opened())  # those opened later are fetched at their opening
        if watch:
            from memfiles.storage.watcher import watch as follow  # late: only a watcher needs it

            follow(manager.records, manager.watched, entries.opened().files if entries.are_needed else None, cleanup)
        cleanup.callback(sweep := partial(sweep_portion, workflow, home, entries))  # before the last push
        sweep()
        return Memory(workflow, manager=manager, report=report, sync=sync, entries=entries, audit=log, cleanup=cleanup)
    except BaseException:
        cleanup.close()  # in reverse what was opened
        raise


def load(path: str | PathLike[str] = "workflow.yaml") -> Workflow:
    """The workflow at ``path``, with its URLs checked; ``WorkflowError`` for all that is wrong. Opens no connection."""
    return Workflow.load(path, check_mirror=mirror_at, check_store=home_of)


def look(workflow: Workflow, *, ask_mirror: bool = False, warn: Callable[[str], object] | None = None) -> Memory:
    """Open the memory for reading only: ``report`` is the plan of a restore, ``sync.status()`` is read from disk.

    No record changes; the audit has exports and, if declared, reads. Changes that a dead process acknowledged are
    recovered first; ``warn``, else the log, is told if the disk refuses that. Entries and files of users open at their
    first use, which updates the derived index. The report asks the mirror for missing files with ``ask_mirror``.
    """
    home = real_home(workflow.place, cache=workflow.cache)
    manager = _make_manager(workflow, home, mirror=open_mirror_of(workflow) if ask_mirror else None, ledger=None)
    cleanup = ExitStack()
    try:
        cleanup.enter_context(home.held())
        try:
            manager.recover()
        except StorageFailed as error:
            (warn or _log.warning)(f"changes that a dead process may have left could not be recovered: {error}")
        report = manager.plan(workflow)
        store = cleanup.enter_context(ExitStack())  # closed after the entries
        log = AuditLog(home, reads=workflow.memory.audit.reads)
        cleanup.callback(log.close)
        entries = LazyEntries(workflow, home, partial(opened_to_read, workflow, home, store, log), may_change=False)
        cleanup.callback(entries.close)
        manager.with_users(workflow.memory.files, lambda: entries.opened().users)
        sync = NullSync(partial(status_on_disk, workflow), kept=partial(conflicts_in, home))
        return Memory(workflow, manager=manager, report=report, sync=sync, entries=entries, audit=log, cleanup=cleanup)
    except BaseException:
        cleanup.close()
        raise


def open_mirror_of(workflow: Workflow, *, given: Mirror | None = None) -> Mirror | None:
    """The declared mirror, not yet connected to; None if none is declared. ``WorkflowError`` for an unusable URL.

    It refuses what does not verify with the declared key. ``given`` replaces the mirror at the URL.
    """
    declared = workflow.memory.mirror
    if declared is None and given is None:
        return None
    from mirrors.sealed.mirror import guarded  # late: only workflows with a mirror need it

    key, encrypt = (declared.key, declared.encrypt) if declared else (None, False)
    try:
        inner = given if given is not None else mirror_at(declared.url if declared else "")
    except InvalidArgument as error:
        raise WorkflowError(f"memory.mirror.url: {error}") from error
    return guarded(inner, key=key, encrypt=encrypt)


def keeper_of(workflow: Workflow) -> Keeper:
    """The keeper of the declared mirror's key: it checks, replaces and uses it on the whole mirror."""
    from mirrors.sealed.keeper import Keeper

    spec = workflow.memory.mirror
    url, key, encrypt = (spec.url, spec.key, spec.encrypt) if spec else ("", None, False)
    home = home_of(workflow.place)
    return Keeper(partial(mirror_at, url), home.notes, partial(has_record, home), url=url, key=key, encrypt=encrypt)


class Memory:
    """An open memory: what ``open`` returns. A context manager; ``close`` ends its sessions as well.

    ``report`` says what the restore did with each file; ``sync`` keeps the mirror equal.
    """

    def __init__(
        self,
        workflow: Workflow,
        *,
        manager: MemoryManager,
        report: RestoreReport,
        sync: Sync | NullSync,
        entries: LazyEntries,
        cleanup: ExitStack,
        audit: AuditLog,
    ) -> None:
        self.workflow, self.manager = workflow, manager
        self.report, self.sync = report, sync
        self._entries, self._audit, self._cleanup = entries, audit, cleanup
        self._sessions: WeakSet[Session] = WeakSet()
        self._runs: WeakValueDictionary[tuple[str, str | None, str | None], OpenRun] = WeakValueDictionary()
        self._closing, self._closed = threading.Lock(), False
        renew_in_child(self, lambda it: vars(it).update(_closing=threading.Lock()))  # another thread may have it now

    def session(
        self,
        agent: str,
        *,
        user: str | None = None,
        level: str | None = None,
        run: str | None = None,
        channel: str | None = None,
        thread: str | None = None,
        actor: str | None = None,
        tool_names: str | None = None,
        ends_run: bool = True,
    ) -> Session:
        """A session of a declared agent, at ``level``, else at the agent's own, else at the lowest.

        ``user`` is the person it works for: what sessions of one user save, no session of another user can observe.
        ``run``, ``channel`` and ``thread`` say where changes come from. ``actor`` names the human or program that acts
        through the session: histories and the audit show it. ``tool_names`` names the tools for entries:
        ``default``, ``store-recall``, ``crud`` or ``compact`` (memory files too), else as the workflow declares. The
        last session of a run to close at a level removes its entries there, unless ``ends_run`` is False: they expire.
        ``InvalidArgument`` lists the declared agents or levels if the given one is not declared.
        """
        from memfiles.entries.callers import SessionProvenance, was_forgotten  # late: who looks needs no session
        from memfiles.tools.session import OpenRun, Session

        self._check_open()
        spec = self._agent(agent)
        who = partial(SessionProvenance, agent, run=run, channel=channel, thread=thread, actor=actor, user=user)
        provenance = who()
        if user and (self._entries.are_needed or was_forgotten(provenance.epoch, lambda: self.manager.records)):
            provenance = who(epoch=self._entries.opened().users.epoch_of(user))
        with self._closing:
            open_run = self._runs.setdefault((agent, user, run), OpenRun())
        session = Session(
            provenance,
            refs=self.workflow.refs_of(agent, user=user),
            manager=self.manager,
            levels=self.workflow.levels,
            level=level if level is not None else spec.level or self.workflow.levels.lowest,
            entries=self._access(spec, tool_names, ends_run=ends_run),
            audit=self._audit,
            open_run=open_run,
            memory=self,
        )
        with self._closing:
            self._check_open()
            self._sessions.add(session)
        return session

    @property
    def entries(self) -> Entries:
        """The entries that agents save under keys; under the default budgets if the workflow declares none."""
        self._check_open()
        return self._entries.opened()

    def audit(
        self,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        agent: str | None = None,
        user: str | None = None,
        actor: str | None = None,
        op: str | None = None,
        record: str | None = None,
        outcome: str | None = None,
        level: str | None = None,
        limit: int = 100,
    ) -> AuditTrail:
        """What was done by whom, newest first: the ``limit`` (1 to 10,000) latest events of the audit that fit.

        For the operator: events of all levels. ``since`` and ``until`` (not included) are dates, times in UTC, or a
        time before now such as ``24h``; the ``older`` of a page is the ``until`` of the next. ``record`` is the name or
        uid of a memory file, or the key, uid or path of an entry. ``outcome`` is ``ok``, ``refused`` or ``failed``.
        ``level`` leaves out events above it or without a level, such as a user's export. ``InvalidArgument``.
        """
        from memfiles.tools import oversight  # late: only the operator asks

        self._audit.flush()
        asked = {"agent": agent, "user": user, "actor": actor, "op": op, "record": record, "outcome": outcome}
        return oversight.audited(self.workflow, since=since, until=until, limit=limit, level=level, **asked)

    def stats(
        self, since: str | datetime | None = "30d", *, every: Literal["hour", "day"] = "day", level: str | None = None
    ) -> Stats:
        """How much the memory holds, how full its budgets are, what needs attention, and what was done ``since`` then.

        For the operator: all agents, users and, up to ``level``, levels. ``since`` is as of ``audit``; None leaves out
        what was done, for which the audit is read. ``every`` is the length of a period.
        """
        from memfiles.tools import oversight  # late: only the operator asks

        self._audit.flush()
        (cards, problems), live = self.manager.cards(), frozenset(self.manager.uids())
        seen = (self.manager.view(it, self.report[it.uid]) for it in self.workflow.shared_files if it.uid not in live)
        files = [*cards, *(view.card for view in seen)]
        counts = self._entries.opened().counts() if self._entries.are_declared else ()
        given: Any = {"since": since, "every": every, "level": level, "report": self.report, "sync": self.sync.status()}
        return oversight.stats(self.workflow, files, counts, problems | self._entries.problems(), **given)

    def purge(self, *, dry_run: bool = False, progress: Progress | None = None) -> Purged:
        """Erase now what expired, was deleted or was evicted for as long as ``retention`` of the workflow says.

        Every open, close, save and consolidation does a portion of it. ``dry_run`` only counts; ``progress`` is called
        after each portion. Returns when no file under the directory holds the content; the next push replaces the
        mirror's copies. ``LockTimeout``, ``StorageFailed``: what is left is tried again later.
        """
        return self.entries.purge(dry_run=dry_run, progress=progress)

    @property
    def users(self) -> Users:
        """The people for whom the agents work: what is kept for each, its export, and forgetting it."""
        return self.entries.users

    def status(self) -> dict[str, Any]:
        """The state as a JSON object: ``problems`` of files by uid and of entries by path, ``mirror`` and more."""
        found = {**self.manager.status(), "mirror": self.sync.status().to_dict(), "meaning": self._entries.meaning()}
        return found | {"problems": found["problems"] | self._entries.problems()}

    def close(self) -> None:
        """End the sessions, stop watching, push what the mirror lacks if it answers, and checkpoint. Idempotent.

        Takes some seconds if the mirror hangs or much is consolidated; what is left is done after the next start.
        """
        is_mine = False
        try:
            with self._closing:
                if self._closed:
                    return
                self._closed = is_mine = True
            sessions = list(self._sessions)
            with self.manager.place.ending(), self._cleanup:  # closes all else even if a session cannot be closed
                if any(session.consolidates for session in sessions):
                    self._entries.end_runs()
                self._entries.is_brief = any(session.is_brief for session in sessions)
                for session in sessions:
                    session.close()
        except BaseException:
            if is_mine:  # an interrupt may have come before a step, which the stack forgot then
                for part in (self._cleanup, self.sync, self._entries, self.manager, self._audit):
                    part.close()
            raise

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """Warn that it was never closed, if Python shows such warnings (``-X dev``). Its threads end by themselves."""
        if not self._closed:
            warn(f"a memory was never closed: {self.manager.place.title}", ResourceWarning, source=self.workflow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _agent(self, agent: str) -> AgentSpec:
        declared = self.workflow.agents
        if not isinstance(agent, str) or agent not in declared:
            raise InvalidArgument(f"unknown agent {agent!r} (declared: {', '.join(sorted(declared)) or 'none'})")
        return declared[agent]

    def _access(self, spec: AgentSpec, tool_names: str | None, *, ends_run: bool) -> EntryAccess | None:
        """The entries for a session and the names of their tools; None where the workflow declares no entries."""
        declared = self.workflow.memory.entries
        chosen = check_tool_names(tool_names or (declared.tool_names if declared else "default"))
        if declared is None:
            return None
        from memfiles.tools.entry_tools import EntryAccess  # late: only workflows with entries need it

        may: Any = {"ends_run": ends_run, "forgets": spec.forget, "read_only": spec.entries == "r"}
        consolidates = declared.consolidate == "close" and self._entries.may_change
        return EntryAccess(self._entries.opened, declared.secrets_allow, chosen, **may, consolidates=consolidates)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("this memory is closed; open it again")


def _make_manager(
    workflow: Workflow, home: MemoryHome, *, mirror: Mirror | None, ledger: Ledger | None
) -> MemoryManager:
    declared = workflow.memory
    return MemoryManager(
        home,
        mirror,
        durability=declared.durability,
        secrets=declared.secrets,
        scan=scanner_called(declared.secrets_scanner),
        lowest_level=workflow.levels.lowest,
        origin=ledger.meta.known_origin if ledger is not None else None,
    )


def _rewrite(manager: MemoryManager, entries: LazyEntries, record: Record | Entry, text: str, by: Actor | None) -> int:
    """Make ``text`` the content of this version of a record, as the operator of the directory; the new revision."""
    if isinstance(record, Record) or record.agent == FILES:
        file, user = (record.uid, None) if isinstance(record, Record) else (record.key, record.user)
        return manager.replace(file, text, expected_revision=record.revision, by=by, user=user).revision
    if record.retired is not None:
        raise EntryNotFound("the entry was deleted: restore it first")
    from memfiles.entries.callers import Operator  # late: only a conflict that is settled needs it

    who = Operator.of(record, by=by or Actor())
    return entries.opened().update(who, record.key, content=text, expected_revision=record.revision).revision


def _counted(mirror: Mirror | None, workflow: Workflow, progress: Progress | None) -> Mirror | None:
    """The mirror, with a note of each refusal, and ``progress`` told of each object."""
    if mirror is None:
        return None
    from mirrors.progress import CountingMirror  # late: only workflows with a mirror need it
    from mirrors.sealed.refusals import NotedMirror

    noted = NotedMirror(mirror, real_home(workflow.place).notes)
    return noted if progress is None else CountingMirror(noted, progress)


def mirror_at(url: str) -> Mirror:
    """The mirror at a URL, not yet connected to; ``InvalidArgument`` for one that no mirror can have."""
    from mirrors.urls import open_mirror  # late: only workflows with a mirror need it

    return open_mirror(url)
