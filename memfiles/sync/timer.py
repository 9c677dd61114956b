"""What is done again and again, and when the next time is. Time is passed in, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Timer:
    """``run`` is due ``at`` a time, and from then on ``every`` so often (infinite: never again)."""

    run: Callable[[], None]
    at: float
    every: float

    def run_if_due(self, now: float) -> None:
        """Run if it is time."""
        if now >= self.at:
            self.at = now + self.every
            self.run()
