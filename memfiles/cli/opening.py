"""Opening the memory for one command, to read or to change files and entries.

The rule this file guards: a command that only reads creates and changes nothing. It shows what an agent would find if
it started now, also before the first restore: the record on disk under its declared name and cap, or else the
declared content. The exceptions are those of ``memfiles.memory.look``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memfiles.cli import output
from memfiles.cli.failures import NotFound
from memfiles.cli.options import current, options, usage_error
from memfiles.cli.with_mirror import mirrored
from memfiles.errors import FileNotDeclared, InvalidArgument, RecordCorrupt
from memfiles.files.manager import MemoryManager
from memfiles.files.restore_report import FileReport, FileView, RestoreReport
from memfiles.memory import Memory, load, look
from memfiles.records.entry import KINDS
from memfiles.records.file_changes import FileCard
from memfiles.records.record import Actor
from memfiles.sync.engine import Sync
from memfiles.sync.status import NullSync
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.tools.session import Session

AUTHOR = "cli"
SESSION_LEVEL = click.option("--level", help="Session level.  [default: the agent's]")
_session_options = options(
    click.option("--agent", metavar="NAME", help="Agent whose entries to use.  [default: the only one declared]"),
    SESSION_LEVEL,
    click.option("--run", metavar="ID", help="Session run; entries of a run are visible in that run only."),
)
filtering = options(
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only entries with this tag; repeatable."),
    click.option("--category", help="Only entries of this category."),
    click.option("--kind", type=click.Choice(KINDS), help="Only entries of this kind."),
)


@dataclass(frozen=True)
class MemoryView:
    """The declared files as they are, in the order of the workflow, and the report of a plan."""

    workflow: Workflow
    report: RestoreReport
    files: tuple[FileView, ...]
    sync: Sync | NullSync

    def card(self, uid: str) -> FileCard:
        """The card of a declared file, as the manager gives it."""
        for file in self.files:
            if file.record.uid == uid:
                return file.card
        raise FileNotDeclared(f"unknown memory file {uid}")

    def find(self, name: str) -> FileView:
        """The file of that name or uid; ``RecordCorrupt`` if its record cannot be read."""
        uid = find_uid(self.workflow, name)
        file = next(file for file in self.files if file.record.uid == uid)
        if file.report.status == "quarantined":
            raise RecordCorrupt(
                f"the record of {file.record.name} cannot be read ({file.report.detail}); `memfiles restore` moves it "
                f"to quarantine and starts again with the declared content"
            )
        return file


@dataclass(frozen=True)
class Writing:
    """A memory file, opened for a change by a person."""

    workflow: Workflow
    manager: MemoryManager
    uid: str
    by: Actor = Actor(session=AUTHOR)


@dataclass(frozen=True)
class As:
    """The session a command works as: its agent, level and run."""

    agent: str | None
    level: str | None
    run: str | None


@dataclass(frozen=True)
class Opened:
    """The entries as one session sees them, for one command."""

    workflow: Workflow
    entries: Entries
    session: Session


def as_session(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a session to a command, which gets them as ``who``."""

    @wraps(function)
    def run(*args: Any, agent: str | None, level: str | None, run: str | None, **given: Any) -> None:
        function(*args, who=As(agent, level, run), **given)

    return _session_options(run)


def load_workflow() -> Workflow:
    """The workflow named on the command line."""
    quiet_log()
    path = Path(current().workflow)
    if not path.exists():
        raise NotFound(f"no workflow at {path}; create one with `memfiles init` or name yours with -w PATH")
    return load(path)


def view() -> MemoryView:
    """The memory as it is on disk, opened to read only."""
    workflow = load_workflow()
    with look(workflow, warn=output.warn) as memory:
        report = memory.report
        files = tuple(memory.manager.view(file, report[file.uid]) for file in workflow.memory.files)
        return MemoryView(workflow, report, files, memory.sync)


@contextmanager
def writing(name: str) -> Iterator[Writing]:
    """Open the file of that name or uid for a change; a wrong name touches nothing."""
    workflow = load_workflow()
    uid = find_uid(workflow, name)
    with mirrored(workflow) as memory:
        yield Writing(workflow, memory.manager, uid)


@contextmanager
def reading_entries(who: As) -> Iterator[Opened]:
    """Open the entries to read only."""
    workflow, agent = _chosen(who)
    if workflow.memory.mirror is not None and not workflow.directory.is_dir():
        output.note("nothing is restored here yet; `memfiles restore` fetches what the mirror holds")
    with look(workflow, warn=output.warn) as memory:
        yield _opened(workflow, memory, agent=agent, who=who)


@contextmanager
def changing_entries(who: As) -> Iterator[Opened]:
    """Open the entries for a change, which is pushed to the mirror at the end, if possible."""
    workflow, agent = _chosen(who)
    with mirrored(workflow) as memory:
        yield _opened(workflow, memory, agent=agent, who=who)


def find_uid(workflow: Workflow, name: str) -> str:
    """The uid of the declared file with this name or uid."""
    files = workflow.memory.files
    known = {file.uid: file.uid for file in files} | {file.name: file.uid for file in files}  # a name comes first
    if name in known:
        return known[name]
    names = [file.name for file in files]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"declared: {', '.join(names) or 'none'}"
    raise FileNotDeclared(f"unknown memory file {name!r} ({hint})")


def known_agent(workflow: Workflow, agent: str) -> None:
    """Refuse an agent that the workflow does not declare."""
    if agent not in workflow.agents:
        raise NotFound(f"unknown agent {agent!r} (declared: {_agents_of(workflow)})")


def agent_of(workflow: Workflow, agent: str | None) -> str:
    """The given agent, or the only one declared."""
    if agent is None and len(workflow.agents) == 1:
        return next(iter(workflow.agents))
    if agent is None:
        raise usage_error(f"choose an agent with --agent NAME (declared: {_agents_of(workflow)})")
    known_agent(workflow, agent)
    return agent


def listed(file: FileView) -> dict[str, Any]:
    """The JSON object for one file in a list: its card, share and state."""
    known = {"share": round(file.share, 4), "state": file.report.status, "detail": file.report.detail}
    return file.card.to_dict() | known


def state_of(report: FileReport) -> str:
    """The state of a file in one or two words."""
    return report.status + (", over cap" if report.over_cap else "")


def quiet_log() -> None:
    """Keep the library's log off stderr without --debug: the command line reports errors itself, once."""
    if not current().debug:
        logging.getLogger("memfiles").addHandler(logging.NullHandler())


def _agents_of(workflow: Workflow) -> str:
    return ", ".join(sorted(workflow.agents)) or "none"


def _chosen(who: As) -> tuple[Workflow, str]:
    """The workflow and the agent, checked before anything is opened."""
    workflow = load_workflow()
    if workflow.memory.entries is None:
        raise InvalidArgument("this workflow declares no entries; add `entries: {}` under memory")
    agent = agent_of(workflow, who.agent)
    if who.level is not None:
        workflow.levels.rank(who.level)
    return workflow, agent


def _opened(workflow: Workflow, memory: Memory, *, agent: str, who: As) -> Opened:
    session = memory.session(agent, level=who.level, run=who.run, ends_run=False)
    return Opened(workflow, memory.entries, session)
