"""Tool results: the outcome of a call, its wording for the model and its JSON Schema for programs.

The rules this file guards: a text says what happened, with the numbers, and what to do next. A successful result fits
its schema; it may hold more than the schema names, so that fields can be added without breaking a validator.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from memfiles.errors import MemfilesError
from memfiles.records.file_changes import Receipt
from memfiles.workflow.fields import ToolOperation

UNKNOWN_TOOL = "unknown_tool"
SESSION_CLOSED = "session_closed"
INTERNAL = "internal"


class ToolResult(Struct, frozen=True):
    """The outcome of one tool call.

    ``text`` is for the model. ``is_error`` means that the call was not carried out as asked; ``code`` then is a stable
    word for programs: the ``code`` of a memfiles error, or ``unknown_tool``, ``session_closed`` or ``internal``.
    ``data`` is the JSON object behind the text: the receipt of a write, or the file that was read.
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
    """The result of an edit: the match that was replaced, and the number of other matches."""
    matches, line = receipt.matches or 1, receipt.line
    if matches == 1:
        return _written(f"Replaced the text at line {line} of {receipt.name}.", receipt)
    return _written(
        f"Replaced the first of {matches} matches in {receipt.name}, the one at line {line}; the rest is unchanged. "
        f"If you meant another match, undo this edit and try again with more surrounding text.",
        receipt,
    )


def failed(error: MemfilesError) -> ToolResult:
    """The result that reports ``error`` to the model."""
    return refused(str(error), code=error.code)


def refused(text: str, *, code: str) -> ToolResult:
    """The result of a call that was not carried out."""
    return ToolResult(text, is_error=True, code=code)


def _written(done: str, receipt: Receipt) -> ToolResult:
    if receipt.replayed:
        done = f"This call had already been carried out; nothing changed now. {done}"
    now = (
        f"Now at revision {receipt.revision}: {receipt.size_bytes} of {receipt.max_size_bytes} bytes used, "
        f"{receipt.bytes_left} left."
    )
    warning = [f"Warning: {receipt.warning}."] if receipt.warning else []
    return ToolResult(" ".join([done, now, *warning]), data=receipt.to_dict())


Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_BOOLEAN: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_TEXTS_BY_NAME: Schema = {"type": "object", "additionalProperties": _TEXT}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


_FILE = {"text": _TEXT, "name": _TEXT, "revision": _INTEGER, "size_bytes": _INTEGER, "max_size_bytes": _INTEGER}
_ENTRY = {
    **dict.fromkeys(("content", "level", "category", "kind", "created_at", "updated_at", "id"), _TEXT),
    **dict.fromkeys(("revision", "successes", "failures", "size_bytes"), _INTEGER),
    **{"tags": _TEXTS, "links": _TEXTS, "confidence": _NUMBER, "importance": _NUMBER, "pinned": _BOOLEAN},
    "expires_at": _TEXT_OR_NULL,
    "said_at": _TEXT,
    "provenance": _TEXTS_BY_NAME,
}
_MATCH = _object(
    {"key": _TEXT, "content": _TEXT, "level": _TEXT, "tags": _TEXTS, "score": _NUMBER},
    **{"legs": _TEXTS, "truncated": _BOOLEAN, "provenance": _TEXTS_BY_NAME},
    **dict.fromkeys(("snippet", "category", "kind", "updated_at", "id"), _TEXT),
)
_LINE = _object(
    {"key": _TEXT, "level": _TEXT, "tags": _TEXTS},
    **{"category": _TEXT, "kind": _TEXT, "size_bytes": _INTEGER, "updated_at": _TEXT, "pinned": _BOOLEAN, "id": _TEXT},
    provenance=_TEXTS_BY_NAME,
)
_SAVED = _object(
    {"saved": _BOOLEAN, "key": _TEXT, "level": _TEXT, "revision": _INTEGER, "evicted": _TEXTS},
    **{"merged": _TEXTS, "folded": _TEXTS, "plan": _TEXT},
    **{"replayed": _BOOLEAN, "warnings": _TEXTS, "id": _TEXT, "kept_tags": _TEXTS},
    **{"confidence": _NUMBER, "confidence_was": _NUMBER},
)
_FOUND: dict[str, Schema] = {"found": _BOOLEAN, "key": _TEXT}
_RESULTS: dict[str, Schema] = {"results": {"type": "array", "items": _MATCH}, "query": _TEXT}
READ_OUTPUT = _object(_FILE, first_line=_INTEGER, last_line=_INTEGER, lines=_INTEGER)
"""The output of a read of a memory file: its text, and the place of the lines if a range was asked for."""

WRITE_OUTPUT = _object(
    {**_FILE, "uid": _TEXT, "bytes_left": _INTEGER, "share": _NUMBER},
    **{"warning": _TEXT, "replayed": _BOOLEAN, "matches": _INTEGER, "line": _INTEGER},
)
"""The output of a change of a memory file: the change in words, and the receipt."""

ENTRY_OUTPUTS: dict[ToolOperation, Schema] = {
    "save": _SAVED,
    "update": _SAVED,
    "get": _object(_FOUND, **_ENTRY),
    "search": _object(_RESULTS, meaning=_BOOLEAN, note=_TEXT),
    "recall": _object({}, **_FOUND, **_ENTRY, **_RESULTS, meaning=_BOOLEAN, note=_TEXT),
    "list": _object({"memories": {"type": "array", "items": _LINE}, "next": _TEXT_OR_NULL}),
    "forget": _object({"forgotten": _INTEGER, "keys": _TEXTS, "dry_run": _BOOLEAN}, held_by=_TEXTS),
    "delete": _object(
        {"deleted": _BOOLEAN, "key": _TEXT, "level": _TEXT, "revision": _INTEGER},
        **{"id": _TEXT, "visible_again": _object({"level": _TEXT, "id": _TEXT})},
    ),
}
"""The output of each operation on entries."""
