"""MCP resources: the memory files and entries that the session sees, their URIs, lists and texts.

The rule this module enforces: each record has one address, however its URI is spelled. Lists percent-encode a whole
key, slashes included; a client may encode more or less than that, and write the scheme and first part in any case.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, unquote

from mcp_types import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from memfiles.errors import EntryNotFound, FileNotDeclared, InvalidArgument
from memfiles.tools.arguments import shortened
from memfiles.tools.definitions import READ

if TYPE_CHECKING:
    from memfiles.entries.reader import Found
    from memfiles.tools.session import Session
    from memfiles.tools.visibility import VisibleFile

PAGE = 100
FILES = "memory://files/"
ENTRIES = "memory://entries/"
FILE_TEMPLATE = FILES + "{name}"
ENTRY_TEMPLATE = ENTRIES + "{key}"
_TEXT = "text/plain"


class Address(NamedTuple):
    """The record that a URI refers to: a memory file by name, or an entry by key."""

    kind: Literal["file", "entry"]
    name: str


def file_uri(name: str) -> str:
    """The URI of a memory file."""
    return FILES + quote(name, safe="")


def entry_uri(key: str) -> str:
    """The URI of an entry."""
    return ENTRIES + quote(key, safe="")


def parse_uri(uri: str) -> Address:
    """Parse a resource URI, whether the record exists or not; ``InvalidArgument`` if it is not one of this server's."""
    for prefix in (FILES, ENTRIES):
        if uri[: len(prefix)].lower() == prefix and len(uri) > len(prefix):
            return Address("file" if prefix == FILES else "entry", _decoded(uri[len(prefix) :], uri=uri))
    raise InvalidArgument(f"unknown resource {shortened(uri)}: use {FILE_TEMPLATE} or {ENTRY_TEMPLATE}")


def list_page(session: Session, cursor: str | None) -> ListResourcesResult:
    """List a page of resources, memory files first, then entries by key; ``cursor`` is the last page's last URI."""
    entries, after = session.entries, _key_in(cursor) if cursor else None
    files = [] if after else [_file_resource(file) for file in session.files()]
    if entries is None:
        return ListResourcesResult(resources=files)
    page = entries.list(session, limit=PAGE, cursor=after)
    found = [_entry_resource(each) for each in page.memories]
    return ListResourcesResult(resources=files + found, next_cursor=entry_uri(page.next) if page.next else None)


def templates(session: Session) -> ListResourceTemplatesResult:
    """The URI templates of memory files and, if the workflow declares any, of entries."""
    file = ResourceTemplate(
        name="memory-file", uri_template=FILE_TEMPLATE, description="A memory file, by name.", mime_type=_TEXT
    )
    entry = ResourceTemplate(
        name="memory-entry",
        uri_template=ENTRY_TEMPLATE,
        description="A saved entry, by key; the key is percent-encoded, slashes included.",
        mime_type=_TEXT,
    )
    return ListResourceTemplatesResult(resource_templates=[file] if session.entries is None else [file, entry])


def read(session: Session, uri: str) -> ReadResourceResult:
    """Read the exact text of a resource; a hidden resource raises the same error as a missing one."""
    address = parse_uri(uri)
    text = _entry_text(session, address.name) if address.kind == "entry" else _file_text(session, address.name)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text, mime_type=_TEXT)])


def _decoded(name: str, *, uri: str) -> str:
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgument(f"{shortened(uri)} is not percent-encoded UTF-8") from None


def _key_in(cursor: str) -> str:
    """The key in one of our own cursors; any other is refused, as it would skip entries silently."""
    with suppress(InvalidArgument):
        address = parse_uri(cursor)
        if entry_uri(address.name) == cursor:
            return address.name
    raise InvalidArgument(f"{shortened(cursor)} is not a cursor of this list: start without one")


def _file_text(session: Session, name: str) -> str:
    result = session.call(READ, {"file": name})
    if result.is_error:
        raise (FileNotDeclared if result.code == FileNotDeclared.code else InvalidArgument)(result.text)
    return result.text


def _entry_text(session: Session, key: str) -> str:
    found = session.entries.get(session, key) if session.entries is not None else None
    if found is None:
        raise EntryNotFound(f"no entry {shortened(key)}")
    return found.content


def _file_resource(file: VisibleFile) -> Resource:
    return Resource(
        name=file.card.name,
        uri=file_uri(file.card.name),
        description=file.card.description or None,
        mime_type=_TEXT,
        size=file.card.size_bytes,
    )


def _entry_resource(found: Found) -> Resource:
    kind = f"{found.kind}, {found.category}" if found.category else found.kind
    return Resource(
        name=found.key,
        uri=entry_uri(found.key),
        description=f"{kind}, at level {found.level}",
        mime_type=_TEXT,
        size=found.size_bytes,
    )
