"""``users``: whom the agents keep memory for, all that is kept for one of them, and forgetting it."""

from __future__ import annotations

import click

from memfiles.cli import opening, output
from memfiles.cli.commands.entries import ask, show_forgotten
from memfiles.cli.commands.write import fail_until_pushed
from memfiles.cli.failures import NotFound
from memfiles.cli.options import command, group
from memfiles.errors import EntryNotFound
from memfiles.memory import look
from memfiles.records.keys import ENTRIES
from memfiles.sync.status import pending_records


@group("users", "memfiles users list", "memfiles users forget ada --why 'asked to'")
def users_command() -> None:
    """List, export and forget the users for whom agents keep memory.

    These commands are for the operator of a memory directory: they go across all agents and levels.
    """


@command("list", "memfiles users list --json", of=users_command)
def list_command() -> None:
    """List the users of whom something is kept, by name."""
    with look(opening.load_workflow(), warn=output.warn) as memory:
        found = memory.users.list()
    if output.as_json({"users": [each.to_dict() for each in found]}):
        return
    if not found:
        output.note("nothing is kept for any user")
        return
    rows = ((it.user, str(it.entries), str(it.size_bytes), it.updated_at, ", ".join(it.agents)) for it in found)
    output.table(("USER", "ENTRIES", "BYTES", "LAST CHANGE", "AGENTS"), rows)


@command("export", "memfiles users export ada ada-export", of=users_command)
@click.argument("user")
@click.argument("target", type=click.Path())
def export_command(user: str, target: str) -> None:
    """Write all that is kept for a user to a folder.

    Each agent's entries become one JSON Lines file, which `memfiles import` reads. What the user's sessions saved for
    others is in files of its own.
    """
    with look(opening.load_workflow(), warn=output.warn) as memory:
        exported = memory.users.export(user, target)
    if not exported.count:
        raise NotFound("nothing is kept for this user")
    if not output.as_json(exported.to_dict()):
        output.note(f"wrote {output.entries(exported.count)} to {output.one_line(exported.target)}")


@command(
    "forget",
    "memfiles users forget ada --dry-run",
    "memfiles users forget ada --why 'asked to' --actor grace --yes",
    of=users_command,
)
@click.argument("user")
@click.option("--why", default="", metavar="TEXT", help="Reason; it stays when the user is forgotten.")
@opening.ACTOR
@click.option("--dry-run", is_flag=True, help="Show what would be forgotten.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def forget_command(user: str, why: str, actor: str | None, dry_run: bool, yes: bool) -> None:
    """Forget a user for good.

    All that is kept for the user goes: every entry of every agent at every level, with its history, every kept copy,
    and the mirror's copies; and what the user's sessions saved for others. Machines that were offline forget it when
    they meet the mirror. A hash of the name, who forgot it, when and why remain. This cannot be undone.

    The exit code is 3 if nothing is kept for the user, and 7 until the mirror's copies are gone as well.
    """
    workflow, end = opening.load_workflow(), click.get_current_context().exit
    if dry_run or not yes:
        with look(workflow, warn=output.warn) as memory:
            found = memory.users.forget(user, dry_run=True)
        if dry_run or not found.count:
            show_forgotten(found, mirror_is_clean=None, nothing="nothing is kept for this user")
            end(0 if found.count else EntryNotFound.exit_code)
        ask(found)
    with opening.mirrored(workflow) as memory:
        forgotten = memory.users.forget(user, why=why, actor=actor)
    is_clean = not any(path.startswith(f"{ENTRIES}/") for path in pending_records(workflow))
    show_forgotten(forgotten, mirror_is_clean=is_clean, nothing="nothing is kept for this user")
    if not is_clean:
        fail_until_pushed("the mirror's copies are not gone yet")
    end(0 if forgotten.count else EntryNotFound.exit_code)
