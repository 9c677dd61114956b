"""``mcp``: the memory of one agent for MCP clients."""

from __future__ import annotations

import logging
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from memfiles.cli.commands.entries_opening import agent_of
from memfiles.cli.help_text import example
from memfiles.cli.opening import load_workflow
from memfiles.cli.settings import current, shared_options
from memfiles.cli.with_mirror import mention_trouble
from memfiles.errors import ExtraMissing
from memfiles.memory import open as open_memory

if TYPE_CHECKING:
    from memfiles.tools.session import Session

PORT = 8848
NEEDED = (2, 2)
"""The version of the package ``mcp``, as in pyproject.toml."""


@click.command("mcp", epilog=example("memfiles mcp --agent support", "memfiles mcp --agent support --http --read-only"))
@click.option("--agent", metavar="NAME", help="Whose memory.  [default: the agent, if only one is declared]")
@click.option("--level", help="The session's level.  [default: the agent's]")
@click.option("--run", metavar="ID", help="The run that changes belong to; it stands in the history.")
@click.option("--read-only", is_flag=True, help="Offer no tool that changes anything.")
@click.option("--http", is_flag=True, help="Serve on 127.0.0.1 instead of stdin and stdout.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="With --http; 0 is any free port."
)
@click.option(
    "--token",
    envvar="MEMFILES_MCP_TOKEN",
    help="With --http: what clients must send as bearer token (also: MEMFILES_MCP_TOKEN).  [default: a new one]",
)
@shared_options
def mcp_command(agent: str | None, level: str | None, run: str | None, read_only: bool, **over: object) -> None:
    """Serve an agent's memory to MCP clients.

    A client starts it and talks to it over stdin and stdout, or finds it at an address of this machine with --http.
    """
    _check_installed()
    workflow = load_workflow()
    whose = agent_of(workflow, agent)
    _log_to_stderr()
    with open_memory(current().workflow) as memory:
        mention_trouble(memory.report)
        session = memory.session(whose, level=level, run=run, ends_run=False)
        if over["http"]:
            _serve_http(session, read_only=read_only, port=int(str(over["port"])), token=over["token"])
        else:
            _serve_stdio(session, read_only=read_only)


def _serve_stdio(session: Session, *, read_only: bool) -> None:
    from memfiles.server import stdio
    from memfiles.server.server import build

    stdio.serve(build(session, read_only=read_only))


def _serve_http(session: Session, *, read_only: bool, port: int, token: object) -> None:
    from memfiles.server import http
    from memfiles.server.server import build

    chosen = http.check_token(str(token)) if token is not None else None
    listening = http.bind(port)
    used = chosen or http.new_token()
    http.end_like_ctrl_c()
    try:
        click.echo(f"MCP server at {http.url_of(listening)}", err=True)
        if chosen is None:
            click.echo(f"clients must send the header: Authorization: Bearer {used}", err=True)
        http.serve(build(session, read_only=read_only), listening=listening, token=used)
    except KeyboardInterrupt:
        click.echo("MCP server ended", err=True)


def _check_installed() -> None:
    try:
        found = version("mcp") if find_spec("mcp") is not None else None
    except PackageNotFoundError:  # something else of that name
        found = None
    if found is None:
        raise ExtraMissing("The MCP server needs an extra: pip install 'memfiles[mcp]'")
    if not NEEDED <= _numbers(found) < (NEEDED[0] + 1,):
        needed = f"mcp {'.'.join(map(str, NEEDED))} or a later {NEEDED[0]}.x"
        raise ExtraMissing(
            f"The MCP server needs {needed}, and {found} is installed: pip install --upgrade 'memfiles[mcp]', in an "
            f"environment of its own if something else there needs mcp {found}"
        )


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers with which a version begins, two of them, which order it."""
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


def _log_to_stderr() -> None:
    level = logging.INFO if current().debug else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")
