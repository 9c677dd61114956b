"""Anthropic's memory tool over a folder view of a session's memory: its commands, paths and answers.

The rules this module enforces: a path is text that is parsed here and never reaches the disk, in which only ``/``,
``.`` and ``..`` have a meaning (a backslash or ``%2e`` is part of a name). Results and errors use the words of the
vendor's own tool, which its models know. What the workflow forbids is an error that says why. Deleting a declared file
empties it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

from msgspec import Meta, defstruct

from memfiles.adapters.shapes.folder import EntryText, FileText, MemoryFolder
from memfiles.errors import InvalidArgument
from memfiles.tools.arguments import Arguments, TextArgument, list_in, parse_arguments, shortened, whole_number
from memfiles.tools.session import Session
from memfiles.workflow.declared import Before

ROOT = "/memories"
MAX_LINES = 999_999
_SHOWN = 200
_NUMBER_WIDTH = 6
_UNITS = "BKMG"


class MemoryCommands:
    """The six commands for one session. It keeps nothing between calls; threads may share it.

    A refusal is a ``MemfilesError`` with a message for the model; nothing was changed then.
    """

    def __init__(self, session: Session) -> None:
        self._folder = MemoryFolder(session)

    def run(self, sent: object) -> str:
        """Carry out a command as a model sent it."""
        given = parse_command(sent)
        answer: str = getattr(self, given.pop("command"))(**given)
        return answer

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Show a folder's paths with sizes, or a text with line numbers."""
        found = self._find(path)
        if found is None:
            self._check_folder(path, advice=". Please provide a valid path.")
            said = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
            return f"{said}\n{listing(self._folder.sizes(name_of(path)), path=path)}"
        lines = found.content.split("\n")
        if len(lines) > MAX_LINES:
            raise InvalidArgument(f"File {path} exceeds maximum line limit of {MAX_LINES:,} lines.")
        first, last = view_range or (1, -1)
        start = max(1, first)
        shown = lines[start - 1 : None if last == -1 else last]
        return f"Here's the content of {path} with line numbers:\n{numbered(shown, first=start)}"

    def create(self, path: str, file_text: str) -> str:
        """Create an entry, or fill an empty declared file."""
        name = name_of(path)
        if not self._folder.is_folder(name):
            self._check_parents(name)
            if self._folder.create(name, file_text):
                return f"File created successfully at: {path}"
        raise InvalidArgument(f"File {path} already exists")

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a string that occurs once."""
        found, shown = self._text(path), old_str[:_SHOWN]
        count = found.content.count(old_str)
        if count == 0:
            why = f"old_str `{shown}` did not appear verbatim in {path}"
            raise InvalidArgument(f"No replacement was performed, {why}.")
        if count > 1:
            where = ", ".join(map(str, islice(lines_with(found.content, old_str), _SHOWN)))
            why = f"Multiple occurrences of old_str `{shown}` in lines: {where}. Please ensure it is unique"
            raise InvalidArgument(f"No replacement was performed. {why}")
        changed = next(lines_with(found.content, old_str))
        found.edit(old_str, new_str)
        first = max(1, changed - 2)
        after = found.content.replace(old_str, new_str, 1).split("\n")[first - 1 : changed + 2]
        said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{said}\n{numbered(after, first=first)}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert lines after a line."""
        found = self._text(path)
        lines = found.content.removesuffix("\n").split("\n") if found.content else []
        if not 0 <= insert_line <= len(lines):
            where = f"It should be within the range [0, {len(lines)}]."
            raise InvalidArgument(f"Invalid `insert_line` parameter: {insert_line}. {where}")
        lines.insert(insert_line, insert_text.rstrip("\n"))
        found.put("\n".join(lines).removesuffix("\n") + "\n")
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        """Delete an entry, or all entries of a folder in one commit; empty a declared file."""
        if not name_of(path):
            raise InvalidArgument(f"Cannot delete the {ROOT} directory itself")
        found = self._find(path)
        if found is None:
            self._check_folder(path)
            self._folder.remove_folder(name_of(path))
        elif not found.remove():
            return f"Successfully deleted the content of {path}; the file is declared, so it stays, empty"
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Give an entry another key, or all entries of a folder in one commit."""
        old, new = name_of(old_path), name_of(new_path)
        if not old:
            raise InvalidArgument(f"Cannot rename the {ROOT} directory itself")
        if self._folder.is_folder(new) or self._folder.find(new) is not None:
            raise InvalidArgument(f"The destination {new_path} already exists")
        found = self._find(old_path)
        if found is None:
            self._check_folder(old_path)
        self._check_parents(new)
        if found is not None:
            found.move_to(new)
        elif new.startswith(f"{old}/"):
            raise InvalidArgument(f"Cannot rename {old_path} to {new_path}, which is inside it")
        else:
            self._folder.move_folder(old, new)
        return f"Successfully renamed {old_path} to {new_path}"

    def _find(self, path: str) -> FileText | EntryText | None:
        """The text at a path; if the path ends in a slash, a folder precedes a text of the same name."""
        for name in names_of(path):
            if (found := self._folder.find(name)) is not None:
                return found
            if path.endswith("/") and self._folder.is_folder(name_of(path)):
                return None
        return None

    def _text(self, path: str) -> FileText | EntryText:
        found = self._find(path)
        if found is None:
            self._check_folder(path, advice=". Please provide a valid path.")
            raise InvalidArgument(f"The path {path} is not a file.")
        return found

    def _check_folder(self, path: str, *, advice: str = "") -> None:
        if not self._folder.is_folder(name_of(path)):
            raise InvalidArgument(f"The path {path} does not exist{advice}")

    def _check_parents(self, name: str) -> None:
        parts = name.split("/")
        for folder in ("/".join(parts[:depth]) for depth in range(1, len(parts))):
            if self._folder.find(folder) is not None:
                raise InvalidArgument(f"The path {ROOT}/{folder} is a file, not a folder: use another path")


def name_of(path: str) -> str:
    """The name that a path refers to, "" for the root; ``InvalidArgument`` for a path that leads out of the root."""
    names: list[str] = []
    for part in _below_root(path).split("/"):
        if part == ".." and not names:
            raise InvalidArgument(f"Path {path[:_SHOWN]} would escape {ROOT} directory")
        if part == "..":
            names.pop()
        elif part not in ("", "."):
            names.append(part)
    return "/".join(names)


def names_of(path: str) -> Iterator[str]:
    """The names that a path may refer to: first its exact text, as an entry's key may be ``https://x``."""
    exact = _below_root(path).removeprefix("/")
    yield exact
    if (normal := name_of(path)) != exact:
        yield normal


def _below_root(path: str) -> str:
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise InvalidArgument(f"Path must start with {ROOT}, got: {path[:_SHOWN]}")
    return path.removeprefix(ROOT)


def numbered(lines: Sequence[str], *, first: int) -> str:
    """The lines, each after its right-aligned number and a tab."""
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def listing(sizes: Mapping[str, int], *, path: str) -> str:
    """A folder and its items with their sizes; keys are relative paths, those of folders end in "/"."""
    total = sum(size for below, size in sizes.items() if "/" not in below.removesuffix("/"))
    shown = {path: total} | {f"{path.rstrip('/')}/{below}": size for below, size in sizes.items()}
    return "\n".join(f"{readable(size)}\t{name}" for name, size in shown.items())


def readable(size_bytes: int) -> str:
    """A size as ``du -h`` writes it: 0B, 512B, 1.5K, 2M."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + _UNITS[unit]


def lines_with(text: str, wanted: str) -> Iterator[int]:
    """The lines, from 1, in which ``wanted`` begins; occurrences may overlap, as in the vendor's own tool."""
    line, counted, at = 1, 0, text.find(wanted)
    while at >= 0:
        line += text.count("\n", counted, at)
        counted = at
        yield line
        at = text.find(wanted, at + 1)


def _line_range(sent: object) -> object:
    """Two line numbers, or their JSON text, which models send for a list; an empty list is not a range."""
    found = list_in(sent)
    numbers = [whole_number(each) for each in found] if isinstance(found, list) else None
    if numbers == []:
        return None
    if numbers is None or len(numbers) != 2 or any(type(each) is not int for each in numbers):
        raise ValueError("must be two line numbers such as [1, 20]; -1 as the second is the last line")
    return numbers


class CommandArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of one command."""

    by_type: ClassVar[bool] = False
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {
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


_TEXT = (TextArgument,)
_LINE = (Annotated[int, Before(whole_number)],)
_OLD = (Annotated[TextArgument, Meta(min_length=1)],)
_RANGE = (Annotated[list[int] | None, Before(_line_range)], None)
_FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "view": {"path": _TEXT, "view_range": _RANGE},  # -1 is the last line
    "create": {"path": _TEXT, "file_text": _TEXT},
    "str_replace": {"path": _TEXT, "old_str": _OLD, "new_str": (TextArgument, "")},  # models omit it to delete the old
    "insert": {"path": _TEXT, "insert_line": _LINE, "insert_text": _TEXT},  # after that line, 0 for the top
    "delete": {"path": _TEXT},
    "rename": {"old_path": _TEXT, "new_path": _TEXT},
}
COMMANDS: dict[str, Any] = {
    name: defstruct(name, [(field, *how) for field, how in fields.items()], bases=(CommandArguments,), kw_only=True)
    for name, fields in _FIELDS.items()
}


def parse_command(sent: object) -> dict[str, Any]:
    """Check a command from a model, in the form the vendor's client expects; ``InvalidArgument`` lists the problems.

    The vendor's types check nothing: its client builds them from whatever the model sent.
    """
    given = dict(sent) if isinstance(sent, Mapping) else {}
    command = given.pop("command", None)
    model = COMMANDS.get(command) if isinstance(command, str) else None
    if model is None:
        wrong = "'command' is missing" if command is None else f"unknown command {shortened(command)}"
        raise InvalidArgument(f"memory: {wrong}: use one of {', '.join(COMMANDS)}")
    return {"command": command, **parse_arguments(model, given, tool=f"memory {command}").given()}
