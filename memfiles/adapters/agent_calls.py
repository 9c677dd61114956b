"""Calls from agent frameworks: ids of repeated calls, and refusals turned into fallbacks or error results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from memfiles.errors import ExtraMissing, MemfilesError

NO_MEMORY = "No memory is available at the moment."
"""The prompt when none can be made: some frameworks would reuse the last one for an empty prompt."""

_log = logging.getLogger("memfiles")
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import a framework in the block; ``ExtraMissing`` with this message if it is not installed."""
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(extra) from error


def call_id_in_conversation(call_id: str | None, *, answered: Iterable[object]) -> str | None:
    """The id under which the history records a call, given the ids of calls that have a result in the conversation.

    It is the call's own id, with a number if a call of that id has a result already: some model servers restart their
    ids with every response, so one conversation has many calls ``call_0``. A call that is repeated because its result
    was lost gets the same id again. Empty ids stay as they are.
    """
    before = sum(each == call_id for each in answered) if call_id else 0
    return f"{call_id}#{before + 1}" if before else call_id


def or_fallback(make: Callable[[], T], *, fallback: T) -> T:
    """Return the result of ``make``, or ``fallback`` if the memory refuses; the turn continues and the log says why."""
    try:
        return make()
    except MemfilesError as error:
        _log.warning("an agent continues its turn without memory: %s", error)
        return fallback


def errors_as(result: Callable[..., T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a method return ``result(error=...)`` where it would raise; an invalid path is a ``ValueError``."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def guarded(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                return method(*arguments, **options)
            except (MemfilesError, ValueError) as error:
                return result(error=str(error))

        return guarded

    return decorate
