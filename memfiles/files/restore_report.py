"""Declarations and the restore report: the input of a restore, checked, and its result.

The rule this file guards: declared metadata is authoritative, and content survives a redeploy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from memfiles.errors import InvalidArgument, RecordCorrupt, StorageFailed, WorkflowError
from memfiles.records import NamedTuple
from memfiles.records.declared_metadata import Metadata, redeclared, seed
from memfiles.records.file_changes import FileCard, card_of, share_of
from memfiles.records.keys import case_clashes, check_name, check_uid, check_whole
from memfiles.records.record import Change, Record
from memfiles.workflow.fields import MAX_SIZE_BYTES
from memfiles.workflow.workflow import MemoryFile, Workflow

_UTF8_MAX = 4  # bytes a character takes at most
Status = Literal["kept", "updated", "hydrated", "seeded", "provisional", "quarantined"]


class FileReport(NamedTuple):
    """The result of a restore, or of its plan, for one declared file.

    ``status``: kept (unchanged), updated (new metadata), hydrated (from the mirror), seeded (from the declaration),
    provisional (seeded while the mirror did not answer), quarantined (the local record was unreadable and moved to
    quarantine; ``detail`` says why, and where the content came from). A file ``over_cap`` is kept, and may only shrink.
    """

    uid: str
    name: str
    status: Status
    over_cap: bool = False
    detail: str | None = None


class RestoreReport(Struct, frozen=True):
    """The result of a restore, or of its plan: one row per declared file, and the undeclared records."""

    files: tuple[FileReport, ...]
    orphans: tuple[str, ...] = ()

    def __getitem__(self, uid: str) -> FileReport:
        """The row of a declared file; ``KeyError`` for others."""
        for row in self.files:
            if row.uid == uid:
                return row
        raise KeyError(uid)

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"files": [row._asdict() for row in self.files], "orphans": list(self.orphans)}


class FileView(Struct, frozen=True):
    """One declared file with the report and the record that a restore would leave; ``stored`` is the one on disk."""

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
        return share_of(self.record.max_size_bytes, used=self.record.size_bytes)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes on disk, newest first."""
        return self.stored.history[::-1] if self.stored else ()


def cards_of(card: Callable[[str], FileCard], uids: Iterable[str]) -> tuple[list[FileCard], dict[str, str]]:
    """The cards of these files, and the problems of the unreadable ones by uid."""
    cards, problems = [], {}
    for uid in uids:
        try:
            cards.append(card(uid))
        except (RecordCorrupt, StorageFailed) as error:
            problems[uid] = str(error)
    return cards, problems


def file_view(file: MemoryFile, report: FileReport, stored: Record | None, *, lowest_level: str) -> FileView:
    """The file with the ``stored`` record under its declared metadata, or else with its declared content."""
    metadata = metadata_of(file, lowest_level=lowest_level)
    if stored is None:
        return FileView(report, seed(file.uid, metadata, content=file.content, at=""), None)
    return FileView(report, redeclared(stored, metadata, at=stored.updated_at), stored)


def metadata_of(file: MemoryFile, *, lowest_level: str) -> Metadata:
    """The declared metadata of a file; without a declared level it is at the lowest."""
    return Metadata(file.name, file.description, file.max_size_bytes, file.level or lowest_level)


def declared_files(files: Workflow | Iterable[MemoryFile]) -> list[MemoryFile]:
    """The declarations as a list, checked; ``InvalidArgument`` for anything else."""
    given = files.memory.files if isinstance(files, Workflow) else files
    found = list(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(file, MemoryFile) for file in found):
        raise InvalidArgument("pass a workflow, or its memory files")
    for file in found:
        check_whole(file.max_size_bytes, what=f"max_size_bytes of {file.name}", least=0)
    check_declarations(found)
    return found


def check_declarations(files: Sequence[MemoryFile]) -> None:
    """Refuse contradictory declarations and contents that no file may have: ``WorkflowError`` with the reason."""
    uids = [check_uid(file.uid) for file in files]
    names = [check_name(file.name) for file in files]
    for what, values in (("uid", uids), ("name", names)):
        if len(set(values)) < len(values):
            repeated = next(value for value, count in Counter(values).items() if count > 1)
            raise WorkflowError(f"{what} {repeated!r} is declared twice: give every memory file its own")
    for file in files:
        if file.name != file.uid and file.name in uids:
            raise WorkflowError(f"name {file.name!r} is the uid of another file: a call could mean either; change one")
    for one, other in case_clashes(uids):
        raise WorkflowError(f"uids {one!r} and {other!r} differ only by case: some file systems cannot tell them apart")
    for file in files:
        if len(file.content) * _UTF8_MAX > MAX_SIZE_BYTES and (size := len(file.content.encode())) > MAX_SIZE_BYTES:
            raise WorkflowError(
                f"{file.name}: the declared content has {size} bytes, more than a file may have ({MAX_SIZE_BYTES}): "
                f"shorten it"
            )
