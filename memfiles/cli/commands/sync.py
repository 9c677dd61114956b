"""``sync push``, ``sync pull`` and ``sync status``: the mirror, on demand.

A transfer prints its outcome on stdout. Its exit code is 7 if something is still pending, else 4 if a change lost
against another one, else 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from memfiles.cli import output
from memfiles.cli.failures import NoMirror
from memfiles.cli.opening import load_workflow
from memfiles.cli.options import command, current, group
from memfiles.cli.output import ProgressCallback, progress
from memfiles.cli.with_mirror import NAMED, mention_conflicts, mirror_lines, name_of, new_conflicts, restored
from memfiles.errors import MirrorConflict, MirrorUnavailable
from memfiles.sync import NullSync, Sync, SyncReport
from memfiles.sync.status import kept_conflicts, status_on_disk
from memfiles.workflow.workflow import Workflow

LISTED = 20  # more records are only counted; --json lists them all
Transfer: TypeAlias = Callable[[Sync | NullSync, ProgressCallback | None], SyncReport]
_TIMEOUT = click.option(
    "--timeout", type=click.IntRange(min=0), default=60, show_default=True, metavar="SECONDS", help="How long to try."
)


@group("sync", "memfiles sync status", "memfiles sync push --timeout 300")
def sync_command() -> None:
    """Push to the mirror, pull from it, or show what is pending."""


@command("push", "memfiles sync push --timeout 300")
@_TIMEOUT
def push_command(timeout: int) -> None:
    """Push pending changes to the mirror.

    Changes that others made there are merged. The exit code is 7 if something is still pending after SECONDS, and 4 if
    two changes could not be merged: the losing copy is kept in conflicts/.
    """
    transfer(lambda sync, progress: sync.push(timeout, progress=progress), label="Pushing")


@command("pull", "memfiles sync pull --json")
@_TIMEOUT
def pull_command(timeout: int) -> None:
    """Fetch changes from the mirror, and push pending ones.

    Changes of others are merged with local ones. The exit codes are those of `memfiles sync push`.
    """
    transfer(lambda sync, progress: sync.pull(timeout, progress=progress), label="Pulling")


@command("status", "memfiles sync status --json")
def status_command() -> None:
    """Show what is pending, without contacting the mirror.

    Pending changes are pushed by the next command that writes, by a program with the memory open, or by
    `memfiles sync push`.
    """
    workflow = load_workflow()
    status = status_on_disk(workflow)
    if output.as_json(status.to_dict()):
        return
    output.labelled(mirror_lines(status, workflow=workflow))
    for path in status.conflicts:
        output.line(f"  {path}")


for _command in (push_command, pull_command, status_command):
    sync_command.add_command(_command)


def transfer(run: Transfer, *, label: str) -> None:
    """Open the memory, run a push or pull, and print the outcome."""
    workflow = load_workflow()
    if workflow.memory.mirror is None:
        raise NoMirror("this workflow declares no mirror; add `mirror: {url: ...}` under memory")
    before = dict(kept_conflicts(workflow.directory))
    with restored(workflow) as memory:
        try:
            with progress(label) as shown:
                report = run(memory.sync, shown)
            last_error = memory.sync.status().last_error
        finally:
            memory.sync.close(timeout=0)  # the transfer has had its time
    kept = new_conflicts(workflow.directory, before=before)
    show(report, workflow=workflow, kept=kept, last_error=last_error)
    lost = MirrorConflict.exit_code if kept else 0
    click.get_current_context().exit(MirrorUnavailable.exit_code if report.pending else lost)


def show(report: SyncReport, *, workflow: Workflow, kept: list[str], last_error: str | None) -> None:
    """Print the outcome for each record, and the pending records."""
    if current().json:
        shown: dict[str, Any] = report.to_dict()
        output.data(shown | {"conflicts": kept, "last_error": last_error})
        return
    done = [(name_of(workflow, path), outcome) for path, outcome in report.outcomes.items() if outcome != "equal"]
    if len(done) > LISTED:
        for outcome, number in Counter(outcome for _, outcome in done).items():
            output.line(f"{output.count(number, 'record')} {outcome}")
    elif done:
        output.table(("NAME", "DONE"), done)
    elif not report.pending:
        output.note("nothing to do; the mirror and this directory are equal")
    mention_conflicts(workflow.directory, kept)
    if report.pending:
        names = ", ".join(name_of(workflow, path) for path in report.pending[:NAMED])
        more = f" and {len(report.pending) - NAMED} more" if len(report.pending) > NAMED else ""
        why = output.one_line(last_error or "the mirror did not answer in time")
        output.warn(f"not mirrored yet: {names}{more} ({why})")
