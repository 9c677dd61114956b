"""What a tool call comes back with, whatever happened, and the words for it.

The rule this file guards: a text says what happened, in numbers, and what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memfiles.errors import MemfilesError
from memfiles.records.receipt import Receipt

UNKNOWN_TOOL = "unknown_tool"
SESSION_CLOSED = "session_closed"
INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of one tool call.

    ``text`` is for the model. ``is_error`` says that it was not done as asked; then ``code`` is a stable word for
    programs: the ``code`` of a memfiles error, or ``unknown_tool``, ``session_closed`` or ``internal``. ``data`` is the
    JSON object behind the text: the receipt of a write, or what a read is about.
    """

    text: str
    is_error: bool = False
    code: str | None = None
    data: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {"text": self.text, "is_error": self.is_error, "code": self.code, "data": self.data}


def appended(receipt: Receipt) -> ToolResult:
    """The result of an append."""
    return _written(f"Added to the end of {receipt.name}.", receipt)


def edited(receipt: Receipt) -> ToolResult:
    """The result of an edit: which match was replaced, and whether others were left alone."""
    matches, line = receipt.matches or 1, receipt.line
    if matches == 1:
        return _written(f"Replaced the text at line {line} of {receipt.name}.", receipt)
    return _written(
        f"Replaced the first of {matches} matches in {receipt.name}, the one at line {line}; the rest is unchanged. "
        f"If another one was meant, put this one back and edit again with more of the text around it.",
        receipt,
    )


def failed(error: MemfilesError) -> ToolResult:
    """The result that tells a model about ``error``."""
    return refused(str(error), code=error.code)


def refused(text: str, *, code: str) -> ToolResult:
    """The result of a call that was not carried out."""
    return ToolResult(text, is_error=True, code=code)


def _written(done: str, receipt: Receipt) -> ToolResult:
    if receipt.replayed:
        done = f"This call was carried out before; nothing was changed again. {done}"
    now = (
        f"It is at revision {receipt.revision}, {receipt.size_bytes} of {receipt.max_size_bytes} bytes used, "
        f"{receipt.bytes_left} left."
    )
    warning = [f"Warning: {receipt.warning}."] if receipt.warning else []
    return ToolResult(" ".join([done, now, *warning]), data=receipt.to_dict())
