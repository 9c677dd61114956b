"""How a command on entries gets at them: as which agent, at which level, to look or to change.

The rule this file guards: a command that only looks changes no record, of an entry or of a memory file; only the
derived index may be brought up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from memfiles.cli import output
from memfiles.cli.commands.agents import known_agent
from memfiles.cli.opening import load_workflow
from memfiles.cli.with_mirror import mirrored
from memfiles.entries.entries import Entries
from memfiles.errors import InvalidArgument
from memfiles.memory import Memory, look
from memfiles.records.entry import KINDS
from memfiles.tools.session import Session
from memfiles.workflow.workflow import Workflow

NO_ENTRIES = "this workflow declares no entries: add `entries: {}` to its memory"
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@dataclass(frozen=True)
class As:
    """Who looks or changes: the agent, and the level and run of its session."""

    agent: str | None
    level: str | None
    run: str | None


@dataclass(frozen=True)
class Opened:
    """The entries as one session has them, for one command."""

    workflow: Workflow
    entries: Entries
    session: Session


def as_session(function: _Decorated) -> _Decorated:
    """Add the options that say as whom a command works."""
    for option in reversed(_AS):
        function = option(function)
    return function


def filtering(function: _Decorated) -> _Decorated:
    """Add the options that leave out entries by what they are."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@contextmanager
def looking_at_entries(who: As) -> Iterator[Opened]:
    """The entries, to look only."""
    workflow, agent = _chosen(who)
    if workflow.memory.mirror is not None and not workflow.directory.is_dir():
        output.note("nothing was restored here yet: `memfiles restore` fetches what the mirror holds")
    with look(workflow, warn=output.warn) as memory:
        yield _opened(workflow, memory, agent=agent, who=who)


@contextmanager
def changing_entries(who: As) -> Iterator[Opened]:
    """The entries, to change; what was changed is pushed to the mirror at the end, if possible."""
    workflow, agent = _chosen(who)
    with mirrored(workflow) as memory:
        yield _opened(workflow, memory, agent=agent, who=who)


def agent_of(workflow: Workflow, agent: str | None) -> str:
    """The agent that was named, or the only one there is."""
    if agent is None and len(workflow.agents) == 1:
        return next(iter(workflow.agents))
    if agent is None:
        known = ", ".join(sorted(workflow.agents)) or "none"
        raise click.UsageError(f"say whose entries: --agent NAME; declared are: {known}", click.get_current_context())
    known_agent(workflow, agent)
    return agent


def _chosen(who: As) -> tuple[Workflow, str]:
    """The workflow and the agent, known to be right before anything is opened."""
    workflow = load_workflow()
    if workflow.memory.entries is None:
        raise InvalidArgument(NO_ENTRIES)
    agent = agent_of(workflow, who.agent)
    if who.level is not None:
        workflow.levels.rank(who.level)
    return workflow, agent


def _opened(workflow: Workflow, memory: Memory, *, agent: str, who: As) -> Opened:
    session = memory.session(agent, level=who.level, run=who.run, ends_run=False)
    return Opened(workflow, memory.entries, session)


_AS = (
    click.option("--agent", metavar="NAME", help="Whose entries.  [default: the agent, if only one is declared]"),
    click.option("--level", help="The session's level.  [default: the agent's]"),
    click.option("--run", metavar="ID", help="The session's run: what belongs to one run only is seen in that run."),
)
_FILTERS = (
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only with this tag; may be given several times."),
    click.option("--category", help="Only of this category."),
    click.option("--kind", type=click.Choice(KINDS), help="Only of this kind."),
)
