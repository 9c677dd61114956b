"""``init``: a workflow to begin with, and what an editor needs to help with it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memfiles import atomic
from memfiles.cli import output
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.help_text import example
from memfiles.cli.settings import DEFAULT_WORKFLOW, current, shared_options
from memfiles.cli.template import WORKFLOW
from memfiles.schemas import workflow_schema

SCHEMA = "schemas/workflow.schema.json"


@click.command("init", epilog=example("memfiles init my-agents && cd my-agents && memfiles read notes"))
@click.argument("directory", required=False, default=".", type=click.Path(file_okay=False))
@shared_options
def init_command(directory: str) -> None:
    """Write a commented workflow that works as it is.

    Beside it goes its schema, for your editor. Nothing that exists is ever overwritten.
    """
    written = write_new(Path(directory), {DEFAULT_WORKFLOW: WORKFLOW, SCHEMA: _json_text(workflow_schema())})
    if current().json:
        output.data({"directory": str(Path(directory).resolve()), "written": [str(path) for path in written]})
        return
    for path in written:
        output.note(f"wrote {path}")
    there = "" if Path(directory).resolve() == Path.cwd() else f"cd {directory} && "
    output.note(f"Next: {there}memfiles read notes; then open {DEFAULT_WORKFLOW} and make it yours.")
    if not _ignored(Path(directory)):
        output.note("If this folder is under version control, add the line .memory/ to its .gitignore.")


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
    return path.name == DEFAULT_WORKFLOW or not path.is_file() or path.read_bytes() != text.encode()


def _ignored(directory: Path) -> bool:
    ignore = directory / ".gitignore"
    return ignore.is_file() and ".memory" in ignore.read_text(encoding="utf-8", errors="replace")


def _json_text(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
