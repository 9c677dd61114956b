"""``ls``, ``read``, ``log`` and ``diff``: what is there and how it came to be. They write nothing to the disk."""

from __future__ import annotations

import click

from memfiles.cli import output
from memfiles.cli.commands.entries_status import entries_in
from memfiles.cli.help_text import example
from memfiles.cli.opening import listed, state_of, view
from memfiles.cli.settings import current, shared_options
from memfiles.files.restore_report import FileView
from memfiles.records.history import unified_diff
from memfiles.records.record import Actor
from memfiles.workflow.workflow import Workflow


@click.command("ls", epilog=example("memfiles ls --json"))
@shared_options
def ls_command() -> None:
    """List the memory files.

    STATE is "kept" when the disk holds what the workflow declares; anything else is what
    `memfiles restore` would do.
    """
    seen = view()
    if current().json:
        output.data({"files": [listed(file) for file in seen.files]})
        return
    headers = ("NAME", "LEVEL", "REVISION", "BYTES", "CAP", "USED", "STATE", "DESCRIPTION")
    output.table(headers, map(_listed_row, seen.files), numeric=("REVISION", "BYTES", "CAP", "USED"))
    _mention_entries(seen.workflow)


@click.command("read", epilog=example("memfiles read customer-notes > notes.md"))
@click.argument("name")
@shared_options
def read_command(name: str) -> None:
    """Print the content of a memory file.

    To a file or pipe it goes byte for byte; on a terminal, control characters are shown as escapes.
    """
    file = view().find(name)
    if current().json:
        output.data(listed(file) | {"content": file.record.content})
    else:
        output.content(file.record.content)
        _mention_state(file)


@click.command("log", epilog=example("memfiles log customer-notes -n 5"))
@click.argument("name")
@click.option("-n", "--max-count", type=click.IntRange(min=1), help="Show only this many changes.")
@shared_options
def log_command(name: str, max_count: int | None) -> None:
    """List the changes of a memory file, newest first."""
    file = view().find(name)
    changes = list(reversed(file.changes))[:max_count]
    if current().json:
        shown = [{key: value for key, value in change.to_dict().items() if key != "old"} for change in changes]
        output.data({"uid": file.record.uid, "name": file.record.name, "changes": shown})
        return
    rows = ((c.revision, c.at, c.op, f"+{c.bytes} -{len(c.old.encode())}", _author(c.by)) for c in changes)
    output.table(("REVISION", "AT", "CHANGE", "BYTES", "BY"), rows, numeric=("REVISION",))
    _mention_state(file)


@click.command("diff", epilog=example("memfiles diff customer-notes 3 7"))
@click.argument("name")
@click.argument("from_revision", metavar="[FROM]", required=False, type=click.IntRange(min=1))
@click.argument("to_revision", metavar="[TO]", required=False, type=click.IntRange(min=1))
@shared_options
def diff_command(name: str, from_revision: int | None, to_revision: int | None) -> None:
    """Show what changed between two revisions of a memory file.

    Without TO it goes up to the present; without both it is the last change of the content.
    """
    file = view().find(name)
    record = file.stored or file.record
    if from_revision is None:
        since, to = last_change_of_content(file)
    else:
        since, to = from_revision, record.revision if to_revision is None else to_revision
    text = unified_diff(record, from_revision=since, to_revision=to)
    if current().json:
        shown = {"uid": record.uid, "name": record.name, "from_revision": since, "to_revision": to, "diff": text}
        output.data(shown)
        return
    output.diff(text)
    if not text:
        output.note(f"{record.name}: no difference in content between revisions {since} and {to}")


def last_change_of_content(file: FileView) -> tuple[int, int]:
    """The revisions right before and right after the newest change that was not only one of the declaration."""
    for change in reversed(file.changes):
        if change.revision > 1 and (change.bytes or change.old):
            return change.revision - 1, change.revision
    return 1, 1


def _listed_row(file: FileView) -> tuple[object, ...]:
    card = file.card
    used = output.percent(file.share)
    sizes = (card.revision, card.size_bytes, card.max_size_bytes, used)
    return card.name, card.level, *sizes, state_of(file.report), card.description


def _author(by: Actor) -> str:
    run = f"run {by.session}" if by.agent and by.session else None
    known = [by.agent or by.session or "-", run, f"call {by.call}" if by.call else None]
    return ", ".join(part for part in known if part)


def _mention_entries(workflow: Workflow) -> None:
    """Say that there is more than files."""
    found = entries_in(workflow)
    if found is not None:
        number = output.count(found["entries"], "entry", "entries")
        output.note(f"and {number}: memfiles entries list --agent NAME")


def _mention_state(file: FileView) -> None:
    """Say so when what was shown is not what lies on the disk."""
    if file.report.status not in ("kept", "updated"):
        name = file.record.name
        output.note(f"note: {name} is not on disk yet; this is its declared content (memfiles restore writes it, or "
                    f"what a declared mirror holds)")  # fmt: skip
