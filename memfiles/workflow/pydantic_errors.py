"""What pydantic finds wrong, in our words and without the values.

The one place where pydantic's errors are mapped.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memfiles.errors import InvalidArgument
from memfiles.workflow.problems import Problem, Where, spelled

_SAID: dict[str, Callable[[Mapping[str, Any]], str]] = {
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
    """Each thing pydantic found wrong in data that should have been a ``model``."""
    return [_problem(details, model) for details in error.errors(include_url=False)]


def invalid_argument(problems: list[Problem], *, model: type[BaseModel]) -> InvalidArgument:
    """The error for a ``model`` built in Python, where there is no line to point at."""
    lines = (f"{model.__name__}: {spelled(problem.where)}: {problem.sentence()}" for problem in problems)
    return InvalidArgument("\n".join(lines))


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    where: Where = tuple(step for step in details["loc"] if step != "[key]")
    if details["type"] == "extra_forbidden":
        return Problem(where, "unknown key", at_key=True, written=str(where[-1]), allowed=_keys_at(model, where[:-1]))
    return Problem(where, _said(details), at_key="[key]" in details["loc"])


def _said(details: ErrorDetails) -> str:
    if details["type"] != "missing" and details["input"] is None:
        return "this has no value; give it one, or remove it"
    say = _SAID.get(details["type"])
    text = say(details.get("ctx", {})) if say else details["msg"]
    if details["type"] == "string_type" and isinstance(details["input"], (bool, int, float)):
        return f"{text}; put it in quotes"
    if details["type"] == "int_type" and isinstance(details["input"], str):
        return f"{text}, without quotes"
    return text


def _keys_at(model: type[BaseModel], where: Where) -> Collection[str]:
    """The keys that the models allow in the mapping at ``where``."""
    kind: Any = model
    for step in where:
        kind = kind.model_fields[step].annotation if _is_model(kind) else _item_kind(kind)
        kind = _without_none(kind)
    return tuple(kind.model_fields) if _is_model(kind) else ()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _item_kind(kind: Any) -> Any:
    """``X`` of ``tuple[X, ...]`` or ``dict[str, X]``."""
    arguments = get_args(kind)
    return arguments[1] if get_origin(kind) is dict else arguments[0]


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    return next(option for option in get_args(kind) if option is not type(None))
