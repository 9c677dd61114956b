"""``export``, ``import`` and ``migrate``: entries to and from other programs, and a memory to another home."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial

import click
from msgspec import to_builtins

from memfiles.cli import output
from memfiles.cli.failures import NotFound
from memfiles.cli.opening import SessionOptions, as_session, changing_entries, load_workflow, reading_entries
from memfiles.cli.options import argument, command, current, on_disk, option, usage_error
from memfiles.entries.transfer.exchange import EXPORT_FORMATS, ExportFormat
from memfiles.entries.transfer.formats import FORMATS, Format
from memfiles.errors import InvalidArgument, RevisionConflict, StorageFailed
from memfiles.index.change_log import announced
from memfiles.records.graphemes import first_few
from memfiles.storage.events import utc_now
from memfiles.storage.home import real_home
from memfiles.storage.migration import migrate
from memfiles.storage.postgres import SCHEMES
from memfiles.workflow.workflow import store_url

SHOWN = 20


@command("export", "memfiles export backup --agent support", "memfiles export all.jsonl --agent support --format jsonl")
@argument("target", type=click.Path(), callback=on_disk)
@option(
    "--format",
    "format",
    type=click.Choice(EXPORT_FORMATS),
    help="A folder of Markdown files, one JSON Lines file, or a zip of the first.  [default: by TARGET's name]",
)
@as_session
def export_command(target: str, format: ExportFormat | None, who: SessionOptions) -> None:
    """Write an agent's entries to a folder or a file.

    This exports the entries that the session may read. A TARGET ending in .jsonl or .zip becomes a file, any
    other a folder. Files of the same names are replaced; others are left alone. `memfiles import` reads all formats.
    """
    by_name: ExportFormat = "jsonl" if target.endswith((".jsonl", ".ndjson")) else "markdown"
    chosen: ExportFormat = format or ("zip" if target.endswith(".zip") else by_name)
    with reading_entries(who) as (memory, session), output.progress("Exporting") as shown:
        exported = memory.entries.export(session, target, format=chosen, progress=shown)
    if output.as_json(exported.to_dict()):
        return
    output.note(f"wrote {output.entries(exported.count)} to {output.one_line(exported.target)}")
    _warn_of_each(f"{name} is from an earlier export and its entry is gone; delete it" for name in exported.stale)


@command("import", "memfiles import backup --agent support --dry-run", "memfiles import vault --from notes")
@argument("source", metavar="PATH", type=click.Path())
@option("--from", "--format", "format", type=click.Choice(FORMATS), help="Format of PATH.  [default: detected]")
@option("--take-over", is_flag=True, help="Import what was another agent's or user's, and do not ask.")
@option("--dry-run", is_flag=True, help="Show what would be imported.")
@as_session
def import_command(source: str, format: Format | None, take_over: bool, dry_run: bool, who: SessionOptions) -> None:
    """Import entries from a folder, a file or a zip archive, all or nothing.

    PATH can be an export of `memfiles export`, a directory of Anthropic's memory tool, the memory.jsonl of MCP's memory
    server, Claude Code's memory, a folder of notes (Obsidian, basic-memory, OKF), mem0's memories as JSON, or the
    export of a ChatGPT or Claude account. Entries are saved at the session's level and checked like any other save;
    skipped ones are reported with the reason.
    """
    if not os.path.lexists(source):
        raise NotFound(f"there is nothing at {source}" if source else "PATH is empty: name what to import")
    opening = reading_entries if dry_run else changing_entries
    with opening(who) as (memory, session):
        take = partial(memory.entries.import_, session, source, format=format)
        if not (dry_run or take_over):
            with output.progress("Checking") as shown:
                found = take(dry_run=True, progress=shown)
            _ask(found.others, to=session.agent)
        with output.progress("Checking" if dry_run else "Importing") as shown:
            imported = take(dry_run=dry_run, take_over=True, progress=shown)
    if not output.as_json(imported.to_dict()):
        would = "would be " if dry_run else ""
        output.note(f"{would}added: {imported.added}, updated: {imported.updated}, unchanged: {imported.unchanged}, "
                    f"skipped: {len(imported.skipped)}")  # fmt: skip
        if imported.owners:
            output.note(f"they come from {_named(imported.owners)}")
        _warn_of_each(f"{skipped.where}: {skipped.why}" for skipped in imported.skipped)
    if imported.skipped and not imported.added + imported.updated + imported.unchanged:
        raise InvalidArgument(f"nothing in {source} could be imported")


@command(
    "migrate", "memfiles migrate --to 'postgresql://db.example.org/agents'", "memfiles migrate --to .memory --json"
)
@option("--to", "target", required=True, metavar="URL|DIR", help="Store or memory directory to copy it to.")
def migrate_command(target: str) -> None:
    """Copy the whole memory to a store, or to a directory.

    Every record is taken with its history, ids and tombstones, and compared byte for byte once it is there. So are
    quarantined copies, conflicts and the audit. It may be repeated: what was changed, renamed or forgotten there since
    is left alone, with all else about its entry; the exit code is 4 then. What was forgotten here is forgotten there.
    The search index and the notes on a mirror are not taken, as they are built again. The workflow is not changed:
    declare `store:` or `directory:` in it afterwards.
    """
    if not target.strip():  # an unset variable would mean the folder that one is in
        raise usage_error("--to is blank: name a store or a directory")
    workflow = load_workflow()
    place = store_url(target, workspace=workflow.name) if target.startswith(SCHEMES) else target
    with output.progress("Copying") as shown:
        done = migrate(real_home(workflow.place), real_home(place), now=utc_now, progress=shown, announced=announced)
    if not output.as_json(to_builtins(done)):
        were_there = max(0, done.records - done.copied - len(done.unreadable))
        output.note(f"{output.count(done.records, 'record')} in {done.source}: {done.copied} copied, {were_there} were "
                    f"there")  # fmt: skip
        output.note(f"{output.count(done.kept, 'kept copy', 'kept copies')} and "
                    f"{output.count(done.audit_lines, 'line')} of the audit copied")  # fmt: skip
        _warn_of_each(f"{path} was not copied: {done.target} has changes of its own" for path in done.newer)
        _warn_of_each(f"{path} was not copied: {why}" for path, why in done.unreadable.items())
        _warn_of_each(f"{name} was not copied: its size is not that of a record" for name in done.left)
        if done.is_complete:
            output.note(f"every record was compared in {done.target}; declare it in the workflow, and repeat this once "
                        f"no program uses the old one")  # fmt: skip
        else:
            output.warn("the memory kept changing: repeat this when fewer programs use it")
    failed = StorageFailed.exit_code if done.unreadable or not done.is_complete else 0
    click.get_current_context().exit(RevisionConflict.exit_code if done.newer else failed)


def _ask(others: Sequence[str], *, to: str) -> None:
    """Ask before another's entries are taken; a usage error without a terminal to ask on."""
    if not others:
        return
    what = f"the entries were those of {_named(others)}"
    if current().json or not sys.stdin.isatty():
        raise usage_error(f"{what}; import them for agent {to} with --take-over, or look at them with --dry-run")
    output.note(what)
    output.ask(f"Import them for agent {to}?")


def _named(owners: Sequence[str]) -> str:
    return first_few([output.one_line(owner) for owner in owners])


def _warn_of_each(problems: Iterable[str]) -> None:
    found = list(problems)
    for problem in found[:SHOWN]:
        output.warn(output.one_line(problem))
    if len(found) > SHOWN:
        output.note(f"and {len(found) - SHOWN} more (--json lists all)")
