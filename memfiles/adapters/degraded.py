"""A turn of an agent whose memory cannot be used just now: it goes on without, and the log says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from memfiles.errors import MemfilesError

GONE = "No memory can be used at the moment."
"""The prompt where none can be made: with an empty one some frameworks would show the last one again."""

_log = logging.getLogger("memfiles")
T = TypeVar("T")


def made(make: Callable[[], T], *, instead: T) -> T:
    """What ``make`` returns, or ``instead`` where the memory refuses."""
    try:
        return make()
    except MemfilesError as error:
        _log.warning("a turn of an agent goes without its memory: %s", error)
        return instead
