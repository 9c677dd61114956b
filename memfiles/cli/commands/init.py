"""``init`` and ``schema``: a first workflow, and the JSON Schemas for editors."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from memfiles.cli import output
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.options import DEFAULT_WORKFLOW, command, current, usage_error
from memfiles.storage import atomic
from memfiles.tools.json_schemas import SCHEMAS, as_text, workflow_schema

SCHEMA = "schemas/workflow.schema.json"
WORKFLOW = Path(__file__).with_name("workflow.yaml").read_text(encoding="utf-8")


@command("init", "memfiles init my-agents && cd my-agents && memfiles read notes")
@click.argument("directory", required=False, type=click.Path(file_okay=False))
def init_command(directory: str | None) -> None:
    """Create a ready-to-use, commented workflow.

    It writes workflow.yaml to DIRECTORY (default: the current one) or to the file that -w names, and its schema for
    your editor. Existing files are never overwritten.
    """
    folder, name = _place(directory)
    written = write_new(folder, {name: WORKFLOW, SCHEMA: as_text(workflow_schema())})
    if output.as_json({"directory": str(folder.resolve()), "written": [str(path) for path in written]}):
        return
    for path in written:
        output.note(f"wrote {path}")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    named = "" if name == DEFAULT_WORKFLOW else f" -w {shlex.quote(name)}"
    output.note(f"Next: {there}memfiles{named} read notes; then edit {name} to fit your agents.")
    ignore = folder / ".gitignore"
    if not ignore.is_file() or ".memory" not in ignore.read_text(encoding="utf-8", errors="replace"):
        output.note("If this folder is under version control, add .memory/ to its .gitignore.")


def _place(directory: str | None) -> tuple[Path, str]:
    """The folder and the name of the workflow to write."""
    workflow = Path(current().workflow)
    if directory is None:
        return workflow.parent, workflow.name
    if current().workflow != DEFAULT_WORKFLOW:
        raise usage_error(f"give either the directory {directory} or -w {workflow}")
    return Path(directory), DEFAULT_WORKFLOW


def write_new(directory: Path, texts: dict[str, str]) -> list[Path]:
    """Write each text to its path in ``directory``, or none: only a schema that is up to date may exist already."""
    wanted = {directory / name: text for name, text in texts.items()}
    taken = [path for path, text in wanted.items() if _is_other(path, text)]
    if taken:
        raise AlreadyThere(f"{taken[0]} exists and is never overwritten; move it away, or choose another directory")
    missing = [path for path in wanted if not path.exists()]
    for path in reversed(missing):  # the workflow last: once it exists, another try is refused
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            atomic.write_new(path, wanted[path].encode())
        except FileExistsError:
            raise AlreadyThere(f"{path} was created in the meantime and is never overwritten") from None
    return missing


def _is_other(path: Path, text: str) -> bool:
    """Whether ``path`` exists with anything but ``text``; an existing workflow always counts."""
    if not path.exists() and not path.is_symlink():
        return False
    return text == WORKFLOW or not path.is_file() or path.read_bytes() != text.encode()


@command("schema", "memfiles schema workflow > schemas/workflow.schema.json")
@click.argument("what", type=click.Choice(sorted(SCHEMAS)))
def schema_command(what: str) -> None:
    """Print the JSON Schema of the workflow, a record or the tools."""
    output.data(SCHEMAS[what]())
