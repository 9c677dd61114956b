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
WORKFLOW = """\
# yaml-language-server: $schema=schemas/workflow.schema.json
#
# The memory of your agents. Try it:
#   memfiles read notes                          read a memory file
#   memfiles append notes --line "- a fact"      append to it
#   memfiles card assistant                      show the index card in the agent's system prompt
#   memfiles entries save plan "Ada is on Pro"   save an entry under a key
#   memfiles entries search ada                  find it again
name: my-workflow

memory:
  # The directory of the records, relative to this file. Keep it out of version control.
  directory: .memory

  # A second home for the records: a bucket, or an existing directory such as file:///mnt/backup/my-workflow.
  # Credentials come from the environment or boto3's configuration, never from here. `memfiles doctor` checks it.
  # mirror:
  #   url: s3://my-bucket/my-workflow?region=eu-central-1
  #   pull: cold-start             # or restore (at every start), or an interval such as 5m
  #   on_conflict: local           # which text wins if two changes cannot be merged; the other one is kept

  # fsync: acknowledged changes survive a power cut. os: faster, for throwaway agents.
  durability: fsync

  # What to do with text that looks like a credential: block, redact, warn or off.
  secrets: block

  # From low to high. A session reads at or below its level, and writes at its level.
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED]

  files:
    - uid: notes-1                 # never changes; names the record on disk
      name: notes                  # what the model sees; may change at any time
      description: What is worth remembering, one bullet a fact.
      max_size_bytes: 16384        # UTF-8 bytes; a change beyond it is refused
      level: INTERNAL
      content: |                   # initial content only; afterwards the record on disk counts
        # Notes

    - uid: instructions-1
      name: instructions
      description: How to work; written by people, read by the agent.
      max_size_bytes: 4096
      level: PUBLIC
      content: |
        - Write down what the next run must know, and nothing that it can look up.
        - Correct what is wrong instead of adding to it.

  # Entries that agents save under keys while they run, each at its session's level. Without this part agents have no
  # tools for entries. The budgets apply to each agent at each level; over a budget, the least valuable is evicted.
  entries:
    max_entries: 1000
    max_bytes: 1048576
    hydrate_bytes: 16384             # budget of the system prompt: pinned entries first, then the newest
    categories:
      daily: {ttl: 72h}              # expires this long after its last change
    # tool_names: store-recall       # memory_store, recall, list, forget; or crud: memory_search, create, ...

agents:
  assistant:
    level: INTERNAL
    memory:
      - {id: notes-1, mode: rw}         # read, append and edit
      - {id: instructions-1, mode: r}   # read only
"""


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
