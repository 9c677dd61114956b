"""Entries out to files: one Markdown file an entry, or one JSON object a line.

The rule this file guards: what is exported is what the session may see, each entry at its own level, and nothing that
belongs to one run alone.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from memfiles.entries.partitions import Caller, view_of
from memfiles.entries.reader import EntryReader
from memfiles.entries.repository import EntryRepository, entry_at
from memfiles.entries.results import Exported
from memfiles.entries.transfer import json_lines, markdown
from memfiles.entries.transfer.document import Document, written_provenance
from memfiles.entries.transfer.source_files import checked_path
from memfiles.errors import InvalidArgument, StorageFailed
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.records.entry import Entry
from memfiles.records.levels import Levels
from memfiles.storage import atomic

ExportFormat = Literal["markdown", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("markdown", "jsonl")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Exporting:
    """Writes out what a session sees."""

    def __init__(self, shelf: EntryRepository, index: Index, finder: EntryReader, *, levels: Levels) -> None:
        self._shelf = shelf
        self._index = index
        self._finder = finder
        self._levels = levels

    def export(self, caller: Caller, target: str | os.PathLike[str], *, format: str) -> Exported:
        """Write every entry the caller may see to ``target``: a folder for ``markdown``, a file for ``jsonl``.

        Files of the same names are replaced, others are left alone; those of an earlier export whose entries are gone
        are named in the report. ``InvalidArgument``, ``StorageFailed``.
        """
        if format not in EXPORT_FORMATS:
            raise InvalidArgument(f"format {str(format)[:40]!r} is not known: use one of {', '.join(EXPORT_FORMATS)}")
        target = checked_path(target, what="the target")
        documents = [document_of(entry) for entry in self._entries(caller)]
        try:
            if format == "jsonl":
                _write(Path(target), b"".join(json_lines.render(document) for document in documents))
                return Exported(len(documents), target)
            return Exported(len(documents), target, _write_folder(Path(target), documents))
        except OSError as error:
            raise StorageFailed(f"{target} cannot be written: {error.strerror}") from error

    def _entries(self, caller: Caller) -> list[Entry]:
        """What the caller may see, by key and level; also what is shadowed, so that nothing is lost on the way."""
        self._finder.refresh()
        view = [partition for partition in view_of(caller, self._levels) if not partition.run]
        rows = self._index.ask(
            lambda connection: reading.matching(connection, reading.parts(connection, view), reading.RowFilter())
        )
        found = (entry_at(self._shelf, row.path) for row in rows if row.state == "live")
        entries = [entry for entry in found if entry is not None and self._finder.is_there(entry)]
        return sorted(entries, key=lambda entry: (entry.key, self._levels.rank(entry.level), entry.agent))


def document_of(entry: Entry) -> Document:
    """What of an entry goes out; what is as usual is left out."""
    extra: dict[str, Any] = {
        "confidence": entry.confidence if entry.confidence != 1.0 else None,
        "importance": entry.importance if entry.importance != 0.5 else None,
        "pinned": entry.pinned or None,
        "expires_at": entry.expires_at,
        "links": entry.links or None,
        "successes": entry.successes or None,
        "failures": entry.failures or None,
        "made_of": entry.made_of or None,
        "provenance": written_provenance(entry.provenance) or None,
    }
    return Document(
        key=entry.key,
        content=entry.content,
        category=entry.category,
        kind=entry.kind,
        tags=entry.tags,
        level=entry.level,
        created=entry.created_at,
        updated=entry.updated_at,
        extra={name: value for name, value in extra.items() if value is not None},
    )


def _write_folder(folder: Path, documents: Iterable[Document]) -> tuple[str, ...]:
    """Write a file a document; the names of files that an earlier export wrote and this one did not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = {markdown.file_name(document): document for document in documents}
    for name, document in written.items():
        _write(folder / name, markdown.render(document))
    return tuple(sorted(path.name for path in folder.glob("*.md") if path.name not in written and _is_ours(path)))


def _is_ours(path: Path) -> bool:
    """Whether an export wrote the file: it has the name that follows from what it says."""
    if path.is_symlink() or not path.is_file():
        return False
    parsed = markdown.parse(path.read_bytes(), where=path.name)
    return any(markdown.file_name(document) == path.name for document in parsed.documents)


def _write(path: Path, data: bytes) -> None:
    """Have a file with this content, or the earlier one as it was; through no link, and over nothing but a file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(errno.EEXIST, f"{path.name} is there and is no file")
    folder = atomic.open_directory(path.parent)
    try:
        temp = f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            with os.fdopen(os.open(temp, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
            atomic.move(folder, temp, to=path.name)
        except BaseException:
            atomic.remove(folder, temp)
            raise
    finally:
        os.close(folder)
