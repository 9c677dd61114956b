"""The kinds of values check themselves."""

from __future__ import annotations

from typing import Any

import pytest

from memfiles.workflow.declared import read_value, shape_of
from memfiles.workflow.fields import AgentName, DeclaredText, Directory, Levelling, Name, Seconds, Uid, Url

LONG = "x" * 3000


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (DeclaredText, ["", "a\nb\x00", "é😀"]),
        (Uid, ["x", "x" * 128, "_.-"]),
        (Name, ["x", "x" * 64]),
        (AgentName, ["a", "é 😀\u200d", "@work", "x" * 255, "../x"]),
        (Directory, [".memory", "a b", "../x", "/var/x", "a/..", "./s3:/b", "x y:/z", "a/s3://b"]),
        (Url, ["s3://b/p?region=x", "file:///m", "https://u:p@host/x", "x+y.z-1://h"]),
        (Levelling, [("A",), ("PUBLIC", "a-b_c.1")]),
    ],
)
def test_good(kind: Any, good: list[Any]) -> None:
    """What is allowed is read as it is."""

    assert [(value, []) for value in good] == [read_value(shape_of(kind), value) for value in good]


def test_seconds() -> None:
    """A duration is read as seconds."""
    shape = shape_of(Seconds)

    assert [1, 10**9, 90, 300, 259200, 999999999 * 86400] == [
        read_value(shape, value)[0] for value in (1, 10**9, "90s", "5m", "72h", "999999999d")
    ]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (DeclaredText, [b"x", 5, None, "\ud800"]),
        (Uid, ["", "x" * 129, "../x", ".x", "x\n", "é", "x/y", 5]),
        (Name, ["x" * 65, "a b"]),
        (AgentName, ["", " ", "\n", "a\u2028", "x" * 256, "é" * 128, "\ud800", 5]),
        (Directory, ["", " ", ".", "./", "..", "../..", "/", "//", "~", "~/x", "a\0", "a\n", "s3:/b", "s3://b c", 5]),
        (Url, ["", "b", "://b", "s3:/b", "s3://", "s3://a b", "1s://b", "s3://\x7f", f"s3://{LONG}", 5]),
        (Levelling, [(), ("a b",), ("A",) * 33, "AB", None]),
        (
            Seconds,
            [0, -1, 10**9 + 1, 1.0, True, "", "5", "0s", "01s", "5S", "s", "1h30m", "9999999999d", "１s", None, []],
        ),
    ],
)
def test_bad(kind: Any, bad: list[Any]) -> None:
    """What is not allowed is refused."""

    assert [] == [value for value in bad if not read_value(shape_of(kind), value)[1]]
