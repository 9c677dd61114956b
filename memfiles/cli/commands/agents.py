"""``card``, ``tools``, ``call`` and ``mcp``: an agent's view of its memory."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from memfiles.cli import opening, output
from memfiles.cli.failures import ToolFailed, end_on_signals, listening_on
from memfiles.cli.options import argument, command, current, filled, option, usage_error
from memfiles.errors import ExtraMissing
from memfiles.tools.dialects import DIALECTS, render
from memfiles.workflow.fields import TOOL_NAMES

if TYPE_CHECKING:
    from memfiles.tools.session import Session
    from memfiles.tools.visibility import VisibleFile
    from memfiles.workflow.fields import ToolNames

PORT = 8848
FILE_TOOLS = {"read_memory", "append_memory", "edit_memory"}
NEEDED = (2, 2)
"""The version of the package ``mcp``, as in pyproject.toml."""
_TOOL_NAMES = option(
    "--tool-names", type=click.Choice(list(TOOL_NAMES)), help="Names of the entry tools.  [default: as declared]"
)


@command("card", "memfiles card support --level INTERNAL", "memfiles card support --tokens")
@argument("agent")
@opening.SESSION_USER
@opening.SESSION_LEVEL
@option("--tokens", is_flag=True, help="Print an estimate of the tokens of the card, entries and tools instead.")
def card_command(agent: str, user: str | None, level: str | None, tokens: bool) -> None:
    """Print the index card an agent gets in its system prompt.

    --tokens estimates what the memory adds to a model's prompt at its start. Vendors count differently, usually by up
    to a fifth.
    """
    from memfiles.tools.visibility import card_of_files  # late, as all that one of these commands needs

    seen = opening.view(user)
    entries = seen.workflow.memory.entries
    card = card_of_files(
        _visible(seen, agent, user=user, level=level), tool_names=entries.tool_names if entries else None
    )
    if tokens:
        from memfiles.records.graphemes import estimate_tokens

        counted = {
            name: estimate_tokens(text) for name, text in (("card", card), *_rest_of_prompt(seen, agent, user, level))
        }
        counted["total"] = sum(counted.values())
        if not output.as_json({"agent": agent, "tokens": counted}):
            output.labelled(counted.items())
        return
    if output.as_json({"agent": agent, "card": card}):
        return
    if card:
        output.content(card + "\n")
    else:
        output.note(f"{agent} may not read any memory file, so it has no card")


def _rest_of_prompt(
    seen: opening.MemoryView, agent: str, user: str | None, level: str | None
) -> Iterator[tuple[str, str]]:
    """The entries that a session sees at its start, and its tools."""
    if seen.workflow.memory.entries is not None:
        who = opening.SessionOptions(agent, user, level, run=None, actor=None)
        with opening.reading_entries(who) as (memory, session):
            yield "entries", memory.entries.hydrate(session).text
    shown = _tools_of(seen, agent, "anthropic", user=user, level=level)
    yield "tools", json.dumps(shown, ensure_ascii=False)


@command("tools", "memfiles tools support --dialect openai")
@argument("agent")
@option("--dialect", type=click.Choice(sorted(DIALECTS)), default="anthropic", show_default=True)
@opening.SESSION_USER
@opening.SESSION_LEVEL
@_TOOL_NAMES
def tools_command(agent: str, dialect: str, tool_names: ToolNames | None, **given: str | None) -> None:
    """Print an agent's tools in a vendor's format.

    The output is a JSON array, with or without --json.
    """
    output.data(_tools_of(opening.view(given["user"]), agent, dialect, tool_names=tool_names, **given))


def _tools_of(
    seen: opening.MemoryView,
    agent: str,
    dialect: str,
    *,
    user: str | None,
    level: str | None,
    tool_names: ToolNames | None = None,
) -> list[dict[str, Any]]:
    """The tools of a session of this agent in a vendor's format."""
    from memfiles.tools.definitions import file_tools
    from memfiles.tools.profiles import offered
    from memfiles.tools.visibility import names_in

    names = names_in(_visible(seen, agent, user=user, level=level))
    spec, declared = seen.workflow.agents[agent], seen.workflow.memory.entries
    if declared is None:
        return render(file_tools(**names), dialect)
    profile = tool_names or declared.tool_names
    return render(offered(profile, **names, forgets=spec.forget, read_only=spec.entries == "r"), dialect)


@command("call", 'memfiles call support read_memory \'{"file": "customer-notes"}\'')
@argument("agent")
@argument("tool")
@argument("arguments", metavar="JSON")
@opening.SESSION_USER
@opening.SESSION_LEVEL
@option("--run", help="Run of the call, recorded in the history.")
@opening.ACTOR
@option("--call-id", callback=filled, help="Idempotency key: repeating the call with the same ID has no effect.")
@_TOOL_NAMES
def call_command(agent: str, tool: str, arguments: str, tool_names: ToolNames | None, **given: str | None) -> None:
    """Call a tool as an agent would.

    JSON is the object of its arguments, or - to read it from stdin. The text of the result goes to stdout. An error
    result is reported like any other error.
    """
    workflow = opening.load_workflow()
    opening.known_agent(workflow, agent)
    from memfiles.cli.commands.write import given_text
    from memfiles.tools.session import without_upkeep

    sent = json_object(given_text(arguments, what="send"))
    parts = opening.FILE_PARTS if tool in FILE_TOOLS else opening.ENTRY_PARTS
    with opening.mirrored(workflow, parts=parts) as memory:
        call_id = given.pop("call_id")
        session = memory.session(agent, **given, tool_names=tool_names, ends_run=False)
        result = without_upkeep(session, is_brief=True).call(tool, sent, call_id=call_id)
    if result.is_error:
        raise ToolFailed(result.text, code=result.code, data=result.data)
    if not output.as_json(result.to_dict()):
        output.content(result.text if result.text.endswith("\n") else result.text + "\n")


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in ``text``, or a usage error with the position of the mistake."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise usage_error(f"the arguments are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise usage_error('the arguments must be a JSON object, as in {"file": "notes"}')
    return found


def _visible(seen: opening.MemoryView, agent: str, *, user: str | None, level: str | None) -> list[VisibleFile]:
    """The files that a session of this agent sees."""
    from memfiles.tools.visibility import visible_among

    opening.known_agent(seen.workflow, agent)
    levels = seen.workflow.levels
    declared = seen.workflow.agents[agent]
    at = level or declared.level or levels.lowest
    levels.rank(at)
    refs = seen.workflow.refs_of(agent, user=user)
    return visible_among((file.card for file in seen.files), refs, levels=levels, level=at)


@command("mcp", "memfiles mcp --agent support", "memfiles mcp --agent support --http --read-only")
@option("--agent", metavar="NAME", help="Agent to serve.  [default: the only one declared]")
@opening.SESSION_USER
@opening.SESSION_LEVEL
@option("--run", metavar="ID", help="Run of the changes, recorded in the history.")
@opening.ACTOR
@option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@option("--http", is_flag=True, help="Serve on 127.0.0.1 instead of stdin and stdout.")
@option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="With --http; 0 picks a free port."
)
@option(
    "--token",
    envvar="MEMFILES_MCP_TOKEN",
    help="With --http: bearer token that clients must send. Other users of this machine can read it in the list of "
    "processes: set MEMFILES_MCP_TOKEN instead.  [default: a new one]",
)
@option(
    "--user-header",
    metavar="NAME",
    help="With --http: the header in which a trusted gateway names the user of each request, percent-encoded.",
)
def mcp_command(agent: str | None, read_only: bool, **over: Any) -> None:
    """Serve an agent's memory to MCP clients.

    Clients start it and talk to it over stdin and stdout, or connect to a local address with --http.
    """
    header = over.pop("user_header")
    if header is not None and (over["user"] is not None or not over["http"]):
        raise usage_error("--user-header needs --http, and excludes --user: each request names its user")
    source_of = click.get_current_context().get_parameter_source
    typed = [name for name in ("port", "token") if source_of(name) is click.core.ParameterSource.COMMANDLINE]
    if typed and not over["http"]:
        raise usage_error(f"--{typed[0]} needs --http: without it, the client talks over stdin and stdout")
    _check_installed()
    workflow = opening.load_workflow()
    whose = opening.agent_of(workflow, agent)
    output.log_on_stderr(logging.INFO if current().debug else logging.WARNING)
    from memfiles.memory import open as open_memory

    with open_memory(current().workflow) as memory:
        opening.mention_trouble(memory.report)
        who = {name: over[name] for name in ("level", "run", "actor")}
        session_for = partial(memory.session, whose, **who, ends_run=False)
        session = session_for(user=over["user"] if header is None else "anyone")  # refuses what each would refuse
        if over["http"]:
            source = session if header is None else session_for
            _serve_http(source, read_only=read_only, port=over["port"], token=over["token"], user_header=header)
        else:
            from memfiles.server import stdio
            from memfiles.server.server import build

            if sys.stdin and sys.stdin.isatty():
                output.note("waiting for an MCP client, which starts this command itself; Ctrl-C ends it")
            stdio.serve(build(session, read_only=read_only))


def _serve_http(
    session: Session | Callable[..., Session], *, read_only: bool, port: int, token: object, user_header: str | None
) -> None:
    from memfiles.server import http
    from memfiles.server.server import build

    header = http.check_header(user_header) if user_header is not None else None
    source = (lambda ctx: session(user=http.request_user(ctx))) if callable(session) else session
    chosen = http.check_token(str(token)) if token is not None else None
    listening = listening_on(port)
    used = chosen or http.new_token()
    end_on_signals()
    try:
        click.echo(f"MCP server at http://{http.HOST}:{listening.getsockname()[1]}{http.PATH}", err=True)
        if chosen is None:
            click.echo(f"clients must send the header: Authorization: Bearer {used}", err=True)
        server = build(source, read_only=read_only)
        http.serve(server, listening=listening, token=used, user_header=header)
    except KeyboardInterrupt:
        click.echo("MCP server ended", err=True)


def _check_installed() -> None:
    from importlib.metadata import PackageNotFoundError, version  # late: 10 ms that the other commands do not need

    try:
        found = version("mcp") if find_spec("mcp") is not None else None
    except PackageNotFoundError:  # another package of that name
        found = None
    if found is None:
        raise ExtraMissing("The MCP server needs an extra: pip install 'memfiles[mcp]'")
    first_two = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if not NEEDED <= first_two < (NEEDED[0] + 1,):
        needed = f"mcp {'.'.join(map(str, NEEDED))} or a later {NEEDED[0]}.x"
        raise ExtraMissing(
            f"The MCP server needs {needed}, but {found} is installed: pip install --upgrade 'memfiles[mcp]', in a "
            f"separate environment if another package needs mcp {found}"
        )
