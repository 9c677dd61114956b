"""What the manager tells about a memory file: the receipt of a write and the card of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from memfiles.records.record import Change, Record

WARN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one accepted write. Sizes are UTF-8 bytes; ``share`` is size / cap, 1.0 at the cap.

    ``matches`` and ``line`` (1-based) are an edit's: how often the text occurred, and where the one replaced
    stood. ``undone_revision`` is an undo's: the change taken back. ``replayed`` says that nothing was written,
    because this very call had been accepted before.
    """

    uid: str
    name: str
    revision: int
    size_bytes: int
    max_size_bytes: int
    bytes_left: int
    share: float
    warning: str | None = None
    replayed: bool = False
    matches: int | None = None
    line: int | None = None
    undone_revision: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; what does not apply is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}


@dataclass(frozen=True, slots=True)
class FileCard:
    """What may be said of a memory file without showing its content."""

    uid: str
    name: str
    description: str
    level: str
    max_size_bytes: int
    size_bytes: int
    revision: int
    provisional: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def card_of(record: Record) -> FileCard:
    """The card of a record."""
    return FileCard(
        uid=record.uid,
        name=record.name,
        description=record.description,
        level=record.level,
        max_size_bytes=record.max_size_bytes,
        size_bytes=record.size_bytes,
        revision=record.revision,
        provisional=record.provisional,
    )


def receipt_of(record: Record) -> Receipt:
    """The receipt of a write that left the file as ``record``."""
    return _receipt(record, revision=record.revision, size=record.size_bytes)


def receipt_of_change(record: Record, change: Change, *, size: int) -> Receipt:
    """The receipt of a write that was recorded as ``change`` and left the file with ``size`` bytes."""
    receipt = _receipt(record, revision=change.revision, size=size)
    return replace(receipt, matches=change.matches, line=change.line, undone_revision=change.undone)


def with_warnings(receipt: Receipt, warnings: Sequence[str]) -> Receipt:
    """The receipt that also says what the secrets gate let through or took out."""
    if not warnings:
        return receipt
    told = [receipt.warning, *warnings] if receipt.warning else list(warnings)
    return replace(receipt, warning="; ".join(told))


def _receipt(record: Record, *, revision: int, size: int) -> Receipt:
    cap = record.max_size_bytes
    return Receipt(
        uid=record.uid,
        name=record.name,
        revision=revision,
        size_bytes=size,
        max_size_bytes=cap,
        bytes_left=max(0, cap - size),
        share=round(size / cap, 4),
        warning=_warning(size, cap) if size >= WARN_SHARE * cap else None,
    )


def _warning(size: int, cap: int) -> str:
    left = f"{cap - size} bytes are left" if size <= cap else f"{size - cap} bytes over it"
    return f"{size * 100 // cap} % of the cap is used ({size} of {cap} bytes, {left}): shorten the file soon"
