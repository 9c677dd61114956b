"""What the result of each tool holds for programs, as JSON Schemas: its data, and its text where the data lacks that.

The rule this file guards: a result that is no error fits its schema. More may be in it than the schema names, so that
something can be added without breaking whoever checks.
"""

from __future__ import annotations

from typing import Any

from memfiles.workflow.tool_names import ToolOperation

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_BOOLEAN: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


_FILE = {"text": _TEXT, "name": _TEXT, "revision": _INTEGER, "size_bytes": _INTEGER, "max_size_bytes": _INTEGER}
_ENTRY = {
    **dict.fromkeys(("content", "level", "category", "kind", "created_at", "updated_at"), _TEXT),
    **dict.fromkeys(("revision", "successes", "failures", "size_bytes"), _INTEGER),
    **{"tags": _TEXTS, "links": _TEXTS, "confidence": _NUMBER, "importance": _NUMBER, "pinned": _BOOLEAN},
    "expires_at": _TEXT_OR_NULL,
}
_MATCH = _object(
    {"key": _TEXT, "content": _TEXT, "level": _TEXT, "tags": _TEXTS, "score": _NUMBER},
    **{"legs": _TEXTS, "truncated": _BOOLEAN},
    **dict.fromkeys(("snippet", "category", "kind", "updated_at"), _TEXT),
)
_LINE = _object(
    {"key": _TEXT, "level": _TEXT, "tags": _TEXTS},
    **{"category": _TEXT, "kind": _TEXT, "size_bytes": _INTEGER, "updated_at": _TEXT, "pinned": _BOOLEAN},
)
_SAVED = _object(
    {"saved": _BOOLEAN, "key": _TEXT, "level": _TEXT, "revision": _INTEGER, "evicted": _TEXTS},
    **{"replayed": _BOOLEAN, "warnings": _TEXTS},
)
_FOUND: dict[str, Schema] = {"found": _BOOLEAN, "key": _TEXT}
_RESULTS: dict[str, Schema] = {"results": {"type": "array", "items": _MATCH}, "query": _TEXT}

READ_OUTPUT = _object(_FILE, first_line=_INTEGER, last_line=_INTEGER, lines=_INTEGER)
"""What a read of a memory file gives: the text of it, and where its lines stand if a range was asked for."""

WRITE_OUTPUT = _object(
    {**_FILE, "uid": _TEXT, "bytes_left": _INTEGER, "share": _NUMBER},
    **{"warning": _TEXT, "replayed": _BOOLEAN, "matches": _INTEGER, "line": _INTEGER},
)
"""What a change of a memory file gives: what was done in words, and the receipt."""

ENTRY_OUTPUTS: dict[ToolOperation, Schema] = {
    "save": _SAVED,
    "update": _SAVED,
    "get": _object(_FOUND, **_ENTRY),
    "search": _object(_RESULTS, meaning=_BOOLEAN),
    "recall": _object({}, **_FOUND, **_ENTRY, **_RESULTS, meaning=_BOOLEAN),
    "list": _object({"memories": {"type": "array", "items": _LINE}, "next": _TEXT_OR_NULL}),
    "delete": _object({"deleted": _BOOLEAN, "key": _TEXT, "level": _TEXT, "revision": _INTEGER}),
}
"""What each operation on entries gives."""
