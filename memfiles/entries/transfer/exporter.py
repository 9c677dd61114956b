"""Export of entries to files: one Markdown file per entry, or one JSON object per line.

The rule this file guards: an export holds the entries that the session may see, each at its own level, and none that
belongs to one run alone.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from memfiles.entries.callers import Caller, view_of
from memfiles.entries.reader import EntryDatabase, EntryReader
from memfiles.entries.transfer import formats
from memfiles.entries.transfer.document import EXTRAS, Document, written_provenance
from memfiles.entries.transfer.sources import checked_path
from memfiles.errors import InvalidArgument, StorageFailed
from memfiles.records.entry import Entry
from memfiles.storage import atomic

ExportFormat = Literal["markdown", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("markdown", "jsonl")
_DEFAULTS = {each.name: each.default for each in fields(Entry)}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export; ``stale`` are files of an earlier one whose entries are gone."""

    count: int
    target: str
    stale: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"exported": self.count, "target": self.target, "stale": list(self.stale)}


class Exporter:
    """Writes the entries that a session sees to files."""

    def __init__(self, db: EntryDatabase, reader: EntryReader) -> None:
        self._db = db
        self._reader = reader

    def export(self, caller: Caller, target: str | os.PathLike[str], *, format: str) -> Exported:
        """Write every entry the caller may see to ``target``: a folder for ``markdown``, a file for ``jsonl``.

        Files of the same names are replaced, others are left alone; the report names the files of an earlier export
        whose entries are gone. ``InvalidArgument``, ``StorageFailed``.
        """
        if format not in EXPORT_FORMATS:
            raise InvalidArgument(f"format {str(format)[:40]!r} is unknown: use one of {', '.join(EXPORT_FORMATS)}")
        target = checked_path(target, what="the target")
        documents = [document_of(entry) for entry in self._entries(caller)]
        try:
            if format == "jsonl":
                _write(Path(target), b"".join(formats.render_line(document) for document in documents))
                return Exported(len(documents), target)
            return Exported(len(documents), target, _write_folder(Path(target), documents))
        except OSError as error:
            raise StorageFailed(f"{target} cannot be written: {error.strerror}") from error

    def _entries(self, caller: Caller) -> list[Entry]:
        """The entries that the caller may see, by key and level; shadowed ones too, so that nothing is lost."""
        self._reader.refresh()
        view = [partition for partition in view_of(caller, self._db.rules.levels) if not partition.run]
        found = self._db.entries(row.path for row in self._db.rows(view) if row.state == "live")
        entries = [entry for entry in found if self._reader.is_live(entry)]
        return sorted(entries, key=lambda entry: (entry.key, self._db.rules.levels.rank(entry.level), entry.agent))


def document_of(entry: Entry) -> Document:
    """The document of an entry; fields with default values are left out."""
    values = ((name, getattr(entry, name)) for name in EXTRAS if name != "provenance")
    extra = {name: value for name, value in values if value != _DEFAULTS[name]}
    if provenance := written_provenance(entry.provenance):
        extra["provenance"] = provenance
    same = {name: getattr(entry, name) for name in ("key", "content", "category", "kind", "tags", "level")}
    return Document(**same, created=entry.created_at, updated=entry.updated_at, extra=extra)


def _write_folder(folder: Path, documents: Iterable[Document]) -> tuple[str, ...]:
    """Write one file per document; returns the names of files that an earlier export wrote and this one did not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = {formats.file_name(document): document for document in documents}
    for name, document in written.items():
        _write(folder / name, formats.render_markdown(document))
    return tuple(sorted(path.name for path in folder.glob("*.md") if path.name not in written and _is_ours(path)))


def _is_ours(path: Path) -> bool:
    """Whether an export wrote the file: its name follows from its key."""
    if path.is_symlink() or not path.is_file():
        return False
    parsed = formats.parse_markdown(path.read_bytes(), where=path.name)
    return any(formats.file_name(document) == path.name for document in parsed.documents)


def _write(path: Path, data: bytes) -> None:
    """Replace the file by one with this content, or leave it as it was; never through a link or over a folder."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(errno.EEXIST, f"{path.name} is there and is not a file")
    folder = atomic.Descriptor.of_directory(path.parent)
    temp = f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with os.fdopen(os.open(temp, _NEW, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        atomic.move(folder, temp, to=path.name)
    except BaseException:
        atomic.remove(folder, temp)
        raise
