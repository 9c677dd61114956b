"""``sync push``, ``pull``, ``status``, ``conflicts``, ``resolve``, ``rekey`` and ``open``: the mirror, on demand.

A transfer prints its outcome on stdout. Its exit code is 7 if something is still pending or an object is refused, else
4 if a change lost against another one, else 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from memfiles.cli import opening, output
from memfiles.cli.commands.write import expected_revision, given_text
from memfiles.cli.failures import NoMirror, NotFound
from memfiles.cli.options import argument, command, current, group, option, usage_error
from memfiles.cli.output import ProgressCallback, progress
from memfiles.errors import MirrorConflict, MirrorUnavailable
from memfiles.memory import keeper_of, look, open_mirror_of
from memfiles.records.graphemes import as_word, first_few
from memfiles.records.keys import ENTRIES, WORKSPACE
from memfiles.sync.conflicts import Conflict
from memfiles.sync.engine import Sync
from memfiles.sync.mirror import takes
from memfiles.sync.status import NullSync, SyncReport, SyncStatus, kept_conflicts, status_on_disk
from memfiles.workflow.workflow import Workflow

LISTED = 20  # more records are only counted; --json lists them all
Transfer: TypeAlias = Callable[[Sync | NullSync, ProgressCallback | None], SyncReport]
_TIMEOUT = option(
    "--timeout", type=click.IntRange(min=0), default=60, show_default=True, metavar="SECONDS", help="How long to try."
)


@group("sync", "memfiles sync status", "memfiles sync push --timeout 300")
def sync_command() -> None:
    """Push and pull changes, show what is pending, settle conflicts, or replace the key."""


@command("push", "memfiles sync push --timeout 300", of=sync_command)
@_TIMEOUT
def push_command(timeout: int) -> None:
    """Push pending changes to the mirror.

    Changes that others made there are merged. The exit code is 7 if something is still pending after SECONDS, or the
    mirror refuses it, and 4 if two changes could not be merged: the losing copy is kept in conflicts/.
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
    output.labelled(mirror_lines(status, workflow=workflow))
    for path in status.conflicts:
        output.line(f"  {path}")


@command("conflicts", "memfiles sync conflicts", "memfiles sync conflicts customer-notes > other.md", of=sync_command)
@argument("name", required=False)
def conflicts_command(name: str | None) -> None:
    """List the losing copies of merges, or print the text of one.

    NAME is the path of a copy, or the name of its memory file or the key of its entry if that has only one. It is for
    the operator: it shows copies of all levels. OF USE says how many lines the copy has that its record lacks, or why
    it can no longer be taken.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        found = memory.sync.conflicts()
    if name is not None:
        output.content(conflict_named(name, found).content)
    elif not output.as_json({"conflicts": [each.to_dict() for each in found]}):
        rows = (
            (*(cell or "-" for cell in (it.at, it.name or it.record, it.user, it.level, it.lost)), it.size_bytes,
             _use_of(it), it.path)
            for it in found
        )  # fmt: skip
        headers = ("AT", "NAME", "USER", "LEVEL", "LOST", "BYTES", "OF USE", "PATH")
        output.table(headers, rows, numeric=("BYTES",), nothing="no conflict")


@command(
    "resolve",
    "memfiles sync resolve customer-notes --take copy",
    "memfiles sync resolve customer-notes --text - < merged.md",
    of=sync_command,
)
@argument("name")
@option("--take", type=click.Choice(["record", "copy"]), help="Keep the record as it is, or take the copy's text.")
@option("--text", help="Text to take instead; - reads stdin.")
@expected_revision("Fail unless the record is at this revision.", least=1)
@opening.as_person
def resolve_command(name: str, text: str | None, **asked: Any) -> None:
    """Settle a conflict, and remove its losing copy.

    NAME is as for `memfiles sync conflicts`. A text that is taken becomes a new revision, is checked like any change,
    and can be undone. Of an entry only the text is taken. A text that was redacted or forgotten since is refused.
    """
    workflow = opening.load_workflow()
    if (asked["take"] is None) == (text is None):
        raise usage_error("say what to take: --take record, --take copy or --text TEXT")
    with look(workflow, warn=output.warn) as memory:
        chosen = conflict_named(name, memory.sync.conflicts())
    given = None if text is None else given_text(text, what="take")
    with opening.mirrored(workflow) as memory:
        done = memory.sync.resolve(chosen.path, text=given, **asked)
    if not output.as_json(done.to_dict()):
        became = "stays as it is" if done.revision is None else f"is at revision {done.revision}"
        output.note(f"{as_word(done.name or done.record)} {became}; {done.path} is removed")


def conflict_named(name: str, found: Sequence[Conflict]) -> Conflict:
    """The conflict of that name; ``NotFound`` if there is none, and a usage error if there are several."""
    named = [each for each in found if name in (each.path, each.name, each.record)]
    if not named:
        raise NotFound(f"no conflict of {name!r}; `memfiles sync conflicts` lists all")
    if len(named) > 1:
        raise usage_error(f"{name!r} has {len(named)} conflicts; name one by its path: {named[0].path}, ...")
    return named[0]


def _use_of(conflict: Conflict) -> str:
    return output.count(conflict.new_lines, "line") if conflict.is_of_use else f"no, {conflict.state}"


@command("rekey", "memfiles sync rekey", of=sync_command)
@option("--accept-unsigned", is_flag=True, help="Also sign what is not signed although others are.")
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
@argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@option("--to", type=click.Path(file_okay=False, path_type=Path), help="Open it there, not in its place.")
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
    before = dict(kept_conflicts(workflow.place))
    with opening.restored(workflow) as memory:
        with progress(label) as shown:
            report = run(memory.sync, shown)
        last_error = memory.sync.status().last_error
    kept = opening.new_conflicts(workflow, before=before)
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
    opening.mention_conflicts(workflow, kept)
    if report.pending:
        names = first_few([opening.name_of(workflow, path) for path in report.pending], opening.NAMED)
        why = output.one_line(last_error or "the mirror did not answer in time")
        output.warn(f"not mirrored yet: {names} ({why})")
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


def unmirrored(workflow: Workflow) -> str | None:
    """Why the mirror can never take some of the declared records; None if it takes all. Makes no request."""
    mirror = open_mirror_of(workflow)
    if mirror is None or workflow.memory.entries is None:
        return None
    if takes(mirror, f"{ENTRIES}/{WORKSPACE}/any.json"):
        return None
    return "the mirror keeps memory files only: entries stay on this machine, and count as pending for ever"


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
        if status.shortcomings is None:
            yield "promises", "not checked yet; the next push or memfiles doctor does"
        else:
            yield from (("promises", shortcoming) for shortcoming in status.shortcomings or ("kept",))
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
    oldest = opening.name_of(workflow, status.oldest_pending or "")
    return f"{output.count(status.pending, 'record')}, the oldest ({oldest}) for {seconds(status.lag_seconds)}"


def seconds(lag: float) -> str:
    """A time span for people."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if lag >= 2 * size:
            return f"{lag / size:.0f} {unit}"
    return f"{lag:.0f} s"
