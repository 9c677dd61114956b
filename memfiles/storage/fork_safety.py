"""What an object does first in the child of a fork: a lock that another thread held stays locked there for ever."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def renew_in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Have ``renew`` called with ``owner`` in every child forked while the owner is in use."""
    reference = weakref.ref(owner)

    def run() -> None:
        if (alive := reference()) is not None:
            renew(alive)

    os.register_at_fork(after_in_child=run)


class Forks:
    """How many children this process and those it comes from began to fork, and how many of these forks are done."""

    begun = 0
    done = 0

    @classmethod
    def so_far(cls) -> int | None:
        """Equal before and after something only if no child was forked in between; None while one is."""
        return cls.begun if cls.begun == cls.done else None

    @classmethod
    def begin(cls) -> None:
        """A child is about to be forked."""
        cls.begun += 1

    @classmethod
    def end(cls) -> None:
        """It was, or could not be."""
        cls.done += 1


os.register_at_fork(before=Forks.begin, after_in_parent=Forks.end, after_in_child=Forks.end)
