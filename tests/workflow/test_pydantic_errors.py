"""Pydantic's findings are told in our words, and none of its own comes through."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from memfiles.workflow.problems import Problem
from memfiles.workflow.pydantic_errors import invalid_argument, problems_in


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 0
    label: str = ""


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner | None = None
    rows: tuple[Inner, ...] = ()
    named: dict[str, Inner] = {}
    when: float = 0


def problems(data: Any) -> list[Problem]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(data)
    return problems_in(caught.value, model=Outer)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"inner": {"sise": 1}}, "unknown key; did you mean 'size'?"),
        ({"rows": [{"lable": 1}]}, "unknown key; did you mean 'label'?"),
        ({"named": {"x": {"lable": 1}}}, "unknown key; did you mean 'label'?"),
        ({"zzz": 1}, "unknown key; use one of inner, rows, named, when"),
        ({"inner": 5}, "this must be a mapping"),
        ({"named": 5}, "this must be a mapping"),
        ({"rows": 5}, "this must be a list"),
        ({"rows": [None]}, "this has no value; give it one, or remove it"),
        ({"inner": {"label": 5}}, "this must be text; put it in quotes"),
        ({"inner": {"label": []}}, "this must be text"),
        ({"when": []}, "Input should be a valid number"),
    ],
)
def test_said(data: Any, expected: str) -> None:
    """Each finding has a sentence that says what to do; a kind without one keeps pydantic's."""

    assert [expected] == [problem.sentence() for problem in problems(data)]


def test_a_key_of_the_wrong_kind() -> None:
    """A bad key is told at the key."""
    (problem,) = problems({"named": {5: {}}})

    assert (("named", 5), True) == (problem.where, problem.at_key)


def test_invalid_argument() -> None:
    """In Python there is no line to point at, so the model's name and the path stand in front."""
    error = invalid_argument(problems({"rows": [{"size": []}], "when": None}), model=Outer)

    assert [
        "Outer: rows[0].size: this must be a whole number",
        "Outer: when: this has no value; give it one, or remove it",
    ] == str(error).splitlines()
