"""Fork safety: an object renews itself in a forked child, where a lock that another thread held is never released."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def renew_in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Call ``renew`` with ``owner`` in every child forked while the owner is in use."""
    reference = weakref.ref(owner)

    def run() -> None:
        if (alive := reference()) is not None:
            renew(alive)

    os.register_at_fork(after_in_child=run)


class Forks:
    """Counts the forks begun and done by this process and its ancestors."""

    begun = 0
    done = 0

    @classmethod
    def so_far(cls) -> int | None:
        """A number that changes with every fork; None while one is under way."""
        return cls.begun if cls.begun == cls.done else None

    @classmethod
    def begin(cls) -> None:
        """Count a fork that is about to happen."""
        cls.begun += 1

    @classmethod
    def end(cls) -> None:
        """Count a fork that is over, successful or not."""
        cls.done += 1


os.register_at_fork(before=Forks.begin, after_in_parent=Forks.end, after_in_child=Forks.end)
