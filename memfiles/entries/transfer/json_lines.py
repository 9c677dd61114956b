"""Entries as JSON Lines: one object a line, the content with the other fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memfiles.entries.results import Skipped
from memfiles.entries.transfer.document import Document, Parsed, document_of, fields_of, joined
from memfiles.errors import InvalidArgument


def render(document: Document) -> bytes:
    """The line of an entry, with its line feed. ``InvalidArgument`` for half of a surrogate pair."""
    fields = fields_of(document) | {"content": document.content}
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise InvalidArgument("an entry holds half of a surrogate pair, which no file can hold") from None


def parse(data: bytes, *, where: str) -> Parsed:
    """The entries in a file; a line that holds none is reported with its number."""
    return joined(_entry(found, at) for found, at in objects(data, where=where))


def objects(data: bytes, *, where: str) -> Iterator[tuple[dict[str, Any] | Skipped, str]]:
    """Every line's object, or why there is none, and the line's place as ``where:line``. Blank lines are nothing.

    Lines end with a line feed only: other characters that some call line ends stand unescaped in JSON texts.
    """
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            at = f"{where}:{number}"
            yield _object(line, at), at


def _entry(found: dict[str, Any] | Skipped, at: str) -> Parsed:
    if isinstance(found, Skipped):
        return Parsed(skipped=(found,))
    fields = dict(found)
    content = fields.pop("content", None)
    if not isinstance(content, str):
        return Parsed(skipped=(Skipped(at, "it has no content" if content is None else "content must be text"),))
    return document_of(fields, content, where=at)


def _object(line: bytes, at: str) -> dict[str, Any] | Skipped:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Skipped(at, "it holds half of a surrogate pair, which is no character")
    except UnicodeDecodeError:
        return Skipped(at, "this line is not UTF-8")
    except json.JSONDecodeError as error:
        return Skipped(f"{at}:{error.colno}", f"this is not JSON: {error.msg}")
    except ValueError as error:
        return Skipped(at, str(error))
    except RecursionError:
        return Skipped(at, "it is nested too deeply")
    return value if isinstance(value, dict) else Skipped(at, "this line is not an object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a field stands twice in it")
    return held


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
