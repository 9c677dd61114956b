"""``ls``, ``read``, ``log`` and ``diff``: memory files and their history, read only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from memfiles.cli import output
from memfiles.cli.opening import FILE_USER, file_object, sizes_of, state_of, view
from memfiles.cli.options import argument, command, option
from memfiles.errors import StorageFailed

if TYPE_CHECKING:
    from memfiles.files.restore_report import FileView
    from memfiles.index.database import Counted
    from memfiles.records.record import Actor
    from memfiles.workflow.workflow import Workflow


@command("ls", "memfiles ls --json")
@option("--user", metavar="NAME", help="Also list the user's own files.")
def ls_command(user: str | None) -> None:
    """List the memory files.

    STATE is "kept" if the file on disk matches the workflow; otherwise it says what `memfiles restore` would do.
    """
    seen = view(user)
    if output.as_json({"files": [file_object(file) for file in seen.files]}):
        return
    headers = ("NAME", "LEVEL", "REVISION", "BYTES", "CAP", "USED", "STATE", "DESCRIPTION")
    rows = (
        (file.card.name, file.card.level, *sizes_of(file), state_of(file.report), file.card.description)
        for file in seen.files
    )
    output.table(headers, rows, numeric=("REVISION", "BYTES", "CAP", "USED"))
    found = entries_in(seen.workflow)
    if found is not None:
        output.note(f"and {output.entries(found['entries'])}: memfiles entries list --agent NAME")


@command("read", "memfiles read customer-notes > notes.md")
@argument("name")
@FILE_USER
def read_command(name: str, user: str | None) -> None:
    """Print the content of a memory file.

    A file or pipe gets it byte for byte; a terminal shows control characters as escapes.
    """
    file = view(user).find(name)
    if not output.as_json(file_object(file) | {"content": file.record.content}):
        with output.paged():
            output.content(file.record.content)
        _mention_state(file)


@command("log", "memfiles log customer-notes -n 5")
@argument("name")
@option("-n", "--max-count", type=click.IntRange(min=1), help="Maximum number of changes.")
@FILE_USER
def log_command(name: str, max_count: int | None, user: str | None) -> None:
    """List the changes of a memory file, newest first."""
    file = view(user).find(name)
    changes = file.changes[:max_count]
    shown = [{key: value for key, value in change.to_dict().items() if key != "old"} for change in changes]
    if output.as_json({"uid": file.record.uid, "name": file.record.name, "changes": shown}):
        return
    rows = ((c.revision, c.at, c.op, f"+{c.bytes} -{len(c.old.encode())}", author(c.by)) for c in changes)
    with output.paged():
        output.table(("REVISION", "AT", "CHANGE", "BYTES", "BY"), rows, numeric=("REVISION",))
    _mention_state(file)


@command("diff", "memfiles diff customer-notes 3 7")
@argument("name")
@argument("from_revision", metavar="[FROM]", required=False, type=click.IntRange(min=1))
@argument("to_revision", metavar="[TO]", required=False, type=click.IntRange(min=1))
@FILE_USER
def diff_command(name: str, from_revision: int | None, to_revision: int | None, user: str | None) -> None:
    """Show what changed between two revisions of a memory file.

    Without TO it compares with the current revision; without both it shows the last change of the content.
    """
    from memfiles.records.history import unified_diff  # late: only this command needs it

    file = view(user).find(name)
    record = file.stored or file.record
    if from_revision is None:  # the newest change of the content
        changed = (it.revision for it in file.changes if it.revision > 1 and (it.bytes or it.old))
        to = next(changed, 1)
        since = max(1, to - 1)
    else:
        since, to = from_revision, record.revision if to_revision is None else to_revision
    text = unified_diff(record, from_revision=since, to_revision=to)
    shown = {"uid": record.uid, "name": record.name, "from_revision": since, "to_revision": to, "diff": text}
    if output.as_json(shown):
        return
    with output.paged():
        output.diff(text)
    if not text:
        output.note(f"{record.name}: revisions {since} and {to} have the same content")


def author(by: Actor) -> str:
    """Who made a change, on one line."""
    name = by.agent or by.session or by.actor or "-"
    run = f"run {by.session}" if by.agent and by.session else None
    known = [f"{by.actor} as {name}" if by.actor not in (None, name) else name, run, by.call and f"call {by.call}"]
    return ", ".join(part for part in known if part)


def _mention_state(file: FileView) -> None:
    """Say so if the content shown is not on disk."""
    if file.report.status not in ("kept", "updated"):
        name = file.record.name
        output.note(f"note: {name} is not on disk yet; this is its declared content (`memfiles restore` writes it, or "
                    f"the mirror's copy)")  # fmt: skip


def entries_in(workflow: Workflow) -> dict[str, Any] | None:
    """The entries of all agents as a JSON object, None if none are declared; sizes are bytes of content.

    ``index`` is the error if the index cannot be used, else None; with an error all numbers are 0. ``meaning`` says why
    searches leave the meaning out, if they do; None if nobody wants it.
    """
    from memfiles.memory import look  # late: not every command needs it

    declared = workflow.memory.entries
    if declared is None:
        return None
    trouble: str | None = None
    counts: Sequence[Counted] = ()
    meaning: dict[str, Any] | None = None
    try:
        with look(workflow) as memory:
            counts = memory.entries.counts()
            found = memory.entries.parts.meaning.status()
            meaning = found and found.to_dict()
    except StorageFailed as error:
        trouble = str(error)
    totals = {
        name: sum(getattr(each, name) for each in counts) for name in ("entries", "size_bytes", "expired", "retired")
    }
    budgets = {"max_entries": declared.max_entries, "max_bytes": declared.max_bytes}
    parts = {"by_partition": [each._asdict() for each in counts], "index": trouble, "meaning": meaning}
    return {**totals, **budgets, **parts}


def entry_lines(found: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """The lines of a status about the entries, each a label and its text."""
    if found is None:
        yield "entries", "none declared"
        return
    if found["index"] is not None:
        yield "entries", found["index"]
        return
    hidden = f", {found['expired']} expired, {found['retired']} deleted or evicted"
    yield "entries", f"{output.entries(found['entries'])}, {found['size_bytes']} bytes{hidden}"
    for each in found["by_partition"]:
        most = f"{each['most_entries']} of {found['max_entries']}, {each['most_bytes']} of {found['max_bytes']} bytes"
        if each["users"]:
            users = output.count(each["users"], "user")
            most = f"{users} with {output.entries(each['entries'])}, {each['size_bytes']} bytes; the fullest: {most}"
        run = f" in run {each['run']}" if each["run"] else ""
        yield "", f"{each['folder']} at {each['level']}{run}: {most}"
    if (meaning := found["meaning"]) is not None:
        since = f" since {meaning['since']}" if meaning["since"] else ""
        why = f"searches go by words alone{since}: {meaning['why']}" if meaning["why"] else f"by {meaning['model']}"
        yield "meaning", why
