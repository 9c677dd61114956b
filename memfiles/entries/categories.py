"""The categories of entries: how long one lives, whom it belongs to, and whether it is always shown.

What is built in is data here; a workflow changes lifetimes and budgets, never whom an entry belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from memfiles.errors import InvalidArgument
from memfiles.records.entry import CONVERSATION, GENERAL, WORKSPACE_CATEGORY

CORE = "core"
DAILY = "daily"
HOUR_SECONDS = 60 * 60
LAST_MOMENT = "9999-12-31T23:59:59.999Z"


class CategoryLike(Protocol):
    """What a workflow says of a category: see ``workflow.CategorySpec``."""

    @property
    def ttl(self) -> int | None:
        """Seconds."""


@dataclass(frozen=True, slots=True)
class Category:
    """How entries of one category are treated. ``ttl`` is in seconds after the last change of content, None for ever.

    ``is_shared``: they lie in ``@workspace``, for all agents. ``is_of_one_run``: they are seen by one run alone, are
    never mirrored, and are gone when its session closes. ``is_pinned``: they are shown first and evicted last.
    """

    name: str
    ttl: int | None = None
    is_pinned: bool = False
    is_shared: bool = False
    is_of_one_run: bool = False


BUILT_IN: Mapping[str, Category] = {
    CORE: Category(CORE, is_pinned=True),
    DAILY: Category(DAILY, ttl=72 * HOUR_SECONDS),
    CONVERSATION: Category(CONVERSATION, ttl=24 * HOUR_SECONDS, is_of_one_run=True),
    WORKSPACE_CATEGORY: Category(WORKSPACE_CATEGORY, is_shared=True),
    GENERAL: Category(GENERAL),
}


@dataclass(frozen=True, slots=True)
class Categories:
    """All categories: the built-in ones, with what a workflow declares; any other is windowed by recency."""

    declared: Mapping[str, CategoryLike] = field(default_factory=dict)

    def of(self, name: str) -> Category:
        """The category of that name."""
        built_in = BUILT_IN.get(name) or Category(name)
        said = self.declared.get(name)
        return built_in if said is None or said.ttl is None else replace(built_in, ttl=said.ttl)

    def expiry(self, name: str, updated_at: str) -> str | None:
        """When an entry of that category expires whose content last changed at ``updated_at``; None: it does not."""
        ttl = self.of(name).ttl
        return None if ttl is None else later(updated_at, ttl)


def seconds_between(earlier: str, later: str) -> int:
    """How many whole seconds lie between two moments; 0 if one of them is none."""
    try:
        return int((datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
    except ValueError:
        return 0


def later(moment: str, seconds: int) -> str:
    """The moment that many seconds after another; at most the last one that a timestamp can tell."""
    try:
        then = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    except OverflowError:
        return LAST_MOMENT
    except ValueError:
        raise InvalidArgument(f"{moment[:40]!r} is not a moment such as 2026-11-21T09:00:00.000Z") from None
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")
