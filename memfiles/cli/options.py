"""The options that every command takes, before or after its name, and the values they were given.

The rule this file guards: an option means the same in both places; if it is given in both, the later one wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

DEFAULT_WORKFLOW = "workflow.yaml"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Settings:
    """The values of the shared options (a plain class: ``dataclasses`` would be loaded for it alone)."""

    workflow = DEFAULT_WORKFLOW
    json = False
    debug = False
    no_pager = False
    color: bool | None = None


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
    name: str, *examples: str, cls: type[click.Command] = click.Command, of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, of the group ``of`` if given, with the shared options and ``examples`` in its help."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        epilog = "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in examples)])  # \b: click must not wrap it
        made = click.command(name, cls=cls, epilog=epilog)(function)
        made.params += SHARED_OPTIONS
        if of is not None:
            of.add_command(made)
        return made

    return decorate


def group(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Group]:
    """The same for a group of commands."""
    return cast("Callable[[Callable[..., Any]], click.Group]", command(name, *examples, cls=click.Group))


def _set(context: click.Context, option: click.Parameter, value: str | bool | None) -> None:
    """Keep the value in the settings; an option that was not given changes nothing."""
    if value is not None and value is not False:
        setattr(context.ensure_object(Settings), str(option.name), value)


def _set_color(context: click.Context, _: click.Parameter, value: bool | None) -> None:
    """Colour as asked; else never with NO_COLOR, always with FORCE_COLOR, else on a capable terminal."""
    if value is not None:
        context.ensure_object(Settings).color = context.color = value
    elif context.color is None:
        context.color = color_of_environment()


def color_of_environment() -> bool | None:
    """Whether the environment asks for colours or for none; None: a capable terminal gets them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _shared(*names: str, callback: Callable[..., None] = _set, **settings: Any) -> click.Option:
    return click.Option(names, callback=callback, expose_value=False, **settings)


SHARED_OPTIONS: list[click.Parameter] = [
    _shared("-w", "--workflow", type=click.Path(dir_okay=False), help="Workflow file.  [default: ./workflow.yaml]"),
    _shared("--json", is_flag=True, help="Print JSON on stdout, errors as JSON on stderr."),
    _shared(
        "--color/--no-color",
        default=None,
        callback=_set_color,
        help="Use colours.  [default: on a terminal; respects NO_COLOR and FORCE_COLOR]",
    ),
    _shared("--no-pager", is_flag=True, help="Print long output at once.  [default: on a terminal in $PAGER]"),
    _shared("--debug", is_flag=True, envvar="MEMFILES_DEBUG", help="Show tracebacks (also: MEMFILES_DEBUG=1)."),
]
