"""The inspected memory: the open memory as the operator of the page may see and change it.

The rules this file guards: nothing above the ceiling is shown or changed, and what goes across all levels is refused
below the highest; every change names the operator. All other rules are those of the library, which the pages call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict, replace

from memfiles.errors import FileNotDeclared, InvalidArgument, LevelDenied
from memfiles.memory import Memory
from memfiles.records.keys import ENTRIES
from memfiles.records.record import Actor, Record
from memfiles.sync.conflicts import Conflict
from memfiles.tools.session import Session, without_upkeep
from memfiles.workflow.workflow import MemoryFile

SURFACE = "ui"


class ViewedSession(Struct, frozen=True):
    """The session whose view of the entries is shown: its agent, user, level and run, "" for none."""

    agent: str
    user: str = ""
    level: str = ""
    run: str = ""

    def query(self, **more: object) -> str:
        """The viewed session as the query of a link, with other fields, without the empty ones."""
        return urlencode({name: value for name, value in {**self.fields, **more}.items() if value not in ("", None)})

    @property
    def fields(self) -> dict[str, str]:
        """The viewed session as the hidden fields of a form."""
        return asdict(self)


class InspectedMemory:
    """The memory for the pages. Threads may share it."""

    def __init__(self, memory: Memory, *, operator: str, ceiling: str | None = None, read_only: bool = False) -> None:
        """``ceiling`` is the highest level that is shown; None: all are. ``InvalidArgument`` if it is not declared."""
        self.memory = memory
        self.operator = operator
        self.read_only = read_only
        levels = memory.workflow.levels
        self.ceiling = None if ceiling in (None, levels.names[-1]) else ceiling
        self.levels = levels.names if self.ceiling is None else levels.readable(session=self.ceiling)[::-1]
        self.by = Actor(session=SURFACE, actor=operator)

    def viewed(self, asked: Mapping[str, str]) -> ViewedSession:
        """The session to view: of the agent asked for or the first one, at its own level or the highest shown."""
        agents = self.memory.workflow.agents
        if not agents:
            raise InvalidArgument("the workflow declares no agents: entries belong to agents")
        agent = asked.get("agent") or next(iter(agents))
        if agent not in agents:
            raise InvalidArgument(f"unknown agent {agent!r} (declared: {', '.join(agents)})")
        own = agents[agent].level or self.levels[0]
        level = asked.get("level") or (own if own in self.levels else self.levels[-1])
        return ViewedSession(agent, asked.get("user", ""), self.checked(level), asked.get("run", ""))

    def checked(self, level: str) -> str:
        """The level, if it may be shown: ``LevelDenied`` above the ceiling."""
        self.memory.workflow.levels.rank(level)
        if level not in self.levels:
            raise LevelDenied(f"this page shows nothing above {self.ceiling}")
        return level

    @contextmanager
    def session(self, viewed: ViewedSession) -> Iterator[Session]:
        """The viewed session, opened, in which the operator acts; it ends no run."""
        level, user, run = self.checked(viewed.level), viewed.user or None, viewed.run or None
        found = self.memory.session(viewed.agent, user=user, level=level, run=run, actor=self.operator, ends_run=False)
        try:
            yield without_upkeep(found)
        finally:
            found.close()

    def files(self) -> list[MemoryFile]:
        """The declared files that may be shown."""
        lowest = self.memory.workflow.levels.lowest
        return [file for file in self.memory.workflow.memory.files if (file.level or lowest) in self.levels]

    def file(self, uid: str, user: str = "") -> Record:
        """A file as it is now; one above the ceiling does not exist."""
        if uid not in {file.uid for file in self.files()}:
            raise FileNotDeclared(f"no memory file {uid!r} is declared")
        return self.memory.manager.snapshot(uid, user=user or None)

    def conflicts(self) -> list[Conflict]:
        """The conflicts at the levels that may be shown."""
        found, names = self.memory.sync.conflicts(), {file.name for file in self.files()}
        if self.ceiling is None:
            return found
        return [it for it in found if it.level in self.levels and (it.record.startswith(ENTRIES) or it.name in names)]

    def check_all_levels(self) -> None:
        """Refuse an action across all levels if some are hidden: ``LevelDenied``."""
        if self.ceiling is not None:
            raise LevelDenied(f"this affects all levels, but the page was started with --level {self.ceiling}")


def acting(viewed: ViewedSession, *, level: str, scope: str) -> ViewedSession:
    """The session that may change an entry at this level and scope: the entry's own."""
    user = "" if scope in ("agent", "workspace") else viewed.user
    return replace(viewed, level=level, user=user, run=viewed.run if scope == "run" else "")
