"""Items in namespaces as entries: a tuple of labels and a key become one entry's key, and that becomes them again.

The rule this file guards: two different items never share an entry, and no text is cut or changed to make it fit. What
lies elsewhere among the entries is no item.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from memfiles.errors import InvalidArgument
from memfiles.records.keys import KEY_MAX_BYTES

ROOT = "langgraph/"
"""Where items lie among an agent's other entries."""

ANY = "*"
Namespace = tuple[str, ...]

_QUOTED = re.compile(r"(?:%[0-9a-f]{2})+")
_UNKEEPABLE = {"Cc", "Cs", "Zl", "Zp"}  # as no entry's key may hold


def item_key(namespace: Sequence[str], key: str) -> str:
    """The key of the entry that holds an item, such as ``langgraph/users/ada/prefs``.

    "/", "%" and what an entry's key may not hold stand as "%" and the hexadecimal digits of their UTF-8 bytes. Labels
    that are no text, and what is too long, are an ``InvalidArgument``.
    """
    found = namespace_prefix(namespace) + _quoted(key)
    if (size := len(found.encode())) > KEY_MAX_BYTES:
        raise InvalidArgument(
            f"namespace and key make an entry's key of {size} bytes, and {KEY_MAX_BYTES} are allowed: shorten them"
        )
    return found


def namespace_prefix(namespace: Sequence[str]) -> str:
    """How the entry keys of all items in a namespace and below it begin."""
    return ROOT + "".join(f"{_quoted(label)}/" for label in namespace)


def item_of(entry_key: str) -> tuple[Namespace, str] | None:
    """The namespace and the key of the item that an entry holds; None if an entry of that key is no item."""
    if not entry_key.startswith(ROOT):
        return None
    try:
        *labels, key = (_unquoted(part) for part in entry_key.removeprefix(ROOT).split("/"))
    except UnicodeDecodeError:
        return None
    written = namespace_prefix(labels) + _quoted(key)
    return (tuple(labels), key) if written == entry_key else None


def begins_with(namespace: Namespace, path: Sequence[str]) -> bool:
    """Whether a namespace begins with these labels; ``*`` stands for any one label."""
    here = namespace[: len(path)]
    return all(wanted == label or (wanted == ANY and label is not None) for label, wanted in zip_longest(here, path))


def ends_with(namespace: Namespace, path: Sequence[str]) -> bool:
    """Whether a namespace ends with these labels; ``*`` stands for any one label."""
    return begins_with(namespace[::-1], path[::-1])


def _quoted(label: str) -> str:
    if not isinstance(label, str):
        raise InvalidArgument(f"a namespace is made of texts, and a key is one, not {type(label).__name__}")
    if label.isprintable() and "/" not in label and "%" not in label:
        return label
    return "".join(_quoted_character(each) for each in label)


def _quoted_character(character: str) -> str:
    if character not in "/%" and unicodedata.category(character) not in _UNKEEPABLE:
        return character
    return "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogatepass"))


def _unquoted(label: str) -> str:
    return _QUOTED.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode(errors="surrogatepass"), label)
