"""The composition root: a workflow in, a memory that is restored, watched and ready for sessions out."""

from __future__ import annotations

import logging
import threading
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from memfiles.errors import InvalidArgument
from memfiles.manager import MemoryManager
from memfiles.session import Provenance, Session
from memfiles.workflow import AgentSpec, Workflow

if TYPE_CHECKING:
    from memfiles.restoring import RestoreReport

_log = logging.getLogger("memfiles")


class Closeable(Protocol):
    """Something that runs beside the memory and is stopped with it."""

    def close(self) -> None:
        """Stop. May be called again."""
        ...


def open(path: str | PathLike[str] = "workflow.yaml", *, watch: bool = True) -> Memory:
    """Parse the workflow at ``path``, restore its memory files, and notice what people change in them.

    ``watch=False`` leaves the noticing out, for one-shot use. Raises ``WorkflowError`` for a declaration that cannot be
    used; then nothing on disk has changed.
    """
    workflow = Workflow.load(path)
    declared = workflow.memory
    manager = MemoryManager(
        workflow.directory,
        durability=declared.durability,
        secrets=declared.secrets,
        lowest_level=workflow.levels.lowest,
    )
    try:
        report = manager.restore(workflow)
        return Memory(workflow, manager=manager, report=report, watcher=_watcher(manager) if watch else None)
    except BaseException:
        manager.close()
        raise


class Memory:
    """An open memory: what ``open`` returns. A context manager; ``close`` ends its sessions too.

    ``report`` says what the restore did with each file. ``mirror_note`` says why the declared mirror is not in use,
    None when none is declared.
    """

    def __init__(
        self, workflow: Workflow, *, manager: MemoryManager, report: RestoreReport, watcher: Closeable | None = None
    ) -> None:
        self.workflow = workflow
        self.manager = manager
        self.report = report
        self.mirror_note = _mirror_note(workflow)
        self._watcher = watcher
        self._sessions: WeakSet[Session] = WeakSet()
        self._closing = threading.Lock()
        self._closed = False
        if self.mirror_note:
            _log.warning("%s", self.mirror_note)

    def session(
        self,
        agent: str,
        *,
        level: str | None = None,
        run: str | None = None,
        channel: str | None = None,
        thread: str | None = None,
    ) -> Session:
        """A session of a declared agent, at ``level``, else at the agent's own, else at the lowest.

        ``run``, ``channel`` and ``thread`` say where its changes come from. ``InvalidArgument`` lists the declared
        agents or levels when there is no such one.
        """
        spec = self._agent(agent)
        levels = self.workflow.levels
        start = level if level is not None else spec.level or levels.lowest
        provenance = Provenance(agent, run=run, channel=channel, thread=thread)
        session = Session(provenance, refs=spec.memory, manager=self.manager, levels=levels, level=start)
        with self._closing:
            self._check_open()
            self._sessions.add(session)
        return session

    def status(self) -> dict[str, Any]:
        """The manager's status, and what becomes of the declared mirror."""
        return {**self.manager.status(), "mirror": self.mirror_note}

    def close(self) -> None:
        """End the sessions, stop watching, bring the disk to rest. May be called again."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        try:
            if self._watcher is not None:
                self._watcher.close()
        finally:
            self.manager.close()

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

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("this memory is closed; open it again")


def _watcher(manager: MemoryManager) -> Closeable:
    from memfiles.watch import watch  # late: watchdog takes 55 ms to import, and one-shot use does not need it

    return watch(manager)


def _mirror_note(workflow: Workflow) -> str | None:
    mirror = workflow.memory.mirror
    if mirror is None:
        return None
    return "the declared mirror is not available in this version: memory is kept in the local directory only"
