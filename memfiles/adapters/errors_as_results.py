"""What the memory refuses, told in the results of a library whose methods never raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from memfiles.errors import MemfilesError

P = ParamSpec("P")
R = TypeVar("R")


def told_by(result: Callable[..., R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a method return ``result(error=...)`` where it would raise; a path that cannot be is a ``ValueError``."""

    def telling(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def told(*arguments: P.args, **options: P.kwargs) -> R:
            try:
                return method(*arguments, **options)
            except (MemfilesError, ValueError) as error:
                return result(error=str(error))

        return told

    return telling
