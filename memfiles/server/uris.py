"""URIs: what a memory file or an entry is called as a resource, and back.

The rule this file guards: one address for one thing, however its URI is spelled. In lists a key is percent-encoded as a
whole, its slashes included; a client may encode more or less than that, and write scheme and first part in any case.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

from memfiles.errors import InvalidArgument
from memfiles.tools.arguments import shortened

FILES = "memory://files/"
ENTRIES = "memory://entries/"
FILE_TEMPLATE = FILES + "{name}"
ENTRY_TEMPLATE = ENTRIES + "{key}"


class Address(NamedTuple):
    """What a URI stands for: a memory file by its name, or an entry by its key."""

    kind: Literal["file", "entry"]
    name: str


def file_uri(name: str) -> str:
    """The URI of the memory file of that name."""
    return FILES + quote(name, safe="")


def entry_uri(key: str) -> str:
    """The URI of the entry of that key."""
    return ENTRIES + quote(key, safe="")


def address_of(uri: str) -> Address:
    """What ``uri`` stands for, whether it is there or not; ``InvalidArgument`` if it is none of ours."""
    for prefix in (FILES, ENTRIES):
        if uri[: len(prefix)].lower() == prefix and len(uri) > len(prefix):
            return Address("file" if prefix == FILES else "entry", _decoded(uri[len(prefix) :], uri=uri))
    raise InvalidArgument(f"there is no resource {shortened(uri)}: use {FILE_TEMPLATE} or {ENTRY_TEMPLATE}")


def _decoded(name: str, *, uri: str) -> str:
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgument(f"{shortened(uri)} is not percent-encoded UTF-8") from None
