"""How problems are told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from memfiles.workflow.declared import invalid_argument, read
from memfiles.workflow.problems import (
    REPORTED_MAX,
    Problem,
    did_you_mean,
    in_quotes,
    path_text,
    printable,
    problem_of,
    workflow_error,
)


def test_one_line_a_problem_in_the_documents_order() -> None:
    """The error holds every problem once, each with its position and path, the first one first."""
    places = {("b",): (3, 1), ("a", 0, "x"): (2, 5), (): (1, 1)}
    error = workflow_error("w.yaml", [(at, Problem(where, "bad")) for where, at in places.items()])

    assert ["w.yaml:1:1: bad", "w.yaml:2:5: a[0].x: bad", "w.yaml:3:1: b: bad"] == str(error).splitlines()


def test_many_problems() -> None:
    """Of very many problems the first hundred are told, and how many more there are."""
    problems = [Problem(("a", index), "bad") for index in range(REPORTED_MAX + 7)]
    error = workflow_error("w", [((int(it.where[1]), 1), it) for it in problems])

    assert [REPORTED_MAX + 1, "w: and 7 more problems"] == [
        len(str(error).splitlines()),
        str(error).splitlines()[-1],
    ]


@pytest.mark.parametrize(
    ("written", "allowed", "expected"),
    [
        ("maxSizeBytes", ["uid", "max_size_bytes"], "; did you mean 'max_size_bytes'?"),
        ("lvl", ["level", "memory"], "; did you mean 'level'?"),
        ("zzz", ["uid", "name"], "; use one of uid, name"),
        ("zzz", [f"k{index}" for index in range(14)], ""),
        ("uids", [*(f"k{index}" for index in range(2000)), "uid"], ""),
        ("u" * 65, ["u" * 64, *"abcdefghijklmn"], ""),
        ("", [], ""),
    ],
)
def test_did_you_mean(written: str, allowed: list[str], expected: str) -> None:
    """The nearest allowed word is suggested, else a short list of all; long searches are left out."""

    assert expected == did_you_mean(written, allowed)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((), ""),
        (("memory", "files", 0, "uid"), "memory.files[0].uid"),
        ((0, "a"), "[0].a"),
        (("agents", "Ünal"), "agents.Ünal"),
        (("agents", "the password is x"), "agents.(key)"),
        (("a\nb",), "(key)"),
        (("k" * 65,), "(key)"),
        (tuple("k" * 150), "..." + ".k" * 100),
    ],
)
def test_spelled(where: tuple[str | int, ...], expected: str) -> None:
    """Paths are told as people write them; a key that is no identifier is not repeated."""

    assert expected == path_text(where)


@pytest.mark.parametrize(
    ("text", "expected"), [("rw", " 'rw'"), ("a b", ""), ("x" * 65, ""), (5, ""), ("a\n", ""), ("", "")]
)
def test_shown(text: object, expected: str) -> None:
    """Only what looks like an identifier is repeated in a message."""

    assert expected == in_quotes(text)


def test_printable() -> None:
    """What could forge a line or move a cursor is written as an escape."""

    assert "a\\n\\x1b[0m\\u2028\\udc80é" == printable("a\n\x1b[0m\u2028\udc80é")


class Inner(Struct):
    size: int = 0
    label: str = ""


class Outer(Struct):
    inner: Inner | None = None
    rows: tuple[Inner, ...] = ()
    named: dict[str, Inner] = {}
    when: float = 0


def problems(data: Any) -> list[Problem]:
    return [problem_of(breach) for breach in read(Outer, data)[1]]


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
        ({"rows": [None]}, "this key has no value; set one, or remove the key"),
        ({"inner": {"label": 5}}, "this must be text; put it in quotes"),
        ({"inner": {"label": []}}, "this must be text"),
        ({"when": []}, "this must be a number"),
    ],
)
def test_said(data: Any, expected: str) -> None:
    """Each finding has a sentence that says what to do."""

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
        "Outer: when: this key has no value; set one, or remove the key",
    ] == str(error).splitlines()
