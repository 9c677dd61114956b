"""Why the model sees an entry at the start of a run or does not, in numbers.

The rule this file guards: an entry that the session may not know of is explained as one that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from memfiles.entries.summary import EntrySummary

Reason = Literal["pinned", "windowed", "too_big", "over_budget", "expired", "evicted", "deleted", "shadowed", "unknown"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one entry is in the block or out of it. Sizes are UTF-8 bytes.

    ``needed_bytes`` is what it takes or would take, ``used_bytes`` what those before it take, and ``position`` (from 1)
    its place if it is shown. ``since`` is when it expired; ``by_level`` the level of the entry of the same key that
    is seen instead. ``others`` are the other entries of the key that the session may know of.
    """

    key: str
    reason: Reason
    level: str | None = None
    position: int | None = None
    needed_bytes: int | None = None
    used_bytes: int | None = None
    budget_bytes: int | None = None
    since: str | None = None
    by_level: str | None = None
    others: tuple[Explanation, ...] = ()

    @property
    def is_shown(self) -> bool:
        """Whether the model sees it."""
        return self.reason in ("pinned", "windowed")

    @property
    def left_bytes(self) -> int | None:
        """What of the budget was left when its turn came."""
        if self.budget_bytes is None or self.used_bytes is None:
            return None
        return max(0, self.budget_bytes - self.used_bytes)

    @property
    def sentence(self) -> str:
        """The reason with its numbers, for a person."""
        needed, left, budget = self.needed_bytes, self.left_bytes, self.budget_bytes
        placed = f"number {self.position} in the block: {needed} bytes after {self.used_bytes} of {budget}"
        return {
            "pinned": f"shown, because it is pinned; {placed}",
            "windowed": f"shown, because it is recent enough; {placed}",
            "too_big": f"not shown: it needs {needed} bytes and the whole budget is {budget}",
            "over_budget": f"not shown: it needs {needed} bytes and {left} of {budget} were left when its turn came",
            "expired": f"not shown: it expired at {self.since}",
            "evicted": "not shown: it was evicted over a budget; restore it to see it again",
            "deleted": "not shown: it was deleted; restore it to see it again",
            "shadowed": f"not shown: the entry of the same key at level {self.by_level} is seen instead",
            "unknown": "there is no such entry",
        }[self.reason]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; what does not apply is left out."""
        numbers = ("level", "position", "needed_bytes", "used_bytes", "left_bytes", "budget_bytes", "since", "by_level")
        said = {name: value for name in numbers if (value := getattr(self, name)) is not None}
        others = {"others": [other.to_dict() for other in self.others]} if self.others else {}
        shown = {"key": self.key, "shown": self.is_shown, "reason": self.reason}
        return {**shown, "sentence": self.sentence, **said, **others}


def unknown(key: str) -> Explanation:
    """The explanation of a key under which the session may know of nothing."""
    return Explanation(key, "unknown")


def out_of_sight(standing: EntrySummary, *, by_level: str | None, now: str) -> Explanation:
    """Why an entry is never offered: it was retired, it expired, or another level's entry of its key is seen."""
    key, level = standing.key, standing.level
    if standing.state == "deleted" or standing.state == "evicted":
        return Explanation(key, standing.state, level)
    if standing.is_expired(now):
        return Explanation(key, "expired", level, since=standing.expires_at)
    return Explanation(key, "shadowed", level, by_level=by_level)
