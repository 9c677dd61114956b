"""``init``: a workflow to begin with, and what an editor needs to help with it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from memfiles.cli import output
from memfiles.cli.commands.template import WORKFLOW
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.help_text import example
from memfiles.cli.settings import DEFAULT_WORKFLOW, current, shared_options
from memfiles.storage import atomic
from memfiles.tools.json_schemas import workflow_schema

SCHEMA = "schemas/workflow.schema.json"


@click.command("init", epilog=example("memfiles init my-agents && cd my-agents && memfiles read notes"))
@click.argument("directory", required=False, type=click.Path(file_okay=False))
@shared_options
def init_command(directory: str | None) -> None:
    """Write a commented workflow that works as it is.

    It is workflow.yaml in DIRECTORY, by default in this one, or the file that -w names. Beside it goes its schema, for
    your editor. Nothing that exists is ever overwritten.
    """
    folder, name = _place(directory)
    written = write_new(folder, {name: WORKFLOW, SCHEMA: _json_text(workflow_schema())})
    if current().json:
        output.data({"directory": str(folder.resolve()), "written": [str(path) for path in written]})
        return
    for path in written:
        output.note(f"wrote {path}")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    named = "" if name == DEFAULT_WORKFLOW else f" -w {shlex.quote(name)}"
    output.note(f"Next: {there}memfiles{named} read notes; then open {name} and make it yours.")
    if not _ignored(folder):
        output.note("If this folder is under version control, add the line .memory/ to its .gitignore.")


def _place(directory: str | None) -> tuple[Path, str]:
    """The folder and the name of the workflow to write."""
    workflow = Path(current().workflow)
    if directory is None:
        return workflow.parent, workflow.name
    if current().workflow != DEFAULT_WORKFLOW:
        context = click.get_current_context()
        raise click.UsageError(f"give the directory {directory} or -w {workflow}, not both", context)
    return Path(directory), DEFAULT_WORKFLOW


def write_new(directory: Path, texts: dict[str, str]) -> list[Path]:
    """Write each text to its path in ``directory`` if none of them is there; what is there unchanged may stay."""
    wanted = {directory / name: text for name, text in texts.items()}
    taken = [path for path, text in wanted.items() if _is_other(path, text)]
    if taken:
        raise AlreadyThere(f"{taken[0]} exists and is never overwritten: move it away, or give another directory")
    missing = [path for path in wanted if not path.exists()]
    for path in reversed(missing):  # the workflow last: with it, the next try would be refused
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            atomic.write_new(path, wanted[path].encode())
        except FileExistsError:
            raise AlreadyThere(f"{path} was made meanwhile and is never overwritten") from None
    return missing


def _is_other(path: Path, text: str) -> bool:
    """Whether something else than ``text`` lies at ``path``; the workflow itself always counts as something else."""
    if not path.exists() and not path.is_symlink():
        return False
    return text == WORKFLOW or not path.is_file() or path.read_bytes() != text.encode()


def _ignored(directory: Path) -> bool:
    ignore = directory / ".gitignore"
    return ignore.is_file() and ".memory" in ignore.read_text(encoding="utf-8", errors="replace")


def _json_text(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
