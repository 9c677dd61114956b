"""One Markdown file an entry: YAML frontmatter for what it is, and the content after it, byte for byte.

The frontmatter is the lines between the first line, ``---``, and the next one that is ``---``. Every field stands on
one line of its own, so that no value can end it, and all that follows its last line feed is the content: export and
import again changes nothing, whatever the content holds.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any

from memfiles.entries.results import Skipped
from memfiles.entries.transfer.document import Document, Parsed, document_of, fields_of, text_in
from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.workflow import yaml_source
from memfiles.workflow.yaml_text import plain_value

SUFFIX = ".md"
_FENCE = "---\n"
_SLUG_MAX = 48
_PLAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._/@:+-]*[A-Za-z0-9._/@+-])?", re.ASCII)
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_OPENING = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


def file_name(document: Document) -> str:
    """What the file of an entry is called: readable, the same at every export, and safe on every file system.

    A slug of the key, and a hash that tells entries apart whose slugs are the same, or the same but for case. It holds
    lower-case ASCII letters, digits and hyphens; with the hash in it, it is no name that Windows reserves.
    """
    plain = unicodedata.normalize("NFKD", document.key).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_MAX].strip("-") or "entry"
    digest = hashlib.sha256(json.dumps(document.identity).encode()).hexdigest()
    return f"{slug}-{digest[:12]}{SUFFIX}"


def render(document: Document) -> bytes:
    """The file of an entry. ``InvalidArgument`` for half of a surrogate pair, which no file can hold."""
    lines = [f"{name}: {_written(value)}\n" for name, value in fields_of(document).items()]
    try:
        return "".join([_FENCE, *lines, _FENCE, document.content]).encode()
    except UnicodeEncodeError:
        raise InvalidArgument("an entry holds half of a surrogate pair, which no file can hold") from None


def parse(data: bytes, *, where: str) -> Parsed:
    """The entry in one file; ``where`` stands for the file in what is reported."""
    text = text_in(data, where)
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    frontmatter, content = split(text)
    fields = fields_in(frontmatter, where=where)
    if isinstance(fields, Skipped):
        return Parsed(skipped=(fields,))
    return document_of(fields, content, where=where)


def split(text: str) -> tuple[str, str]:
    """The frontmatter of a Markdown file, with its first line so that lines keep their numbers, and all after it.

    A text without frontmatter is all content. What an editor put before a line's end, or at the very start, is
    passed over in the two lines around the frontmatter.
    """
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    return (text[: closing.start()], text[closing.end() :]) if closing else ("", text)


def fields_in(frontmatter: str, *, where: str) -> dict[str, Any] | Skipped:
    """The fields of a frontmatter, or what is wrong with it; none if it is empty."""
    if not _has_fields(frontmatter):
        return {}
    try:
        value = yaml_source.parse(frontmatter, name=where).value
    except WorkflowError as error:
        return _refused(error, where)
    return value if isinstance(value, dict) else Skipped(where, "its frontmatter is not a mapping")


def _has_fields(frontmatter: str) -> bool:
    lines = frontmatter.splitlines()[1:]
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


def _refused(error: WorkflowError, where: str) -> Skipped:
    """The first thing that is wrong with a frontmatter, and its place."""
    first = str(error).partition("\n")[0]
    place = re.match(re.escape(where) + r"(?::\d+:\d+)?", first)
    end = place.end() if place else 0
    return Skipped(first[:end] or where, "its frontmatter cannot be read: " + first[end:].lstrip(": "))


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return json.dumps(value)


def _is_plain(text: str) -> bool:
    """Whether YAML reads ``text`` as itself without quotes, also within a list."""
    return bool(_PLAIN.fullmatch(text)) and ": " not in text and plain_value(text) == text


def _quoted(text: str) -> str:
    """``text`` as JSON writes it, which YAML reads, and with nothing in it that only YAML takes for a line's end."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
