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
