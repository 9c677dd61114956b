"""MCP resources: the memory files and entries that the session sees, their URIs, lists and texts.

The rule this module enforces: each record has one address, however its URI is spelled. Lists percent-encode a whole
key, slashes included; a client may encode more or less than that, and write the scheme and first part in any case.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

import mcp_types as types
from msgspec import Struct

from memfiles.errors import EntryNotFound, FileNotDeclared, InvalidArgument
from memfiles.tools.arguments import shortened
from memfiles.tools.definitions import READ

if TYPE_CHECKING:
    from memfiles.tools.session import Session

PAGE = 100
FILES = "memory://files/"
ENTRIES = "memory://entries/"
FILE_TEMPLATE = FILES + "{name}"
ENTRY_TEMPLATE = ENTRIES + "{key}"
_TEXT = "text/plain"
_TEMPLATES = (
    ("memory-file", FILE_TEMPLATE, "A memory file, by name."),
    ("memory-entry", ENTRY_TEMPLATE, "A saved entry, by key; the key is percent-encoded, slashes included."),
)


class Address(Struct, frozen=True):
    """The record that a URI refers to: a memory file by name, or an entry by key."""

    kind: Literal["file", "entry"]
    name: str

    @property
    def uri(self) -> str:
        """The URI under which lists have the record."""
        return (FILES if self.kind == "file" else ENTRIES) + quote(self.name, safe="")


def parse_uri(uri: str) -> Address:
    """Parse a resource URI, whether the record exists or not; ``InvalidArgument`` if it is not one of this server's."""
    for prefix in (FILES, ENTRIES):
        if uri[: len(prefix)].lower() == prefix and len(uri) > len(prefix):
            try:
                name = unquote(uri[len(prefix) :], errors="strict")
            except UnicodeDecodeError:
                raise InvalidArgument(f"{shortened(uri)} is not percent-encoded UTF-8") from None
            return Address("file" if prefix == FILES else "entry", name)
    raise InvalidArgument(f"unknown resource {shortened(uri)}: use {FILE_TEMPLATE} or {ENTRY_TEMPLATE}")


def list_page(session: Session, cursor: str | None) -> types.ListResourcesResult:
    """List a page of resources, memory files first, then entries by key; ``cursor`` is the last page's last URI."""
    entries, after = session.entries, _key_in(cursor) if cursor else None
    files = [
        _resource("file", it.name, it.description or None, size=it.size_bytes)
        for it in (file.card for file in session.files() if not after)
    ]
    if entries is None:
        return types.ListResourcesResult(resources=files)
    page = entries.list(session, limit=PAGE, cursor=after)
    found = [
        _resource("entry", it.key, f"{it.kind}, {it.category}, at level {it.level}", size=it.size_bytes)
        for it in page.memories
    ]
    return types.ListResourcesResult(
        resources=files + found, next_cursor=Address("entry", page.next).uri if page.next else None
    )


def templates(session: Session) -> types.ListResourceTemplatesResult:
    """The URI templates of memory files and, if the workflow declares any, of entries."""
    made = [
        types.ResourceTemplate(name=name, uri_template=template, description=description, mime_type=_TEXT)
        for name, template, description in _TEMPLATES
    ]
    return types.ListResourceTemplatesResult(resource_templates=made[:1] if session.entries is None else made)


def read(session: Session, uri: str) -> types.ReadResourceResult:
    """Read the exact text of a resource; a hidden resource raises the same error as a missing one."""
    address = parse_uri(uri)
    if address.kind == "entry":
        found = session.entries.get(session, address.name) if session.entries is not None else None
        if found is None:
            raise EntryNotFound(f"no entry {shortened(address.name)}")
        text = found.content
    else:
        result = session.call(READ, {"file": address.name})
        if result.is_error:
            raise (FileNotDeclared if result.code == FileNotDeclared.code else InvalidArgument)(result.text)
        text = result.text
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=_TEXT)])


def _key_in(cursor: str) -> str:
    """The key in one of our own cursors; any other is refused, as it would skip entries silently."""
    with suppress(InvalidArgument):
        address = parse_uri(cursor)
        if address.kind == "entry" and address.uri == cursor:
            return address.name
    raise InvalidArgument(f"{shortened(cursor)} is not a cursor of this list: start without one")


def _resource(kind: Literal["file", "entry"], name: str, description: str | None, *, size: int) -> types.Resource:
    uri = Address(kind, name).uri
    return types.Resource(name=name, uri=uri, description=description, mime_type=_TEXT, size=size)
