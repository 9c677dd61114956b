"""``card``, ``tools`` and ``call``: what a model is shown, and what it gets back."""

from __future__ import annotations

import json
from typing import Any, cast

import click

from memfiles.cli import output
from memfiles.cli.commands.write import given_text
from memfiles.cli.failures import NotFound, ToolFailed
from memfiles.cli.help_text import example
from memfiles.cli.opening import MemoryView, load_workflow, view
from memfiles.cli.settings import current, shared_options
from memfiles.cli.with_mirror import mirrored
from memfiles.files.manager import MemoryManager
from memfiles.records.levels import levels_of
from memfiles.tools.dialects import DIALECTS, render
from memfiles.tools.index_card import card_of_files
from memfiles.tools.session import definitions_of
from memfiles.tools.visibility import Clearance, VisibleFile, visible_files
from memfiles.workflow.fields import TOOL_NAMES, ToolNames
from memfiles.workflow.workflow import Workflow

_TOOL_NAMES = click.option(
    "--tool-names",
    type=click.Choice(list(TOOL_NAMES)),
    help="What the tools for entries are called.  [default: as declared]",
)


@click.command("card", epilog=example("memfiles card support --level INTERNAL"))
@click.argument("agent")
@click.option("--level", help="The session's level.  [default: the agent's]")
@shared_options
def card_command(agent: str, level: str | None) -> None:
    """Print the index card an agent gets in its system prompt."""
    card = card_of_files(_visible(view(), agent, level))
    if current().json:
        output.data({"agent": agent, "card": card})
    elif card:
        output.content(card + "\n")
    else:
        output.note(f"{agent} may read no memory file, so it gets no card")


@click.command("tools", epilog=example("memfiles tools support --dialect openai"))
@click.argument("agent")
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), default="anthropic", show_default=True)
@click.option("--level", help="The session's level.  [default: the agent's]")
@_TOOL_NAMES
@shared_options
def tools_command(agent: str, dialect: str, level: str | None, tool_names: ToolNames | None) -> None:
    """Print the tools an agent gets, as a vendor wants them.

    What is printed is a JSON array, with --json or without.
    """
    seen = view()
    definitions = definitions_of(_visible(seen, agent, level))
    declared = seen.workflow.memory.entries
    if declared is not None:
        from memfiles.tools.entry_definitions import entry_tools  # late: only who declares entries needs it

        definitions += entry_tools(tool_names or declared.tool_names)
    output.data(render(definitions, dialect))


@click.command("call", epilog=example('memfiles call support read_memory \'{"file": "customer-notes"}\''))
@click.argument("agent")
@click.argument("tool")
@click.argument("arguments", metavar="JSON")
@click.option("--level", help="The session's level.  [default: the agent's]")
@click.option("--run", help="The run this call belongs to; it stands in the history.")
@click.option("--call-id", help="The id of the call: the same call with the same id is made once.")
@_TOOL_NAMES
@shared_options
def call_command(agent: str, tool: str, arguments: str, tool_names: ToolNames | None, **given: str | None) -> None:
    """Call a tool as an agent would.

    JSON is the object of its arguments, or - to read it from stdin. The text of the result goes to stdout.
    A result that is an error is reported like every error.
    """
    workflow = load_workflow()
    known_agent(workflow, agent)
    sent = json_object(given_text(arguments, what="send"))
    with mirrored(workflow) as memory:
        session = memory.session(agent, level=given["level"], run=given["run"], tool_names=tool_names, ends_run=False)
        result = session.call(tool, sent, call_id=given["call_id"])
    if result.is_error:
        raise ToolFailed(result.text, code=result.code, data=result.data)
    if current().json:
        output.data(result.to_dict())
    else:
        output.content(result.text if result.text.endswith("\n") else result.text + "\n")


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in ``text``, or a usage error with the place where it goes wrong."""
    context = click.get_current_context()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the arguments are not JSON: {error}", context) from None
    if not isinstance(found, dict):
        raise click.UsageError('the arguments must be a JSON object, as in {"file": "notes"}', context)
    return found


def known_agent(workflow: Workflow, agent: str) -> None:
    """Refuse an agent that the workflow does not declare."""
    if agent not in workflow.agents:
        raise NotFound(f"there is no agent {agent!r}: declared are: {', '.join(sorted(workflow.agents)) or 'none'}")


def _visible(seen: MemoryView, agent: str, level: str | None) -> list[VisibleFile]:
    """What a session of this agent sees now, without touching the disk."""
    known_agent(seen.workflow, agent)
    levels = levels_of(seen.workflow.memory.levels)
    declared = seen.workflow.agents[agent]
    clearance = Clearance(levels, level or declared.level or levels.lowest)
    levels.rank(clearance.level)
    # only ``card`` is asked of a manager here, and the view has it
    return visible_files(declared.memory, cast(MemoryManager, seen), clearance=clearance)
