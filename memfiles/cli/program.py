"""The root command: the table of all commands, and the outermost edge of the program.

The rule this file guards: a command's module is imported only when that command runs, and not for
``memfiles --help``; that keeps every command quick.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import memfiles
from memfiles.cli import lean_imports
from memfiles.cli.options import SHARED_OPTIONS, CommandGroup, Settings, columns, option_now

PROGRAM = "memfiles"

# family -> command -> (module in this package, the first sentence of its help)
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("commands.deploy", "Create a ready-to-use, commented workflow."),
        "demo": ("demo.command", "Show an agent with memory: tool calls, a crash, an undo, a lost disk."),
    },
    "Deploy": {
        "check": ("commands.deploy", "Validate the workflow without touching the disk."),
        "plan": ("commands.deploy", "Show what restore would do, without doing it."),
        "restore": ("commands.deploy", "Bring the memory directory in line with the workflow."),
        "status": ("commands.deploy", "Show the directory, its files and their sizes."),
        "stats": ("commands.operator", "Show how much the memory holds, and how it grew and was used."),
        "audit": ("commands.operator", "Show who did what to which record, newest first."),
        "ui": ("commands.operator", "Open the inspector, a local web page on the live memory."),
        "migrate": ("commands.transfer", "Copy the whole memory to a store, or to a directory."),
        "doctor": ("doctor.command", "Check for problems and suggest fixes."),
    },
    "Memory files": {
        "ls": ("commands.read", "List the memory files."),
        "read": ("commands.read", "Print the content of a memory file."),
        "append": ("commands.write", "Append text to a memory file, exactly as given."),
        "edit": ("commands.write", "Replace the first occurrence of a text in a memory file."),
        "open": ("commands.write", "Edit a memory file in your editor."),
        "log": ("commands.read", "List the changes of a memory file, newest first."),
        "diff": ("commands.read", "Show what changed between two revisions of a memory file."),
        "undo": ("commands.write", "Undo the last change of a memory file, or go back to a revision."),
        "redact": ("commands.write", "Remove a text from a memory file and from its history."),
    },
    "Entries": {
        "entries": ("commands.entries_read", "Save, find and forget the entries of agents."),
        "purge": ("commands.entries", "Erase what expired or was deleted and was kept long enough."),
        "users": ("commands.operator", "List, export and forget the users for whom agents keep memory."),
        "export": ("commands.transfer", "Write an agent's entries to a folder or a file."),
        "import": ("commands.transfer", "Import entries from a folder, a file or a zip archive, all or nothing."),
    },
    "Mirror": {
        "sync": ("commands.sync", "Push and pull changes, show what is pending, settle conflicts, or replace the key."),
    },
    "Agents": {
        "card": ("commands.agents", "Print the index card an agent gets in its system prompt."),
        "tools": ("commands.agents", "Print an agent's tools in a vendor's format."),
        "call": ("commands.agents", "Call a tool as an agent would."),
        "mcp": ("commands.agents", "Serve an agent's memory to MCP clients."),
        "schema": ("commands.deploy", "Print the JSON Schema of the workflow, a record or the tools."),
    },
}

_EPILOG = """\
Start with `memfiles demo`, then `memfiles init`. `memfiles COMMAND --help` explains a command.

Data goes to stdout, everything else to stderr. Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict,
5 over a cap or budget, 6 denied, 7 mirror unavailable."""


class CommandLine(CommandGroup):
    """A group that loads commands from ``COMMANDS`` and reports every error in one way.

    It inherits because click has no other way to load commands late or to handle errors.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the table."""
        return [name for family in COMMANDS.values() for name in family]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if it is unknown."""
        for family in COMMANDS.values():
            if cmd_name in family:
                with lean_imports():
                    module = importlib.import_module(f"{__package__}.{family[cmd_name][0]}")
                gc.freeze()
                gc.set_threshold(100_000)  # what is imported later lives to the end as well
                gc.enable()
                command: click.Command = getattr(module, f"{cmd_name}_command")
                return command
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The commands that begin like this, without loading their modules; or the options."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # only a shell pays for it

        known = {name: text for family in COMMANDS.values() for name, (_, text) in family.items()}
        return [CompletionItem(name, help=text) for name, text in known.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands of each family with their one sentence."""
        longest = max(map(len, self.list_commands(ctx)))
        for title, family in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), text) for name, (_, text) in family.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, report any error, and end the process with the exit code; this never returns."""
        arguments = list(sys.argv[1:] if args is None else args)
        settings = Settings()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if the process was started with it closed
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            extra.update(obj=settings, terminal_width=_help_width())
            code = super().main(arguments, prog_name or PROGRAM, complete_var, standalone_mode=False, **extra)
        except Exception as error:  # noqa: BLE001 - the outermost edge: no traceback reaches a person
            if os.environ.get("_MEMFILES_COMPLETE", "").endswith("_complete"):
                sys.exit(1)  # a shell that completes shows nothing
            from memfiles.cli import failures  # only an error pays for it

            if isinstance(error, click.UsageError | click.Abort):
                settings.json |= "--json" in arguments  # it may come after the argument that could not be parsed
            code = failures.report(error, settings=settings)
        sys.exit(code or 0)


def _help_width() -> int:
    """The width click would choose for help; given one, it does not load shutil (3 of 40 ms)."""
    return max(50, min(columns(), 80) - 2)


def _show_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"{PROGRAM} {memfiles.__version__}")
        ctx.exit()


@click.group(cls=CommandLine, name=PROGRAM, epilog=_EPILOG)
@option_now(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,  # click's own option would look the version up at every start: 15 of 60 ms
    help="Show the version and exit.",
)
def program() -> None:
    """Durable memory for LLM agents: declared in YAML, kept as plain files."""


program.params = [*SHARED_OPTIONS[:-1], *program.params, SHARED_OPTIONS[-1]]  # ``--help`` is the last one
