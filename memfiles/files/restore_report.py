"""What a restore does to one declared file, decided without touching anything, and the report of it.

The rule this file guards: per file, local record over mirror copy over declared content; declared
metadata is authoritative and content survives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.records.declared_metadata import Metadata, redeclared, seed
from memfiles.records.file_changes import FileCard, card_of
from memfiles.records.keys import case_clashes, check_name, check_uid, check_whole
from memfiles.records.record import Change, Record

_UTF8_MAX = 4  # bytes a character takes at most

Status = Literal["kept", "updated", "hydrated", "seeded", "provisional", "quarantined"]


@runtime_checkable
class DeclaredFile(Protocol):
    """What a restore needs of a declaration; ``workflow.MemoryFile`` is one."""

    @property
    def uid(self) -> str:
        """What the record is stored under."""
        ...

    @property
    def name(self) -> str:
        """What the model calls the file."""
        ...

    @property
    def description(self) -> str:
        """What the file is for."""
        ...

    @property
    def max_size_bytes(self) -> int:
        """The cap, in UTF-8 bytes."""
        ...

    @property
    def level(self) -> str | None:
        """The classification; None for the lowest."""
        ...

    @property
    def content(self) -> str:
        """The content a new file starts with."""
        ...


class FileReport(NamedTuple):
    """What a restore did, or would do, with one declared file.

    ``status``: kept (as it was), updated (new metadata), hydrated (from the mirror), seeded (from the
    declaration), provisional (seeded while the mirror did not answer), quarantined (the local record could
    not be read and was set aside; ``detail`` says why and where the content came from).
    """

    uid: str
    name: str
    status: Status
    over_cap: bool = False
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did, or would do: one row a declared file, and the records nobody declared."""

    files: tuple[FileReport, ...]
    orphans: tuple[str, ...] = ()

    def __getitem__(self, uid: str) -> FileReport:
        """The row of one declared file; ``KeyError`` if it is not declared."""
        for row in self.files:
            if row.uid == uid:
                return row
        raise KeyError(uid)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of the whole report."""
        return {"files": [row._asdict() for row in self.files], "orphans": list(self.orphans)}


@dataclass(frozen=True)
class FileView:
    """One declared file: what a restore would report of it, and the record it would leave.

    ``stored`` is the record on disk, None if there is none that can be read.
    """

    report: FileReport
    record: Record
    stored: Record | None

    @property
    def card(self) -> FileCard:
        """The card of the record."""
        return card_of(self.record)

    @property
    def share(self) -> float:
        """Size over cap, 1.0 at the cap."""
        return self.record.size_bytes / self.record.max_size_bytes

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes on disk, oldest first."""
        return self.stored.history if self.stored else ()


def view_of(file: DeclaredFile, report: FileReport, stored: Record | None, *, lowest_level: str) -> FileView:
    """The file with the ``stored`` record under its declared metadata, or else with its declared content."""
    metadata = metadata_of(file, lowest_level=lowest_level)
    if stored is None:
        return FileView(report, seed(file.uid, metadata, content=file.content, at=""), None)
    return FileView(report, redeclared(stored, metadata, at=stored.updated_at), stored)


def metadata_of(file: DeclaredFile, *, lowest_level: str) -> Metadata:
    """The declared metadata of a file; without a level it is at the lowest, which everyone may read."""
    return Metadata(file.name, file.description, file.max_size_bytes, file.level or lowest_level)


def declared_files(files: Iterable[DeclaredFile]) -> list[DeclaredFile]:
    """A list of declarations; ``InvalidArgument`` for anything else."""
    found = list(files) if isinstance(files, Iterable) else None
    if found is None or not all(isinstance(file, DeclaredFile) for file in found):
        raise InvalidArgument("pass a workflow or the memory files to restore, each with what a MemoryFile has")
    for file in found:
        check_whole(file.max_size_bytes, what=f"max_size_bytes of {file.name}", least=1)
    return found


def check_declarations(files: Sequence[DeclaredFile]) -> None:
    """Refuse declarations that cannot be live together: ``WorkflowError`` says which and why."""
    uids = [check_uid(file.uid) for file in files]
    names = [check_name(file.name) for file in files]
    for what, values in (("uid", uids), ("name", names)):
        if len(set(values)) < len(values):
            repeated = next(value for value, count in Counter(values).items() if count > 1)
            raise WorkflowError(f"{what} {repeated!r} is declared twice: give every memory file its own")
    for one, other in case_clashes(uids):
        raise WorkflowError(f"uids {one!r} and {other!r} differ only by case: some file systems cannot tell them apart")
    for file in files:
        if len(file.content) * _UTF8_MAX > file.max_size_bytes:
            _check_seed(file)


def _check_seed(file: DeclaredFile) -> None:
    size = len(file.content.encode())
    if size > file.max_size_bytes:
        raise WorkflowError(
            f"{file.name}: the declared content has {size} bytes, over its cap of {file.max_size_bytes}: "
            f"raise max_size_bytes or shorten the content"
        )
