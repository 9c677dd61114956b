"""The options that every command takes, before or after its name, and what they were set to.

The rule this file guards: an option means the same in both places; given in both, the later one wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

DEFAULT_WORKFLOW = "workflow.yaml"
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class Settings:
    """What the options of this run were set to (a plain class: ``dataclasses`` would be loaded just for it)."""

    def __init__(self) -> None:
        self.workflow = DEFAULT_WORKFLOW
        self.json = False
        self.debug = False


def current() -> Settings:
    """The settings of the command that is running."""
    return click.get_current_context().ensure_object(Settings)


def shared_options(function: _Decorated) -> _Decorated:
    """Add the options that every command takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _set_workflow(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Settings).workflow = value


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).json |= value


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.ensure_object(Settings).debug |= value


def _set_color(context: click.Context, _: click.Parameter, value: bool | None) -> None:
    """Colour as asked; else never with NO_COLOR, always with FORCE_COLOR, else on a terminal that can."""
    if value is not None:
        context.color = value
    elif context.color is None:
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            context.color = False
        elif os.environ.get("FORCE_COLOR"):
            context.color = True


_OPTIONS = (
    click.option(
        "-w",
        "--workflow",
        type=click.Path(dir_okay=False),
        callback=_set_workflow,
        expose_value=False,
        help="The workflow file.  [default: ./workflow.yaml]",
    ),
    click.option(
        "--json",
        is_flag=True,
        callback=_set_json,
        expose_value=False,
        help="Print data as JSON on stdout, an error as JSON on stderr.",
    ),
    click.option(
        "--color/--no-color",
        default=None,
        callback=_set_color,
        expose_value=False,
        help="Colours.  [default: on a terminal; NO_COLOR and FORCE_COLOR are obeyed]",
    ),
    click.option(
        "--debug",
        is_flag=True,
        envvar="MEMFILES_DEBUG",
        callback=_set_debug,
        expose_value=False,
        help="Show the traceback of an unexpected error (also: MEMFILES_DEBUG=1).",
    ),
)
