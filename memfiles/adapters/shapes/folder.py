"""A session's memory as a folder of texts, for tools that know nothing but files.

The rule this file guards: a path is a name and never touches the disk. A declared memory file stands under its name,
and every other name is the key of an entry, where the workflow declares entries. A change is refused if somebody else
changed the text after it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memfiles.adapters.shapes.paths import is_hidden
from memfiles.errors import FileNotDeclared, LevelDenied, MemfilesError, ReadOnly, RevisionConflict
from memfiles.tools.arguments import shortened
from memfiles.tools.visibility import VisibleFile, check_writable

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entries.results import Found
    from memfiles.tools.session import Session

TOOL = "memory"
PAGE = 100


class FileText:
    """The text of a declared memory file, as it was when it was found."""

    def __init__(self, session: Session, file: VisibleFile) -> None:
        self._session = session
        self._file = file
        record = session.manager.snapshot(file.card.uid)
        self.text, self._revision = record.content, record.revision

    def put(self, text: str) -> None:
        """Make ``text`` the whole text; what only adds to the end is recorded as an append."""
        manager, by = self._session.manager, self._session.actor(None)
        adds = text != self.text and text.startswith(self.text)
        change = manager.append if adds else manager.replace
        new = text.removeprefix(self.text) if adds else text
        self._write(lambda: change(self._file.card.uid, new, expected_revision=self._revision, by=by))

    def edit(self, old: str, new: str) -> None:
        """Replace the first ``old``."""
        manager, by = self._session.manager, self._session.actor(None)
        self._write(lambda: manager.edit(self._file.card.uid, old, new, expected_revision=self._revision, by=by))

    def remove(self) -> bool:
        """Empty the file, which stays: it is declared. False, as it is not gone."""
        self.put("")
        return False

    def move_to(self, name: str) -> None:
        """Refused, whatever the name."""
        raise ReadOnly(f"{self._file.card.name} cannot be renamed: its name is declared in the workflow")

    def _write(self, change: Callable[[], object]) -> None:
        try:
            check_writable(self._file)
            change()
        except MemfilesError as error:
            self._session.refused(TOOL, error)
            raise


class EntryText:
    """The text of an entry, as it was when it was found."""

    def __init__(self, session: Session, entries: Entries, found: Found) -> None:
        self._session = session
        self._entries = entries
        self._found = found
        self.text = found.content

    def put(self, text: str) -> None:
        """Make ``text`` the whole text; what else is said of the entry stays."""
        check_level(self._session, self._found)
        self._entries.update(self._session, self._found.key, content=text, expected_revision=self._found.revision)

    def edit(self, old: str, new: str) -> None:
        """Replace the first ``old``."""
        self.put(self.text.replace(old, new, 1))

    def remove(self) -> bool:
        """Delete the entry; a person can restore it. True, as it is gone."""
        check_level(self._session, self._found)
        self._entries.delete(self._session, self._found.key)
        return True

    def move_to(self, name: str) -> None:
        """Give it another key, with all that is said of it."""
        check_level(self._session, self._found)
        self._entries.relocate(self._session, {self._found.key: name})


@dataclass(frozen=True, slots=True)
class Lying:
    """A text as it lies in the folder; times are UTC, sizes UTF-8 bytes."""

    text: str
    size_bytes: int
    created_at: str
    updated_at: str


class MemoryFolder:
    """What a session may see, by name, asked anew for every call. It keeps nothing between calls."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, name: str) -> FileText | EntryText | None:
        """The text of that name; None if there is none, hidden or not, and for "", the folder itself."""
        file = next((file for file in self._files() if file.card.name == name), None)
        if file is not None:
            return FileText(self._session, file)
        entries = self._entries
        found = entries.get(self._session, name) if entries is not None and name else None
        return EntryText(self._session, entries, found) if entries is not None and found is not None else None

    def create(self, name: str, text: str) -> bool:
        """Write a new text, or one into a declared file that is empty. False, and nothing done, if there is one."""
        standing = self.find(name)
        if isinstance(standing, FileText) and not standing.text:
            standing.put(text)
            return True
        return standing is None and self._save(name, text)

    def put(self, name: str, text: str) -> None:
        """Make ``text`` the whole text of that name, of a new entry if there is none."""
        standing = self.find(name)
        if standing is not None:
            standing.put(text)
        elif not self.create(name, text):  # somebody else made one meanwhile
            self.put(name, text)

    def is_folder(self, name: str) -> bool:
        """Whether something lies below that name, hidden items too. The root is always a folder."""
        return not name or next(self._listed(f"{name}/"), None) is not None

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of what lies in ``folder`` ("" for all), by path below it; two levels deep, folders end in "/".

        What has a part that begins with a dot is left out, and does not count.
        """
        prefix = f"{folder}/" if folder else ""
        sizes: Counter[str] = Counter()
        for name, lying in self.texts(prefix).items():
            if is_hidden(name.removeprefix(prefix)):
                continue
            parts = name.removeprefix(prefix).split("/")
            for depth in range(1, min(len(parts), 2) + 1):
                sizes["/".join(parts[:depth]) + ("/" if depth < len(parts) else "")] += lying.size_bytes
        return dict(sorted(sizes.items()))

    def texts(self, prefix: str = "") -> dict[str, Lying]:
        """All texts whose names begin with ``prefix``, by name."""
        return dict(sorted(dict(self._named(prefix)).items()))

    def delete(self, name: str) -> int:
        """Delete the entry of that name and all below it as a folder, in one commit; how many that were.

        If any of it may not be deleted, nothing is: a declared memory file stays, and so does what is at another level.
        """
        below = f"{name}/" if name else ""
        declared = [file.card.name for file in self._files() if file.card.name == name or not name]
        if declared:
            error = ReadOnly(f"{declared[0]} is declared in the workflow and stays; to empty it, write an empty text")
            self._session.refused(TOOL, error)
            raise error
        return self._remove(each for each in self._listed(name) if each.key == name or each.key.startswith(below))

    def remove_folder(self, folder: str) -> int:
        """As ``delete``, but what has the name of the folder itself stays.

        Only entries can lie below: no name of a declared file holds a slash.
        """
        return self._remove(self._listed(f"{folder}/"))

    def move_folder(self, folder: str, name: str) -> None:
        """Give all that lies below ``folder`` keys below ``name``, in one commit; refused as a whole as well."""
        below = self._changeable(self._listed(f"{folder}/"))
        if (entries := self._entries) is not None:
            entries.relocate(self._session, {key: name + key.removeprefix(folder) for key in below})

    def _remove(self, found: Iterable[Found]) -> int:
        keys = self._changeable(found)
        entries = self._entries
        return len(entries.delete_many(self._session, keys)) if entries is not None and keys else 0

    def _changeable(self, found: Iterable[Found]) -> list[str]:
        """The keys of these entries; ``LevelDenied`` if one of them may not be changed."""
        keys = []
        for each in found:
            check_level(self._session, each)
            keys.append(each.key)
        return keys

    def _save(self, name: str, text: str) -> bool:
        entries = self._entries
        if entries is None:
            names = ", ".join(file.card.name for file in self._files()) or "none"
            raise FileNotDeclared(f"there is no memory file {shortened(name)}, and none can be made: there are {names}")
        try:
            entries.save(self._session, name, text, expected_revision=0)
        except RevisionConflict:  # one that was deleted may come back; one that somebody made meanwhile stays
            if entries.get(self._session, name) is not None:
                return False
            entries.save(self._session, name, text)
        return True

    def _named(self, prefix: str) -> Iterator[tuple[str, Lying]]:
        """Names and texts; of two with one name, the last counts."""
        for found in self._listed(prefix):
            yield found.key, Lying(found.content, found.size_bytes, found.created_at, found.updated_at)
        for file in self._files():
            if file.card.name.startswith(prefix):
                record = self._session.manager.snapshot(file.card.uid)
                yield file.card.name, Lying(record.content, record.size_bytes, record.created_at, record.updated_at)

    def _listed(self, prefix: str) -> Iterator[Found]:
        entries, cursor = self._entries, None
        while entries is not None:
            page = entries.list(self._session, prefix=prefix, limit=PAGE, cursor=cursor)
            yield from page.memories
            cursor = page.next
            if cursor is None:
                break

    @property
    def _entries(self) -> Entries | None:
        self._session.check_open()
        return self._session.entries

    def _files(self) -> list[VisibleFile]:
        self._session.check_open()
        return self._session.files()


def check_level(session: Session, found: Found) -> None:
    """Return if the session may change an entry that it sees, else raise ``LevelDenied``."""
    if found.level != session.level:
        error = LevelDenied(
            f"{shortened(found.key)} is at level {found.level} and this session is at {session.level}: a "
            f"session changes only what is at its own level"
        )
        session.refused(TOOL, error)
        raise error
