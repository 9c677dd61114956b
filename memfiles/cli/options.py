"""The options that every command takes, before or after its name, and the values they were given.

The rule this file guards: an option means the same in both places; if it is given in both, the later one wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

DEFAULT_WORKFLOW = "workflow.yaml"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Settings:
    """The values of the shared options (a plain class: ``dataclasses`` would be loaded for it alone)."""

    def __init__(self) -> None:
        self.workflow = DEFAULT_WORKFLOW
        self.json = False
        self.debug = False


def current() -> Settings:
    """The settings of the running command."""
    return click.get_current_context().ensure_object(Settings)


def usage_error(message: str) -> click.UsageError:
    """An error in how the running command was called; it points to the command's help."""
    return click.UsageError(message, click.get_current_context())


def options(*added: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """One decorator that adds several options to a command, in this order."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(added):
            function = option(function)
        return function

    return decorate


def command(
    name: str, *examples: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command with the shared options, and with ``examples`` at the end of its help."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        made = click.command(name, cls=cls, epilog=_epilog(examples))(function)
        made.params += SHARED_OPTIONS
        return made

    return decorate


def group(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Group]:
    """The same for a group of commands."""

    def decorate(function: Callable[..., Any]) -> click.Group:
        made = click.group(name, epilog=_epilog(examples))(function)
        made.params += SHARED_OPTIONS
        return made

    return decorate


def _epilog(examples: tuple[str, ...]) -> str:
    return "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in examples)])  # \b: click must not wrap it


def _set_workflow(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Settings).workflow = value


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).json |= value


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).debug |= value


def _set_color(context: click.Context, _: click.Parameter, value: bool | None) -> None:
    """Colour as asked; else never with NO_COLOR, always with FORCE_COLOR, else on a capable terminal."""
    if value is not None:
        context.color = value
    elif context.color is None:
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            context.color = False
        elif os.environ.get("FORCE_COLOR"):
            context.color = True


SHARED_OPTIONS: list[click.Parameter] = [
    click.Option(
        ["-w", "--workflow"],
        type=click.Path(dir_okay=False),
        callback=_set_workflow,
        expose_value=False,
        help="Workflow file.  [default: ./workflow.yaml]",
    ),
    click.Option(
        ["--json"],
        is_flag=True,
        callback=_set_json,
        expose_value=False,
        help="Print JSON on stdout, errors as JSON on stderr.",
    ),
    click.Option(
        ["--color/--no-color"],
        default=None,
        callback=_set_color,
        expose_value=False,
        help="Use colours.  [default: on a terminal; respects NO_COLOR and FORCE_COLOR]",
    ),
    click.Option(
        ["--debug"],
        is_flag=True,
        envvar="MEMFILES_DEBUG",
        callback=_set_debug,
        expose_value=False,
        help="Show tracebacks (also: MEMFILES_DEBUG=1).",
    ),
]
