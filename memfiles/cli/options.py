"""The options that every command takes, before or after its name, the values they were given, and their completion.

The rules this file guards: an option means the same in both places; if it is given in both, the later one wins. And a
shell is offered only names that it can take into a command as they are: agents choose the keys of their entries, and
one may hold `$(...)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from functools import partial
from importlib import import_module
from io import StringIO
from typing import Any, TypeVar, cast

import click

from memfiles.cli import lean_imports

DEFAULT_WORKFLOW = "workflow.yaml"
OFFERED_MAX = 100  # names on one TAB
_PLAIN = r"[\w./][\w@%+:,./=-]*"
_NAMED = {"include": "key", "name": "file", "prefix": "key", "record": "file"}
_OFFERED = {"agent", "category", "file", "key", "level", "undo", "user"}
"""What the values of options and arguments are that a shell completes, some under other names."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


_LATE = "late_parameters"


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


def filled(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse a blank value, as a shell passes for a variable that is not set."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is blank; give a text, or leave it out")
    return value


def on_disk(_: click.Context, __: click.Parameter, target: str) -> str:
    """Refuse ``-`` for the target of an export: it is stdin elsewhere, and would be a folder of that name here."""
    if target == "-":
        raise click.BadParameter("an export goes to a folder or a file, not to stdout; ./- is one of that name")
    return target


class _PlainOption(click.Option):
    """An option whose help needs no cleaning, for which click would load ``inspect``: 9 of 100 ms.

    It inherits because click has no other way to leave that out.
    """

    def __init__(self, *names: Any, help: str | None = None, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.help = help


option_now = partial(click.option, cls=_PlainOption)


def _late(make: Callable[..., click.Parameter]) -> Callable[..., Callable[[Decorated], Decorated]]:
    """A decorator that notes a parameter; it is made when its command runs, as making all of them took 5 ms."""

    def add(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
        def decorate(function: Decorated) -> Decorated:
            vars(function)[_LATE] = [partial(make, names, **settings), *vars(function).get(_LATE, ())]
            return function

        return decorate

    return add


option = _late(lambda names, **settings: _PlainOption(names, **settings))
"""See ``click.option``; the help is on one line."""

argument = _late(lambda names, **settings: click.Argument(names, **settings))
"""See ``click.argument``."""


def options(*added: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """One decorator that adds several options to a command, in this order."""

    def decorate(function: Decorated) -> Decorated:
        for each in reversed(added):
            function = each(function)
        return function

    return decorate


class PlainCommand(click.Command):
    """A command whose parameters are made when they are first looked at, and end with the shared options.

    It inherits because click has no other way to make them late.
    """

    late: Sequence[Callable[[], click.Parameter]] | None = None

    @property
    def params(self) -> list[click.Parameter]:
        """See ``click.Command``; late parameters are made at the first look."""
        if self.late is not None:
            late, self.late = self.late, None
            self._params += (made := [make() for make in late])
            for each in made:
                if each.type is click.STRING and (what := _NAMED.get(str(each.name), each.name)) in _OFFERED:
                    each.type = _Offered(what)
            self._params += SHARED_OPTIONS
        return self._params

    @params.setter
    def params(self, known: list[click.Parameter]) -> None:
        self._params = known

    def get_short_help_str(self, limit: int = 1000) -> str:
        """The first sentence, for the help of a group; click would cut it off after 45 characters or more."""
        return super().get_short_help_str(1000)


def command(
    name: str, *examples: str, cls: type[PlainCommand] = PlainCommand, of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, of the group ``of`` if given, with the shared options and ``examples`` in its help."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        epilog = "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in examples)])  # \b: click must not wrap it
        made = click.command(name, cls=cls, epilog=epilog)(function)
        made.late = vars(function).pop(_LATE, ())
        if of is not None:
            of.add_command(made)
        return made

    return decorate


class _Offered(click.types.StringParamType):
    """Text that a shell completes with names from the memory; a failure completes nothing.

    They are what the command itself would show: of entries, what its session sees. It inherits because click has
    no other way to complete a value of an option that is declared elsewhere.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The names that begin with ``incomplete``."""
        from click.shell_completion import CompletionItem

        with suppress(Exception), ctx.scope(cleanup=False), redirect_stderr(StringIO()):
            from memfiles.cli import opening  # late: it imports this module

            names = {name for name in opening.completions_of(self._what, ctx, incomplete) if re.fullmatch(_PLAIN, name)}
            return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)][:OFFERED_MAX]
        return []


def group(name: str, *examples: str, more: str | None = None) -> Callable[[Callable[..., Any]], click.Group]:
    """Make a function a group of commands; the module ``more``, imported when it is needed, adds others to it."""
    made = command(name, *examples, cls=CommandGroup)

    def decorate(function: Callable[..., Any]) -> click.Group:
        found = cast("CommandGroup", made(function))
        found.more = more
        return found

    return decorate


class CommandGroup(PlainCommand, click.Group):
    """A group that answers an unknown command with the nearest one, and loads some of its commands late."""

    more: str | None = None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None if it is unknown."""
        if cmd_name not in self.commands:
            self._load()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted."""
        self._load()
        return super().list_commands(ctx)

    def _load(self) -> None:
        if self.more is not None:
            with lean_imports():
                import_module(self.more)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` start with; the error for a misspelt one suggests the nearest."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from memfiles.workflow.problems import nearest_to  # late: only a mistake needs it

            nearest = nearest_to(name, self.list_commands(ctx))
            hint = f" (did you mean {nearest!r}?)" if nearest else ""
            raise click.UsageError(f"unknown command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def _set(context: click.Context, given: click.Parameter, value: str | bool | None) -> None:
    """Keep the value in the settings; an option that was not given changes nothing."""
    if value is not None and value is not False:
        setattr(context.ensure_object(Settings), str(given.name), value)


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


def columns() -> int:
    """The width that ``COLUMNS`` says, else that of the terminal, else 80; ``shutil`` takes 3 of 40 ms to load."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:  # stdout is not a terminal
        return 80


def _show_help(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(context.get_help(), color=context.color)
        context.exit()


class _WorkflowPath(click.types.StringParamType):
    """The path of a file, like ``click.Path``, which takes 1 ms to look for translations of its name.

    It inherits because click has no other way to say which values an option takes.
    """

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an empty one and a directory are refused."""
        if not value:
            self.fail("it is empty; name a workflow file.", param, ctx)
        return self.fail(f"File {value!r} is a directory.", param, ctx) if os.path.isdir(value) else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Let the shell complete it."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


def _shared(*names: str, callback: Callable[..., None] = _set, **settings: Any) -> click.Option:
    return _PlainOption(names, callback=callback, expose_value=False, **settings)


SHARED_OPTIONS: list[click.Parameter] = [
    _shared("-w", "--workflow", type=_WorkflowPath(), help="Workflow file.  [default: ./workflow.yaml]"),
    _shared("--json", is_flag=True, help="Print JSON on stdout, errors as JSON on stderr."),
    _shared(
        "--color/--no-color",
        default=None,
        callback=_set_color,
        help="Use colours.  [default: on a terminal; respects NO_COLOR and FORCE_COLOR]",
    ),
    _shared("--no-pager", is_flag=True, help="Print long output at once.  [default: on a terminal in $PAGER]"),
    _shared("--debug", is_flag=True, envvar="MEMFILES_DEBUG", help="Show tracebacks (also: MEMFILES_DEBUG=1)."),
    _shared("-h", "--help", is_flag=True, is_eager=True, callback=_show_help, help="Show this message and exit."),
]
