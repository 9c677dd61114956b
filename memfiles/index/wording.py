"""A text taken apart into stems, once, when it is indexed: stemming fifty candidates anew took a third of a search."""

from __future__ import annotations

from dataclasses import dataclass

from memfiles.index.words import fold, indexed, stems_of

LONGEST_LABEL = 40  # characters
READ_CLOSELY = 16_384  # characters; beyond them stems are counted as parts of words


@dataclass(frozen=True, slots=True)
class Reading:
    """A text taken apart: the stems of its fields and of the label that the content opens with, and what is beyond."""

    id: int
    content: list[str]
    key: list[str]
    tags: list[str]
    label: list[str]
    rest: str = ""

    @property
    def stems(self) -> frozenset[str]:
        """All stems that it holds, wherever they stand."""
        return frozenset((*self.content, *self.key, *self.tags, *(stems_of(indexed(self.rest)) if self.rest else ())))

    @property
    def packed(self) -> str:
        """The reading as one text; no stem holds a space or a line break."""
        lines = (" ".join(stems) for stems in (self.content, self.key, self.tags, self.label))
        return "\n".join((*lines, self.rest))


def read(id: int, *, key: str, content: str, tags: str) -> Reading:
    """Take a text apart as FTS5 does."""
    closely, rest = content[:READ_CLOSELY], fold(content[READ_CLOSELY:])
    words = stems_of(indexed(closely)), stems_of(indexed(key)), stems_of(indexed(tags))
    return Reading(id, *words, _label(closely), rest)


def unpacked(id: int, text: str) -> Reading:
    """The reading of an entry that was ``packed``."""
    content, key, tags, label, rest = text.split("\n", 4)
    return Reading(id, content.split(), key.split(), tags.split(), label.split(), rest)


def _label(content: str) -> list[str]:
    colon = content.find(":", 1, LONGEST_LABEL)
    return stems_of(fold(content[:colon])) if colon > 0 and content[colon + 1 : colon + 2].isspace() else []
