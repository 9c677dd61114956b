"""The schedule of the sync: which records are due, and when. Time is passed in, in seconds.

The rules this file guards: changes in quick succession wait for a short quiet and are pushed as one, but not for ever;
a record is in the hands of one worker at a time; and while the mirror does not answer, one worker at a time asks it,
less and less often (exponential with full jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

QUIET_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 30.0


class Task(NamedTuple):
    """A record to reconcile; ``look`` at its copy even if nothing changed here."""

    path: str
    look: bool


@dataclass(slots=True)
class _Due:
    """When a record is due, since when it waits, and whether to look at its copy."""

    at: float
    since: float
    look: bool = False


class Schedule:
    """The waiting records, those in hand, and the state of the mirror. Not thread-safe."""

    def __init__(self, *, hands: int) -> None:
        """At most ``hands`` records are in hand at once."""
        self._hands = hands
        self._due: dict[str, _Due] = {}
        self._in_hand: dict[str, float] = {}
        self._failures = 0
        self._not_before = 0.0

    @property
    def pending(self) -> int:
        """How many records wait or are in hand."""
        return len(self._due.keys() | self._in_hand.keys())

    @property
    def is_failing(self) -> bool:
        """Whether the mirror did not answer when it was last asked."""
        return self._failures > 0

    @property
    def _is_full(self) -> bool:
        """Whether no record may be taken: all hands are full; a mirror that does not answer is tried by one only."""
        return len(self._in_hand) >= (1 if self._failures else self._hands)

    def is_put_off(self, *, now: float) -> bool:
        """Whether nothing is in hand, and nothing will be due for longer than a change waits for a quiet."""
        return not self._in_hand and all(due.at > now + LONGEST_WAIT_SECONDS for due in self._due.values())

    def changed(self, path: str, *, now: float) -> bool:
        """A record changed: it is due after a short quiet. True if it did not wait already."""
        if (due := self._due.get(path)) is not None:
            due.at = max(due.at, min(due.since + LONGEST_WAIT_SECONDS, now + QUIET_SECONDS))
            return False
        self._due[path] = _Due(now + QUIET_SECONDS, now)
        return True

    def at_once(self, path: str, *, now: float, look: bool = False) -> None:
        """A record is due now."""
        due = self._due.setdefault(path, _Due(now, now))
        due.at, due.look = min(due.at, now), due.look or look

    def hurry(self, *, now: float) -> None:
        """Someone waits: everything is due now, even if the mirror did not answer."""
        self._not_before = min(self._not_before, now)
        for due in self._due.values():
            due.at = min(due.at, now)

    def take(self, *, now: float) -> Task | None:
        """Take the next record that is due; None if there is none yet."""
        if now < self._not_before or self._is_full:
            return None
        for path, due in self._due.items():
            if due.at <= now and path not in self._in_hand:
                del self._due[path]
                self._in_hand[path] = due.since
                return Task(path, due.look)
        return None

    def next_at(self) -> float | None:
        """When to call ``take`` again; None: only after another call changed the schedule."""
        if self._is_full:  # called after every task: with thousands waiting, there is no time to look at each
            return None
        earliest = min((due.at for path, due in self._due.items() if path not in self._in_hand), default=None)
        return None if earliest is None else max(self._not_before, earliest)

    def done(self, task: Task, *, answered: bool) -> None:
        """The record was reconciled as of when it was taken; ``answered``: the mirror had to be asked."""
        self._in_hand.pop(task.path, None)
        if answered:
            self._failures, self._not_before = 0, 0.0

    def postponed(self, task: Task, *, now: float, seconds: float) -> None:
        """Try the record again later: another process has it in hand, or it failed although the mirror answers."""
        self._put_back(task, at=now + seconds)

    def failed(self, task: Task, *, now: float, share: float) -> None:
        """The mirror did not answer; ``share`` is between 0 and 1, and random."""
        if now >= self._not_before:  # simultaneous failures count as one
            self._failures += 1
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 30))
        self._not_before = now + share * pause
        self._put_back(task, at=now)

    def _put_back(self, task: Task, *, at: float) -> None:
        since = self._in_hand.pop(task.path, at)
        due = self._due.setdefault(task.path, _Due(at, since))
        due.since, due.look = min(due.since, since), due.look or task.look
