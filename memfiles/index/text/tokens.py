"""A text taken apart into stems, once, when it is indexed: stemming fifty candidates anew took a third of a search."""

from __future__ import annotations

from typing import NamedTuple

from memfiles.index.text.tokenizer import fold, indexed, stems_of

LONGEST_LABEL = 40  # characters
READ_CLOSELY = 16_384  # characters; beyond them stems are counted as parts of words


class TokenizedText(NamedTuple):
    """A text taken apart: the stems of its fields and of the label that the content opens with, and what is beyond.

    Stems stand in one text, with a space between them: most are never looked at one by one.
    """

    id: int
    content: str
    key: str
    tags: str
    label: str
    rest: str = ""

    @property
    def words(self) -> list[str]:
        """The stems of the content, in order."""
        return self.content.split()

    @property
    def stems(self) -> frozenset[str]:
        """All stems that it holds, wherever they stand."""
        rest = stems_of(indexed(self.rest)) if self.rest else ()
        return frozenset((*self.words, *self.key.split(), *self.tags.split(), *rest))

    @property
    def packed(self) -> str:
        """The reading as one text; no stem holds a space or a line break."""
        return "\n".join((self.content, self.key, self.tags, self.label, self.rest))


def read(id: int, *, key: str, content: str, tags: str) -> TokenizedText:
    """Take a text apart as FTS5 does."""
    closely, rest = content[:READ_CLOSELY], fold(content[READ_CLOSELY:])
    words = [" ".join(stems_of(indexed(text))) for text in (closely, key, tags)]
    return TokenizedText(id, words[0], words[1], words[2], " ".join(_label(closely)), rest)


def unpacked(id: int, text: str) -> TokenizedText:
    """The reading of an entry that was ``packed``."""
    content, key, tags, label, rest = text.split("\n", 4)
    return TokenizedText(id, content, key, tags, label, rest)


def _label(content: str) -> list[str]:
    colon = content.find(":", 1, LONGEST_LABEL)
    return stems_of(fold(content[:colon])) if colon > 0 and content[colon + 1 : colon + 2].isspace() else []
