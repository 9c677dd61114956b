"""Our own file formats: Markdown and JSON Lines, which an export writes.

A Markdown file holds one entry: YAML frontmatter for its fields and the content after it, byte for byte. Every field is
on one line of its own, so no value can end the frontmatter, and everything after its last line feed is the content:
exporting and importing an entry changes nothing. A JSON Lines file holds one object per line, content included.
``line_objects`` and ``JsonText`` read the JSON of other programs as well.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, NoReturn, get_args

from memfiles.entries.transfer.document import (
    FILE_MAX_BYTES,
    Document,
    Parsed,
    Skipped,
    as_one,
    fields_of,
    limited,
    parsed_document,
    text_in,
)
from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.workflow import yaml_source
from memfiles.workflow.yaml_text import plain_value

Format = Literal[
    "markdown", "jsonl", "memory-directory", "memory-server", "claude-code", "notes", "mem0", "chatgpt", "claude"
]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIX = ".md"
_FENCE = "---\n"
_SLUG_MAX = 48
_HUGE = r"(?![0-9.]+[eE][+-]?[0-9]+\Z|[0-9][0-9A-Za-z]{99})"  # may be a number that a reader refuses
_PLAIN = re.compile(_HUGE + r"[A-Za-z0-9](?:[A-Za-z0-9 ._/@:+-]*[A-Za-z0-9._/@+-])?", re.ASCII)
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_OPENING = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def file_name(document: Document) -> str:
    """The file name of an entry: readable, the same at every export, and safe on every file system.

    A slug of the key, and a hash that distinguishes entries with equal slugs. It holds lower-case ASCII letters, digits
    and hyphens; because of the hash it is not a name that Windows reserves.
    """
    plain = unicodedata.normalize("NFKD", document.key).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG_MAX].strip("-") or "entry"
    digest = hashlib.sha256(json.dumps(document.identity).encode()).hexdigest()
    return f"{slug}-{digest[:12]}{SUFFIX}"


def render_markdown(document: Document) -> bytes:
    """The file of an entry. ``InvalidArgument`` for half of a surrogate pair, which no file can hold."""
    lines = [f"{name}: {_written(value)}\n" for name, value in fields_of(document).items()]
    return _encoded("".join([_FENCE, *lines, _FENCE, document.content]))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("an entry holds half of a surrogate pair, which no file can hold") from None


def parse_markdown(data: bytes, *, where: str) -> Parsed:
    """The entry in one file; ``where`` names the file in reports."""
    text = text_in(data, where)
    if isinstance(text, Skipped):
        return Parsed(skipped=(text,))
    frontmatter, content = split(text)
    fields = fields_in(frontmatter, where=where)
    if isinstance(fields, Skipped):
        return Parsed(skipped=(fields,))
    return parsed_document(fields, content, where=where)


def split(text: str) -> tuple[str, str]:
    """The frontmatter of a Markdown file, with its first line so that lines keep their numbers, and the rest.

    A text without frontmatter is all content. White space at the ends of the two fences, and a byte order mark, are
    ignored: editors add them.
    """
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    return (text[: closing.start()], text[closing.end() :]) if closing else ("", text)


def fields_in(frontmatter: str, *, where: str) -> dict[str, Any] | Skipped:
    """The fields of a frontmatter, or why it cannot be read; none if it is empty."""
    lines = [line.strip() for line in frontmatter.splitlines()[1:]]
    if all(not line or line.startswith("#") for line in lines):
        return {}
    try:
        value = yaml_source.parse(frontmatter, name=where).value
    except WorkflowError as error:
        return _refused(error, where)
    return value if isinstance(value, dict) else Skipped(where, "its frontmatter is not a mapping")


def _refused(error: WorkflowError, where: str) -> Skipped:
    """The first problem of a frontmatter, with its place."""
    first = str(error).partition("\n")[0]
    place = re.match(re.escape(where) + r"(?::\d+:\d+)?", first)
    end = place.end() if place else 0
    return Skipped(first[:end] or where, "its frontmatter cannot be read: " + first[end:].lstrip(": "))


def _written(value: Any) -> str:
    """The value in YAML: text without quotes if that reads as itself, also within a list, and else as JSON has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and ": " not in value and plain_value(value) == value:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)  # line ends that only YAML knows


def render_line(document: Document) -> bytes:
    """The line of an entry, with its line feed. ``InvalidArgument`` for half of a surrogate pair."""
    fields = fields_of(document) | {"content": document.content}
    return _encoded(json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n")


def parse_lines(data: bytes, *, where: str) -> Parsed:
    """The entries in a file; a line without an entry is reported with its number."""
    return as_one(_line_entry(found, at) for found, at in line_objects(data, where=where))


def line_objects(data: bytes, *, where: str) -> Iterator[tuple[dict[str, Any] | Skipped, str]]:
    """Every line's object, or why there is none, with its place as ``where:line``. Blank lines are skipped.

    Lines end with a line feed only: JSON texts may hold other line-end characters unescaped. ``InvalidArgument`` for
    more than a million.
    """
    for number, line in enumerate(limited(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf"))), start=1):
        at = f"{where}:{number}"
        if len(line) > FILE_MAX_BYTES:
            yield Skipped(at, f"this line has {len(line)} bytes; at most {FILE_MAX_BYTES} are read"), at
        elif line.strip():
            yield _object(line.removesuffix(b"\n"), at), at


def _line_entry(found: dict[str, Any] | Skipped, at: str) -> Parsed:
    if isinstance(found, Skipped):
        return Parsed(skipped=(found,))
    fields = dict(found)
    content = fields.pop("content", None)
    if not isinstance(content, str):
        return Parsed(skipped=(Skipped(at, "it has no content" if content is None else "content must be text"),))
    return parsed_document(fields, content, where=at)


def _object(line: bytes, at: str) -> dict[str, Any] | Skipped:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Skipped(at, "it holds half of a surrogate pair, which is not a character")
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
        raise ValueError("it has the same field twice")
    return held


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


class JsonText:
    """The JSON values in a file, which is decoded in pieces as they are needed; ``at`` is the place of the next one.

    The first part has ``piece`` bytes. ``ValueError`` for a value of more than ``most`` characters.
    """

    def __init__(self, data: bytes, *, piece: int, most: int) -> None:
        self._text, self.at = "", 0
        self._pieces = (data[at : at + piece] for at in range(0, len(data), piece))
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._piece, self._most = piece, most

    def peek(self) -> str:
        """The next character that is not blank, "" at the end."""
        while True:
            self.at = self._after_blanks(self.at)
            if self.at < len(self._text) or not self._grow():
                return self._text[self.at : self.at + 1]

    def value(self, *, before: str = "") -> Any:
        """The next value. If none of the characters ``before`` follows, a number may go on in the next piece."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self.at)
            except json.JSONDecodeError:
                if not self._grow():
                    raise
                continue
            end = self._after_blanks(end)
            may_go_on = end == len(self._text) or (before and self._text[end] not in before)
            if not (may_go_on and self._grow()):
                self.at = end
                return value

    def _after_blanks(self, at: int) -> int:
        found = _BLANKS.match(self._text, at)
        return found.end() if found else at

    def _grow(self) -> bool:
        """Decode twice as much, so that reading takes linear time; returns whether there was more."""
        if len(self._text) - self.at > self._most:
            raise ValueError(f"one value has more than {self._most} characters") from None
        more = b"".join(islice(self._pieces, max(1, len(self._text) // self._piece)))
        decoded = self._utf8.decode(more, final=not more)
        if more:
            self._text, self.at = self._text[self.at :] + decoded, 0
        return bool(more)
