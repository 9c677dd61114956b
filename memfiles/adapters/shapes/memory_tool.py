"""What Anthropic's memory tool answers to its commands, over a session's memory as a folder.

The words of results and errors are those of the tool in the vendor's client, which its models know. What the
declaration forbids is an error that says why. Deleting a declared file empties it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from memfiles.adapters.shapes.folder import EntryText, FileText, MemoryFolder
from memfiles.adapters.shapes.listing import lines_with, listing, numbered
from memfiles.adapters.shapes.paths import ROOT, folders_of, name_of, names_of
from memfiles.errors import InvalidArgument

if TYPE_CHECKING:
    from memfiles.tools.session import Session

MAX_LINES = 999_999
_SHOWN = 200


class MemoryAnswers:
    """The six commands for one session. It keeps nothing between calls; threads may share it.

    Every refusal is a ``MemfilesError`` whose message is for the model, and then nothing was changed.
    """

    def __init__(self, session: Session) -> None:
        self._folder = MemoryFolder(session)

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """A folder's paths with their sizes, or a text with line numbers."""
        found = self._find(path)
        if found is None:
            return self._listing(path)
        lines = found.text.split("\n")
        if len(lines) > MAX_LINES:
            raise InvalidArgument(f"File {path} exceeds maximum line limit of {MAX_LINES:,} lines.")
        first, last = view_range or (1, -1)
        start = max(1, first)
        shown = lines[start - 1 : None if last == -1 else last]
        return f"Here's the content of {path} with line numbers:\n{numbered(shown, first=start)}"

    def create(self, path: str, file_text: str) -> str:
        """A new entry, or the text of a declared file that is empty."""
        name = name_of(path)
        if self._folder.is_folder(name):
            raise _exists(path)
        self._check_parents(name)
        if not self._folder.create(name, file_text):
            raise _exists(path)
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old: str, new: str) -> str:
        """A text that occurs once is replaced."""
        found, shown = self._text(path), old[:_SHOWN]
        count = found.text.count(old)
        if count == 0:
            why = f"old_str `{shown}` did not appear verbatim in {path}"
            raise InvalidArgument(f"No replacement was performed, {why}.")
        if count > 1:
            where = ", ".join(map(str, islice(lines_with(found.text, old), _SHOWN)))
            why = f"Multiple occurrences of old_str `{shown}` in lines: {where}. Please ensure it is unique"
            raise InvalidArgument(f"No replacement was performed. {why}")
        changed = next(lines_with(found.text, old))
        found.edit(old, new)
        first = max(1, changed - 2)
        after = found.text.replace(old, new, 1).split("\n")[first - 1 : changed + 2]
        said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{said}\n{numbered(after, first=first)}"

    def insert(self, path: str, line: int, text: str) -> str:
        """Lines are put behind a line."""
        found = self._text(path)
        lines = found.text.removesuffix("\n").split("\n") if found.text else []
        if not 0 <= line <= len(lines):
            where = f"It should be within the range [0, {len(lines)}]."
            raise InvalidArgument(f"Invalid `insert_line` parameter: {line}. {where}")
        lines.insert(line, text.rstrip("\n"))
        found.put("\n".join(lines).removesuffix("\n") + "\n")
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        """An entry is deleted, or all entries of a folder in one commit; a declared file is emptied."""
        if not name_of(path):
            raise InvalidArgument(f"Cannot delete the {ROOT} directory itself")
        found = self._find(path)
        if found is None and not self._is_folder(path):
            raise _missing(path)
        if found is None:
            self._folder.remove_folder(name_of(path))
        elif not found.remove():
            return f"Successfully deleted the content of {path}; the file is declared, so it stays, empty"
        return f"Successfully deleted {path}"

    def move(self, old_path: str, new_path: str) -> str:
        """An entry gets another key, or all entries of a folder do in one commit."""
        old, new = name_of(old_path), name_of(new_path)
        if not old:
            raise InvalidArgument(f"Cannot rename the {ROOT} directory itself")
        if self._folder.is_folder(new) or self._folder.find(new) is not None:
            raise InvalidArgument(f"The destination {new_path} already exists")
        found = self._find(old_path)
        if found is None and not self._is_folder(old_path):
            raise _missing(old_path)
        self._check_parents(new)
        if found is not None:
            found.move_to(new)
        elif new.startswith(f"{old}/"):
            raise InvalidArgument(f"Cannot rename {old_path} to {new_path}, which lies within it")
        else:
            self._folder.move_folder(old, new)
        return f"Successfully renamed {old_path} to {new_path}"

    def _find(self, path: str) -> FileText | EntryText | None:
        """The text at a path; behind a slash at its end, a folder goes before a text of the same name."""
        for name in names_of(path):
            if (found := self._folder.find(name)) is not None:
                return found
            if path.endswith("/") and self._is_folder(path):
                return None
        return None

    def _is_folder(self, path: str) -> bool:
        return self._folder.is_folder(name_of(path))

    def _text(self, path: str) -> FileText | EntryText:
        found = self._find(path)
        if found is None:
            self._listing(path)  # an error unless it is a folder
            raise InvalidArgument(f"The path {path} is not a file.")
        return found

    def _check_parents(self, name: str) -> None:
        for folder in folders_of(name):
            if self._folder.find(folder) is not None:
                raise InvalidArgument(f"The path {ROOT}/{folder} is a file, so nothing can lie in it: use another path")

    def _listing(self, path: str) -> str:
        name = name_of(path)
        if not self._folder.is_folder(name):
            raise _missing(path, "Please provide a valid path.")
        said = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
        return f"{said}\n{listing(self._folder.sizes(name), path=path)}"


def _exists(path: str) -> InvalidArgument:
    return InvalidArgument(f"File {path} already exists")


def _missing(path: str, *advice: str) -> InvalidArgument:
    return InvalidArgument(" ".join([f"The path {path} does not exist{'.' if advice else ''}", *advice]))
