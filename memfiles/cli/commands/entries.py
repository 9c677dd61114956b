"""``entries``: the group of commands for keyed memory."""

from __future__ import annotations

import click

from memfiles.cli.commands.entries_read import (
    explain_command,
    get_command,
    hydrate_command,
    list_command,
    search_command,
)
from memfiles.cli.commands.entries_write import (
    consolidate_command,
    delete_command,
    forget_command,
    restore_command,
    save_command,
)
from memfiles.cli.options import example, shared_options


@click.group(
    "entries",
    epilog=example(
        'memfiles entries save plan "Ada is on Pro" --agent support',
        "memfiles entries search ada --agent support --level INTERNAL",
    ),
)
@shared_options
def entries_command() -> None:
    """Save, find and forget the entries of agents.

    A session reads entries at or below its level, and changes those at its level.
    """


for _command in (
    save_command,
    get_command,
    search_command,
    list_command,
    delete_command,
    restore_command,
    forget_command,
    hydrate_command,
    explain_command,
    consolidate_command,
):
    entries_command.add_command(_command)
