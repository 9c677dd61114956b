"""Opening the memory for a change, and the command line's messages about the mirror.

The rule this file guards: a change is durable on disk before the mirror is asked. A mirror that does not accept it
costs some seconds and a warning, and never changes the exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memfiles.cli import output
from memfiles.cli.options import current
from memfiles.cli.output import progress, waiting
from memfiles.errors import MirrorUnavailable
from memfiles.files.restore_report import RestoreReport
from memfiles.memory import Memory, unmirrored
from memfiles.memory import open as open_memory
from memfiles.records.keys import uid_of
from memfiles.sync.status import SyncStatus, kept_conflicts
from memfiles.workflow.workflow import Workflow

PATIENCE_SECONDS = 5.0
PULL_SECONDS = 60.0
NAMED = 5  # files named in a message


@contextmanager
def mirrored(workflow: Workflow) -> Iterator[Memory]:
    """The restored memory, for one command; its changes are pushed at the end, if possible."""
    before = dict(kept_conflicts(workflow.directory))
    with restored(workflow) as memory:
        yield memory
        push_what_is_left(memory)
    mention_conflicts(workflow.directory, new_conflicts(workflow.directory, before=before))


@contextmanager
def restored(workflow: Workflow) -> Iterator[Memory]:
    """The restored memory, whose transfers end with the block; problems of the restore are reported."""
    where = workflow.memory.mirror.url if workflow.memory.mirror else workflow.directory
    with waiting(f"restoring from {where} ..."), progress("Fetching") as shown:
        memory = open_memory(current().workflow, watch=False, progress=shown)
    mention_trouble(memory.report)
    with memory:
        try:
            yield memory
        finally:
            memory.sync.close(timeout=0)  # the transfers have had their time, or something failed


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


def new_conflicts(directory: Path, *, before: Iterable[str]) -> list[str]:
    """The losing copies in ``directory`` that are new since ``before``."""
    return [path for path, _ in kept_conflicts(directory) if path not in set(before)]


def mention_conflicts(directory: Path, kept: Iterable[str]) -> None:
    """Warn of losing copies, with their paths."""
    for path in kept:
        output.warn(f"two changes could not be merged; the losing copy is kept in {directory / path}")


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


def mention_unmirrored(workflow: Workflow) -> None:
    """Warn of what the mirror never takes."""
    if why := unmirrored(workflow):
        output.warn(why)


def mirror_lines(status: SyncStatus, *, workflow: Workflow) -> Iterator[tuple[str, str]]:
    """The lines of a status about the mirror, each a label and its text."""
    if status.mirror is not None:
        yield "mirror", status.mirror
        yield "pending", pending_in(status, workflow=workflow)
        if status.last_error:
            yield "last error", status.last_error
        yield from (("promises", shortcoming) for shortcoming in promises_in(status))
    else:
        yield "mirror", "none declared"
    kept = output.count(len(status.conflicts), "losing copy", "losing copies")
    yield "conflicts", f"{kept} in conflicts/" if status.conflicts else "none"
    if status.refused:
        yield "refused", f"{output.count(len(status.refused), 'object')} in the mirror; {[*status.refused.values()][0]}"


def pending_in(status: SyncStatus, *, workflow: Workflow) -> str:
    """The number of pending records, and the age of the oldest."""
    if not status.pending:
        return "nothing; the mirror has every change made here"
    oldest = name_of(workflow, status.oldest_pending or "")
    return f"{output.count(status.pending, 'record')}, the oldest ({oldest}) for {seconds(status.lag_seconds)}"


def promises_in(status: SyncStatus) -> tuple[str, ...]:
    """What is known of how the mirror keeps its promises."""
    if status.shortcomings is None:
        return ("not checked yet; the next push or memfiles doctor does",)
    return status.shortcomings or ("kept",)


def name_of(workflow: Workflow, path: str) -> str:
    """The name of the file whose record is at ``path``."""
    uid = uid_of(path)
    return next((file.name for file in workflow.memory.files if file.uid == uid), path)


def seconds(lag: float) -> str:
    """A time span for people."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if lag >= 2 * size:
            return f"{lag / size:.0f} {unit}"
    return f"{lag:.0f} s"
