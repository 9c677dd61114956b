"""What a model may pass to Anthropic's memory tool: one argument model a command.

The vendor's types are no check: its client builds them from whatever the model sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from memfiles.errors import InvalidArgument
from memfiles.tools.arguments import Arguments, TextArgument, list_in, parse_arguments, shortened, whole

COMMAND_ALIASES: dict[str, tuple[str, ...]] = {
    "path": ("file_path", "file", "filename"),
    "view_range": ("range", "lines"),
    "file_text": ("content", "text"),
    "old_str": ("old_string", "old_text", "old"),
    "new_str": ("new_string", "new_text", "new"),
    "insert_line": ("line",),
    "insert_text": ("content", "text", "new_str"),
    "old_path": ("path", "source"),
    "new_path": ("destination", "target"),
}

LineNumber = Annotated[int, BeforeValidator(whole)]


def _line_range(sent: object) -> object:
    """Two line numbers, also out of their JSON text, which models send for a list; an empty list is no range."""
    found = list_in(sent)
    numbers = [whole(each) for each in found] if isinstance(found, list) else None
    if numbers == []:
        return None
    if numbers is None or len(numbers) != 2 or any(type(each) is not int for each in numbers):
        raise ValueError("must be two line numbers such as [1, 20]; -1 as the second is the last line")
    return numbers


class Command(Arguments):
    """The arguments of one command."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = COMMAND_ALIASES


class ViewCommand(Command):
    """To see a folder, or a file with line numbers. In ``view_range``, -1 is the last line."""

    path: TextArgument
    view_range: Annotated[list[int] | None, BeforeValidator(_line_range)] = None


class Create(Command):
    """To write a new file."""

    path: TextArgument
    file_text: TextArgument


class StrReplace(Command):
    """To replace a text that occurs once; a model that leaves the new one out means to delete the old."""

    path: TextArgument
    old_str: Annotated[TextArgument, Field(min_length=1)]
    new_str: TextArgument = ""


class Insert(Command):
    """To put lines behind a line, 0 for the top."""

    path: TextArgument
    insert_line: LineNumber
    insert_text: TextArgument


class Delete(Command):
    """To delete a file."""

    path: TextArgument


class Rename(Command):
    """To give a file another path."""

    old_path: TextArgument
    new_path: TextArgument


COMMANDS: dict[str, type[Command]] = {
    "view": ViewCommand,
    "create": Create,
    "str_replace": StrReplace,
    "insert": Insert,
    "delete": Delete,
    "rename": Rename,
}


def parse_command(sent: object) -> dict[str, Any]:
    """A command as the vendor's client knows it, out of what a model sent; ``InvalidArgument`` says what is wrong."""
    given = dict(sent) if isinstance(sent, Mapping) else {}
    command = given.pop("command", None)
    model = COMMANDS.get(command) if isinstance(command, str) else None
    if model is None:
        wrong = "'command' is missing" if command is None else f"there is no command {shortened(command)}"
        raise InvalidArgument(f"memory: {wrong}: use one of {', '.join(COMMANDS)}")
    return {"command": command, **parse_arguments(model, given, tool=f"memory {command}").model_dump(exclude_none=True)}
