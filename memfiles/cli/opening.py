"""Opening the memory for one command, to read or to change files and entries.

The rules this file guards: a command that only reads creates and changes nothing. It shows what an agent would find if
it started now, also before the first restore: the record on disk under its declared name and cap, or else the
declared content. The exceptions are those of ``memfiles.memory.look``. A change is durable on disk before the mirror is
asked. A mirror that does not accept it costs some seconds and a warning, and never changes the exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from memfiles.cli import lean_imports, load, output
from memfiles.cli.options import current, option, options, usage_error
from memfiles.cli.output import progress, quiet_log, waiting
from memfiles.errors import FileNotDeclared, InvalidArgument, MirrorUnavailable, RecordCorrupt
from memfiles.files.restorer import Restorer, seen_in
from memfiles.records.keys import ENTRIES, USERS, uid_of
from memfiles.storage.home import MemoryHome, home_of
from memfiles.workflow import yaml_source
from memfiles.workflow.problems import nearest_to
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.files.restore_report import FileReport, FileView, RestoreReport
    from memfiles.memory import Memory
    from memfiles.tools.session import Session

AUTHOR = "cli"
JOURNALS = ".journal"
FILE_PARTS = ("memfiles.tools.session", "memfiles.tools.entry_tools")
ENTRY_PARTS = (*FILE_PARTS, "memfiles.entries.entries")
PATIENCE_SECONDS = 5.0
PULL_SECONDS = 60.0
MAX_PAGE = 100
USERS_MAX = 1000
NAMED = 5  # files named in a message
SESSION_LEVEL = option("--level", help="Session level.  [default: the agent's]")
SESSION_USER = option("--user", metavar="NAME", help="The person whom the agent works for.")
FILE_USER = option("--user", metavar="NAME", help="User whose file it is, of a file per user.")
ACTOR = option("--actor", metavar="NAME", help="Who acts, a human or a program, recorded in the history.")
_session_options = options(
    option("--agent", metavar="NAME", help="Agent whose entries to use.  [default: the only one declared]"),
    SESSION_USER,
    SESSION_LEVEL,
    option("--run", metavar="ID", help="Session run; entries of a run are visible in that run only."),
    ACTOR,
)
filtering = options(
    option("--tag", "tags", multiple=True, metavar="TAG", help="Only entries with this tag; repeatable."),
    option("--category", help="Only entries of this category."),
)


class MemoryView(Struct, frozen=True):
    """The declared files as they are, in the order of the workflow, and the report of a plan."""

    workflow: Workflow
    report: RestoreReport
    files: tuple[FileView, ...]
    user: str | None = None

    def find(self, name: str) -> FileView:
        """The file of that name or uid; ``RecordCorrupt`` if its record cannot be read."""
        uid = find_uid(self.workflow, name, user=self.user)
        file = next(file for file in self.files if file.record.uid == uid)
        if file.report.status == "quarantined":
            raise RecordCorrupt(
                f"the record of {file.record.name} cannot be read ({file.report.detail}); `memfiles restore` moves it "
                f"to quarantine and starts again with the declared content"
            )
        return file


class SessionOptions(Struct, frozen=True):
    """The session a command works as: its agent, user, level, run and actor."""

    agent: str | None
    user: str | None
    level: str | None
    run: str | None
    actor: str | None

    def session(self, memory: Memory, agent: str) -> Session:
        """The session, of the agent that was found for the command."""
        from memfiles.tools.session import without_upkeep  # late: a memory that is looked at has no session

        who = {"user": self.user, "level": self.level, "run": self.run, "actor": self.actor}
        return without_upkeep(memory.session(agent, **who, ends_run=False), is_brief=True)


def as_session(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a session to a command, which gets them as ``who``."""

    @wraps(function)
    def run(*args: Any, agent: str | None, level: str | None, **given: Any) -> None:
        who = SessionOptions(agent, given.pop("user"), level, given.pop("run"), given.pop("actor"))
        function(*args, who=who, **given)

    return _session_options(run)


def as_person(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--actor`` to a command that changes memory files as a person, and gets them as ``by``."""

    @wraps(function)
    def run(*args: Any, actor: str | None, **given: Any) -> None:
        from memfiles.records.record import Actor  # late: a reader needs no name

        function(*args, by=Actor(session=AUTHOR, actor=actor), **given)

    return ACTOR(run)


def load_workflow() -> Workflow:
    """The workflow named on the command line."""
    if "logging" in sys.modules:  # else the later loader does this
        quiet_log()
    path = Path(current().workflow)
    if not path.exists():
        from memfiles.cli.failures import NotFound  # late: only a mistake needs it

        raise NotFound(f"no workflow at {path}; create one with `memfiles init` or name yours with -w PATH")
    with lean_imports():
        yaml_source.import_parser()
    return Workflow.load(path, check_mirror=_check_mirror, check_store=home_of)


def _check_mirror(url: str) -> None:
    from memfiles.memory import mirror_at  # late: only workflows with a mirror need it

    quiet_log()
    mirror_at(url)


def view(user: str | None = None) -> MemoryView:
    """The memory as it is on disk, opened to read only, with the files of a ``user``."""
    workflow = load_workflow()
    home = home_of(workflow.place)
    if user is None and not _has_journals(home):  # no need for what opens a memory
        lowest = workflow.levels.lowest
        with home.held():
            report = Restorer(None, now=str, lowest_level=lowest).plan(home, workflow.memory.files)
            shown = [seen_in(home, it, report[it.uid], lowest_level=lowest) for it in workflow.shared_files]
        return MemoryView(workflow, report, tuple(shown))
    quiet_log(at_once=workflow.memory.mirror is not None)
    with lean_imports():
        from memfiles.memory import look  # late, as above
    with look(workflow, warn=output.warn) as memory:
        manager, report = memory.manager, memory.report
        files = [manager.view(file, report[file.uid]) for file in workflow.shared_files]
        if user is not None and manager.users is not None and manager.per_user:
            own = manager.users.of(user, manager.per_user)
            files += [own.view(uid) for uid in manager.per_user]
        return MemoryView(workflow, report, tuple(files), user)


def _has_journals(home: MemoryHome) -> bool:
    """Whether a journal may hold changes that the records do not have yet."""
    try:
        return home.directory is not None and bool(os.listdir(home.directory / JOURNALS))
    except OSError as error:
        return not isinstance(error, FileNotFoundError)


@contextmanager
def writing(name: str, user: str | None = None) -> Iterator[tuple[Memory, str]]:
    """Open the memory to change the file of that name or uid, and find its uid; a wrong name touches nothing."""
    workflow = load_workflow()
    uid = find_uid(workflow, name, user=user)
    with mirrored(workflow) as memory:
        yield memory, uid


@contextmanager
def reading_entries(who: SessionOptions) -> Iterator[tuple[Memory, Session]]:
    """Open the entries to read only, and a session that sees them."""
    workflow, agent = _chosen(who)
    quiet_log(at_once=workflow.memory.mirror is not None)
    load(*ENTRY_PARTS)
    with lean_imports():
        from memfiles.memory import look  # late: some commands do without
    if workflow.memory.mirror is not None and not home_of(workflow.place).exists():
        output.note("nothing is restored here yet; `memfiles restore` fetches what the mirror holds")
    with look(workflow, warn=output.warn) as memory:
        yield memory, who.session(memory, agent)


@contextmanager
def changing_entries(who: SessionOptions) -> Iterator[tuple[Memory, Session]]:
    """Open the entries for a change, which is pushed to the mirror at the end, if possible, and a session."""
    workflow, agent = _chosen(who)
    with mirrored(workflow, parts=(*ENTRY_PARTS, "memfiles.entries.writer", "memfiles.storage.audit_reader")) as memory:
        yield memory, who.session(memory, agent)


@contextmanager
def mirrored(workflow: Workflow, *, parts: Iterable[str] = ()) -> Iterator[Memory]:
    """The restored memory, for one command; its changes are pushed at the end, if possible. See ``restored``."""
    if workflow.memory.mirror is None:
        with restored(workflow, parts=parts) as memory:
            yield memory
        return
    from memfiles.sync.status import kept_conflicts  # late: only workflows with a mirror need it

    before = dict(kept_conflicts(workflow.place))
    with restored(workflow) as memory:
        yield memory
        push_what_is_left(memory)
    mention_conflicts(workflow, new_conflicts(workflow, before=before))


@contextmanager
def restored(workflow: Workflow, *, parts: Iterable[str] = ()) -> Iterator[Memory]:
    """The restored memory, whose transfers end with the block; problems of the restore are reported.

    ``parts`` are modules of memfiles that will be used, and are better imported leanly.
    """
    quiet_log(at_once=workflow.memory.mirror is not None)
    load(*parts)
    with lean_imports():
        from memfiles.memory import open as open_memory  # late: some commands do without
    where = workflow.memory.mirror.url if workflow.memory.mirror else workflow.place
    with waiting(f"restoring from {where} ..."), progress("Fetching") as shown:
        memory = open_memory(current().workflow, watch=False, progress=shown)
    mention_trouble(memory.report)
    with memory:
        try:
            yield memory
        finally:
            memory.sync.close(timeout=0)  # the transfers have had their time, or something failed


def find_uid(workflow: Workflow, name: str, *, user: str | None = None) -> str:
    """The uid of the declared file with this name or uid; a ``user`` is needed for one per user, and for no other."""
    files = workflow.memory.files
    known = {file.uid: file for file in files} | {file.name: file for file in files}  # a name comes first
    if name in known:
        if (known[name].per is None) != (user is None):
            raise usage_error(
                f"{name} is kept for each user; add --user NAME" if user is None
                else f"{name} is one file for all users; leave out --user"
            )  # fmt: skip
        return known[name].uid
    names = [file.name for file in files]
    nearest = nearest_to(name, names)
    hint = f"did you mean {nearest!r}?" if nearest else f"declared: {', '.join(names) or 'none'}"
    raise FileNotDeclared(f"unknown memory file {name!r} ({hint})")


def completions_of(what: str, command: click.Context, begun: str) -> Iterable[str]:
    """The agents, categories, files, keys, levels, plans (``undo``) or users that a shell may offer to a command."""
    from memfiles.entries.drafts import BUILT_IN  # late: commands do without
    from memfiles.records.entry import CORE, GENERAL

    workflow = load_workflow()
    entries = workflow.memory.entries
    known: dict[str, Callable[[], Iterable[str]]] = {
        "agent": lambda: workflow.agents,
        "category": lambda: {*BUILT_IN, CORE, GENERAL, *(entries.categories if entries is not None else ())},
        "file": lambda: [file.name for file in workflow.memory.files],
        "level": lambda: workflow.memory.levels,
        "user": lambda: _users_of(workflow),
    }
    if what in known:
        return known[what]()
    given = command.params
    who = SessionOptions(given.get("agent"), given.get("user"), given.get("level"), given.get("run"), None)
    with reading_entries(who) as (memory, session):
        if what == "undo":
            return [gone.cause for gone in memory.entries.deleted(session).entries]
        if command.info_name == "restore":
            return [gone.found.key for gone in memory.entries.deleted(session).entries]
        return [found.key for found in memory.entries.list(session, prefix=begun or None, limit=MAX_PAGE).memories]


def _users_of(workflow: Workflow) -> list[str]:
    """The users of the memory; none if there are so many that reading their names takes longer than typing one."""
    from memfiles.memory import look  # late: some commands do without

    quiet_log()
    if (directory := home_of(workflow.place).directory) is not None:
        folders = (directory / ENTRIES).glob(f"*/{USERS}/*")
        if sum(1 for _ in islice(folders, USERS_MAX + 1)) > USERS_MAX:
            return []
    with look(workflow) as memory:
        return [each.user for each in memory.users.list()]


def known_agent(workflow: Workflow, agent: str) -> None:
    """Refuse an agent that the workflow does not declare."""
    from memfiles.cli.failures import NotFound  # late: only a mistake needs it

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


def file_object(file: FileView) -> dict[str, Any]:
    """The JSON object for one file in a list: its card, share and state."""
    known = {"share": round(file.share, 4), "state": file.report.status, "detail": file.report.detail}
    return file.card.to_dict() | known


def sizes_of(file: FileView) -> tuple[object, ...]:
    """The cells of a table about one file: its revision, bytes, cap and share."""
    card = file.card
    return card.revision, card.size_bytes, card.max_size_bytes, output.percent(file.share)


def state_of(report: FileReport) -> str:
    """The state of a file in one or two words."""
    return report.status + (", over cap" if report.over_cap else "")


def push_what_is_left(memory: Memory) -> None:
    """Push pending changes for a few seconds; warn if the mirror does not accept them."""
    with progress("Pushing") as shown:
        if memory.sync.flush(PATIENCE_SECONDS, insist=False, progress=shown):
            return
    why = memory.sync.status().last_error or f"the mirror did not take it within {PATIENCE_SECONDS:g} s"
    output.warn(f"not mirrored yet: {output.one_line(why)}; the next command that writes pushes it, or "
                f"`memfiles sync push`")  # fmt: skip


def pull_what_changed(memory: Memory) -> None:
    """Fetch changes from the mirror and report them; a mirror that does not answer is only a warning."""
    try:
        with progress("Pulling") as shown:
            outcomes = memory.sync.pull(PULL_SECONDS, progress=shown).outcomes
    except MirrorUnavailable as error:
        output.warn(f"changes in the mirror were not fetched: {error}")
        return
    for path, outcome in outcomes.items():
        if outcome in ("pulled", "merged", "conflict"):
            output.note(f"{name_of(memory.workflow, path)}: {outcome}")


def new_conflicts(workflow: Workflow, *, before: Iterable[str]) -> list[str]:
    """The losing copies that are new since ``before``."""
    from memfiles.sync.status import kept_conflicts  # late, as above

    return [path for path, _ in kept_conflicts(workflow.place) if path not in set(before)]


def mention_conflicts(workflow: Workflow, kept: Iterable[str]) -> None:
    """Warn of losing copies, with their paths."""
    for path in kept:
        where = workflow.place / path if isinstance(workflow.place, Path) else path
        output.warn(f"two changes could not be merged; the losing copy is kept in {where}")


def mention_trouble(report: RestoreReport) -> None:
    """Warn of records that a restore quarantined or could not fetch."""
    for file in report.files:
        if file.status == "quarantined":
            output.warn(f"{file.name}: its record was moved to quarantine: {file.detail}")
    waiting = [file for file in report.files if file.status == "provisional"]
    if waiting:
        names = ", ".join(file.name for file in waiting[:NAMED]) + (" ..." if len(waiting) > NAMED else "")
        output.warn(f"{waiting[0].detail}; {names} start with the declared content, to be merged with the mirror's "
                    f"copies once it answers")  # fmt: skip


def name_of(workflow: Workflow, path: str) -> str:
    """The name of the file whose record is at ``path``; of a user's, and of an entry, the path."""
    uid = uid_of(path)
    return next((file.name for file in workflow.memory.files if file.uid == uid), path)


def _agents_of(workflow: Workflow) -> str:
    return ", ".join(sorted(workflow.agents)) or "none"


def _chosen(who: SessionOptions) -> tuple[Workflow, str]:
    """The workflow and the agent, checked before anything is opened."""
    workflow = load_workflow()
    if workflow.memory.entries is None:
        raise InvalidArgument("this workflow declares no entries; add `entries: {}` under memory")
    agent = agent_of(workflow, who.agent)
    if who.level is not None:
        workflow.levels.rank(who.level)
    return workflow, agent
