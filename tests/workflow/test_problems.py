"""How problems are told."""

from __future__ import annotations

import pytest

from memfiles.workflow.problems import REPORTED_MAX, Problem, did_you_mean, printable, shown, spelled, workflow_error


def test_one_line_a_problem_in_the_documents_order() -> None:
    """The error holds every problem once, each with its position and path, the first one first."""
    places = {("b",): (3, 1), ("a", 0, "x"): (2, 5), (): (1, 1)}
    error = workflow_error("w.yaml", [Problem(where, "bad") for where in places], locate=lambda it: places[it.where])

    assert ["w.yaml:1:1: bad", "w.yaml:2:5: a[0].x: bad", "w.yaml:3:1: b: bad"] == str(error).splitlines()


def test_many_problems() -> None:
    """Of very many problems the first hundred are told, and how many more there are."""
    problems = [Problem(("a", index), "bad") for index in range(REPORTED_MAX + 7)]
    error = workflow_error("w", problems, locate=lambda it: (int(it.where[1]), 1))

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
        ("zzz", [f"k{index}" for index in range(11)], ""),
        ("uids", [*(f"k{index}" for index in range(2000)), "uid"], ""),
        ("u" * 65, ["u" * 64, *"abcdefghijk"], ""),
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

    assert expected == spelled(where)


@pytest.mark.parametrize(
    ("text", "expected"), [("rw", " 'rw'"), ("a b", ""), ("x" * 65, ""), (5, ""), ("a\n", ""), ("", "")]
)
def test_shown(text: object, expected: str) -> None:
    """Only what looks like an identifier is repeated in a message."""

    assert expected == shown(text)


def test_printable() -> None:
    """What could forge a line or move a cursor is written as an escape."""

    assert "a\\n\\x1b[0m\\u2028\\udc80é" == printable("a\n\x1b[0m\u2028\udc80é")
