"""What an item holds comes back as it was, and filters compare it as LangGraph's own stores do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.adapters.shapes.item_values import fits, from_text, to_text
from memfiles.errors import InvalidArgument

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_an_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    """Whatever JSON can hold."""

    assert value == from_text(to_text(value))


@pytest.mark.parametrize(
    "value", [{"x": object()}, {"x": float("nan")}, {"x": {1: "a"}}, {"x": [{None: 1}]}, {2: "a"}, {"x": b"bytes"}]
)
def test_what_json_cannot_hold_is_refused(value: dict[str, Any]) -> None:
    """Rather than kept as something else."""
    with pytest.raises(InvalidArgument, match="an object that JSON can hold"):
        to_text(value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    """And ends no program."""
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"x": value}
    with pytest.raises(InvalidArgument):
        to_text(value)


@pytest.mark.parametrize("text", ["Ada is on Pro.", "[1]", "12", '{"broken": ', "[" * 100_000])
def test_what_somebody_made_of_it_is_shown_as_text(text: str) -> None:
    """An agent or a person may change the entry: nothing is lost, and nothing raises."""

    assert {"content": text} == from_text(text)


VALUE = {
    "plan": "pro",
    "seats": 7,
    "since": "2024",
    "open": True,
    "tags": ["a", "b"],
    "owner": {"name": "Ada", "id": 1},
}


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        {},
        {"plan": "pro"},
        {"plan": "pro", "seats": 7},
        {"missing": None},
        {"tags": ["a", "b"]},
        {"tags": ("a", {"$ne": "x"})},
        {"owner": {"name": "Ada"}},
        {"owner": {"id": {"$lt": 2}}},
        {"plan": {"$eq": "pro"}},
        {"plan": {"$ne": "free"}},
        {"missing": {"$ne": "free"}},
        {"seats": {"$gt": 6.5, "$lte": 7}},
        {"seats": {"$gte": 7, "$lt": "8"}},
        {"since": {"$gt": 2023}},
    ],
)
def test_what_fits(wanted: dict[str, Any] | None) -> None:
    """All that is asked for must hold; a missing field is as null, and numbers may be written as text."""

    assert fits(VALUE, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"plan": "free"},
        {"plan": "pro", "seats": 8},
        {"tags": ["a"]},
        {"tags": ["b", "a"]},
        {"plan": {"name": "Ada"}},
        {"plan": {"$gt": 1}},
        {"missing": {"$lt": 1}},
        {"seats": {"$gt": 7}},
        {"seats": {"$gt": 1, "$lt": 2}},
    ],
)
def test_what_does_not_fit(wanted: dict[str, Any]) -> None:
    """What is no number is neither more nor less than one."""

    assert not fits(VALUE, wanted)


def test_an_unknown_comparison_is_an_error() -> None:
    """It is the program's mistake, and silence would hide it."""
    with pytest.raises(InvalidArgument, match=r"no comparison '\$in': use \$eq, \$ne"):
        fits(VALUE, {"plan": {"$in": ["pro"]}})
