"""Hydration: which entries the model sees at the start of a run, under a budget in bytes; and why one is in or out.

The rule this file guards: one walk decides and explains, so the two cannot disagree. Entries are offered in their
order (``Standing.turn``: the held ones first, then the newest); each that still fits is taken, and one that does not is
passed over and not a full stop. The budget covers the whole block, and the same state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memfiles.entries.hydration.explanation import Explanation, Reason, out_of_sight, unknown
from memfiles.entries.hydration.rendering import HEAD, HEAD_BYTES, Worded, block_of, least_bytes
from memfiles.entries.summary import EntrySummary

ContentLookup = Callable[[str], Worded | None]
"""What the entry of a uid says, or None if it is gone meanwhile. Asked only for what may still fit."""

_A_MOMENT: Final = "2026-11-21T09:00:00.000Z"
LEAST_BLOCK_BYTES: Final = least_bytes(EntrySummary("", "k", "L", updated_at=_A_MOMENT))


@dataclass(frozen=True, slots=True)
class Hydration:
    """The block of the system prompt that holds entries, "" if none fits, and their keys. Sizes are UTF-8 bytes."""

    text: str
    keys: tuple[str, ...]
    budget_bytes: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole block."""
        return len(self.text.encode())


class Window:
    """The block while it fills up to ``budget_bytes``, as the moment ``now`` sees it; for one walk.

    ``room`` is the most bytes that the content of the next entry can have and fit, -1 if nothing fits any more. Whoever
    reads entries from an index page by page may leave out those whose content is larger: they would be passed over.
    """

    def __init__(self, budget_bytes: int, *, now: str) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.now = now
        self.room = _room(budget_bytes - HEAD_BYTES - 1)
        self._blocks: list[str] = []
        self._keys: list[str] = []

    @property
    def hydration(self) -> Hydration:
        """What was taken so far."""
        text = "\n".join([HEAD, *self._blocks]) if self._blocks else ""
        return Hydration(text, tuple(self._keys), self.budget_bytes)

    def fill(self, standings: Iterable[EntrySummary], words: ContentLookup) -> Hydration:
        """Take what fits of the standings, which come in their order; stops as soon as nothing can fit any more."""
        for standing in self._possible(standings):
            self._offer(standing, words)
        return self.hydration

    def explain(self, standing: EntrySummary, standings: Iterable[EntrySummary], words: ContentLookup) -> Explanation:
        """Why the standing, one of ``standings``, is taken or not: fills the window up to its turn."""
        for earlier in self._possible(standings):
            if earlier.turn <= standing.turn:
                break
            self._offer(earlier, words)
        worded = words(standing.uid)
        return unknown(standing.key) if worded is None else self._verdict(standing, block_of(standing, worded))

    def _possible(self, standings: Iterable[EntrySummary]) -> Iterator[EntrySummary]:
        """The standings that may be shown and may fit, for as long as there is room for any."""
        for standing in standings:
            if standing.size_bytes <= self.room and standing.is_usable(self.now):
                yield standing
            if self.room < 0:
                return

    def _offer(self, standing: EntrySummary, words: ContentLookup) -> None:
        """Take the entry if it fits; what it says is read only if it may."""
        worded = words(standing.uid) if least_bytes(standing) <= self._left else None
        if worded is None:
            return
        block = block_of(standing, worded)
        verdict = self._verdict(standing, block)
        if verdict.is_shown:
            self.used_bytes += verdict.needed_bytes or 0
            self._blocks.append(block)
            self._keys.append(standing.key)
            self.room = _room(self._left)

    def _verdict(self, standing: EntrySummary, block: str) -> Explanation:
        size = len(block.encode())
        reason = self._reason(standing, size)
        is_shown = reason in ("pinned", "windowed")
        return Explanation(
            standing.key,
            reason,
            standing.level,
            position=len(self._keys) + 1 if is_shown else None,
            needed_bytes=size + (HEAD_BYTES + 1 if reason == "too_big" else self._overhead),
            used_bytes=self.used_bytes,
            budget_bytes=self.budget_bytes,
        )

    def _reason(self, standing: EntrySummary, size: int) -> Reason:
        if HEAD_BYTES + 1 + size > self.budget_bytes:
            return "too_big"
        if size > self._left:
            return "over_budget"
        return "pinned" if standing.is_held else "windowed"

    @property
    def _left(self) -> int:
        """What the block of the next entry may take."""
        return self.budget_bytes - self.used_bytes - self._overhead

    @property
    def _overhead(self) -> int:
        """The newline before an entry's block; before the first one also the head."""
        return 1 if self._blocks else HEAD_BYTES + 1


def _room(left_bytes: int) -> int:
    """The most content that a block of that size can hold: one of two bytes makes it no longer than one of none."""
    slack = left_bytes - LEAST_BLOCK_BYTES
    return slack + 2 if slack >= 0 else -1


def hydrate(standings: Iterable[EntrySummary], words: ContentLookup, *, budget_bytes: int, now: str) -> Hydration:
    """The block for what a session sees: standings in their order, one a key; others than live ones are passed over."""
    return Window(budget_bytes, now=now).fill(standings, words)


def explain(
    key: str,
    window: Window,
    *,
    under_key: Sequence[EntrySummary],
    standings: Iterable[EntrySummary],
    words: ContentLookup,
) -> Explanation:
    """Why the entry of ``key`` is in the block that ``window``, still empty, would become of ``standings``, or is not.

    ``under_key`` are all the records of the key that the session may know of, whatever their state, the one that
    shadows the others first. The one that is seen is explained, or else the first; the rest are its ``others``.
    """
    known = [standing for standing in under_key if standing.state != "forgotten"]
    seen = next((standing for standing in known if standing.is_usable(window.now)), None)
    by_level = seen.level if seen else None
    told = [out_of_sight(each, by_level=by_level, now=window.now) for each in known if each is not seen]
    if seen is not None:
        told.insert(0, window.explain(seen, standings, words))
    return replace(told[0], others=tuple(told[1:])) if told else unknown(key)
