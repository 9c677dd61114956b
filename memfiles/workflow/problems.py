"""Problems of a document: their position, their wording, and the mapping of pydantic's errors to them.

The rule this file guards: no message repeats a value. Keys are shown only if they look like identifiers, because a
mis-indented line of somebody's memory may be read as a key.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.records import late_pattern

Where = tuple[str | int, ...]
"""The path to a value from the root of a document: mapping keys and list positions (from 0)."""

LineColumn = tuple[int, int]
"""A line and a column, both from 1."""

REPORTED_MAX = 100
_GUESSED_FROM_MAX = 1000
_LISTED_MAX = 10
_SPELLED_MAX = 200
_IDENTIFIER = late_pattern(r"[A-Za-z0-9_@$][A-Za-z0-9_@$./:+-]{0,63}", re.ASCII)
_PLAIN_STEP = late_pattern(r"[\w@$][\w@$-]{0,63}")


class Problem(Struct, frozen=True):
    """One problem: its path, and a message with the remedy."""

    where: Where
    what: str
    at_key: bool = False
    """Whether the key itself is wrong, so that its position is shown instead of its value's."""
    written: str = ""
    """The word that was written where one of ``allowed`` was expected; the nearest one is suggested."""
    allowed: Collection[str] = ()

    def sentence(self) -> str:
        """The problem in words, with the nearest allowed word if there is one."""
        return self.what + did_you_mean(self.written, self.allowed)


def did_you_mean(written: str, allowed: Collection[str]) -> str:
    """The end of a message: the allowed word most like ``written``, else all allowed words if they are few."""
    nearest = nearest_to(written, allowed)
    if nearest:
        return f"; did you mean {nearest!r}?"
    return f"; use one of {', '.join(allowed)}" if 0 < len(allowed) <= _LISTED_MAX else ""


def nearest_to(written: str, allowed: Collection[str]) -> str | None:
    """The allowed word most like ``written``; None if none is similar."""
    if len(written) > 64 or len(allowed) > _GUESSED_FROM_MAX:  # difflib is quadratic
        return None
    by_folded = {_folded(word): word for word in allowed}
    nearest = get_close_matches(_folded(written), by_folded, n=1)
    return by_folded[nearest[0]] if nearest else None


def is_identifier(text: str) -> bool:
    """Whether ``text`` may appear in a message, as it looks like a name rather than content."""
    return _IDENTIFIER.fullmatch(text) is not None


def shown(text: object) -> str:
    """``text`` quoted, after a space, if it looks like an identifier; else nothing."""
    return f" {text!r}" if isinstance(text, str) and is_identifier(text) else ""


def spelled(where: Where) -> str:
    """A path as people write it, such as ``memory.files[0].uid``; the start of a long one is cut."""
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" if _PLAIN_STEP.fullmatch(step) else ".(key)"
        for step in where
    )
    text = "".join(steps).removeprefix(".")
    return text if len(text) <= _SPELLED_MAX else "..." + text[-_SPELLED_MAX:]


def workflow_error(
    source: str, problems: Iterable[Problem], *, locate: Callable[[Problem], LineColumn]
) -> WorkflowError:
    """One error for all ``problems``: a line each, ``source:line:column: path: what``, in the document's order."""
    placed = sorted(((locate(problem), problem) for problem in problems), key=lambda pair: pair[0])
    lines = []
    for (line, column), problem in placed[:REPORTED_MAX]:
        path = spelled(problem.where)
        lines.append(f"{printable(source)}:{line}:{column}: {path}{': ' if path else ''}{problem.sentence()}")
    if len(placed) > REPORTED_MAX:
        lines.append(f"{printable(source)}: and {len(placed) - REPORTED_MAX} more problems")
    return WorkflowError("\n".join(lines))


def printable(text: str) -> str:
    """``text`` with unprintable characters escaped, so that it cannot forge a line or move a cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _folded(word: str) -> str:
    """``maxSizeBytes``, ``max-size-bytes`` and ``max_size_bytes`` as one word."""
    return re.sub(r"[_.\-\s]", "", word).casefold()


_MESSAGES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda ctx: "this key is missing; add it",
    "extra_forbidden": lambda ctx: "unknown key",
    "model_type": lambda ctx: "this must be a mapping",
    "dict_type": lambda ctx: "this must be a mapping",
    "tuple_type": lambda ctx: "this must be a list",
    "string_type": lambda ctx: "this must be text",
    "int_type": lambda ctx: "this must be a whole number",
    "literal_error": lambda ctx: f"use {ctx['expected']}",
    "greater_than_equal": lambda ctx: f"this must be at least {ctx['ge']}",
    "less_than_equal": lambda ctx: f"this must be at most {ctx['le']}",
    "string_too_long": lambda ctx: f"this must be at most {ctx['max_length']} characters long",
    "value_error": lambda ctx: str(ctx["error"]),
}


def problems_in(error: ValidationError, *, model: type[BaseModel]) -> list[Problem]:
    """The problems that pydantic found in the data of a ``model``."""
    return [_problem(details, model) for details in error.errors(include_url=False)]


def invalid_argument(problems: list[Problem], *, model: type[BaseModel]) -> InvalidArgument:
    """The error for a ``model`` that was built in Python, so without a line number."""
    lines = (f"{model.__name__}: {spelled(problem.where)}: {problem.sentence()}" for problem in problems)
    return InvalidArgument("\n".join(lines))


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    where: Where = tuple(step for step in details["loc"] if step != "[key]")
    if details["type"] == "extra_forbidden":
        return Problem(where, "unknown key", at_key=True, written=str(where[-1]), allowed=_keys_at(model, where[:-1]))
    return Problem(where, _message(details), at_key="[key]" in details["loc"])


def _message(details: ErrorDetails) -> str:
    if details["type"] != "missing" and details["input"] is None:
        return "this key has no value; set one, or remove the key"
    say = _MESSAGES.get(details["type"])
    text = say(details.get("ctx", {})) if say else details["msg"]
    if details["type"] == "string_type" and isinstance(details["input"], (bool, int, float)):
        return f"{text}; put it in quotes"
    if details["type"] == "int_type" and isinstance(details["input"], str):
        return f"{text}, without quotes"
    return text


def _keys_at(model: type[BaseModel], where: Where) -> Collection[str]:
    """The keys that the model allows in the mapping at ``where``."""
    kind: Any = model
    for step in where:
        if hasattr(kind, "model_fields"):
            kind = kind.model_fields[step].annotation
        else:  # X of tuple[X, ...] or dict[str, X]
            kind = get_args(kind)[1 if get_origin(kind) is dict else 0]
        if get_origin(kind) in (Union, types.UnionType):  # X | None
            kind = next(option for option in get_args(kind) if option is not type(None))
    return tuple(getattr(kind, "model_fields", ()))
