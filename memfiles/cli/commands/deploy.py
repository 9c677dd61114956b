"""``init``, ``schema``, ``check``, ``plan``, ``restore`` and ``status``: a workflow and its directory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from memfiles.cli import opening, output
from memfiles.cli.commands.read import entries_in, entry_lines
from memfiles.cli.commands.sync import mention_unmirrored, mirror_lines, unmirrored
from memfiles.cli.doctor.checks import names_in
from memfiles.cli.failures import AlreadyThere
from memfiles.cli.options import DEFAULT_WORKFLOW, argument, command, current, filled, option, usage_error
from memfiles.cli.output import waiting
from memfiles.files.restore_report import RestoreReport
from memfiles.memory import keeper_of, look
from memfiles.records.graphemes import harmless
from memfiles.secrets.gate import scanner_called
from memfiles.storage import atomic, quarantine
from memfiles.storage.home import home_of, url_scheme
from memfiles.storage.journal import FOLDER as JOURNALS
from memfiles.sync.status import kept_in, status_on_disk
from memfiles.tools.json_schemas import SCHEMAS, as_text, workflow_schema
from memfiles.workflow.workflow import misplaced_keys

SCHEMA = "schemas/workflow.schema.json"


@command("init", "memfiles init my-agents && cd my-agents && memfiles read notes")
@argument("directory", required=False, type=click.Path(file_okay=False), callback=filled)
def init_command(directory: str | None) -> None:
    """Create a ready-to-use, commented workflow.

    It writes workflow.yaml to DIRECTORY (default: the current one) or to the file that -w names, and its schema for
    your editor. Existing files are never overwritten.
    """
    folder, name = _place(directory)
    written = write_new(folder, {name: _template(), SCHEMA: as_text(workflow_schema())})
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


def _template() -> str:
    """The workflow that ``init`` writes, also from a package in a zip archive."""
    from importlib.resources import files  # late: it brings programs for zip archives

    return files("memfiles.cli.commands").joinpath("workflow.yaml").read_text("utf-8")


def refuse_url(path: str, *, command: str) -> None:
    """Raise a usage error for a URL in the place of the folder that a command writes to."""
    if scheme := url_scheme(path):
        raise usage_error(f"{scheme}// is a URL, not a path: {command} writes to a folder")


def _place(directory: str | None) -> tuple[Path, str]:
    """The folder and the name of the workflow to write."""
    refuse_url(directory or current().workflow, command="init")
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
    return text == _template() or not path.is_file() or path.read_bytes() != text.encode()


@command("schema", "memfiles schema workflow > schemas/workflow.schema.json")
@argument("what", type=click.Choice(sorted(SCHEMAS)))
def schema_command(what: str) -> None:
    """Print the JSON Schema of the workflow, a record or the tools."""
    output.data(SCHEMAS[what]())


@command("check", "memfiles check -w workflows/support.yaml")
def check_command() -> None:
    """Validate the workflow without touching the disk.

    Keys outside `memory` belong to your workflow engine; a warning names any that look like memory settings.
    """
    workflow = opening.load_workflow()
    scanner_called(workflow.memory.secrets_scanner)  # without it the memory does not open
    files, agents = len(workflow.memory.files), len(workflow.agents)
    warnings = misplaced_keys(current().workflow)
    warnings += [why for why in [unmirrored(workflow), keeper_of(workflow).problem] if why]
    shown = {"workflow": current().workflow, "name": workflow.name, "files": files, "agents": agents}
    if output.as_json(shown | {"warnings": warnings}):
        return
    for warning in warnings:
        output.warn(harmless(warning))
    what = f"{output.count(files, 'memory file')}, {output.count(agents, 'agent')}"
    output.line(f"{current().workflow}: ok, {what}")


@command("plan", "memfiles plan")
def plan_command() -> None:
    """Show what restore would do, without doing it.

    A declared mirror is asked for the files that are not on disk.
    """
    workflow = opening.load_workflow()
    with waiting("asking the mirror ..."), look(workflow, ask_mirror=True, warn=output.warn) as memory:
        report = memory.report
    show_report(report)
    mention_unmirrored(workflow)
    if any(file.status != "kept" for file in report.files):
        output.note("run `memfiles restore` to do it")


@command("restore", "memfiles restore --json")
def restore_command() -> None:
    """Bring the memory directory in line with the workflow.

    Declared names, caps and levels take effect; content survives. Every agent, and every command that writes, does
    this first; run it at each deploy to find problems early. With `pull: restore` in the workflow it also fetches
    changes from the mirror.
    """
    with opening.mirrored(opening.load_workflow()) as memory:
        show_report(memory.report)
        mention_unmirrored(memory.workflow)
        if memory.sync.settings.pull_at_start:
            opening.pull_what_changed(memory)


@command("status", "memfiles status --json", "memfiles status --watch")
@option("--watch", is_flag=True, help="Show files, budgets and what needs attention again whenever they change.")
def status_command(watch: bool) -> None:
    """Show the directory, its files and their sizes."""
    if watch:
        from memfiles.cli.commands.operator import watch_status  # late: it needs what opens a memory

        watch_status(opening.load_workflow())
    seen = opening.view()
    shown = status_object(seen)
    if output.as_json(shown):
        return
    mention_unmirrored(seen.workflow)
    created = "" if shown["exists"] else " (not created yet; run memfiles restore)"
    store = shown["store"]
    where = ("directory", shown["directory"]) if store is None else ("store", store["url"])
    output.labelled(
        [
            (where[0], f"{where[1]}{created}"),
            *([("server", store_line(store))] if store is not None and shown["exists"] else []),
            ("durability", shown["durability"]),
            ("content", f"{shown['size_bytes']} bytes in {output.count(len(seen.files), 'file')}"),
            ("journals", shown["journals"]),
            ("quarantine", output.count(shown["quarantined"], "record")),
            ("orphans", ", ".join(shown["orphans"]) or "none"),
            *entry_lines(shown["entries"]),
            *mirror_lines(status_on_disk(seen.workflow), workflow=seen.workflow),
        ]
    )
    output.line("")
    numbers = ("REVISION", "BYTES", "CAP", "USED")
    rows = ((file.card.name, opening.state_of(file.report), *opening.sizes_of(file)) for file in seen.files)
    output.table(("NAME", "STATE", *numbers), rows, numeric=numbers)


def store_line(store: Mapping[str, Any]) -> str:
    """A store in one line: the server, how it is used, and what it still waits for."""
    schema = f"schema {store['schema']} at version {store['schema_version']}"
    pool = f"{store['connections']} of {store['pool']} connections" + (" behind a pooler" if store["is_pooled"] else "")
    waiting = f"; {output.count(store['open_transactions'], 'transaction')} open" if store["open_transactions"] else ""
    where = f"PostgreSQL {store['server']} as {store['role']}, {schema}, workspace {store['workspace']}"
    return f"{where}, {pool}, answers in {store['answer_ms']:g} ms{waiting}"


def status_object(seen: opening.MemoryView) -> dict[str, Any]:
    """The status as a JSON object; sizes are bytes of content."""
    home = home_of(seen.workflow.place)
    return {
        "directory": str(home.directory) if home.directory is not None else None,
        "store": None if home.directory is not None else {"url": home.title, **to_builtins(home.survey() or {})},
        "exists": home.exists(),
        "durability": seen.workflow.memory.durability,
        "size_bytes": sum(file.card.size_bytes for file in seen.files),
        "files": [opening.file_object(file) for file in seen.files],
        "orphans": list(seen.report.orphans),
        "journals": len(names_in(home.directory / JOURNALS)) if home.directory is not None else 0,
        "quarantined": len(kept_in(home, quarantine.FOLDER)),
        "entries": entries_in(seen.workflow),
        "mirror": status_on_disk(seen.workflow).to_dict(),
    }


def show_report(report: RestoreReport) -> None:
    """Print the report of a restore or a plan."""
    if output.as_json(report.to_dict()):
        return
    rows = ((file.name, opening.state_of(file), file.detail or "") for file in report.files)
    output.table(("NAME", "STATE", "DETAIL"), rows)
    for orphan in report.orphans:
        output.line(f"{output.one_line(orphan)}: on disk but not declared; kept, but invisible to agents")
