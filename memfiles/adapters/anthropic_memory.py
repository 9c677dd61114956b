"""Anthropic's memory tool, ``memory_20250818``, over a session: ``/memories/<name>`` is a memory file or an entry.

The words of results and errors are those of the tool in Anthropic's client, which its models know. What the
declaration forbids is a tool error that says why. Deleting a declared file empties it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memfiles.adapters.crossing import in_worker
from memfiles.errors import ExtraMissing, MemfilesError
from memfiles.memory_commands import parse_command
from memfiles.memory_folder import EntryText, FileText, MemoryFolder
from memfiles.memory_views import lines_with, listing, numbered

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
except ImportError as error:
    raise ExtraMissing("Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'") from error

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaFunctionToolResultType
    from anthropic.types import beta

    from memfiles.session import Session

ROOT = "/memories"
_SHOWN = 200


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool of one session, for ``tools=[MemoryTool(session)]`` of Anthropic's tool runner."""

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._folder = MemoryFolder(session)

    def call(self, input: object) -> str:
        """Carry out what the model sent; every failure that is not a defect is a ``ToolError``."""
        try:
            return str(super().call(parse_command(input)))
        except MemfilesError as error:
            raise ToolError(str(error)) from error

    def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """A folder's paths with their sizes, or a text with line numbers."""
        found = self._folder.find(_name(command.path))
        if found is None:
            return self._listing(command.path)
        lines = found.text.split("\n")
        first, last = command.view_range or (1, -1)
        start = max(1, first)
        shown = lines[start - 1 : None if last == -1 else last]
        return f"Here's the content of {command.path} with line numbers:\n{numbered(shown, first=start)}"

    def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """A new entry, or the text of a declared file that is empty."""
        if not self._folder.create(_name(command.path), command.file_text):
            raise ToolError(f"File {command.path} already exists")
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """A text that occurs once is replaced."""
        found, old, shown = self._text(command.path), command.old_str, command.old_str[:_SHOWN]
        lines = lines_with(found.text, old)
        if not lines:
            why = f"old_str `{shown}` did not appear verbatim in {command.path}"
            raise ToolError(f"No replacement was performed, {why}.")
        if len(lines) > 1:
            where = ", ".join(map(str, lines[:_SHOWN]))
            why = f"Multiple occurrences of old_str `{shown}` in lines: {where}. Please ensure it is unique"
            raise ToolError(f"No replacement was performed. {why}")
        found.edit(old, command.new_str)
        first = max(1, lines[0] - 2)
        after = found.text.replace(old, command.new_str, 1).split("\n")[first - 1 : lines[0] + 2]
        said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{said}\n{numbered(after, first=first)}"

    def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Lines are put behind a line."""
        found = self._text(command.path)
        lines = found.text.removesuffix("\n").split("\n") if found.text else []
        if not 0 <= command.insert_line <= len(lines):
            where = f"It should be within the range [0, {len(lines)}]."
            raise ToolError(f"Invalid `insert_line` parameter: {command.insert_line}. {where}")
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        found.put("\n".join(lines).removesuffix("\n") + "\n")
        return f"The file {command.path} has been edited."

    def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """An entry is deleted; a declared file is emptied."""
        if not _name(command.path):
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        if self._text(command.path).remove():
            return f"Successfully deleted {command.path}"
        return f"Successfully deleted the content of {command.path}; the file is declared, so it stays, empty"

    def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """An entry gets another key."""
        old, new = _name(command.old_path), _name(command.new_path)
        if not old:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        if not new or self._folder.find(new) is not None:
            raise ToolError(f"The destination {command.new_path} already exists")
        self._text(command.old_path).move_to(new)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def _text(self, path: str) -> FileText | EntryText:
        found = self._folder.find(_name(path))
        if found is None:
            self._listing(path)  # an error unless it is a folder
            raise ToolError(f"The path {path} is not a file.")
        return found

    def _listing(self, path: str) -> str:
        sizes = self._folder.sizes(_name(path))
        if _name(path) and not sizes:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        said = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
        return f"{said}\n{listing(sizes, path=path)}"


def _name(path: str) -> str:
    """What a path means below the root, "" for the root itself."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path[:_SHOWN]}")
    name = path.removeprefix(ROOT).strip("/")
    if ".." in name.split("/"):
        raise ToolError(f"Path {path[:_SHOWN]} would escape {ROOT} directory")
    return name


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of one session for the asynchronous tool runner; a command runs to its end in a thread."""

    def __init__(self, session: Session, *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(session)

    async def call(self, input: object) -> str:
        """As ``MemoryTool.call``; when it is cancelled, the change was made whole or not at all."""
        return await in_worker(lambda: self._tool.call(input))

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """As ``MemoryTool.execute``."""
        return await in_worker(lambda: self._tool.execute(command))

    view = create = str_replace = insert = delete = rename = execute  # which the two above never come to
