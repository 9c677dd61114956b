"""Calls from agent frameworks: ids of repeated calls, refusals as fallbacks or error results, recall for a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from memfiles.errors import ExtraMissing, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.tools.worker_calls import awaited_session_of, run_in_worker

if TYPE_CHECKING:
    from memfiles.tools.session import Session
    from memfiles.tools.worker_calls import ContextT, SessionSource

NO_MEMORY = "No memory is available at the moment."
"""The prompt when none can be made: some frameworks would reuse the last one for an empty prompt."""

_WITHOUT = "an agent continues its turn without memory: %s"
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
        _log.warning(_WITHOUT, error)
        return fallback


async def in_session(
    source: SessionSource[ContextT], context: ContextT, make: Callable[[Session], T], *, fallback: T
) -> T:
    """Return what ``make`` does in a worker thread with the session of a context; else as ``or_fallback``."""
    try:
        session = await awaited_session_of(source, context)
        return await run_in_worker(lambda: make(session))
    except MemfilesError as error:
        _log.warning(_WITHOUT, error)
        return fallback


def with_recall(
    messages: Sequence[T],
    session: Session,
    *,
    budget_bytes: int,
    question_in: Callable[[T], str | None],
    message_of: Callable[[str], T],
) -> list[T]:
    """The messages with what memory holds about the last question, in a message of its own before that question.

    ``question_in`` gives the text of a message of the user, None for any other message; ``message_of`` makes one. The
    messages before it stay as they are, so that a vendor's cache of them stays valid. Nothing is added if memory
    refuses or holds nothing.
    """
    asked = ((at, question_in(messages[at])) for at in reversed(range(len(messages))))
    at, question = next(((at, text) for at, text in asked if text is not None), (0, None))
    if question is None:
        return [*messages]
    block = or_fallback(lambda: session.recall(question, budget_bytes=budget_bytes).text, fallback="")
    return [*messages[:at], *([message_of(block)] if block else []), *messages[at:]]


def user_text(message: object) -> str | None:
    """The text of a user's message as Anthropic's and OpenAI's APIs take it, None for any other or a tool's result."""
    if not isinstance(message, Mapping) or message.get("role") != "user":
        return None
    content = message.get("content")
    parts: list[Any] = [content] if isinstance(content, str) else [*content] if isinstance(content, Iterable) else []
    blocks = [part for part in parts if isinstance(part, Mapping)]
    if any(block.get("type") == "tool_result" for block in blocks):
        return None
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, (str, Mapping))]
    return "\n".join(text for text in texts if isinstance(text, str))


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
