"""What a session sees of the entries: the partitions it may know of, in the order in which one shadows another.

The rule this file guards: every read and every write of entries asks here and nowhere else for where they may lie, so
that what is hidden is hidden everywhere. For one key the highest visible level shadows the others; at one level what
belongs to the run goes before what is the agent's, and that before what all agents share.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

from memfiles.errors import InvalidArgument
from memfiles.records.keys import WORKSPACE, agent_folder, entry_path, entry_place, entry_uid
from memfiles.records.levels import Levels
from memfiles.records.record import Actor


class CallerProvenance(Protocol):
    """Where a session's changes come from; ``session.Provenance`` is one."""

    @property
    def agent(self) -> str:
        """The agent that is calling."""
        ...

    @property
    def run(self) -> str | None:
        """The run, if there is one."""
        ...

    @property
    def channel(self) -> str | None:
        """By which way the user talks."""
        ...

    @property
    def thread(self) -> str | None:
        """In which thread."""
        ...


class Caller(Protocol):
    """Whose memory is read or written; ``session.Session`` is one."""

    @property
    def level(self) -> str:
        """The level at this moment."""
        ...

    @property
    def provenance(self) -> CallerProvenance:
        """Where its changes come from."""
        ...

    def actor(self, call_id: str | None) -> Actor:
        """Who makes the call of that id; ``InvalidArgument`` if the id cannot be recorded."""
        ...

    def check_open(self) -> None:
        """``InvalidArgument`` once the session is closed: its run may be over, and what it saved would be nobody's."""
        ...


def check_caller(caller: Caller, *, may_be_closed: bool = False) -> None:
    """Refuse what is no session, and a session that is closed: ``InvalidArgument``."""
    if not all(hasattr(caller, name) for name in ("level", "provenance", "actor", "check_open")):
        raise InvalidArgument(
            f"the first argument is a session, as memory.session('support') makes it, not {type(caller).__name__}"
        )
    if not may_be_closed:
        caller.check_open()


class Partition(NamedTuple):
    """Entries that are seen by the same sessions: in one folder, at one level, of one run ("": of no run alone)."""

    scope: str
    level: str
    run: str

    def path(self, key: str) -> str:
        """Where the entry of that key lies in this partition."""
        return entry_path(self.scope, entry_uid(self.scope, self.level, key, self.run))


View = tuple[Partition, ...]


def view_of(caller: Caller, levels: Levels) -> View:
    """What the caller sees at its level of this moment, what shadows the rest first."""
    return _view(caller.provenance.agent, caller.level, caller.provenance.run or "", levels)


def own_level(caller: Caller, level: str | None = None) -> View:
    """Where the caller may write: the partitions at exactly its level, or at another one, in the same order."""
    return _at(caller.provenance.agent, caller.level if level is None else level, caller.provenance.run or "")


def is_in_view(view: View, path: str, *, key: str, level: str) -> bool:
    """Whether the record at ``path`` is that of ``key`` in this view; without a key, whether it may be one of it."""
    if key:
        return any(partition.path(key) == path for partition in view)
    place = entry_place(path)
    return place is not None and any((partition.scope, partition.level) == (place[0], level) for partition in view)


@lru_cache(maxsize=1024)
def _view(agent: str, level: str, run: str, levels: Levels) -> View:
    return tuple(partition for name in levels.readable(session=level) for partition in _at(agent, name, run))


@lru_cache(maxsize=1024)
def _at(agent: str, level: str, run: str) -> View:
    folder = agent_folder(agent)
    of_the_run = (Partition(folder, level, run),) if run else ()
    return (*of_the_run, Partition(folder, level, ""), Partition(WORKSPACE, level, ""))
