"""What only a whole workflow can show is found in right and in wrong data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.workflow.problems import ParsedWorkflow, Problem, Where, cross_problems
from memfiles.workflow.workflow import directory_problem

KEYS = ["memory", "agents", "files", "uid", "name", "level", "levels", "id", "mode"]
ANYTHING: Any = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["a", "A", "b", "PUBLIC"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


def places(document: dict[str, Any]) -> list[Where]:
    return [problem.where for problem in cross_problems(document)]


@pytest.mark.slow
@given(memory=ANYTHING, agents=ANYTHING)
def test_wrong_kinds_are_passed_over(memory: Any, agents: Any) -> None:
    """Data of any kind gives problems at places that are in it, and no exception."""
    document = {"memory": memory, "agents": agents}
    for where in places(document):
        value: Any = document
        for step in where:
            value = value[step]
        assert isinstance(value, str)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, []),
        ({"memory": {"files": [{"uid": "a", "name": "n"}, {"uid": "b", "name": "m"}]}}, []),
        (
            {"memory": {"files": [{"uid": "a"}, {"uid": "a"}, {"uid": "a"}]}},
            [("memory", "files", 1, "uid"), ("memory", "files", 2, "uid")],
        ),
        ({"memory": {"files": [{"name": "a"}, {"name": "A"}, {"name": "a"}]}}, [("memory", "files", 2, "name")]),
        ({"memory": {"files": [{"uid": "a"}, {"uid": "A"}]}}, [("memory", "files", 1, "uid")]),
        ({"memory": {"levels": [1, "A", "A"]}}, [("memory", "levels", 2)]),
        ({"memory": {"levels": 5, "files": [{"level": "Q"}]}}, []),
        (
            {"memory": {"files": [{"level": "Q"}]}, "agents": {"s": {"level": "PUBLIC"}}},
            [("memory", "files", 0, "level")],
        ),
        ({"agents": {"s": {"memory": [{"id": "a"}]}}}, [("agents", "s", "memory", 0, "id")]),
    ],
)
def test_problems(document: dict[str, Any], expected: list[Where]) -> None:
    """Repeated uids, names and levels, clashes by case, unknown levels and dangling references are found."""

    assert expected == places(document)


@pytest.mark.parametrize(
    ("directory", "is_fine"),
    [
        (".memory", True),
        ("..x", True),
        ("../x", True),
        ("/x", True),
        ("/home/me/app2", True),
        ("a/..", False),
        ("../app", False),
        ("/home/me/app/", False),
        ("/home", False),
        ("../../..", False),
        ("/", False),
        ("/home//me/./app", False),
    ],
)
def test_directory(directory: str, is_fine: bool) -> None:
    """The memory may lie anywhere but in the workflow's own folder and those above it."""

    assert is_fine == (directory_problem(directory, folder=Path("/home/me/app")) is None)


def test_reading_leads_back() -> None:
    """A problem is told at the path of the nearest part whose origin is known."""
    reading = ParsedWorkflow({}, origins={("files", 0): ("memory", 3), ("files", 0, "uid"): ("memory", 3, "id")})

    assert [("memory", 3, "id"), ("memory", 3, "x", 1), ("memory", 3), ("files", 1)] == [
        reading.as_written(Problem(where, "bad")).where
        for where in [("files", 0, "uid"), ("files", 0, "x", 1), ("files", 0), ("files", 1)]
    ]
