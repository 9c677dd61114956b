"""``sync push``, ``pull``, ``status``, ``rekey`` and ``open``: the mirror, on demand.

A transfer prints its outcome on stdout. Its exit code is 7 if something is still pending or an object is refused, else
4 if a change lost against another one, else 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from memfiles.cli import opening, output
from memfiles.cli.failures import NoMirror
from memfiles.cli.options import command, current, group
from memfiles.cli.output import ProgressCallback, progress
from memfiles.errors import MirrorConflict, MirrorUnavailable
from memfiles.memory import keeper_of
from memfiles.sync.engine import Sync
from memfiles.sync.status import NullSync, SyncReport, kept_conflicts, status_on_disk
from memfiles.workflow.workflow import Workflow

LISTED = 20  # more records are only counted; --json lists them all
Transfer: TypeAlias = Callable[[Sync | NullSync, ProgressCallback | None], SyncReport]
_TIMEOUT = click.option(
    "--timeout", type=click.IntRange(min=0), default=60, show_default=True, metavar="SECONDS", help="How long to try."
)


@group("sync", "memfiles sync status", "memfiles sync push --timeout 300")
def sync_command() -> None:
    """Push to the mirror, pull from it, show what is pending, or replace its key."""


@command("push", "memfiles sync push --timeout 300", of=sync_command)
@_TIMEOUT
def push_command(timeout: int) -> None:
    """Push pending changes to the mirror.

    Changes that others made there are merged. The exit code is 7 if something is still pending after SECONDS or an
    object in the mirror is refused, and 4 if two changes could not be merged: the losing copy is kept in conflicts/.
    """
    transfer(lambda sync, progress: sync.push(timeout, progress=progress), label="Pushing")


@command("pull", "memfiles sync pull --json", of=sync_command)
@_TIMEOUT
def pull_command(timeout: int) -> None:
    """Fetch changes from the mirror, and push pending ones.

    Changes of others are merged with local ones. The exit codes are those of `memfiles sync push`.
    """
    transfer(lambda sync, progress: sync.pull(timeout, progress=progress), label="Pulling")


@command("status", "memfiles sync status --json", of=sync_command)
def status_command() -> None:
    """Show what is pending, without contacting the mirror.

    Pending changes are pushed by the next command that writes, by a program with the memory open, or by
    `memfiles sync push`.
    """
    workflow = opening.load_workflow()
    status = status_on_disk(workflow)
    if output.as_json(status.to_dict()):
        return
    output.labelled(opening.mirror_lines(status, workflow=workflow))
    for path in status.conflicts:
        output.line(f"  {path}")


@command("rekey", "memfiles sync rekey", of=sync_command)
@click.option("--accept-unsigned", is_flag=True, help="Also sign what is not signed although others are.")
def rekey_command(accept_unsigned: bool) -> None:
    """Sign, and encrypt if declared, every record in the mirror with the first key.

    Run it once when a mirror gets a key, and again after a new key was put before the old one in its variable. It may
    be stopped and repeated. An object that does not verify stays as it is; the exit code is 7 then.
    """
    with progress("Sealing") as shown:
        report = keeper_of(opening.load_workflow()).rekey(accept_unsigned=accept_unsigned, progress=shown)
    text = f"{report.signed} signed, {report.resealed} sealed anew, {report.current} as they were"
    _finish(text, report.to_dict(), report.problems)


@command("open", "memfiles sync open copied-bucket --to .memory", of=sync_command)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--to", type=click.Path(file_okay=False, path_type=Path), help="Open it there, not in its place.")
def open_command(directory: Path, to: Path | None) -> None:
    """Turn DIR, a copy of a signed or encrypted mirror, into a memory directory.

    The copy is kept next to it as DIR.sealed. An object that does not verify is left out; the exit code is 7 then.
    """
    with progress("Opening") as shown:
        report = keeper_of(opening.load_workflow()).open_copy(directory, to=to, progress=shown)
    _finish(f"{to or directory}: {output.count(report.current, 'record')} opened", report.to_dict(), report.problems)


def transfer(run: Transfer, *, label: str) -> None:
    """Open the memory, run a push or pull, and print the outcome."""
    workflow = opening.load_workflow()
    if workflow.memory.mirror is None:
        raise NoMirror("this workflow declares no mirror; add `mirror: {url: ...}` under memory")
    before = dict(kept_conflicts(workflow.directory))
    with opening.restored(workflow) as memory:
        with progress(label) as shown:
            report = run(memory.sync, shown)
        last_error = memory.sync.status().last_error
    kept = opening.new_conflicts(workflow.directory, before=before)
    show(report, workflow=workflow, kept=kept, last_error=last_error)
    lost = MirrorConflict.exit_code if kept else 0
    click.get_current_context().exit(MirrorUnavailable.exit_code if report.pending or report.refused else lost)


def show(report: SyncReport, *, workflow: Workflow, kept: list[str], last_error: str | None) -> None:
    """Print the outcome for each record, and the pending records."""
    if current().json:
        shown: dict[str, Any] = report.to_dict()
        output.data(shown | {"conflicts": kept, "last_error": last_error})
        return
    done = [
        (opening.name_of(workflow, path), outcome) for path, outcome in report.outcomes.items() if outcome != "equal"
    ]
    if len(done) > LISTED:
        for outcome, number in Counter(outcome for _, outcome in done).items():
            output.line(f"{output.count(number, 'record')} {outcome}")
    elif done:
        output.table(("NAME", "DONE"), done)
    elif not report.pending and not report.refused:
        output.note("nothing to do; the mirror and this directory are equal")
    opening.mention_conflicts(workflow.directory, kept)
    if report.pending:
        names = ", ".join(opening.name_of(workflow, path) for path in report.pending[: opening.NAMED])
        more = f" and {len(report.pending) - opening.NAMED} more" if len(report.pending) > opening.NAMED else ""
        why = output.one_line(last_error or "the mirror did not answer in time")
        output.warn(f"not mirrored yet: {names}{more} ({why})")
    _mention_refused(report.refused)


def _finish(text: str, report: dict[str, Any], problems: Mapping[str, str]) -> None:
    if not output.as_json(report):
        output.line(text)
        _mention_refused(problems)
    click.get_current_context().exit(MirrorUnavailable.exit_code if problems else 0)


def _mention_refused(refused: Mapping[str, str]) -> None:
    """Warn of objects in the mirror that are not used; --json lists them all."""
    more = [f"and {len(refused) - LISTED} more objects"] if len(refused) > LISTED else []
    for why in [*refused.values()][:LISTED] + more:
        output.warn(f"refused: {output.one_line(why)}")
