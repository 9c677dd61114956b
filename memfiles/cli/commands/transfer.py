"""``export`` and ``import``: entries to and from folders and files for people and other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

import click

from memfiles.cli import output
from memfiles.cli.failures import NotFound
from memfiles.cli.opening import As, as_session, changing_entries, reading_entries
from memfiles.cli.options import command, current, usage_error
from memfiles.entries.transfer.exchange import EXPORT_FORMATS, ExportFormat
from memfiles.entries.transfer.formats import FORMATS, Format
from memfiles.errors import InvalidArgument

SHOWN = 20


@command("export", "memfiles export backup --agent support", "memfiles export all.jsonl --agent support --format jsonl")
@click.argument("target", type=click.Path())
@click.option(
    "--format",
    "format",
    type=click.Choice(EXPORT_FORMATS),
    help="A folder of Markdown files, one JSON Lines file, or a zip of the first.  [default: by TARGET's name]",
)
@as_session
def export_command(target: str, format: ExportFormat | None, who: As) -> None:
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
    _warn_of_each([f"{name} is from an earlier export and its entry is gone; delete it" for name in exported.stale])


@command("import", "memfiles import backup --agent support --dry-run", "memfiles import vault --from notes")
@click.argument("source", metavar="PATH", type=click.Path())
@click.option("--from", "--format", "format", type=click.Choice(FORMATS), help="Format of PATH.  [default: detected]")
@click.option("--take-over", is_flag=True, help="Import what was another agent's or user's, and do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported.")
@as_session
def import_command(source: str, format: Format | None, take_over: bool, dry_run: bool, who: As) -> None:
    """Import entries from a folder, a file or a zip archive, all or nothing.

    PATH can be an export of `memfiles export`, a directory of Anthropic's memory tool, the memory.jsonl of MCP's memory
    server, Claude Code's memory, a folder of notes (Obsidian, basic-memory, OKF), mem0's memories as JSON, or the
    export of a ChatGPT or Claude account. Entries are saved at the session's level and checked like any other save;
    skipped ones are reported with the reason.
    """
    if not os.path.lexists(source):
        raise NotFound(f"there is nothing at {source}")
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
        _warn_of_each([f"{skipped.where}: {skipped.why}" for skipped in imported.skipped])
    if imported.skipped and not imported.added + imported.updated + imported.unchanged:
        raise InvalidArgument(f"nothing in {source} could be imported")


def _ask(others: Sequence[str], *, to: str) -> None:
    """Ask before another's entries are taken; a usage error without a terminal to ask on."""
    if not others:
        return
    what = f"the entries were those of {_named(others)}"
    if current().json or not sys.stdin.isatty():
        raise usage_error(f"{what}; import them for agent {to} with --take-over, or look at them with --dry-run")
    output.note(what)
    click.confirm(f"Import them for agent {to}?", abort=True, err=True)


def _named(owners: Sequence[str]) -> str:
    shown = ", ".join(output.one_line(owner) for owner in owners[:5])
    return shown + (f" and {len(owners) - 5} more" if len(owners) > 5 else "")


def _warn_of_each(problems: list[str]) -> None:
    for problem in problems[:SHOWN]:
        output.warn(output.one_line(problem))
    if len(problems) > SHOWN:
        output.note(f"and {len(problems) - SHOWN} more (--json lists all)")
