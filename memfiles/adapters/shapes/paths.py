"""Paths as Anthropic's memory tool writes them, and the names that they mean.

The rule this file guards: a path is text that is taken apart here; it never comes near the disk. Only ``/``, ``.`` and
``..`` mean anything in it: a backslash or ``%2e`` is a part of a name, as in the vendor's own tool.
"""

from __future__ import annotations

from collections.abc import Iterator

from memfiles.errors import InvalidArgument

ROOT = "/memories"
_SHOWN = 200


def name_of(path: str) -> str:
    """What a path means below the root, "" for the root itself; ``InvalidArgument`` for what leads out of it."""
    names: list[str] = []
    for part in _below(path).split("/"):
        if part == ".." and not names:
            raise InvalidArgument(f"Path {path[:_SHOWN]} would escape {ROOT} directory")
        if part == "..":
            names.pop()
        elif part not in ("", "."):
            names.append(part)
    return "/".join(names)


def names_of(path: str) -> Iterator[str]:
    """What a path may mean: first the very text behind the root, as the key of an entry may be ``https://x``."""
    exact = _below(path).removeprefix("/")
    yield exact
    if (meant := name_of(path)) != exact:
        yield meant


def folders_of(name: str) -> list[str]:
    """The folders in which a name lies, the outermost first."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_hidden(name: str) -> bool:
    """Whether it is left out of listings: a part of it begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))


def _below(path: str) -> str:
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise InvalidArgument(f"Path must start with {ROOT}, got: {path[:_SHOWN]}")
    return path.removeprefix(ROOT)
