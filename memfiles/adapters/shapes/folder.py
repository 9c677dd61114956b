"""Folder view of a session's memory, for tools that only know files.

The rule this module enforces: a path is a name and never reaches the disk. A declared memory file has its own name;
every other name is the key of an entry, if the workflow declares entries. A change is refused if somebody else changed
the text after it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from memfiles.errors import FileNotDeclared, LevelDenied, MemfilesError, ReadOnly, RevisionConflict
from memfiles.tools.arguments import shortened
from memfiles.tools.visibility import VisibleFile, check_writable

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entries.results import Found
    from memfiles.records.record import Record
    from memfiles.tools.session import Session

    ListedText = Found | Record
    """A text with its ``content``, ``size_bytes`` (UTF-8), ``created_at`` and ``updated_at`` (UTC)."""

TOOL = "memory"
PAGE = 100


class FileText:
    """The text of a declared memory file, as it was when it was found."""

    def __init__(self, session: Session, file: VisibleFile) -> None:
        self._session = session
        self._file = file
        (record,) = session.snapshots([file.card.uid])
        self.content, self._revision = record.content, record.revision

    def put(self, text: str) -> None:
        """Replace the whole text; an addition at the end is recorded as an append."""
        if text != self.content and text.startswith(self.content):
            self._write(self._session.manager.append, text.removeprefix(self.content))
        else:
            self._write(self._session.manager.replace, text)

    def edit(self, old: str, new: str) -> None:
        """Replace the first ``old``."""
        self._write(self._session.manager.edit, old, new)

    def remove(self) -> bool:
        """Empty the file and return False: a declared file itself is never deleted."""
        self.put("")
        return False

    def move_to(self, name: str) -> None:
        """Refuse: a declared file keeps its name."""
        raise ReadOnly(f"{self._file.card.name} cannot be renamed: its name is declared in the workflow")

    def _write(self, change: Callable[..., object], *texts: str) -> None:
        by = self._session.actor(None)
        try:
            check_writable(self._file)
            uid = self._file.card.uid
            change(uid, *texts, expected_revision=self._revision, by=by, user=self._session.owner_of(uid))
        except MemfilesError as error:
            self._session.refused(TOOL, error)
            raise


class EntryText:
    """The text of an entry, as it was when it was found."""

    def __init__(self, session: Session, entries: Entries, found: Found) -> None:
        self._session = session
        self._entries = entries
        self._found = found
        self.content = found.content

    def put(self, text: str) -> None:
        """Replace the whole text; the entry's other fields stay."""
        check_level(self._session, self._found)
        self._entries.update(self._session, self._found.key, content=text, expected_revision=self._found.revision)

    def edit(self, old: str, new: str) -> None:
        """Replace the first ``old``."""
        self.put(self.content.replace(old, new, 1))

    def remove(self) -> bool:
        """Delete the entry, which a person can restore, and return True."""
        check_level(self._session, self._found)
        self._entries.delete(self._session, self._found.key)
        return True

    def move_to(self, name: str) -> None:
        """Change the key; the entry's other fields stay."""
        check_level(self._session, self._found)
        self._entries.relocate(self._session, {self._found.key: name})


class MemoryFolder:
    """The texts that a session may see, by name. It keeps nothing between calls."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._entries = session.entries

    def find(self, name: str) -> FileText | EntryText | None:
        """Find the text of a name; None if it is missing or hidden, and for "", which is the folder itself."""
        file = next((file for file in self._files() if file.card.name == name), None)
        if file is not None:
            return FileText(self._session, file)
        if self._entries is None or not name or (found := self._entries.get(self._session, name)) is None:
            return None
        return EntryText(self._session, self._entries, found)

    def create(self, name: str, text: str) -> bool:
        """Write a new text, or fill an empty declared file; False, and no change, if the name is taken."""
        existing = self.find(name)
        if isinstance(existing, FileText) and not existing.content:
            existing.put(text)
            return True
        return existing is None and self._save(name, text)

    def put(self, name: str, text: str) -> None:
        """Write the whole text of a name, as a new entry if there is none."""
        existing = self.find(name)
        if existing is not None:
            existing.put(text)
        elif not self.create(name, text):  # somebody else made one meanwhile
            self.put(name, text)

    def is_folder(self, name: str) -> bool:
        """Whether there are texts below a name, hidden items included. The root is always a folder."""
        return not name or next(self._listed(f"{name}/"), None) is not None

    def texts(self, prefix: str = "") -> dict[str, ListedText]:
        """All texts whose names begin with ``prefix``, by name; a declared file hides an entry of its name."""
        found: dict[str, ListedText] = {each.key: each for each in self._listed(prefix)}
        files = [file.card for file in self._files() if file.card.name.startswith(prefix)]
        records = self._session.snapshots([card.uid for card in files]) if files else []
        found |= {card.name: record for card, record in zip(files, records, strict=True)}
        return dict(sorted(found.items()))

    def children(self, folder: str) -> dict[str, ListedText | None]:
        """The texts and folders directly in a folder, by name; a folder ends in "/" and has the value None."""
        prefix = f"{folder}/".lstrip("/")
        found: dict[str, ListedText | None] = {}
        for name, text in self.texts(prefix).items():
            first, slash, _ = name.removeprefix(prefix).partition("/")
            found[prefix + first + slash] = None if slash else text
        return found

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of the items in ``folder`` ("" for all), two levels deep, by relative path; folders end in "/".

        Items with a part that begins with a dot are neither listed nor counted.
        """
        prefix = f"{folder}/" if folder else ""
        sizes: Counter[str] = Counter()
        for name, listed in self.texts(prefix).items():
            parts = name.removeprefix(prefix).split("/")
            if any(part.startswith(".") for part in parts):
                continue
            for depth in range(1, min(len(parts), 2) + 1):
                sizes["/".join(parts[:depth]) + ("/" if depth < len(parts) else "")] += listed.size_bytes
        return dict(sorted(sizes.items()))

    def delete(self, name: str) -> int:
        """Delete the entry of a name and all entries below it, in one commit; return their number.

        If one of them must not be deleted, nothing is: a declared memory file, or an entry of another level.
        """
        below = f"{name}/" if name else ""
        declared = [file.card.name for file in self._files() if file.card.name == name or not name]
        if declared:
            error = ReadOnly(f"{declared[0]} is declared in the workflow and stays; to empty it, write an empty text")
            self._session.refused(TOOL, error)
            raise error
        return self._remove(each for each in self._listed(name) if each.key == name or each.key.startswith(below))

    def remove_folder(self, folder: str) -> int:
        """Delete all entries below ``folder``, as ``delete`` does, but not the text of that name itself.

        Only entries can be below: the name of a declared file contains no slash.
        """
        return self._remove(self._listed(f"{folder}/"))

    def move_folder(self, folder: str, name: str) -> None:
        """Move all entries below ``folder`` to ``name``, in one commit, or none of them."""
        below = [check_level(self._session, each) for each in self._listed(f"{folder}/")]
        if self._entries is not None:
            self._entries.relocate(self._session, {key: name + key.removeprefix(folder) for key in below})

    def _remove(self, found: Iterable[Found]) -> int:
        keys = [check_level(self._session, each) for each in found]
        return len(self._entries.delete_many(self._session, keys)) if self._entries is not None and keys else 0

    def _save(self, name: str, text: str) -> bool:
        if self._entries is None:
            names = ", ".join(file.card.name for file in self._files()) or "none"
            raise FileNotDeclared(
                f"there is no memory file {shortened(name)}, and none can be created; the files are: {names}"
            )
        try:
            self._entries.save(self._session, name, text, expected_revision=0)
        except RevisionConflict:  # a deleted one may come back; one that somebody made meanwhile stays
            if self._entries.get(self._session, name) is not None:
                return False
            self._entries.save(self._session, name, text)
        return True

    def _listed(self, prefix: str) -> Iterator[Found]:
        return iter(()) if self._entries is None else list_entries(self._session, self._entries, prefix)

    def _files(self) -> list[VisibleFile]:
        self._session.check_open()
        return self._session.files()


def list_entries(session: Session, entries: Entries, prefix: str) -> Iterator[Found]:
    """List all entries that the session sees whose keys begin with ``prefix``, by key, reading page by page."""
    cursor: str | None = ""
    while cursor is not None:
        page = entries.list(session, prefix=prefix, limit=PAGE, cursor=cursor or None)
        yield from page.memories
        cursor = page.next


def check_level(session: Session, found: Found, *, shown: str | None = None, tool: str = TOOL) -> str:
    """Return the key of an entry if the session may change it, else raise ``LevelDenied``."""
    if found.level != session.level:
        error = LevelDenied(
            f"{shown or shortened(found.key)} is at level {found.level} and this session is at {session.level}: a "
            f"session changes only entries at its own level"
        )
        session.refused(tool, error)
        raise error
    return found.key
