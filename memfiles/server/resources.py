"""Memory files and entries as resources: what the session sees, listed and read.

A list begins with the memory files and goes on with the entries by key, a page at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mcp_types import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from memfiles.errors import EntryNotFound, FileNotDeclared, InvalidArgument
from memfiles.server.uris import ENTRY_TEMPLATE, FILE_TEMPLATE, address_of, entry_uri, file_uri
from memfiles.tools.arguments import shortened
from memfiles.tools.definitions import READ

if TYPE_CHECKING:
    from memfiles.entries.results import Found
    from memfiles.server.offer import Offer
    from memfiles.tools.visibility import VisibleFile

PAGE = 100
_TEXT = "text/plain"


def listed(offer: Offer, cursor: str | None) -> ListResourcesResult:
    """A page of what the session sees; ``cursor`` is where the last one ended: the URI of an entry."""
    entries, after = offer.session.entries, _key_in(cursor) if cursor else None
    files = [] if after else [_of_file(file) for file in offer.session.files()]
    if entries is None:
        return ListResourcesResult(resources=files)
    page = entries.list(offer.session, limit=PAGE, cursor=after)
    found = [_of_entry(each) for each in page.memories]
    return ListResourcesResult(resources=files + found, next_cursor=entry_uri(page.next) if page.next else None)


def no_cursor(cursor: str | None) -> None:
    """For a list that has one page: ``InvalidArgument`` if a client asks for another."""
    if cursor:
        raise InvalidArgument(f"{shortened(cursor)} is no cursor: this list has one page, so leave it out")


def templates(offer: Offer) -> ListResourceTemplatesResult:
    """What the URIs look like."""
    file = ResourceTemplate(
        name="memory-file", uri_template=FILE_TEMPLATE, description="A memory file, by its name.", mime_type=_TEXT
    )
    entry = ResourceTemplate(
        name="memory-entry",
        uri_template=ENTRY_TEMPLATE,
        description="What was saved under a key; the key is percent-encoded, its slashes included.",
        mime_type=_TEXT,
    )
    return ListResourceTemplatesResult(resource_templates=[file] if offer.session.entries is None else [file, entry])


def read(offer: Offer, uri: str) -> ReadResourceResult:
    """The text of one resource, exactly; what the session may not see looks like what is not there."""
    address = address_of(uri)
    text = _entry(offer, address.name) if address.kind == "entry" else _file(offer, address.name)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text, mime_type=_TEXT)])


def _key_in(cursor: str) -> str:
    """The key that a cursor of ours holds; any other is refused, as it would skip entries in silence."""
    with suppress(InvalidArgument):
        address = address_of(cursor)
        if entry_uri(address.name) == cursor:
            return address.name
    raise InvalidArgument(f"{shortened(cursor)} is no cursor of this list: begin without one")


def _file(offer: Offer, name: str) -> str:
    result = offer.session.call(READ, {"file": name})
    if result.is_error:
        raise (FileNotDeclared if result.code == FileNotDeclared.code else InvalidArgument)(result.text)
    return result.text


def _entry(offer: Offer, key: str) -> str:
    entries = offer.session.entries
    found = entries.get(offer.session, key) if entries is not None else None
    if found is None:
        raise EntryNotFound(f"there is no entry {shortened(key)}")
    return found.content


def _of_file(file: VisibleFile) -> Resource:
    return Resource(
        name=file.card.name,
        uri=file_uri(file.card.name),
        description=file.card.description or None,
        mime_type=_TEXT,
        size=file.card.size_bytes,
    )


def _of_entry(found: Found) -> Resource:
    kind = f"{found.kind}, {found.category}" if found.category else found.kind
    return Resource(
        name=found.key,
        uri=entry_uri(found.key),
        description=f"{kind}, at level {found.level}",
        mime_type=_TEXT,
        size=found.size_bytes,
    )
