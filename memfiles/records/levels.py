"""Classification levels: the one place that decides who may read and who may change an item.

The rule this file guards: a session reads items at or below its level (no read up) and changes only items at exactly
its level (no write down). Source: Bell and LaPadula's simple-security and strong star properties.
"""

from __future__ import annotations

from msgspec import Struct

from memfiles.errors import InvalidArgument

DEFAULT_LEVELS = ("PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED")


class Levels(Struct, frozen=True):
    """The levels of one workflow, lowest first."""

    names: tuple[str, ...] = DEFAULT_LEVELS

    def rank(self, level: str) -> int:
        """The position of ``level``, 0 for the lowest; an unknown level is an ``InvalidArgument``."""
        try:
            return self.names.index(level)
        except ValueError:
            raise InvalidArgument(f"level {level!r} is not declared; use one of {', '.join(self.names)}") from None

    @property
    def lowest(self) -> str:
        """The level that every session may read."""
        return self.names[0]

    def may_read(self, *, session: str, item: str) -> bool:
        """Whether a session at level ``session`` may know that an item at level ``item`` exists."""
        return self.rank(item) <= self.rank(session)

    def readable(self, *, session: str) -> tuple[str, ...]:
        """The levels that a session at level ``session`` may read, highest first."""
        return tuple(level for level in reversed(self.names) if self.may_read(session=session, item=level))

    def may_write(self, *, session: str, item: str) -> bool:
        """Whether a session at level ``session`` may change an item at level ``item``."""
        return self.rank(item) == self.rank(session)

    def raised(self, current: str, to: str) -> str:
        """The level of a session at ``current`` after it read an item at ``to``: it never falls."""
        return max(current, to, key=self.rank)
