"""How a command opens the memory to change it, and what it says of the mirror then and in every look.

The rule this file guards: a change is durable here before the mirror is thought of. A mirror that does not take it
costs a person some seconds and a warning, and never the exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memfiles.cli import output
from memfiles.cli.progress import progress, waiting
from memfiles.cli.settings import current
from memfiles.errors import MirrorUnavailable
from memfiles.files.restore_report import RestoreReport
from memfiles.memory import Memory
from memfiles.memory import open as open_memory
from memfiles.records.keys import uid_of
from memfiles.sync import SyncStatus
from memfiles.sync.status import kept_conflicts
from memfiles.workflow.workflow import Workflow

PATIENCE_SECONDS = 5.0
PULL_SECONDS = 60.0
NAMED = 5  # so many files are called by name


@contextmanager
def mirrored(workflow: Workflow) -> Iterator[Memory]:
    """The memory of this workflow, restored, for one command; what that changed is pushed at the end, if possible."""
    before = dict(kept_conflicts(workflow.directory))
    with restored(workflow) as memory:
        try:
            yield memory
            push_what_is_left(memory)
        finally:
            memory.sync.close(timeout=0)  # it was waited for, or something went wrong
    mention_conflicts(workflow.directory, new_conflicts(workflow.directory, before=before))


def restored(workflow: Workflow) -> Memory:
    """The memory of this workflow, open; what its restore met is said."""
    where = workflow.memory.mirror.url if workflow.memory.mirror else workflow.directory
    with waiting(f"restoring from {where} ..."), progress("Fetching") as told:
        memory = open_memory(current().workflow, watch=False, progress=told)
    mention_trouble(memory.report)
    return memory


def push_what_is_left(memory: Memory) -> None:
    """Give the mirror what it lacks, with some patience, and say so if it does not take it."""
    with progress("Pushing") as told:
        if memory.sync.flush(PATIENCE_SECONDS, insist=False, progress=told):
            return
    why = memory.sync.status().last_error or f"the mirror did not take it within {PATIENCE_SECONDS:g} s"
    output.warn(f"not mirrored yet: {output.one_line(why)}; it is pushed by the next command that writes, or by "
                f"`memfiles sync push`")  # fmt: skip


def pull_what_changed(memory: Memory) -> None:
    """Fetch what others changed in the mirror, and say so; a mirror that does not answer is no reason to fail."""
    try:
        with progress("Pulling") as told:
            outcomes = memory.sync.pull(PULL_SECONDS, progress=told).outcomes
    except MirrorUnavailable as error:
        output.warn(f"what others changed was not fetched: {error}")
        return
    for path, outcome in outcomes.items():
        if outcome in ("pulled", "merged", "conflict"):
            output.note(f"{name_of(memory.workflow, path)}: {outcome}")


def new_conflicts(directory: Path, *, before: Iterable[str]) -> list[str]:
    """The losing copies in ``directory`` that were not there ``before``."""
    return [path for path, _ in kept_conflicts(directory) if path not in set(before)]


def mention_conflicts(directory: Path, kept: Iterable[str]) -> None:
    """Say where the text lies that lost."""
    for path in kept:
        output.warn(f"two changes could not be merged; the one that lost is kept in {directory / path}")


def mention_trouble(report: RestoreReport) -> None:
    """Tell a person what a restore met that they should know."""
    for file in report.files:
        if file.status == "quarantined":
            output.warn(f"{file.name}: its record was set aside in quarantine: {file.detail}")
    waiting = [file for file in report.files if file.status == "provisional"]
    if waiting:
        names = ", ".join(file.name for file in waiting[:NAMED]) + (" ..." if len(waiting) > NAMED else "")
        output.warn(f"{waiting[0].detail}; so {names} begin with what is declared, and are merged with the mirror's "
                    f"copies once it answers")  # fmt: skip


def mirror_lines(status: SyncStatus, *, workflow: Workflow) -> Iterator[tuple[str, str]]:
    """What a look says of the mirror: a label and its text, for each line."""
    if status.mirror is not None:
        yield "mirror", status.mirror
        yield "pending", pending_in(status, workflow=workflow)
        if status.last_error:
            yield "last error", status.last_error
    else:
        yield "mirror", "none declared"
    kept = output.count(len(status.conflicts), "losing copy", "losing copies")
    yield "conflicts", f"{kept} in conflicts/" if status.conflicts else "none"


def pending_in(status: SyncStatus, *, workflow: Workflow) -> str:
    """How many records the mirror lacks, and since when."""
    if not status.pending:
        return "nothing: the mirror has every change that was made here"
    oldest = name_of(workflow, status.oldest_pending or "")
    return f"{output.count(status.pending, 'record')}, the oldest ({oldest}) for {seconds(status.lag_seconds)}"


def name_of(workflow: Workflow, path: str) -> str:
    """The name of the file whose record lies at ``path``."""
    uid = uid_of(path)
    return next((file.name for file in workflow.memory.files if file.uid == uid), path)


def seconds(lag: float) -> str:
    """A time span as people say it."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if lag >= 2 * size:
            return f"{lag / size:.0f} {unit}"
    return f"{lag:.0f} s"
