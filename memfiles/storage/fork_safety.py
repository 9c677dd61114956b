"""Fork safety: an object renews itself in a forked child, where a lock that another thread held is never released."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

T = TypeVar("T")
_renewals: dict[int, Callable[[], Any]] = {}  # of the objects alive, the oldest first
_numbers = itertools.count()


def renew_in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Call ``renew`` with ``owner`` in every child forked while the owner is in use."""
    number = next(_numbers)
    reference = weakref.ref(owner, lambda _: _renewals.pop(number, None))
    _renewals[number] = lambda: renew(alive) if (alive := reference()) is not None else None


def _renew_all() -> None:
    with ExitStack() as stack:  # calls all of them, also after one failed
        for renew in list(_renewals.values())[::-1]:
            stack.callback(renew)


os.register_at_fork(after_in_child=_renew_all)  # one handler for all: none can be removed
