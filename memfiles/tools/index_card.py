"""Index card: the block of the system prompt that lists the memory files.

The rule this file guards: each file is one line, whatever its name or description holds, and the same state gives the
same bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from memfiles.records.levels import Levels
from memfiles.tools.visibility import Clearance, RefLike, VisibleFile, visible_files

if TYPE_CHECKING:
    from memfiles.files.manager import MemoryManager

HEADING = "## Memory files available"
HOW_TO_READ = "Read with read_memory(file)."
HOW_TO = f"{HOW_TO_READ} Change RW files with append_memory or edit_memory."
_JOINERS = "\u200c\u200d"


def index_card(
    refs: Iterable[RefLike], manager: MemoryManager, *, levels: Levels | None = None, level: str | None = None
) -> str:
    """The index card of these references, rendered from the current files; "" if no file may be read.

    Files are sorted by name. With a ``level``, files above that level are left out and only files at that level can be
    RW; ``levels`` then are the workflow's, or the default four. The text has no final newline.
    """
    clearance = None if level is None else Clearance(levels or Levels(), level)
    return card_of_files(visible_files(refs, manager, clearance=clearance))


def card_of_files(files: Iterable[VisibleFile], *, read_only: bool = False) -> str:
    """The index card of these files, in their order; ``read_only`` for a model without tools to change them."""
    lines = [_line(file, writable=file.writable and not read_only) for file in files]
    return "\n".join([HEADING, HOW_TO_READ if read_only else HOW_TO, *lines]) if lines else ""


def one_line(text: str) -> str:
    """``text`` as one line without control characters, direction marks or tags.

    White space is collapsed, and ``<`` becomes ``&lt;`` so that no tag or special token can start.
    """
    plain = "".join(_plain(character) for character in text)
    return " ".join(plain.split()).replace("<", "&lt;")


def _plain(character: str) -> str:
    """Control characters (Cc) and separators (Z*) become a space; format marks (Cf) and surrogates (Cs) are dropped."""
    category = unicodedata.category(character)
    if category == "Cc" or category.startswith("Z"):
        return " "
    return "" if category in {"Cf", "Cs"} and character not in _JOINERS else character


def _line(file: VisibleFile, *, writable: bool) -> str:
    card, description = file.card, one_line(file.card.description)
    size = f"RW, {card.size_bytes}B of {card.max_size_bytes}B" if writable else f"R, {card.size_bytes}B"
    head = f"- {one_line(card.name)} ({size})"
    return f"{head}: {description}" if description else head
